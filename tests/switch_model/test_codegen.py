"""Shapes of programs that the generated code must not trip over."""

import pytest

from switch_model.codegen import compile_program
from tests.switch_model.support import FABRIC, PROGRAMS, forward, load


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("010703 aa", "010303 aa"),
        ("020004 aa", "020404 aa"),
        ("050009 aa", "0509ee aa"),  # a valid header without fields
        ("060109 aa", "060009 aa"),
        ("0600", "0600"),
    ],
)
def test_corners(frame: str, expected: str) -> None:
    device, _ = load("corners")
    assert forward(device, bytes.fromhex(frame)) == bytes.fromhex(expected)


def test_the_source_is_that_of_the_program_and_compiled_once() -> None:
    text = FABRIC.with_suffix(".json").read_bytes()
    compiled = compile_program(text)
    assert compile_program(bytes(bytearray(text))) is compiled
    assert "# table FabricIngress.sid.my_sid" in compiled.source
    assert "# parser state parse_inner_ipv6" in compiled.source


def test_untouched_fields_are_not_read() -> None:
    source = compile_program((PROGRAMS / "corners.json").read_bytes()).source
    assert "unused" not in source
