"""A header's layout as one table: a class whose fields' annotations are their widths, in wire order.

    @header
    class METH(Header):
        rqmsn: U16
        msn: U16

From this one description come the dataclass, `pack` and `unpack`; and, for packets too frequent to make an
object of each of their headers, `writer` and `reader`: one function for chosen fields of several headers.

Everything is big-endian, most significant bit first. The generated code moves whole words of 1, 2, 4 or 8
bytes with `struct`, and takes fields narrower than their word by shift and mask.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    NoReturn,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

Buffer = bytes | bytearray | memoryview


class Bits(NamedTuple):
    """The width of a field in bits. Signed: two's complement, a word of its own (8, 16, 32 or 64 bits)."""

    width: int
    signed: bool = False


Flag = Annotated[bool, Bits(1)]
U1 = Annotated[int, Bits(1)]
U2 = Annotated[int, Bits(2)]
U3 = Annotated[int, Bits(3)]
U4 = Annotated[int, Bits(4)]
U5 = Annotated[int, Bits(5)]
U6 = Annotated[int, Bits(6)]
U7 = Annotated[int, Bits(7)]
U8 = Annotated[int, Bits(8)]
U11 = Annotated[int, Bits(11)]
U15 = Annotated[int, Bits(15)]
U16 = Annotated[int, Bits(16)]
U20 = Annotated[int, Bits(20)]
U24 = Annotated[int, Bits(24)]
U32 = Annotated[int, Bits(32)]
U64 = Annotated[int, Bits(64)]
S16 = Annotated[int, Bits(16, signed=True)]
Octets6 = Annotated[bytes, Bits(6 * 8)]
Octets16 = Annotated[bytes, Bits(16 * 8)]
Octets26 = Annotated[bytes, Bits(26 * 8)]


class Field(NamedTuple):
    """One row of a layout."""

    header: str
    name: str
    type: type
    width: int
    signed: bool
    default: Any

    @property
    def alone(self) -> bool:
        """Whether the field is a word of its own, whatever stands beside it."""
        return self.signed or self.type is bytes

    def check(self, value: Any) -> None:
        """ValueError if `value` does not fit."""
        if self.type is bytes:
            if len(value) != self.width // 8:
                raise ValueError(f"{self.header}.{self.name}: {len(value)} bytes, not {self.width // 8}")
            return
        low = -1 << self.width - 1 if self.signed else 0
        high = low + (1 << self.width) - 1
        if not low <= value <= high:
            raise ValueError(f"{self.header}.{self.name}: {value} is not in {low}..{high}")


class Header:
    """A header of fixed size. Subclasses are layouts, which `header` completes."""

    __slots__ = ()

    LAYOUT: ClassVar[tuple[Field, ...]]
    SIZE: ClassVar[int]
    """Bytes."""

    if TYPE_CHECKING:

        def pack(self) -> bytes:
            """The header's SIZE bytes. ValueError names the header and the field whose value does not fit."""

        @classmethod
        def unpack(cls, data: Buffer, offset: int = 0) -> Self:
            """The header at `offset`. ValueError names the header if fewer than SIZE bytes are there."""


H = TypeVar("H", bound=Header)


@dataclass_transform(kw_only_default=True)
def header(layout: type[H]) -> type[H]:
    """Make a slots dataclass (keyword arguments) with LAYOUT, SIZE, `pack` and `unpack` out of a layout."""
    made: Any = dataclass(slots=True, kw_only=True)(layout)
    hints = get_type_hints(made, include_extras=True)
    rows = []
    for row in fields(made):
        kind, bits = get_args(hints[row.name])
        rows.append(Field(layout.__name__, row.name, kind, bits.width, bits.signed, row.default))
    made.LAYOUT = tuple(rows)
    made.SIZE = sum(row.width for row in rows) // 8
    made.pack = _compile_pack(made.LAYOUT)
    made.unpack = classmethod(_compile_unpack(layout.__name__, made.LAYOUT, made.SIZE))
    return made  # type: ignore[no-any-return]


Part = tuple[type[Header], str]
"""A header and the names of its chosen fields, separated by spaces."""


def writer(*parts: Part) -> Callable[..., bytes]:
    """A function from the chosen fields' values, in the order named, to the bytes of the headers.

    Fields not chosen take their defaults. The function raises ValueError as `pack` does.
    """
    chosen = _chosen(parts)
    values = {row: f"v{i}" for i, row in enumerate(chosen)}
    for row in _rows(parts):
        if row not in values and row.default is MISSING:
            raise TypeError(f"{row.header}.{row.name} has no default and must be chosen")
    return _compile_encoder(", ".join(values.values()), _rows(parts), values)


def reader(*parts: Part) -> Callable[[Buffer, int], tuple[Any, ...]]:
    """A function from data and offset to the chosen fields' values, in the order named.

    The function raises struct.error when the data ends inside the headers.
    """
    chosen = _chosen(parts)
    code, names, values = _decode(_rows(parts), chosen)
    read: Callable[[Buffer, int], tuple[Any, ...]] = _define(
        "def read(data, offset):",
        f"    {names} = unpack_from(data, offset)",
        f"    return {', '.join(values[row] for row in chosen)},",
        unpack_from=struct.Struct(code).unpack_from,
    )
    return read


def _rows(parts: Sequence[Part]) -> list[Field]:
    return [row for kind, _ in parts for row in kind.LAYOUT]


def _chosen(parts: Sequence[Part]) -> list[Field]:
    return [_row(kind, name) for kind, names in parts for name in names.split()]


def _row(kind: type[Header], name: str) -> Field:
    for row in kind.LAYOUT:
        if row.name == name:
            return row
    raise TypeError(f"{kind.__name__} has no field {name}")


# ---- generated code ---------------------------------------------------------------------------------------

_WORD_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}

Word = Sequence[Field]
"""Neighbouring fields that are moved as one integer; or one field of bytes."""


def _words(rows: Sequence[Field]) -> list[Word]:
    """Cut a layout into the smallest words on whose boundaries fields begin and end."""
    words = _cut(rows)
    if words is None:
        raise TypeError(f"{rows[0].header}: the fields do not fill words of 8, 16, 32 or 64 bits")
    return words


def _cut(rows: Sequence[Field]) -> list[Word] | None:
    if not rows:
        return []
    width = 0
    for count, row in enumerate(rows, start=1):
        if row.alone and count > 1:
            return None
        width += row.width
        if (row.alone or width in _WORD_CODES) and (rest := _cut(rows[count:])) is not None:
            return [rows[:count], *rest]
    return None


def _code(word: Word) -> str:
    """The word's format character in `struct`."""
    first = word[0]
    if first.type is bytes:
        return f"{first.width // 8}s"
    code = _WORD_CODES[sum(row.width for row in word)]
    return code.lower() if first.signed else code


def _shifts(word: Word) -> Iterator[tuple[Field, int]]:
    """Each field with the position of its least significant bit."""
    shift = sum(row.width for row in word)
    for row in word:
        shift -= row.width
        yield row, shift


def _compile_pack(layout: Sequence[Field]) -> Callable[..., bytes]:
    return _compile_encoder("self", layout, {row: f"self.{row.name}" for row in layout})


def _compile_encoder(parameters: str, rows: Sequence[Field], values: dict[Field, str]) -> Callable[..., bytes]:
    """A function of `parameters` that packs `rows`; `values`: the expressions of its variables."""
    words = _words(rows)
    unfit = [
        f"len({values[row]}) != {row.width // 8}" if row.type is bytes else f"{values[row]} > {(1 << row.width) - 1}"
        for word in words
        for row in word
        # struct checks a field that fills a word, and that nothing is negative.
        if row in values and (row.type is bytes or len(word) > 1)
    ]

    def refuse(*given: Any) -> NoReturn:
        for row, value in zip(values, given, strict=True):
            row.check(value)
        raise TypeError(f"{rows[0].header}: a value is not an integer")

    encode: Callable[..., bytes] = _define(
        f"def encode({parameters}):",
        f"    if {' or '.join(unfit) or 'False'}:",
        f"        refuse({', '.join(values.values())})",
        "    try:",
        f"        return pack({', '.join(_encode(word, values) for word in words)})",
        "    except error:",
        f"        refuse({', '.join(values.values())})",
        pack=struct.Struct(">" + "".join(map(_code, words))).pack,
        error=struct.error,
        refuse=refuse,
    )
    return encode


def _encode(word: Word, values: dict[Field, str]) -> str:
    """The expression of a word's value."""
    if word[0].type is bytes:
        return values.get(word[0]) or repr(word[0].default)
    terms = []
    for row, shift in _shifts(word):
        value = values.get(row) or str(int(row.default))
        if value != "0":
            terms.append(f"{value} << {shift}" if shift else value)
    return " | ".join(terms) or "0"


def _compile_unpack(name: str, layout: Sequence[Field], size: int) -> Callable[..., Any]:
    code, names, values = _decode(layout, layout)

    def too_short(data: Buffer, offset: int) -> NoReturn:
        raise ValueError(f"{name}: {max(0, len(data) - offset)} bytes, not {size}")

    unpack: Callable[..., Any] = _define(
        "def unpack(cls, data, offset=0):",
        "    try:",
        f"        {names} = unpack_from(data, offset)",
        "    except error:",
        "        too_short(data, offset)",
        "    self = new(cls)",
        *(f"    self.{row.name} = {value}" for row, value in values.items()),
        "    return self",
        unpack_from=struct.Struct(code).unpack_from,
        error=struct.error,
        too_short=too_short,
        new=object.__new__,
    )
    return unpack


def _decode(rows: Sequence[Field], chosen: Sequence[Field]) -> tuple[str, str, dict[Field, str]]:
    """The `struct` format, the names that its values get, and the expression of each chosen field."""
    code, names, values = ">", "", {}
    for index, word in enumerate(_words(rows)):
        width = sum(row.width for row in word)
        if not any(row in chosen for row in word):
            code += f"{width // 8}x"
            continue
        name = f"w{index}"
        code += _code(word)
        names += f"{name}, "
        for row, shift in _shifts(word):
            if row in chosen:
                values[row] = _extract(name, row, shift, width)
    return code, names, values


def _extract(name: str, row: Field, shift: int, width: int) -> str:
    """The expression of a field at `shift` in a word of `width` bits."""
    mask = (1 << row.width) - 1
    if row.type is bool:
        return f"{name} & {mask << shift:#x} != 0"
    if row.width == width:
        return name
    if shift + row.width == width:
        return f"{name} >> {shift}"
    return f"{name} >> {shift} & {mask:#x}" if shift else f"{name} & {mask:#x}"


def _define(*source: str, **names: Any) -> Any:
    """Compile one function whose globals are `names`."""
    scope: dict[str, Any] = dict(names)
    exec("\n".join(source), scope)
    return scope[source[0].removeprefix("def ").partition("(")[0]]
