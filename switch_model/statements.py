"""Python for action primitives and for the parser operations that are like them."""

from collections.abc import Callable, Sequence

from switch_model import ir
from switch_model.effects import Effects
from switch_model.expressions import Code, Scope, assigned, condition, render, truncated
from switch_model.flow import Region, Step
from switch_model.hashes import HASH_BITS
from switch_model.plan import Plan
from switch_model.pytext import Lines, Names, bare, identifier, if_else, indented
from switch_model.variables import Variables

LOCALS = (
    "action",
    "entry",
    "exiting",
    "frame",
    "head",
    "high",
    "index",
    "key",
    "layout",
    "length",
    "limit",
    "low",
    "member",
    "members",
    "n",
    "now",
    "size",
    "state",
    "tail",
    "value",
    "wire_length",
)
"""Variables of the generated functions that stand for no field."""


class Writer:
    """Writes statements; which assignments matter depends on the half of the program, ingress or egress."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.bindings: dict[str, str] = {}
        """Names that bind() gives to what the machine offers; an underscore in front tells them from variables."""
        self._names = Names((*LOCALS, "Struct", "byte", "from_bytes", "join"))
        self.variables = Variables(plan, self._names, self.bound)
        self.names = self.variables.names
        self._operands: dict[ir.Field, set[ir.Field]] = {}  # of temporaries that became expressions
        self.live = plan.front_live
        self.in_ingress = True

    def enter_egress(self) -> None:
        self.live = self.plan.back_live
        self.in_ingress = False

    def standard(self, name: str) -> str:
        """The variable of a field of standard_metadata."""
        return self.names[self.plan.standard(name)]

    def scope(
        self,
        param: Callable[[ir.Param], Code] | None = None,
        lookahead: Callable[[ir.Lookahead], Code] | None = None,
    ) -> Scope:
        return Scope(self.variables.read, param, lookahead)

    def bound(self, wish: str, value: str) -> str:
        """The name of an object of the machine that bind() fetches once."""
        base = name = f"_{identifier(wish)}"
        number = 2
        while self.bindings.setdefault(name, value) != value:
            name = f"{base}_{number}"
            number += 1
        return name

    def action(self, action: ir.Action, caller: str) -> Lines:
        """The body of an action with the arguments of `caller`, an entry or a member."""
        used: dict[int, str] = {}
        names = self._names.copy()

        def param(item: ir.Param) -> Code:
            if item.index not in used:
                used[item.index] = names.new(action.params[item.index][0])
            return Code(used[item.index], (1 << item.width) - 1)

        lines = self.statements(action.body, self.scope(param))
        if used:
            targets = [used.get(place, "_") for place in range(len(action.params))]
            lines.insert(0, f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {caller}.args")
        return lines

    def statements(self, region: Region[ir.Statement], scope: Scope) -> Lines:
        lines: Lines = []
        for place, step in enumerate(region.steps):
            if isinstance(step.node, ir.Assign) and self._is_used_soon(step.node, region.steps[place + 1 :]):
                value = assigned(render(step.node.value, scope), step.node.target)
                scope = scope.with_value(step.node.target, value)
            elif isinstance(step.node, ir.Test):
                arms = [self.statements(arm, scope) for arm in step.arms]
                lines += if_else(condition(step.node.condition, scope), *arms) if arms else []
            else:
                lines += self.statement(step.node, scope)
        return lines

    def _is_used_soon(self, temporary: ir.Assign, following: Sequence[Step[ir.Statement]]) -> bool:
        """Whether its value can stand where p4c's temporary is read: before any operand changes."""
        if temporary.target not in self.plan.temporaries:
            return False
        operands = self._effects(temporary).reads
        operands |= {item for operand in operands for item in self._operands.get(operand, ())}
        for step in following:
            effects = self._effects(step.node)
            if temporary.target in effects.reads:
                self._operands[temporary.target] = operands
                return True
            if step.arms or effects.writes & operands:
                return False
        return False

    def _effects(self, statement: ir.Statement) -> Effects:
        effects = Effects(self.plan.headers)
        effects.add(statement)
        return effects

    def statement(self, statement: ir.Statement | ir.ParserOp, scope: Scope) -> Lines:
        match statement:
            case ir.Assign(target, value):
                return self._assign(target, render(value, scope))
            case ir.SetValid(name):
                return self._set_valid(self.plan.headers[name])
            case ir.SetInvalid(name):
                return self._set_invalid(self.plan.headers[name])
            case ir.CopyHeader(copy, original):
                return self._copy_header(self.plan.headers[copy], self.plan.headers[original])
            case ir.Count(name, index):
                return self._count(name, render(index, scope))
            case ir.ReadRegister(target, name, index):
                return self._read_register(target, name, render(index, scope))
            case ir.WriteRegister(name, index, value):
                return self._write_register(name, render(index, scope), render(value, scope))
            case ir.Random(target, low, high):
                return self._random(target, render(low, scope), render(high, scope))
            case ir.Hash():
                return self._hash(statement, scope)
            case ir.Truncate(length):
                return self._truncate(render(length, scope))
            case ir.Exit():
                return ["exiting = True"]
        raise TypeError(f"{statement} has no place here")

    def _assign(self, target: ir.Field, value: Code) -> Lines:
        if target not in self.live:
            return []
        return [self.variables.assign(target, value)]

    def _truncate(self, length: Code) -> Lines:
        text = bare(length.text)
        return [f"limit = {text} if limit is None else min(limit, {text})"]

    def _set_valid(self, header: ir.Header) -> Lines:
        if header.valid not in self.live:
            return []
        valid = self.names[header.valid]
        cleared = dict.fromkeys(self.names[item] for item in header.fields if item in self.live)
        body = [f"{' = '.join(cleared)} = 0"] if cleared else []
        return [f"if not {valid}:", *indented([f"{valid} = 1", *body, *self._resize("+", header)])]

    def _set_invalid(self, header: ir.Header) -> Lines:
        if header.valid not in self.live:
            return []
        valid = self.names[header.valid]
        return [*if_else(valid, self._resize("-", header), []), f"{valid} = 0"]

    def _resize(self, sign: str, header: ir.Header) -> Lines:
        # packet_length in egress counts the headers that ingress added and removed (simple_switch, register 0).
        return [f"wire_length {sign}= {header.size}"] if self.plan.tracks_length and self.in_ingress else []

    def _copy_header(self, target: ir.Header, source: ir.Header) -> Lines:
        pairs = zip(target.fields, source.fields, strict=True)
        copies = [self.variables.assign(to, self.variables.read(of)) for to, of in pairs if to in self.live]
        lines = if_else(self.names[source.valid], copies, [])
        if target.valid in self.live:
            lines.append(f"{self.names[target.valid]} = {self.names[source.valid]}")
        return lines

    def _count(self, name: str, index: Code) -> Lines:
        wish = name.rpartition(".")[2]
        packets = self.bound(f"{wish}_packets", f"machine.counter({name!r})[0]")
        octets = self.bound(f"{wish}_bytes", f"machine.counter({name!r})[1]")
        return _indexed(
            index,
            self.plan.program.counters[name].size,
            lambda at: [f"{packets}[{at}] += 1", f"{octets}[{at}] += length"],
        )

    def _register(self, name: str) -> tuple[str, ir.Register]:
        cells = self.bound(name.rpartition(".")[2], f"machine.register({name!r})")
        return cells, self.plan.program.registers[name]

    def _read_register(self, target: ir.Field, name: str, index: Code) -> Lines:
        cells, register = self._register(name)
        if target not in self.live:
            return []
        return _indexed(index, register.size, lambda at: self._assign(target, Code(f"{cells}[{at}]", register.mask)))

    def _write_register(self, name: str, index: Code, value: Code) -> Lines:
        cells, register = self._register(name)
        text = bare(truncated(value, register.width).text)
        return _indexed(index, register.size, lambda at: [f"{cells}[{at}] = {text}"])

    def _random(self, target: ir.Field, low: Code, high: Code) -> Lines:
        uniform = self.bound("uniform", "machine.uniform")
        draw = self._assign(target, Code(f"{uniform}(low, high)", None))
        bounds = [
            f"low = {bare(truncated(low, 64).text)}",
            f"high = {bare(truncated(high, 64).text)}",
        ]
        return [*bounds, *if_else("low <= high", draw, [])] if draw else []

    def _hash(self, statement: ir.Hash, scope: Scope) -> Lines:
        if statement.target not in self.live:
            return []
        lines, hashed = self.hashed(statement.algorithm, statement.inputs, scope)
        size = truncated(render(statement.size, scope), 64)
        if not isinstance(statement.size, ir.Const):
            hashed = Code(f"({hashed.text} % ({size.text} or 1))", hashed.top)
        elif not hashed.top or hashed.top >= statement.size.value:
            hashed = Code(f"({hashed.text} % {max(statement.size.value, 1)})", hashed.top)
        if statement.base != ir.Const(0):
            base = truncated(render(statement.base, scope), 64)
            hashed = Code(f"({base.text} + {hashed.text})", None)
        return [*lines, *self._assign(statement.target, hashed)]

    def hashed(self, algorithm: str, inputs: ir.HashInputs, scope: Scope) -> tuple[Lines, Code]:
        """The hash of the inputs, and the lines that prepare it.

        BMv2 packs the inputs bit after bit, leaves out fields of invalid headers, and pads with zeros.
        """
        top = (1 << HASH_BITS[algorithm]) - 1
        function = self.bound(algorithm, f"machine.hash({algorithm!r})")
        items = [(truncated(render(expr, scope), width).text, width, expr) for expr, width in inputs]
        owners = [self.plan.headers[expr.header] for expr, _ in inputs if isinstance(expr, ir.Field)]
        if all(owner.metadata for owner in owners):
            size = (sum(width for _, width in inputs) + 7) // 8
            parts, place = [], size * 8
            for text, width, _ in items:
                place -= width
                parts.append(f"({text} << {place})" if place else text)
            packed = parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"
            if algorithm == "identity" and size <= 8:
                return [], Code(packed, (1 << size * 8) - 1)
            return [], Code(f"{function}({packed}.to_bytes({size}))", top)
        lines = ["value = size = 0"]
        for text, width, expr in items:
            append = [f"value = value << {width} | {text}", f"size += {width}"]
            header = self.plan.headers[expr.header] if isinstance(expr, ir.Field) else None
            lines += if_else(self.names[header.valid], append, []) if header and not header.metadata else append
        return lines, Code(f"{function}((value << -size % 8).to_bytes((size + 7) // 8))", top)


def _indexed(index: Code, size: int, body: Callable[[str], Lines]) -> Lines:
    """Nothing happens at an index beyond the end (BMv2, primitives.cpp)."""
    if index.top is not None and index.top < size:
        return body(index.text) if index.is_atom else [f"index = {bare(index.text)}", *body("index")]
    return [f"index = {bare(index.text)}", *if_else(f"0 <= index < {size}", body("index"), [])]
