"""What statements read and write."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from switch_model import ir


def leaves(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The operands at the bottom of `expr`."""
    if isinstance(expr, ir.Op):
        for arg in expr.args:
            yield from leaves(arg)
    else:
        yield expr


@dataclass(slots=True)
class Effects:
    """Fields read and written, and headers made valid or invalid, by a set of statements."""

    headers: dict[str, ir.Header]
    reads: set[ir.Field] = field(default_factory=set)
    writes: set[ir.Field] = field(default_factory=set)
    places: Counter[ir.Field] = field(default_factory=Counter)  # where a field is read or written
    created: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    matched: set[str] = field(default_factory=set)  # headers with a field in some match key
    statements: list[ir.Statement | ir.ParserOp] = field(default_factory=list)
    counts: bool = False  # something counts bytes

    def add_parser(self, states: Iterable[ir.ParserState]) -> None:
        for state in states:
            for op in state.ops:
                self.add(op)
            self._read(*(value for value, _ in state.key))

    def add_nodes(self, nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            if isinstance(node, ir.Conditional):
                self._read(node.condition)
                continue
            self.counts |= node.has_counters
            self._read(*(key.value for key in node.key))
            self.matched.update(key.value.header for key in node.key if isinstance(key.value, ir.Field))
            if node.profile and node.profile.selector:
                self._read_hashed(node.profile.selector.inputs)
            for action in node.actions:
                for statement in action.statements():
                    self.add(statement)

    def uses(self, kind: type[ir.Statement]) -> bool:
        return any(isinstance(statement, kind) for statement in self.statements)

    def add(self, statement: ir.Statement | ir.ParserOp) -> None:
        self.statements.append(statement)
        match statement:
            case ir.Assign(target, value):
                self._assign(target, value)
            case ir.SetValid(name):
                self.created.add(name)
                self._change_validity(name)
                self.writes.update(self.headers[name].fields)
            case ir.SetInvalid(name):
                self.removed.add(name)
                self._change_validity(name)
            case ir.CopyHeader(copy, original):
                self.created.add(copy)
                self.removed.add(copy)
                self._change_validity(copy)
                self.writes.update(self.headers[copy].fields)
                self._read(*self.headers[original].fields, self.headers[original].valid)
            case ir.Count(_, index):
                self.counts = True
                self._read(index)
            case ir.ReadRegister(target, _, index):
                self._assign(target, index)
            case ir.WriteRegister(_, index, value):
                self._read(index, value)
            case ir.Random(target, low, high):
                self._assign(target, low, high)
            case ir.Hash(target, base, _, inputs, size):
                self._assign(target, base, size)
                self._read_hashed(inputs)
            case ir.Truncate(value) | ir.Test(value):
                self._read(value)
            case ir.Verify(test, error):
                self._read(test, error)

    def _read(self, *values: ir.Expr) -> None:
        for value in values:
            for leaf in leaves(value):
                match leaf:
                    case ir.Field():
                        self._read_field(leaf)
                    case ir.Slice(whole):
                        self._read_field(whole)
                    case ir.Valid(header):
                        self._read_field(ir.validity(header))

    def _read_field(self, item: ir.Field) -> None:
        self.reads.add(item)
        self.places[item] += 1

    def _read_hashed(self, inputs: ir.HashInputs) -> None:
        values = [value for value, _ in inputs]
        owners = [self.headers[value.header] for value in values if isinstance(value, ir.Field)]
        self._read(*values, *(header.valid for header in owners if not header.metadata))

    def _assign(self, target: ir.Field, *values: ir.Expr) -> None:
        self.writes.add(target)
        self.places[target] += 1
        self._read(*values)

    def _change_validity(self, header: str) -> None:
        self.reads.add(self.headers[header].valid)
        self.writes.add(self.headers[header].valid)
