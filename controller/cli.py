"""`mrcfab topo` and `mrcfab routes`. Exit codes: 0 done, 1 a switch failed or differs, 2 bad input."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from controller.p4runtime import PIPELINE_DIR, Pipeline
from controller.path_files import write_path_files
from controller.plan import Difference, entries
from controller.push import DEFAULT_ELECTION_ID, DEFAULT_TIMEOUT, PushResult, VerifyResult, push, verify
from controller.tenants import Tenant
from controller.topology import SwitchSpec, Topology, UnknownNodeError, preset_names, preset_text
from controller.topology_checks import check_pushable
from controller.yaml_file import FileError

FAILED = 1
BAD_INPUT = 2

_SHOWN_PER_SWITCH = 5
_FILE_WIDTH = 120
"""Columns of a table that does not go to a terminal."""

R = TypeVar("R")

topo_app = typer.Typer(help="Topology files: make one, check it, look at it.", no_args_is_help=True)
routes_app = typer.Typer(help="Static routes: plan them, push them to the switches, verify them.", no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(metavar="FILE", envvar="MRCFAB_TOPOLOGY", help="The topology file.", show_default=False)
]
P4 = Annotated[Path, typer.Option("--p4", metavar="DIR", help="p4c's output: mrc_switch.json and .p4info.txtpb.")]
Timeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time a switch has for each answer.")]


@topo_app.command("new")
def topo_new(
    preset: Annotated[str, typer.Option(metavar="NAME", help=f"One of: {', '.join(preset_names())}.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Else to stdout.")] = None,
) -> None:
    """Make a topology file from a preset.

    Example: mrcfab topo new --preset demo -o demo.yaml
    """
    if preset not in preset_names():
        _fail(f"no preset {preset!r}: {', '.join(preset_names())}")
    if output is None:
        typer.echo(preset_text(preset), nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(preset_text(preset))
    except OSError as error:
        _fail(f"{output}: {error.strerror}")


@topo_app.command("check")
def topo_check(file: File) -> None:
    """Check a topology file; the first error is named with its line.

    Example: mrcfab topo check demo.yaml
    """
    with _bad_input():
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
    with _bad_input():
        topo = Topology.load(file)
    console = Console()
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    console.print(_summary(topo))
    if every:
        console.print(_switch_table(topo))
        console.print(_nic_table(topo))


@routes_app.command("plan")
def routes_plan(
    file: File,
    switch: Annotated[str | None, typer.Option(metavar="NAME", help="Only this switch's entries.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line and entry.")] = False,
    paths: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the NICs' path files, one per tenant and row.")
    ] = None,
) -> None:
    """Print the entries that the switches are to have, one per line. Nothing is sent.

    Example: mrcfab routes plan demo.yaml --switch p0t0-1
    """
    with _bad_input():
        topo = Topology.load(file)
        chosen: Iterable[SwitchSpec] = topo.switches() if switch is None else [topo.switch(switch)]
    written = 0
    for one in chosen:
        lines = list(_plan_lines(topo, one, as_json))
        sys.stdout.writelines(lines)
        written += len(lines)
    _note(_count(written, "entry", "entries"))
    if paths is not None:
        try:
            files = write_path_files(topo, paths)
        except OSError as error:
            _fail(f"{paths}: {error.strerror}")
        _note(f"{_count(len(files), 'path file')} in {paths}")


@routes_app.command("push")
def routes_push(
    file: File,
    p4: P4 = PIPELINE_DIR,
    election_id: Annotated[
        int, typer.Option(min=1, metavar="N", help="The highest of all controllers' may write.")
    ] = DEFAULT_ELECTION_ID,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Bring the switches to the plan over P4Runtime; only what differs is written.

    Example: mrcfab routes push demo.yaml
    """
    started = time.monotonic()
    results: list[PushResult] = _on_switches(
        file,
        p4,
        "pushing",
        lambda topo, pipeline, progress: push(
            topo, pipeline, election_id=election_id, answer_timeout=timeout, progress=progress
        ),
    )
    _print_grouped((error, result.switch) for result in results for error in result.errors)
    typer.echo(f"{_push_summary(results)} ({time.monotonic() - started:.1f} s)")
    raise typer.Exit(FAILED if any(result.errors for result in results) else 0)


@routes_app.command("verify")
def routes_verify(
    file: File,
    p4: P4 = PIPELINE_DIR,
    every: Annotated[bool, typer.Option("--all", help=f"More than {_SHOWN_PER_SWITCH} entries per switch.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Read the switches back and compare them with the plan, exactly. Nothing is written.

    Example: mrcfab routes verify demo.yaml
    """
    results: list[VerifyResult] = _on_switches(
        file,
        p4,
        "verifying",
        lambda topo, pipeline, progress: verify(topo, pipeline, answer_timeout=timeout, progress=progress),
    )
    _print_grouped((result.error, result.switch) for result in results if result.error)
    for result in results:
        if result.difference:
            lines = list(_difference_lines(result.difference))
            shown = lines if every else lines[:_SHOWN_PER_SWITCH]
            for line in shown:
                typer.echo(f"{result.switch}: {line}")
            if len(shown) < len(lines):
                typer.echo(f"{result.switch}: and {len(lines) - len(shown)} more")
    bad = sum(not result.ok for result in results)
    typer.echo(f"{_count(len(results) - bad, 'switch', 'switches')} as planned, {bad} not")
    raise typer.Exit(FAILED if bad else 0)


def _on_switches(
    file: Path,
    p4: Path,
    verb: str,
    work: Callable[[Topology, Pipeline, Callable[[R], None]], Coroutine[Any, Any, list[R]]],
) -> list[R]:
    """Run an operation on all switches of a topology file, with a progress bar if stderr is a terminal."""
    with _bad_input():
        topo = Topology.load(file)
        pipeline = Pipeline(p4)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(verb, total=topo.switch_count)
            return asyncio.run(work(topo, pipeline, lambda _: progress.advance(task)))


def _plan_lines(topo: Topology, switch: SwitchSpec, as_json: bool) -> Iterator[str]:
    if as_json:
        encode = json.JSONEncoder().encode
        for entry in entries(topo, switch):
            yield encode({"switch": switch.name, **entry.as_json()}) + "\n"
    else:
        for entry in entries(topo, switch):
            yield f"{switch.name}: {entry}\n"


def _push_summary(results: list[PushResult]) -> str:
    failed = sum(bool(result.errors) for result in results)
    pipelines = sum(result.pipeline_set for result in results)
    inserted = sum(result.inserted for result in results)
    modified = sum(result.modified for result in results)
    deleted = sum(result.deleted for result in results)
    unchanged = sum(result.unchanged for result in results)
    return (
        f"{_count(len(results) - failed, 'switch', 'switches')} pushed, {failed} failed; "
        f"{_count(pipelines, 'pipeline')} set; entries: "
        f"{inserted} inserted, {modified} modified, {deleted} deleted, {unchanged} unchanged"
    )


def _difference_lines(difference: Difference) -> Iterator[str]:
    for entry in difference.missing:
        yield f"missing {entry}"
    for entry in difference.extra:
        yield f"extra {entry}"
    for planned, present in difference.changed:
        yield f"changed {present}, planned {planned.action_text}"


def _print_grouped(reasons: Iterable[tuple[str, str]]) -> None:
    """Each reason once, with the switches that gave it: forty that cannot be reached are one line."""
    groups: dict[str, list[str]] = {}
    for reason, switch in reasons:
        groups.setdefault(reason, []).append(switch)
    for reason, names in groups.items():
        shown = ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"
        _note(f"{shown}: {reason}")


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


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _note(text: str) -> None:
    typer.echo(text, err=True)


def _fail(reason: str) -> NoReturn:
    _note(f"error: {reason}")
    raise typer.Exit(BAD_INPUT)


@contextmanager
def _bad_input() -> Iterator[None]:
    try:
        yield
    except (FileError, UnknownNodeError) as error:
        _fail(str(error))
