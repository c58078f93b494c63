"""Where the generated code keeps fields.

A field of metadata, or one of whole bytes, is a variable. Fields that share bytes share a variable, a word: to read one
is to shift and mask. A long field that nothing writes stays bytes until it is read.
"""

from collections.abc import Callable

from switch_model import ir
from switch_model.expressions import Code, assigned, sliced, truncated, unsigned
from switch_model.plan import STRUCT_CODES, Plan, Run
from switch_model.pytext import Lines, Names, bare


class Variables:
    """The variables of one program's fields; `bound` gives a constant of the generated code a name."""

    def __init__(self, plan: Plan, names: Names, bound: Callable[[str, str], str]) -> None:
        self._plan = plan
        self._bound = bound
        self.names: dict[ir.Field, str] = {}
        for header in plan.headers.values():
            for run in plan.runs[header.name]:
                word = names.new(f"{header.name}_word") if run.is_word else ""
                for item in run.fields:
                    self.names[item] = word or names.new(_wish(header, item))
            self.names[header.valid] = names.new(_wish(header, header.valid))

    def initial(self, item: ir.Field) -> str:
        """What a variable holds before it is set: 0, as BMv2 resets metadata."""
        if item in self._plan.lazy:
            return "None"
        return f"bytes({item.width // 8})" if item in self._plan.raw else "0"

    def read(self, expr: ir.Field | ir.Slice) -> Code:
        item, low = (expr.field, expr.low) if isinstance(expr, ir.Slice) else (expr, 0)
        name, run = self.names[item], self._plan.run_of.get(item)
        if item in self._plan.raw:
            return _read_bytes(name, item.width, low, expr.width)
        if run and run.is_word:
            code = sliced(Code(name, (1 << run.size * 8) - 1), run.shift(item) + low, expr.width)
            return assigned(code, item) if item.signed else code
        if item.signed:
            return Code(name, None)
        code = Code(name, self._plan.tops.get(item, item.mask))
        return sliced(code, low, expr.width) if isinstance(expr, ir.Slice) else code

    def assign(self, item: ir.Field, value: Code) -> str:
        """The line that assigns the value, cut to the width of the field."""
        name, run = self.names[item], self._plan.run_of.get(item)
        if not (run and run.is_word):
            return f"{name} = {bare(assigned(value, item).text)}"
        shift = run.shift(item)
        others = (1 << run.size * 8) - 1 ^ item.mask << shift
        text = truncated(value, item.width).text
        return f"{name} = {name} & {others:#x} | {f'{text} << {shift}' if shift else text}"

    def extract(self, header: str, start: int, wanted: set[ir.Field]) -> Lines:
        """Sets the variables of the wanted fields from the header that begins at `start` of head."""
        runs = [run for run in self._plan.runs[header] if wanted.intersection(run.fields)]
        if not runs:
            return []
        names = [self.names[run.fields[0]] for run in runs]
        if len(runs) == 1:
            first = start + runs[0].start
            return [f"{names[0]} = {read_head(first, runs[0].size, as_bytes=runs[0].fields[0] in self._plan.raw)}"]
        unpack = self._bound(f"unpack_{header}", f"Struct({_format(runs)!r}).unpack_from")
        lines = [f"{', '.join(names)} = {unpack}(head{f', {start}' if start else ''})"]
        for run, name in zip(runs, names, strict=True):
            item = run.fields[0]
            if run.size not in STRUCT_CODES and item not in self._plan.raw:
                lines.append(f"{name} = from_bytes({name})")
            if item.signed and not run.is_word:
                lines.append(self.assign(item, Code(name, None)))
        return lines

    def emit(self, run: Run) -> str:
        """The bytes of a run as they leave."""
        item = run.fields[0]
        text = self.names[item] if run.is_word else unsigned(self.names[item], item)
        return f"byte[{bare(text)}]" if run.size == 1 else f"{text}.to_bytes({run.size})"


def read_head(first: int, size: int, *, as_bytes: bool = False) -> str:
    """The text that reads `size` bytes at `first` of head, as a number."""
    if as_bytes:
        return f"head[{first}:{first + size}]"
    match size:
        case 1:
            return f"head[{first}]"
        case 2:
            return f"head[{first}] << 8 | head[{first + 1}]"
    return f"from_bytes(head[{first}:{first + size}])"


def _read_bytes(name: str, size: int, low: int, width: int) -> Code:
    """`width` bits of a bytes object of `size` bits, `low` bits above its last one."""
    first, last = (size - low - width) // 8, (size - low + 7) // 8
    covered = (last - first) * 8
    text = (
        f"{name}[{first}]" if covered == 8 else f"from_bytes({name if covered == size else f'{name}[{first}:{last}]'})"
    )
    return sliced(Code(text, (1 << covered) - 1), low % 8, width)


def _format(runs: list[Run]) -> str:
    """The struct format that reads these runs of a header."""
    text, end = ">", 0
    for run in runs:
        skipped = f"{run.start - end}x" if run.start > end else ""
        text += skipped + STRUCT_CODES.get(run.size, f"{run.size}s")
        end = run.start + run.size
    return text


def _wish(header: ir.Header, item: ir.Field) -> str:
    if header.name in ("standard_metadata", "scalars"):
        return item.name
    return f"{header.name}_{item.name}"
