"""`mrcfab`: the commands of every room under one name. Exit codes: 0 done, 1 failed, 2 bad input."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import asdict
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from controller.cli import routes_app, topo_app
from controller.topology import Topology
from controller.yaml_file import FileError
from fabric import counts, terminal
from fabric.compare_cli import compare
from fabric.compose import DEFAULT_SUBNET, PROJECT, compose_file
from fabric.control import ControlError
from fabric.doctor import examine
from fabric.events_cli import events_app
from fabric.kubernetes import manifests
from fabric.nodes import CPU_PORT
from fabric.run import Run
from nic_model.cli import nic_app
from nic_model.event_log import EventLog
from switch_model.cli import switch_app
from switch_model.device import Device
from switch_model.server import P4RuntimeServer

FAILED = 1
BAD_INPUT = 2

app = typer.Typer(
    help="An open, runnable MRC fabric: P4 switches, P4Runtime controller, MRC NICs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(topo_app, name="topo")
app.add_typer(routes_app, name="routes")
app.add_typer(nic_app, name="nic")
app.add_typer(events_app, name="events")
app.add_typer(switch_app)
app.command()(compare)


@app.command()
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="The scenario file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write summary.json, report.html, queue-pairs.jsonl and the capture there."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the scenario's seed.", show_default=False)] = None,
    variant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which of the scenario's variants.", show_default=False)
    ] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what each NIC decided and why, as JSON lines.")
    ] = None,
) -> None:
    """Run a scenario in virtual time: fabric up, routes pushed, work, faults, results.

    Example: mrcfab run scenarios/demo.yaml --out out/demo
    """
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        with nullcontext() if events is None else events.open("w", encoding="utf-8") as file:
            prepared = Run(scenario, seed, None if file is None else EventLog(file), variant)
            with _progress() as bar:
                task = bar.add_task(prepared.scenario.name, total=prepared.total_bytes)
                result = prepared.execute(lambda done, total: bar.update(task, completed=done, total=total), out)
        terminal.show(result, Console())
        if out is not None:
            from fabric import report  # with matplotlib, which takes a second to load

            chosen = "" if variant is None else f" --variant {variant}"
            command = f"mrcfab run {scenario}{chosen} --seed {result.seed} --out {out}"
            written = [result.save(out), report.write(out, result, prepared.samples, prepared.health, command)]
            written.append(counts.save_queue_pairs(prepared.fabric, out / "queue-pairs.jsonl"))
            typer.echo("\n".join(map(str, written)))
    except FileError as error:
        _fail(str(error), BAD_INPUT)
    except ControlError as error:
        _fail(str(error), FAILED)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), FAILED)
    raise typer.Exit(0 if result.verified else FAILED)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


@app.command()
def up(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The topology file.", show_default=False)],
) -> None:
    """Serve a topology's switches over P4Runtime until Ctrl-C, at the addresses that the file gives them.

    Example: mrcfab up demo.yaml, and in another terminal: mrcfab routes push demo.yaml
    """
    try:
        topo = Topology.load(file)
    except FileError as error:
        _fail(str(error), BAD_INPUT)
    try:
        asyncio.run(_serve(topo))
    except (OSError, RuntimeError) as error:
        _fail(f"{file}: {error}", FAILED)


@app.command("compose")
def compose(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The topology file.", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Else to stdout.")] = None,
    subnet: Annotated[str, typer.Option(metavar="NETWORK", help="For the containers' networks.")] = str(DEFAULT_SUBNET),
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Manifests for several hosts instead (docs/containers.md).")
    ] = False,
) -> None:
    """Make a compose file: a container for each switch and NIC, a network for each link, and a controller.

    Example: mrcfab compose fabric.yaml -o docker-compose.yml
    """
    place = (output.parent if output is not None else Path()).resolve()
    try:
        topo = Topology.load(file)
        if kubernetes:
            text = manifests(topo, file)
        else:
            text = compose_file(topo, _seen_from(place, file), _seen_from(place, PROJECT), IPv4Network(subnet))
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
    except (FileError, ValueError) as error:
        _fail(str(error), BAD_INPUT)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}", BAD_INPUT)


@app.command("doctor")
def doctor(
    subnet: Annotated[str, typer.Option(metavar="NETWORK", help="Of the compose file.")] = str(DEFAULT_SUBNET),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Check whether this machine can run the fabric in containers; exit code 1 if it can't.

    Example: mrcfab doctor
    """
    try:
        network = IPv4Network(subnet)
    except ValueError as error:
        _fail(str(error), BAD_INPUT)
    findings = []
    for finding in examine(network):
        findings.append(finding)
        typer.echo(json.dumps(asdict(finding)) if as_json else f"{finding.verdict:5}{finding.text}")
    raise typer.Exit(FAILED if any(finding.verdict == "bad" for finding in findings) else 0)


def _seen_from(place: Path, path: Path) -> Path:
    return Path(os.path.relpath(path.resolve(), place))


async def _serve(topo: Topology) -> None:
    devices: dict[str, list[Device]] = defaultdict(list)
    for switch in topo.switches():
        devices[switch.control.address].append(Device(switch.control.device_id, name=switch.name, cpu_port=CPU_PORT))
    servers = []
    try:
        for address, at_address in devices.items():
            server = P4RuntimeServer(at_address)
            servers.append(server)
            bound = await server.start(address)
            typer.echo(f"{bound}: {len(at_address)} switches, {at_address[0].name} to {at_address[-1].name}")
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        typer.echo("serving P4Runtime, Ctrl-C ends it")
        await stop.wait()
    finally:
        for server in servers:
            await server.stop()


def _fail(reason: str, code: int) -> NoReturn:
    typer.echo(reason, err=True)
    raise typer.Exit(code)


def main() -> None:
    """The console script."""
    app()
