"""The generator of headers: what it makes of a layout, and which layouts it refuses."""

import struct

import pytest

from nic_model.layout import S16, U3, U4, U8, U16, U24, Flag, Header, Octets6, header, reader, writer


@header
class Mixed(Header):
    kind: U8
    number: U24
    high: U4 = 0
    flag: Flag = False
    low: U3 = 5
    address: Octets6 = b"\1\2\3\4\5\6"
    offset: S16 = -2


@header
class Plain(Header):
    size: U16


MIXED = bytes.fromhex("7f 010203 05 010203040506 fffe")


def test_defaults_fill_what_is_not_given() -> None:
    assert Mixed(kind=0x7F, number=0x010203).pack() == MIXED
    assert Mixed.unpack(MIXED) == Mixed(kind=0x7F, number=0x010203, high=0, flag=False, low=5)


def test_headers_are_slotted() -> None:
    assert not hasattr(Plain(size=1), "__dict__")


def test_a_writer_takes_the_chosen_fields_in_the_order_named() -> None:
    write = writer((Mixed, "number flag kind"), (Plain, "size"))
    assert write(0x010203, True, 0x7F, 0x1234) == bytes.fromhex("7f 010203 0d 010203040506 fffe 1234")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1 << 24, 0, 0), r"Mixed\.number: 16777216 is not in 0\.\.16777215"),
        ((0, -1, 0), r"Mixed\.kind: -1 is not in 0\.\.255"),
        ((0, 0, 1 << 16), r"Plain\.size: 65536 is not in 0\.\.65535"),
    ],
)
def test_a_writer_names_the_value_that_does_not_fit(values: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        writer((Mixed, "number kind"), (Plain, "size"))(*values)


def test_a_writer_needs_every_field_without_default() -> None:
    with pytest.raises(TypeError, match=r"Mixed\.number has no default and must be chosen"):
        writer((Mixed, "kind"))


def test_a_reader_gives_the_chosen_fields_in_the_order_named() -> None:
    read = reader((Mixed, "offset low number"), (Plain, "size"))
    assert read(b"--" + MIXED + b"\x12\x34", 2) == (-2, 5, 0x010203, 0x1234)
    with pytest.raises(struct.error):
        read(MIXED + b"\x12", 0)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="Plain has no field length"):
        reader((Plain, "length"))


def test_a_value_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError, match="Plain: a value is not an integer"):
        Plain(size=1.5).pack()  # type: ignore[arg-type]


def test_a_layout_that_does_not_fill_words_is_refused() -> None:
    with pytest.raises(TypeError, match="Odd: the fields do not fill words"):

        @header
        class Odd(Header):
            first: U8
            second: U24
            third: U4


def test_a_signed_field_inside_a_word_is_refused() -> None:
    with pytest.raises(TypeError, match="Shifted: the fields do not fill words"):

        @header
        class Shifted(Header):
            first: U4
            offset: S16
            last: U4
            pad: U8
