"""What the commands share: arguments, exit codes, errors in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from controller.nic_paths import PathError
from controller.topology import UnknownNodeError
from controller.yaml_file import FileError

FAILED = 1
BAD_INPUT = 2

_FILE_WIDTH = 120
"""Columns of what does not go to a terminal."""

File = Annotated[
    Path, typer.Argument(metavar="FILE", envvar="MRCFAB_TOPOLOGY", help="The topology file.", show_default=False)
]
Switches = Annotated[
    list[str] | None, typer.Option("--switch", metavar="NAME", help="Only this switch; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON, an object per line.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also what went as planned, switch by switch.")]
P4 = Annotated[Path, typer.Option("--p4", metavar="DIR", help="p4c's output: mrc_switch.json and .p4info.txtpb.")]
ElectionId = Annotated[int, typer.Option(min=1, metavar="N", help="The highest of all controllers' may write.")]
Timeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time a switch has for each answer.")]


def count(number: int, one: str, many: str = "") -> str:
    """`1 switch`, `1,328 entries`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def note(text: str) -> None:
    """A line to stderr."""
    typer.echo(text, err=True)


def print_json(data: dict[str, Any]) -> None:
    """A JSON line to stdout."""
    typer.echo(json.dumps(data))


def console() -> Console:
    """Where tables and trees go: stdout, at a width of its own where that is no terminal."""
    out = Console()
    if not out.is_terminal:
        out.width = _FILE_WIDTH
    return out


def fail(reason: str) -> NoReturn:
    """End with one line for bad input."""
    note(f"error: {reason}")
    raise typer.Exit(BAD_INPUT)


@contextmanager
def bad_input() -> Iterator[None]:
    """What is wrong with the input ends the command."""
    try:
        yield
    except (FileError, UnknownNodeError, PathError) as error:
        fail(str(error))
