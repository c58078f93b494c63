"""The strict YAML reader: what it takes, and the one line it gives for what it does not."""

from __future__ import annotations

from ipaddress import IPv6Network
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from controller.yaml_file import Document, FileError, load


class Link(BaseModel):
    rate_gbps: Annotated[float, Field(gt=0)]
    delay_ns: int = 0


class Example(BaseModel):
    name: str
    loss: float = 0.0
    up: bool = True
    prefix: IPv6Network | None = None
    pair: tuple[str, str] | None = None
    links: dict[str, Link] = {}
    times: list[int] = []


def parse(text: str) -> Example:
    return Document.parse(text, "demo.yaml").validate(Example)


def test_scalars_follow_yaml_1_2() -> None:
    text = """
name: yes
loss: 1e-4
up: false
prefix: fd00:6d72:6300::/48
pair: [p0t0-0, p0t1-0]
links: {nic: {rate_gbps: 100}}
times: [10, 010, 0x10, 0o10]
"""
    assert parse(text) == Example(
        name="yes",
        loss=1e-4,
        up=False,
        prefix=IPv6Network("fd00:6d72:6300::/48"),
        pair=("p0t0-0", "p0t1-0"),
        links={"nic": Link(rate_gbps=100.0)},
        times=[10, 10, 16, 8],
    )


def test_a_text_that_looks_like_a_time_stays_a_text() -> None:
    assert parse("name: 12:30:45").name == "12:30:45"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nlos: 1\n", "demo.yaml:2: los: unknown key"),
        ("up: true\n", "demo.yaml:1: name: this key is missing"),
        ("name: a\nlinks:\n  nic:\n    delay_ns: 5\n", "demo.yaml:3: links.nic.rate_gbps: this key is missing"),
        (
            "name: a\nlinks:\n  nic:\n    rate_gbps: fast\n",
            'demo.yaml:4: links.nic.rate_gbps: input should be a valid number, got "fast"',
        ),
        (
            "name: a\nlinks:\n  nic: {rate_gbps: 0}\n",
            "demo.yaml:3: links.nic.rate_gbps: input should be greater than 0, got 0",
        ),
        ("name: 7\n", "demo.yaml:1: name: input should be a valid string, got 7"),
        ("name: a\nup: yes\n", 'demo.yaml:2: up: input should be a valid boolean, got "yes"'),
        ("name: a\ntimes:\n- 1\n- 2.5\n", "demo.yaml:4: times[1]: input should be a valid integer, got 2.5"),
        ("name: a\npair: [x]\n", "demo.yaml:2: pair[1]: this key is missing"),
        ("name: a\nloss: 0\nname: b\n", "demo.yaml:3: name: stands already on line 1"),
        ("name: &a b\n", "demo.yaml:1: anchors and aliases are not allowed"),
        ("name: *a\n", "demo.yaml:1: anchors and aliases are not allowed"),
        ("name: !!python/object:os.system {}\n", "demo.yaml:1: name: tag 'tag:yaml.org,2002:python/object:os.system'"),
        ("name: !!timestamp 2020-01-01\n", "demo.yaml:1: name: tag 'tag:yaml.org,2002:timestamp' is not allowed"),
        ("name: a\nloss: 1e999\n", "demo.yaml:2: loss: is too large or not a number"),
        ("name: !!int abc\n", "demo.yaml:1: name: is too large or not a number"),
        ("name: a\n? [x]\n: 1\n", "demo.yaml:2: a key must be a plain text"),
        ("name: a\n\tup: true\n", "demo.yaml:2: found character '\\t' that cannot start any token"),
        ("- a\n", "demo.yaml:1: must hold a mapping of keys to values"),
        ("", "demo.yaml:1: must hold a mapping of keys to values"),
        ("name: a\n---\nname: b\n", "demo.yaml:2: but found another document"),
        ("name: \x00\n", "demo.yaml: unacceptable character #x0000: special characters are not allowed"),
    ],
)
def test_an_error_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_of_several_errors_the_first_in_the_file_is_told() -> None:
    with pytest.raises(FileError, match=r"^demo\.yaml:2: loss: "):
        parse("name: a\nloss: x\nunknown: 1\nup: 3\n")


def test_a_semantic_error_is_placed_at_its_key_or_at_what_would_hold_it() -> None:
    document = Document.parse("name: a\nlinks:\n  nic:\n    rate_gbps: 1\n", "demo.yaml")
    assert str(document.error(("links", "nic"), "no")) == "demo.yaml:3: links.nic: no"
    assert str(document.error(("links", "fabric", "delay_ns"), "no")) == "demo.yaml:2: links.fabric.delay_ns: no"
    assert str(document.error((), "no")) == "demo.yaml:1: no"


def test_load_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\n")
    assert load(path, Example) == Example(name="a")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        load(tmp_path / "none.yaml", Example)
    assert str(caught.value) == f"{tmp_path}/none.yaml: No such file or directory"
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(FileError) as caught:
        load(binary, Example)
    assert str(caught.value) == f"{binary}: is not UTF-8 text"
