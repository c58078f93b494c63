"""`mrcfab topo`: topology files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from controller.cli.common import File, bad_input, console, fail
from controller.tenants import Tenant
from controller.topology import Topology, preset_names, preset_text
from controller.topology_checks import check_pushable
from controller.yaml_file import FileError

topo_app = typer.Typer(help="Topology files: make one, check it, look at it.", no_args_is_help=True)


@topo_app.command("new")
def topo_new(
    preset: Annotated[str, typer.Option(metavar="NAME", help=f"One of: {', '.join(preset_names())}.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Else to stdout.")] = None,
) -> None:
    """Make a topology file from a preset.

    Example: mrcfab topo new --preset demo -o demo.yaml
    """
    if preset not in preset_names():
        fail(f"no preset {preset!r}: {', '.join(preset_names())}")
    if output is None:
        typer.echo(preset_text(preset), nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(preset_text(preset))
    except OSError as error:
        fail(f"{output}: {error.strerror}")


@topo_app.command("check")
def topo_check(file: File) -> None:
    """Check a topology file; the first error is named with its line.

    Example: mrcfab topo check demo.yaml
    """
    with bad_input():
        topo = Topology.load(file)
    typer.echo(f"{file}: ok, {topo.switch_count} switches, {topo.nic_count} NICs")
    try:
        check_pushable(topo)
    except FileError as error:
        typer.echo(error)


@topo_app.command("show")
def topo_show(
    file: File, every: Annotated[bool, typer.Option("--all", help="Also every switch and every NIC port.")] = False
) -> None:
    """Show what follows from a topology file: sizes, names, addresses, uSIDs.

    Example: mrcfab topo show demo.yaml --all
    """
    with bad_input():
        topo = Topology.load(file)
    out = console()
    out.print(_summary(topo))
    if every:
        out.print(_switch_table(topo))
        out.print(_nic_table(topo))


def _summary(topo: Topology) -> Table:
    table = Table(title=topo.name, show_header=False)
    model, queues = topo.model, topo.model.queues
    local, cross = topo.planes, topo.planes * topo.t1_per_plane
    for what, value in (
        ("planes", f"{topo.planes}"),
        ("T0s", f"{topo.planes * topo.rows}, ports 1..{topo.nics_per_row} down, then {topo.t1_per_plane} up"),
        ("T1s", f"{topo.planes * topo.t1_per_plane}, ports 1..{topo.rows} down"),
        ("NICs", f"{topo.nic_count} with {topo.planes} ports, {topo.rows} rows of {topo.nics_per_row}"),
        ("links", f"{topo.planes * topo.nic_count} NIC-T0, {topo.planes * topo.rows * topo.t1_per_plane} T0-T1"),
        ("paths", f"{local} between NICs of a row, {cross} to other rows"),
        ("mode", f"{topo.mode}, SR-domain guard {'on' if model.guard else 'off'}"),
        *(("tenant", f"{tenant.name}: {tenant.block}, {_nic_ranges(tenant)}") for tenant in topo.tenants),
        ("NIC ports", f"{model.nic_prefix}, rows {topo.row_prefix(0)} .. {topo.row_prefix(topo.rows - 1)}"),
        ("switches", f"{model.switch_prefix}, P4Runtime at {model.control.address}"),
        (
            "queues",
            f"data {queues.data_packets} packets, trims {queues.trim_packets}; "
            f"marks from {queues.mark_from} to {queues.mark_to}",
        ),
        ("trim size", f"{model.trim_size} bytes"),
        ("DSCP", ", ".join(f"{role} {value}" for role, value in model.dscp)),
    ):
        table.add_row(what, value)
    return table


def _nic_ranges(tenant: Tenant) -> str:
    return ", ".join(
        f"nic{nics.start}" if len(nics) == 1 else f"nic{nics.start}..{nics.stop - 1}" for nics in tenant.nics
    )


def _switch_table(topo: Topology) -> Table:
    table = Table("switch", "uSID", "address", "MAC", "P4Runtime", "device_id", title="switches")
    for switch in topo.switches():
        address, device_id = switch.control
        table.add_row(switch.name, f"{switch.usid:04x}", str(switch.address), switch.mac, address, str(device_id))
    return table


def _nic_table(topo: Topology) -> Table:
    table = Table("NIC", "tenant", "port", "uSID", "address", "MAC", title="NIC ports")
    for nic in topo.nics():
        for port in nic.ports:
            table.add_row(nic.name, nic.tenant, str(port.plane), f"{port.usid:04x}", str(port.address), port.mac)
    return table
