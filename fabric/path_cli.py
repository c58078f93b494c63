"""`mrcfab path trace`: one path of a fabric in virtual time, hop by hop."""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.table import Table

from controller.cli.common import FAILED, Json, bad_input, console, fail, note, print_json
from controller.cli.path import Source, Target, TopologyFile, parse_ev
from controller.topology import Topology
from fabric.control import ControlError
from fabric.trace import CONTROL_LATENCY, trace


def path_trace(
    a: Source,
    b: Target,
    ev: Annotated[str, typer.Option("--ev", metavar="EV", help="The path: 32 bits, such as 0x00180000.")],
    topology: TopologyFile,
    as_json: Json = False,
) -> None:
    """Send probes with hop limits 1, 2, .. along one path and show each hop's address and the destination as it was
    received there: a uN shift shows at the next hop. The fabric is in virtual time, with the routes of the file.

    Exit codes: 0 the last probe arrived, 1 it did not, 2 bad input.

    Example: mrcfab path trace nic0 nic4 --ev 0x00180000 --topology demo.yaml
    """
    value = parse_ev(ev)
    with bad_input():
        topo = Topology.load(topology)
        try:
            hops = trace(topo, a, b, value)
        except ControlError as error:
            note(f"error: {error}")
            raise typer.Exit(FAILED) from None
        except ValueError as error:
            fail(str(error))
    if as_json:
        for hop in hops:
            print_json(hop._asdict())
    else:
        title = f"EV {value:#010x} from {a} to {b}"
        table = Table("hop limit", "node", "its address", "destination as received", title=title, box=box.SIMPLE_HEAD)
        table.add_column("us", justify="right")
        for hop in hops:
            time = "" if hop.rtt_us is None else f"{hop.rtt_us:.3f}"
            table.add_row(str(hop.hop_limit), hop.node or "*", hop.address, hop.destination, time)
        console().print(table)
        note(f"a switch's answer comes from its controller, {CONTROL_LATENCY // 1000} us after the packet")
    raise typer.Exit(0 if hops[-1].node == b else FAILED)
