"""What of a packet the generated code tracks: which fields become variables, what the deparser can copy, and what
travels from ingress to egress.

A field that is never read is not extracted. The last headers of the deparser that nothing touches are payload to
it. The other headers that a packet has, with their offsets, are its layout, a number.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from switch_model import ir
from switch_model.effects import Effects
from switch_model.errors import PipelineError, UnsupportedError
from switch_model.expressions import Code, Scope, render, sliced

MAX_PATHS = 1000
"""Parser paths are inlined one by one; a program with more of them is refused."""

STANDARD = "standard_metadata"

GIVEN_TO_INGRESS = ("ingress_port", "packet_length", "ingress_global_timestamp", "parser_error")
GIVEN_TO_EGRESS = (
    "egress_port",
    "egress_spec",
    "packet_length",
    "egress_global_timestamp",
    "deq_timedelta",
    "deq_qdepth",
)
GIVEN_BY_QUEUE = ("enq_timestamp", "enq_qdepth")
"""Fields of standard_metadata that the target sets (simple_switch.cpp)."""


STRUCT_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Unsigned integers of the struct module, by their bytes."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """Bytes [start, end) of the packet that the parser took; no header for what it skipped."""

    header: str | None
    start: int
    end: int


Layout: TypeAlias = tuple[Extracted, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes [start, end) of a header that leave as they came."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Run:
    """Whole bytes made of these fields, in order."""

    fields: tuple[ir.Field, ...]

    @property
    def start(self) -> int:
        """Bytes from the header's start."""
        return self.fields[0].offset // 8

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(item.width for item in self.fields) // 8

    @property
    def is_word(self) -> bool:
        """Whether fields share the bytes."""
        return len(self.fields) > 1

    def shift(self, item: ir.Field) -> int:
        """Bits behind a field of the run."""
        return (self.start + self.size) * 8 - item.offset - item.width


Piece: TypeAlias = Kept | Run


class Plan:
    """The plan for one program.

    Raises UnsupportedError for a parser that can't be inlined, PipelineError for a standard_metadata that is not
    v1model's.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.headers = program.headers
        self.front = Effects(self.headers)  # parser and ingress
        self.front.add_parser(program.parser.values())
        self.front.add_nodes(program.ingress.nodes())
        self.back = Effects(self.headers)  # egress
        self.back.add_nodes(program.egress.nodes())
        self.written = self.front.writes | self.back.writes
        self.created = self.front.created | self.back.created
        self.unsure = self.created | self.front.removed | self.back.removed
        """Headers of which the layout does not say whether they are valid."""
        self.touched = self.unsure | {item.header for item in self.written}
        self.runs = {header.name: _runs(header) for header in self.headers.values()}
        self.run_of = {item: run for runs in self.runs.values() for run in runs for item in run.fields}
        self.raw = {
            item
            for item, run in self.run_of.items()
            if not (run.is_word or item.signed or item in self.written or self.headers[item.header].metadata)
            and run.size not in STRUCT_CODES
        }
        """Long fields that nothing writes."""
        self.temporaries = {
            item
            for item, places in (self.front.places + self.back.places).items()
            if places == 2 and item in self.written & (self.front.reads | self.back.reads)
            if self.headers[item.header].metadata and item.header != STANDARD and not item.signed
        }
        """Metadata that is written once and read once."""
        self._plan_layouts()
        self._plan_deparser()
        self._find_live()
        self.tops = _known_tops([*self.front.statements, *self.back.statements], program)
        """The greatest values of fields that do not take all that fit their widths."""

    def standard(self, name: str) -> ir.Field:
        """A field of standard_metadata."""
        header = self.headers.get(STANDARD)
        for item in header.fields if header else ():
            if item.name == name:
                return item
        raise PipelineError(f"no field '{name}' in standard_metadata: not a v1model program")

    def _plan_layouts(self) -> None:
        paths = _parser_paths(self.program)
        self.copied = _copied_suffix(self.program.deparser, paths, self.touched)
        self.extracted = {part.header for path in paths for part in path if part.header}
        self.layouts: list[Layout] = [()]
        """By number; each is what of a path is not copied, up to some point of the path."""
        for path in paths:
            for length in range(1, len(path) + 1):
                layout = self.layout(path[:length])
                if layout not in self.layouts:
                    self.layouts.append(layout)

    def layout(self, path: Iterable[Extracted]) -> Layout:
        return tuple(part for part in path if part.header not in self.copied)

    def _plan_deparser(self) -> None:
        self.emitted = [
            name
            for name in self.program.deparser
            if name not in self.copied and (name in self.extracted or name in self.created)
        ]
        self.pieces = {
            name: _pieces(
                self.runs[name],
                set(self.headers[name].fields) if name in self.created else self.written,
            )
            for name in self.emitted
        }

    def _find_live(self) -> None:
        for effects in (self.front, self.back):
            guarded = effects.matched & self.touched
            effects.reads.update(self.headers[name].valid for name in guarded if not self.headers[name].metadata)
        reads = self.front.reads | self.back.reads
        self.lazy = {
            piece.fields[0]
            for name in self.emitted
            if name not in self.created
            for piece in self.pieces[name]
            if isinstance(piece, Run) and not piece.is_word and piece.fields[0] not in reads
        }
        """Fields that are rewritten but never read: None until they are written, so that they need no extraction."""
        deparsed = {item for pieces in self.pieces.values() for item in _rebuilt_fields(pieces)}
        deparsed |= {self.headers[name].valid for name in self.emitted if name in self.unsure}
        from_queue = {self.standard(name) for name in GIVEN_BY_QUEUE}
        to_egress = {self.standard(name) for name in GIVEN_TO_EGRESS}
        needed = self.back.reads | deparsed
        if self.standard("deq_timedelta") in needed:
            needed = needed | {self.standard("enq_timestamp")}
        if self.standard("deq_qdepth") in needed:
            needed = needed | {self.standard("priority")}
        set_in_front = {item for name in self.extracted for item in self.headers[name].fields} - self.lazy
        set_in_front |= {ir.validity(name) for name in self.extracted}
        set_in_front |= self.front.writes | from_queue | {self.standard(name) for name in GIVEN_TO_INGRESS}
        self.carried = sorted(needed & set_in_front - to_egress, key=lambda item: (item.header, item.offset, item.name))
        spec, priority = self.standard("egress_spec"), self.standard("priority")
        self.front_live = self.front.reads | set(self.carried) - from_queue | {spec, priority}
        self.back_live = needed | {spec}
        self.truncates = self.front.uses(ir.Truncate) or self.back.uses(ir.Truncate)
        packet_length = self.standard("packet_length")
        self.tracks_length = packet_length in needed and bool(self.front.created | self.front.removed)
        """Whether packet_length in egress may differ from the length on arrival."""
        self.carries_length = self.back.counts or packet_length in needed
        self.needs_length = self.front.counts or self.carries_length or packet_length in self.front.reads


def _parser_paths(program: ir.Program) -> list[Layout]:
    """Every sequence of headers that the parser can extract."""
    paths: list[Layout] = []

    def walk(name: str | None, path: Layout, end: int, trail: tuple[str, ...]) -> None:
        if name is None:
            paths.append(path)
            return
        if name in trail:
            raise UnsupportedError(f"loop through parser state '{name}'")
        if len(paths) > MAX_PATHS:
            raise UnsupportedError(f"parser with more than {MAX_PATHS} paths")
        state = program.parser[name]
        for op in state.ops:
            match op:
                case ir.Extract(header):
                    path += (Extracted(header, end, end + program.headers[header].size),)
                case ir.Advance(size):
                    path += (Extracted(None, end, end + size),)
            end = path[-1].end if path else 0
        following = [transition.next_state for transition in state.transitions]
        if all(transition.matches for transition in state.transitions):
            following.append(None)  # no transition may match
        for next_state in dict.fromkeys(following):
            walk(next_state, path, end, (*trail, name))

    walk(program.parser_start, (), 0, ())
    return paths


def _copied_suffix(order: tuple[str, ...], paths: list[Layout], touched: set[str]) -> set[str]:
    """The last headers of the deparser that leave as they came, and that on every parser path stand behind all
    others and in the deparser's order."""
    suffix: list[str] = []
    for name in reversed(order):
        if name in touched:
            break
        suffix.insert(0, name)

    def in_order(path: Layout) -> bool:
        places = [suffix.index(part.header) if part.header in suffix else -1 for part in path]
        first = next((at for at, place in enumerate(places) if place >= 0), len(places))
        return -1 not in places[first:] and all(a < b for a, b in pairwise(places[first:]))

    while suffix and not all(in_order(path) for path in paths):
        suffix.pop(0)
    return set(suffix)


def _runs(header: ir.Header) -> list[Run]:
    """The shortest runs of whole bytes; in metadata every field is one."""
    runs: list[list[ir.Field]] = [[]]
    for item in header.fields:
        runs[-1].append(item)
        if header.metadata or (item.offset + item.width) % 8 == 0:
            runs.append([])
    return [Run(tuple(run)) for run in runs if run]


def _pieces(runs: list[Run], changed: set[ir.Field]) -> list[Piece]:
    """A header that is rebuilt where a field is `changed`, kept elsewhere."""
    pieces: list[Piece] = []
    for run in runs:
        if changed.intersection(run.fields):
            pieces.append(run)
        elif pieces and isinstance(pieces[-1], Kept):
            pieces[-1] = Kept(pieces[-1].start, run.start + run.size)
        else:
            pieces.append(Kept(run.start, run.start + run.size))
    return pieces


def _rebuilt_fields(pieces: list[Piece]) -> list[ir.Field]:
    return [item for piece in pieces if isinstance(piece, Run) for item in piece.fields]


_ROUNDS = 8
"""Of narrowing, before a field that still grows gets all that fits its width."""


def _known_tops(statements: list[ir.Statement | ir.ParserOp], program: ir.Program) -> dict[ir.Field, int]:
    """The greatest values of metadata, such as p4c's 32-bit temporaries of 9-bit ports."""
    tops = {
        item: 0
        for header in program.headers.values()
        if header.metadata and header.name != STANDARD
        for item in header.fields
        if not item.signed
    }

    def read(expr: ir.Field | ir.Slice) -> Code:
        if isinstance(expr, ir.Slice):
            return sliced(read(expr.field), expr.low, expr.width)
        return Code("", None if expr.signed else tops.get(expr, expr.mask))

    scope = Scope(
        read=read,
        param=lambda param: Code("", (1 << param.width) - 1),
        lookahead=lambda item: Code("", (1 << item.width) - 1),
    )
    rounds = 0
    while True:
        before = dict(tops)
        for statement in statements:
            match statement:
                case ir.Assign(target, value) if target in tops:
                    top = render(value, scope).top
                case ir.ReadRegister(target, register, _) if target in tops:
                    top = program.registers[register].mask
                case ir.Random(target) | ir.Hash(target) if target in tops:
                    top = None
                case _:
                    continue
            grown = target.mask if top is None or top > target.mask else top
            tops[target] = max(tops[target], grown)
        growing = [item for item in tops if tops[item] != before[item]]
        if not growing:
            return tops
        rounds += 1
        if rounds >= _ROUNDS:
            tops.update((item, item.mask) for item in growing)
