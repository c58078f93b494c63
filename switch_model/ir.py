"""A v1model program as the code generator sees it: p4c's BMv2 JSON with every reference resolved.

Values are integers of unlimited precision that are cut to the field's width when they are assigned, as
BMv2 computes (behavioral-model docs/JSON_format.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from switch_model.flow import Region


@dataclass(frozen=True, slots=True)
class Field:
    """A header field or a piece of metadata. `width` and `offset` (from the header's first bit) in bits."""

    header: str
    name: str
    width: int
    offset: int
    signed: bool = False

    @property
    def path(self) -> str:
        return f"{self.header}.{self.name}"

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


def validity(header: str) -> Field:
    """The hidden validity bit of a header, under BMv2's name for it."""
    return Field(header, "$valid$", 1, 0)


@dataclass(frozen=True, slots=True)
class Header:
    """A header instance (or, for `metadata`, a struct that is always valid and never on the wire)."""

    name: str
    type_name: str
    metadata: bool
    fields: tuple[Field, ...]

    @property
    def valid(self) -> Field:
        return validity(self.name)

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return sum(f.width for f in self.fields) // 8


# Expressions


@dataclass(frozen=True, slots=True)
class Const:
    value: int


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the action, from the entry that was hit."""

    index: int
    width: int


@dataclass(frozen=True, slots=True)
class Valid:
    header: str


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Bits of the packet at `offset` bits from the parser's position."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Slice:
    """`width` bits of an unsigned field, `low` bits above its last one."""

    field: Field
    low: int
    width: int


@dataclass(frozen=True, slots=True)
class Op:
    """An operator by BMv2's name, with its operands in order (`?`: condition, then, else)."""

    name: str
    args: tuple["Expr", ...]


Expr: TypeAlias = Field | Slice | Const | Param | Valid | Lookahead | Op


# Statements: what parser operations and action primitives come down to


@dataclass(frozen=True, slots=True)
class Assign:
    target: Field
    value: Expr


@dataclass(frozen=True, slots=True)
class SetValid:
    header: str


@dataclass(frozen=True, slots=True)
class SetInvalid:
    header: str


@dataclass(frozen=True, slots=True)
class CopyHeader:
    target: str
    source: str


@dataclass(frozen=True, slots=True)
class Count:
    counter: str
    index: Expr


@dataclass(frozen=True, slots=True)
class ReadRegister:
    target: Field
    register: str
    index: Expr


@dataclass(frozen=True, slots=True)
class WriteRegister:
    register: str
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Random:
    """A uniform value of [low, high]; nothing is written when low > high."""

    target: Field
    low: Expr
    high: Expr


HashInputs: TypeAlias = tuple[tuple[Expr, int], ...]
"""(value, width in bits), in order."""


@dataclass(frozen=True, slots=True)
class Hash:
    """target = base + hash(inputs) modulo size, where size 0 counts as 1."""

    target: Field
    base: Expr
    algorithm: str
    inputs: HashInputs
    size: Expr


@dataclass(frozen=True, slots=True)
class Truncate:
    length: Expr  # bytes


@dataclass(frozen=True, slots=True)
class Exit:
    pass


@dataclass(frozen=True, slots=True)
class Test:
    """The branch of an action's `if`: first arm when true, second when false."""

    condition: Expr


Statement: TypeAlias = (
    Assign
    | SetValid
    | SetInvalid
    | CopyHeader
    | Count
    | ReadRegister
    | WriteRegister
    | Random
    | Hash
    | Truncate
    | Exit
    | Test
)


# Parser


@dataclass(frozen=True, slots=True)
class Extract:
    header: str


@dataclass(frozen=True, slots=True)
class Advance:
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Verify:
    condition: Expr
    error: Expr


ParserOp: TypeAlias = Extract | Advance | Verify | Assign | SetValid | SetInvalid | CopyHeader


@dataclass(frozen=True, slots=True)
class Transition:
    """Taken when every (value, mask) matches the select key at its place; no pairs: the default."""

    matches: tuple[tuple[int, int], ...]
    next_state: str | None


@dataclass(frozen=True, slots=True)
class ParserState:
    name: str
    ops: tuple[ParserOp, ...]
    key: tuple[tuple[Expr, int], ...]  # (value, width in bits)
    transitions: tuple[Transition, ...]


# Match-action


class MatchKind(Enum):
    """How a table compares one field of its key. An `optional` field is `ternary` to BMv2."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"


def prefix_mask(length: int, width: int) -> int:
    """The mask of a prefix of `length` bits in a field of `width` bits."""
    return ((1 << length) - 1) << (width - length)


@dataclass(frozen=True, slots=True)
class KeyField:
    name: str  # as in P4Info
    kind: MatchKind
    value: Expr
    width: int


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    params: tuple[tuple[str, int], ...]  # (name, width in bits)
    body: Region[Statement]

    def statements(self) -> Iterator[Statement]:
        return self.body.nodes()


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One of the table's actions, by its place in `Table.actions`, with its arguments."""

    action: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """An entry of the program: per key field (value, prefix length | mask | high), by kind; 0 for exact."""

    match: tuple[tuple[int, int], ...]
    priority: int  # P4Runtime's: the higher wins; 0 when the table has none
    call: ActionCall


@dataclass(frozen=True, slots=True)
class Selector:
    """Picks a member of a group by a hash."""

    algorithm: str
    inputs: HashInputs


@dataclass(frozen=True, slots=True)
class Profile:
    """An action profile: what the entries of its tables do. With a selector it has groups, else members only."""

    name: str
    selector: Selector | None


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    match_type: MatchKind
    key: tuple[KeyField, ...]
    actions: tuple[Action, ...]
    profile: Profile | None
    default: ActionCall  # beyond `actions` where a miss does nothing: in tables with a profile
    default_is_const: bool
    size: int  # entries
    has_counters: bool
    const_entries: tuple[ConstEntry, ...]
    is_const: bool
    by_hit: bool  # the next node depends on hit (arm 0) or miss (arm 1), else on the action's place, or no action

    @property
    def uses_priority(self) -> bool:
        return self.match_type in (MatchKind.TERNARY, MatchKind.RANGE)


@dataclass(frozen=True, slots=True)
class Conditional:
    name: str
    condition: Expr


Node: TypeAlias = Table | Conditional


@dataclass(frozen=True, slots=True)
class Register:
    name: str
    size: int  # cells
    width: int  # bits

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


@dataclass(frozen=True, slots=True)
class Counter:
    name: str
    size: int  # cells


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that one BMv2 JSON says, as far as it is supported."""

    headers: dict[str, Header]
    errors: dict[str, int]
    parser_start: str
    parser: dict[str, ParserState]
    ingress: Region[Node]
    egress: Region[Node]
    deparser: tuple[str, ...]  # headers in the order of emission
    counters: dict[str, Counter]
    registers: dict[str, Register]
    profiles: dict[str, Profile]
    tables: dict[str, Table]
