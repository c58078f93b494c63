"""`mrcfab path`: which ways lead from one NIC to another, and which EV is which."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from controller.cli.common import Json, bad_input, console, fail, print_json
from controller.nic_paths import NicPath, path_of_ev, paths
from controller.topology import Topology, address_text

path_app = typer.Typer(help="The paths between two NICs: list them, find an EV's, trace one.", no_args_is_help=True)

TopologyFile = Annotated[
    Path,
    typer.Option("-t", "--topology", metavar="FILE", envvar="MRCFAB_TOPOLOGY", help="The topology file."),
]
Source = Annotated[str, typer.Argument(metavar="A", help="The NIC that sends.", show_default=False)]
Target = Annotated[str, typer.Argument(metavar="B", help="The NIC that receives.", show_default=False)]

_EV_BITS = 32


def parse_ev(text: str) -> int:
    """A 32-bit EV as a person writes it, such as 0x00180000. Anything else ends the command."""
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << _EV_BITS:
        fail(f"{text!r} is not a 32-bit EV, such as 0x00180000")
    return value


Ev = Annotated[str, typer.Argument(metavar="EV", help="32 bits, such as 0x00180000.", show_default=False)]


@path_app.command("show")
def path_show(a: Source, b: Target, topology: TopologyFile, as_json: Json = False) -> None:
    """List every path from one NIC to another: its EV, its uSIDs, the links it takes.

    Exit codes: 0 listed, 2 bad input.

    Example: mrcfab path show nic0 nic4 --topology demo.yaml
    """
    with bad_input():
        found = list(paths(Topology.load(topology), a, b))
    if as_json:
        for path in found:
            print_json(_record(path))
    else:
        console().print(_table(f"{len(found)} paths from {a} to {b}", found))


@path_app.command("of-ev")
def path_of(a: Source, b: Target, ev: Ev, topology: TopologyFile, as_json: Json = False) -> None:
    """Tell which path an EV is from one NIC to another.

    Exit codes: 0 told, 2 bad input, such as an EV that is no path between them.

    Example: mrcfab path of-ev nic0 nic4 0x00180000 --topology demo.yaml
    """
    value = parse_ev(ev)
    with bad_input():
        path = path_of_ev(Topology.load(topology), a, b, value)
    if as_json:
        print_json(_record(path))
    else:
        console().print(_table(f"EV {value:#010x} from {a} to {b}", [path]))


def _record(path: NicPath) -> dict[str, Any]:
    return {
        "plane": path.plane,
        "uplink": path.uplink,
        "ev": f"{path.ev:#010x}",
        "outer_da": _address(path),
        "usids": [f"{usid:04x}" for usid in path.usids],
        "nodes": list(path.nodes),
        "links": [list(link) for link in path.links],
    }


def _table(title: str, found: list[NicPath]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, title_justify="left")
    for heading in ("plane", "uplink"):
        table.add_column(heading, justify="right")
    for heading in ("EV", "uSIDs", "outer destination", "path"):
        table.add_column(heading)
    for path in found:
        table.add_row(
            str(path.plane),
            "-" if path.uplink is None else str(path.uplink),
            f"{path.ev:#010x}",
            " ".join(f"{usid:04x}" for usid in path.usids),
            _address(path),
            " - ".join(path.nodes),
        )
    return table


def _address(path: NicPath) -> str:
    return address_text(int.from_bytes(path.outer_da, "big"))
