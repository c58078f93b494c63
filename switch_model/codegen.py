"""Compiles a BMv2 JSON to the source of two Python functions.

    ingress(port, (head, tail), now)   parser, ingress pipeline, enqueue
    egress(port, state, now)           egress pipeline, deparser

Header fields and metadata are local variables, parser states and actions are inlined where they are entered, and
what egress still needs travels through the queue in one tuple. The text is meant to be read: `Compiled.source`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from switch_model import ir
from switch_model.assignment import read_before_set
from switch_model.bmv2_json import DROP_PORT, read_program
from switch_model.effects import leaves
from switch_model.errors import UnsupportedError
from switch_model.expressions import Code, Scope, condition, render, sliced, truncated, unsigned
from switch_model.flow import Region
from switch_model.plan import Extracted, Kept, Layout, Plan
from switch_model.pytext import Lines, bare, chain, dispatch, if_else, indented, packed
from switch_model.statements import Writer
from switch_model.traffic import DROPPED
from switch_model.variables import read_head

Frame: TypeAlias = tuple[bytes, bytes]
"""A frame without FCS in two parts: its bytes are head + tail. The headers stand in head, or at least begin there."""

State: TypeAlias = tuple[Any, ...]
"""What a packet carries through the queue; only the generated code knows what it means."""

Ingress: TypeAlias = Callable[[int, Frame, int], int]
Egress: TypeAlias = Callable[[int, State, int], Frame | None]


class Machine(Protocol):
    """What the generated code works on."""

    enqueue: Callable[[int, int, State], int]
    depth: Callable[[int, int], int]

    def find(self, table: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]: ...
    def default_entry(self, table: str) -> Any: ...
    def counter(self, name: str) -> tuple[list[int], list[int]]: ...
    def register(self, name: str) -> list[int]: ...
    def uniform(self, low: int, high: int) -> int: ...
    def hash(self, algorithm: str) -> Callable[[bytes], int]: ...


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program ready to be bound to any number of devices."""

    program: ir.Program
    source: str
    bind: Callable[[Machine], tuple[Ingress, Egress]]


@lru_cache(maxsize=64)
def compile_program(text: bytes) -> Compiled:
    """Compiles p4c's BMv2 JSON; the result is shared by all devices that load the same text.

    Raises UnsupportedError naming a construct outside the subset, PipelineError for what is no BMv2 JSON.
    """
    program = read_program(text)
    namespace: dict[str, Any] = {}
    try:
        source = _Generator(Plan(program)).source()
        exec(compile(source, "<p4>", "exec"), namespace)
    except IndentationError as error:
        if "too many levels" not in error.msg:
            raise
        raise UnsupportedError("control flow nested more than 100 levels deep") from None
    return Compiled(program, source, namespace["bind"])


class _Generator:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.program = plan.program
        self.writer = Writer(plan)
        self.variables = self.writer.variables
        self.names = self.variables.names
        self.state = [
            "head",
            "tail",
            *(["wire_length"] if plan.tracks_length else []),
            *(["length"] if plan.carries_length else []),
            *(["layout"] if len(plan.layouts) > 1 else []),
            *(["limit"] if plan.front.uses(ir.Truncate) else []),
            *dict.fromkeys(self.names[item] for item in plan.carried),
        ]

    def source(self) -> str:
        ingress = self._ingress()
        self.writer.enter_egress()
        egress = self._egress()
        bindings = [f"{name} = {value}" for name, value in self.writer.bindings.items()]
        lines = [
            "# Generated from a BMv2 JSON by switch_model.codegen.",
            "from struct import Struct",
            "",
            "from_bytes = int.from_bytes",
            'join = b"".join',
            "byte = tuple(bytes((value,)) for value in range(256))",
            "",
            "",
            "def bind(machine):",
            *indented([*bindings, "", *ingress, "", *egress, "", "return ingress, egress"]),
            "",
        ]
        return "\n".join(line.rstrip() for line in lines)

    # The two functions

    def _ingress(self) -> Lines:
        standard, live = self.plan.standard, self.plan.front_live
        body = ["head, tail = frame", "n = len(head)"]
        body += ["length = n + len(tail)"] if self.plan.needs_length else []
        body += ["wire_length = length"] if self.plan.tracks_length else []
        body += ["limit = None"] if self.plan.front.uses(ir.Truncate) else []
        given = {
            standard("packet_length"): "length",
            standard("ingress_global_timestamp"): _microseconds(standard("ingress_global_timestamp")),
        }
        body += [f"{self.names[item]} = {value}" for item, value in given.items() if item in live]
        body += ["layout = 0"] if len(self.plan.layouts) > 1 else []
        body += self._parser_state(self.program.parser_start, ())
        body += ["# ingress", *self._pipeline(self.program.ingress)]
        body += self._enqueue()
        return self._function("ingress", (self.writer.standard("ingress_port"), "frame", "now"), body)

    def _function(self, name: str, params: tuple[str, ...], body: Lines) -> Lines:
        """The definition; what the body may read before it sets it is set to its initial value first."""
        unset = read_before_set(body, params)
        initial: dict[str, list[str]] = defaultdict(list)
        for item, variable in self.names.items():
            if variable in unset:
                initial[self.variables.initial(item)].append(variable)
        lines = [f"{' = '.join(dict.fromkeys(names))} = {value}" for value, names in initial.items()]
        return [f"def {name}({', '.join(params)}):", *indented([*lines, *body])]

    def _enqueue(self) -> Lines:
        spec, priority = self.writer.standard("egress_spec"), self.writer.standard("priority")
        lines = ["# traffic manager", f"if {spec} == {DROP_PORT}:", f"    return {DROPPED}"]
        timestamp, depth = self.plan.standard("enq_timestamp"), self.plan.standard("enq_qdepth")
        if timestamp in self.plan.carried:
            lines.append(f"{self.names[timestamp]} = {_microseconds(timestamp)}")
        if depth in self.plan.carried:
            function = self.writer.bound("depth", "machine.depth")
            lines.append(f"{self.names[depth]} = {function}({spec}, {priority})")
        enqueue = self.writer.bound("enqueue", "machine.enqueue")
        return [*lines, f"return {enqueue}({spec}, {priority}, {packed(self.state)})"]

    def _egress(self) -> Lines:
        plan, standard, names = self.plan, self.plan.standard, self.names
        port = self.writer.standard("egress_port")
        timedelta = standard("deq_timedelta")
        given = {
            standard("packet_length"): "wire_length" if plan.tracks_length else "length",
            standard("egress_global_timestamp"): _microseconds(standard("egress_global_timestamp")),
            timedelta: f"(now // 1000 - {self.writer.standard('enq_timestamp')}) & {timedelta.mask:#x}",
            standard("egress_spec"): "0",
        }
        if standard("deq_qdepth") in plan.back_live:
            depth = self.writer.bound("depth", "machine.depth")
            given[standard("deq_qdepth")] = f"{depth}({port}, {self.writer.standard('priority')})"
        used = plan.back.reads | plan.back.writes
        body = [f"{', '.join(self.state)} = state"]
        body += ["limit = None"] if plan.truncates and not plan.front.uses(ir.Truncate) else []
        body += [f"{names[item]} = {value}" for item, value in given.items() if item in used]
        body += ["# egress", *self._pipeline(self.program.egress)]
        if standard("egress_spec") in plan.back.writes:
            body += [f"if {self.writer.standard('egress_spec')} == {DROP_PORT}:", "    return None"]
        body += ["# deparser", *self._deparser()]
        return self._function("egress", (port, "state", "now"), body)

    # Parser

    def _parser_state(self, name: str | None, path: Layout) -> Lines:
        if name is None:
            return []
        state = self.program.parser[name]
        lines = self._parser_ops(state, state.ops, path)
        return [f"# parser state {name}", *lines] if lines else []

    def _parser_ops(self, state: ir.ParserState, ops: tuple[ir.ParserOp, ...], path: Layout) -> Lines:
        """The operations `ops`, and nested in their checks all that follows."""
        if not ops:
            return self._select(state, path)
        op, following = ops[0], ops[1:]
        start = path[-1].end if path else 0
        if isinstance(op, (ir.Extract, ir.Advance)):
            header = op.header if isinstance(op, ir.Extract) else None
            size = self.plan.headers[op.header].size if isinstance(op, ir.Extract) else op.size
            path = (*path, Extracted(header, start, start + size))
            body = [*self._extract(path), *self._parser_ops(state, following, path)]
            return self._if_long_enough(start + size, body)
        body = self._parser_ops(state, following, path)
        scope = self._parser_scope(start)
        if isinstance(op, ir.Verify):
            failed = self._parser_error(render(op.error, scope).text)
            return if_else(condition(op.condition, scope), body, failed)
        body = [*self.writer.statement(op, scope), *body]
        return self._looking_ahead([op.value], start, body) if isinstance(op, ir.Assign) else body

    def _parser_error(self, code: str) -> Lines:
        item = self.plan.standard("parser_error")
        return [f"{self.names[item]} = {code}"] if item in self.plan.front_live else []

    def _if_long_enough(self, end: int, body: Lines) -> Lines:
        too_short = self._parser_error(str(self.program.errors["PacketTooShort"]))
        return [
            f"if n < {end} and tail:",
            *indented(["head += tail", 'tail = b""', "n = len(head)"]),
            *(chain([(f"n >= {end}", body)], too_short) if body else if_else(f"n < {end}", too_short, [])),
        ]

    def _looking_ahead(self, values: Iterable[ir.Expr], start: int, body: Lines) -> Lines:
        items = [leaf for value in values for leaf in leaves(value) if isinstance(leaf, ir.Lookahead)]
        if not items:
            return body
        bits = max(item.offset + item.width for item in items)
        return self._if_long_enough(start + (bits + 7) // 8, body)

    def _parser_scope(self, start: int) -> Scope:
        def lookahead(item: ir.Lookahead) -> Code:
            return _read_bits(start * 8 + item.offset, item.width)

        return self.writer.scope(lookahead=lookahead)

    def _extract(self, path: Layout) -> Lines:
        """Reads the fields of the header that `path` ends with."""
        header, start = path[-1].header, path[-1].start
        lines: Lines = []
        if header:
            lines += self.variables.extract(header, start, self.plan.front_live - self.plan.lazy)
            valid = ir.validity(header)
            lines += [f"{self.names[valid]} = 1"] if valid in self.plan.front_live else []
        if header not in self.plan.copied:
            lines.append(f"layout = {self.plan.layouts.index(self.plan.layout(path))}")
        return lines

    def _select(self, state: ir.ParserState, path: Layout) -> Lines:
        start = path[-1].end if path else 0
        scope = self._parser_scope(start)
        keys = [(render(value, scope).text, width) for value, width in state.key]
        arms: list[tuple[str, Lines]] = []
        default: str | None = None
        for transition in state.transitions:
            if not transition.matches:
                default = transition.next_state
                continue
            tests = [
                _masked_test(key, width, *match) for (key, width), match in zip(keys, transition.matches, strict=True)
            ]
            test = " and ".join(filter(None, tests)) or "True"
            arms.append((test, self._parser_state(transition.next_state, path)))
        lines = chain(arms, self._parser_state(default, path))
        return self._looking_ahead([value for value, _ in state.key], start, lines)

    # Pipelines

    def _pipeline(self, region: Region[ir.Node]) -> Lines:
        lines = self._nodes(region)
        if "break" not in (line.strip() for line in lines):
            return lines
        return ["exiting = False", "while True:", *indented([*lines, "break"])]

    def _nodes(self, region: Region[ir.Node]) -> Lines:
        lines: Lines = []
        for step in region.steps:
            arms = [self._nodes(arm) for arm in step.arms]
            if isinstance(step.node, ir.Table):
                lines += self._table(step.node, arms)
            elif arms:
                lines += if_else(condition(step.node.condition, self.writer.scope()), *arms)
        return lines

    def _table(self, table: ir.Table, arms: list[Lines]) -> Lines:
        if not table.key and table.default_is_const:
            return self._const_call(table, arms)
        lines = [f"# table {table.name}", *self._entry(table)]
        caller = "member" if table.profile else "entry"
        bodies = [[*self.writer.action(action, caller), *_leave_if_exiting(action)] for action in table.actions]
        bodies += [[]] if table.profile else []  # a miss does nothing
        if arms and not table.by_hit:
            bodies = [[*body, *after] for body, after in zip(bodies, arms, strict=True)]
        lines += dispatch(f"{caller}.action", bodies)
        return lines + (if_else("entry.hit", *arms) if arms and table.by_hit else [])

    def _entry(self, table: ir.Table) -> Lines:
        """Looks `entry` up, and `member` in a table with a profile."""
        wish = table.name.rpartition(".")[2]
        default = f"machine.default_entry({table.name!r})"
        if not table.key:
            return [f"entry = {self.writer.bound(f'{wish}_default', default)}"]
        find = self.writer.bound(f"{wish}_find", f"machine.find({table.name!r})[0]")
        miss = self.writer.bound(f"{wish}_miss", f"machine.find({table.name!r})[1]")
        values = [self._key_value(item) for item in table.key]
        key = values[0] if len(values) == 1 else packed(values)
        lines = [f"key = {key}"]
        if key.isidentifier():
            lines = []
        else:
            key = "key"
        lines.append(f"entry = {find}({key}) or {miss}({key})")
        if table.profile and table.profile.selector:
            # An empty group counts as a miss; BMv2 has no next node then and spins.
            lines += ["if not entry.members:", f"    entry = {self.writer.bound(f'{wish}_default', default)}"]
        lines += ["entry.packets += 1", "entry.bytes += length"] if table.has_counters else []
        return [*lines, *self._member(table.profile)] if table.profile else lines

    def _member(self, profile: ir.Profile) -> Lines:
        if profile.selector is None:
            return ["member = entry.members[0]"]
        lines, code = self.writer.hashed(profile.selector.algorithm, profile.selector.inputs, self.writer.scope())
        code = truncated(code, 32)  # BMv2's hash_t is an unsigned int
        return [*lines, "members = entry.members", f"member = members[{code.text} % len(members)]"]

    def _key_value(self, item: ir.KeyField) -> str:
        text = render(item.value, self.writer.scope()).text
        if not isinstance(item.value, ir.Field):
            return text
        text = unsigned(text, item.value)
        header = self.plan.headers[item.value.header]
        if header.metadata or header.name not in self.plan.touched or item.value == header.valid:
            return text
        # A field of an invalid header counts as 0 in a match key (BMv2, MatchKeyBuilder).
        return f"{text} if {self.names[header.valid]} else 0"

    def _const_call(self, table: ir.Table, arms: list[Lines]) -> Lines:
        """A table without a key whose default action is constant: p4c's form of statements in a control."""
        call = table.default
        action = table.actions[call.action]

        def argument(param: ir.Param) -> Code:
            return render(ir.Const(call.args[param.index]), self.writer.scope())

        lines = self.writer.statements(action.body, self.writer.scope(argument))
        lines += _leave_if_exiting(action)
        return lines + (arms[1 if table.by_hit else call.action] if arms else [])

    # Deparser

    def _deparser(self) -> Lines:
        numbered = sorted(enumerate(self.plan.layouts), key=lambda item: -len(item[1]))
        arms = [(f"layout == {number}", self._emit(layout)) for number, layout in numbered]
        lines = chain(arms[:-1], arms[-1][1])
        if not self.plan.truncates:
            return lines
        return [
            *lines,
            "if limit is None:",
            "    return head, tail",
            "if limit == 0:",
            "    return None",
            "return head[:limit], tail[: max(limit - len(head), 0)]",
        ]

    def _emit(self, layout: Layout) -> Lines:
        """The frame of a packet with these headers."""
        parts: list[Kept | str] = []
        found = {part.header: part for part in layout}
        for name in self.plan.emitted:
            pieces = self._header(name, found.get(name))
            if pieces and name in self.plan.unsure:
                valid = self.names[self.plan.headers[name].valid]
                parts.append(f'({_joined(_merged(pieces))} if {valid} else b"")')
            else:
                parts += pieces
        parts.append(Kept(layout[-1].end if layout else 0, _TO_THE_END))
        text = _joined(_merged(parts))
        if self.plan.truncates:
            return [f"head = {bare(text)}"] if text != "head" else ["pass"]
        return [f"return {text}, tail"]

    def _header(self, name: str, found: Extracted | None) -> list[Kept | str]:
        """The bytes of a header: text, or Kept for bytes of the packet."""
        if found is None and name not in self.plan.created:
            return []
        start = found.start if found else 0
        parts: list[Kept | str] = []
        for piece in self.plan.pieces[name]:
            if isinstance(piece, Kept):
                parts.append(Kept(start + piece.start, start + piece.end))
                continue
            text = self.variables.emit(piece)
            if piece.fields[0] in self.plan.lazy:
                at = start + piece.start
                variable = self.names[piece.fields[0]]
                text = f"(head[{at}:{at + piece.size}] if {variable} is None else {text})"
            parts.append(text)
        return parts


_TO_THE_END = 1 << 30
"""The end of a slice that has none."""


def _microseconds(field: ir.Field) -> str:
    return f"now // 1000 & {field.mask:#x}"


def _read_bits(offset: int, width: int) -> Code:
    """`width` bits at `offset` bits of head."""
    first, last = offset // 8, (offset + width + 7) // 8
    code = Code(f"({read_head(first, last - first)})", (1 << (last - first) * 8) - 1)
    return sliced(code, last * 8 - offset - width, width)


def _masked_test(key: str, width: int, value: int, mask: int) -> str:
    """The test of one field of a select key; empty if every value matches."""
    if mask == 0:
        return ""
    return f"{key} == {value:#x}" if mask == (1 << width) - 1 else f"{key} & {mask:#x} == {value:#x}"


def _leave_if_exiting(action: ir.Action) -> Lines:
    """BMv2 looks at the exit flag between two nodes: an action that exits runs to its end."""
    exits = any(isinstance(statement, ir.Exit) for statement in action.statements())
    return ["if exiting:", "    break"] if exits else []


def _merged(parts: list[Kept | str]) -> list[str]:
    """The parts as text, with adjacent slices of the packet as one."""
    merged: list[Kept | str] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Kept) and isinstance(last, Kept) and part.start == last.end:
            merged[-1] = Kept(last.start, part.end)
        else:
            merged.append(part)
    return [part if isinstance(part, str) else _slice(part) for part in merged]


def _slice(part: Kept) -> str:
    start, end = part.start or "", "" if part.end == _TO_THE_END else part.end
    return "head" if start == end == "" else f"head[{start}:{end}]"


def _joined(parts: list[str]) -> str:
    return " + ".join(parts) if len(parts) < 3 else f"join(({', '.join(parts)}))"
