"""`mrcfab nic`: a NIC on real interfaces. Exit codes: 0 done and right, 1 something failed, 2 bad input."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nic_model.drivers.client import PathResult, WriteResult, probe, write
from nic_model.drivers.control import Channel, ControlError, Describe, Description, HostPort
from nic_model.drivers.host import Host, HostError
from nic_model.drivers.interface import Interface, InterfaceError, find
from nic_model.drivers.profile import BMV2, PROFILES, Profile
from nic_model.drivers.raw import RawDriver, event_loop, raw_ports
from nic_model.drivers.serve import Server, SessionResult
from nic_model.nic import Nic
from nic_model.paths import PathFile, PathFileError

FAILED = 1
BAD_INPUT = 2
PATH_MTUS = (256, 512, 1024, 2048, 4096)
_FILE_WIDTH = 120
"""Columns of a table that does not go to a terminal."""
_EVENTS_SHOWN = 20
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

T = TypeVar("T")

nic_app = typer.Typer(help="A NIC on real interfaces: serve memory, write to it, probe paths.", no_args_is_help=True)

Paths = Annotated[
    Path, typer.Option("--paths", metavar="FILE", help="The path file of the NIC's row.", show_default=False)
]
Name = Annotated[str, typer.Option("--name", metavar="NIC", help="Its name there.", show_default=False)]
Ports = Annotated[
    list[str] | None,
    typer.Option(
        "--port",
        metavar="PLANE=INTERFACE",
        help="Where a port is: an interface's name, MAC address or IP address. Else the one with the port's MAC.",
    ),
]
ProfileName = Annotated[str, typer.Option("--profile", metavar="NAME", help=f"One of: {', '.join(PROFILES)}.")]
PathMtu = Annotated[int, typer.Option("--path-mtu", metavar="BYTES", help="Payload of a packet: 256 to 4096.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Timeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For all of it; then it has failed.")]


@dataclass(frozen=True, slots=True)
class _Setup:
    """A NIC with its interfaces, checked, before anything is opened."""

    nic: Nic
    interfaces: list[Interface]
    profile: Profile
    path_mtu: int

    def driver(self) -> RawDriver:
        """Inside the loop. Raises InterfaceError."""
        return RawDriver(self.nic, raw_ports(self.nic, self.interfaces, self.profile, self.path_mtu))

    def host(self, driver: RawDriver) -> Host:
        """The application of the driven NIC."""
        return Host(driver, self.profile, self.path_mtu)


@nic_app.command("serve")
def nic_serve(
    paths: Paths,
    name: Name,
    port: Ports = None,
    memory: Annotated[str, typer.Option(metavar="BYTES", help="For all peers together, such as 64MiB.")] = "64MiB",
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="The control address.")] = "127.0.0.1:4790",
    profile: ProfileName = BMV2.name,
    path_mtu: PathMtu = 4096,
    as_json: AsJson = False,
) -> None:
    """Run a NIC that others may write to, until Ctrl-C. Whoever reaches the control address may do so.

    Example: mrcfab nic serve --paths paths/row-1.jsonl --name nic2 --port 0=eth0 --port 1=eth1
    """
    with _errors(BAD_INPUT):
        setup = _set_up(paths, name, port or [], profile, path_mtu)
        size, address = _bytes(memory), HostPort.parse(listen)
    _run(_serve(setup, size, address, as_json))


async def _serve(setup: _Setup, memory: int, address: HostPort, as_json: bool) -> None:
    def on_session(result: SessionResult) -> None:
        _say(
            as_json,
            {"event": "session", **asdict(result)},
            f"{result.peer} wrote {result.payload_bytes:,} bytes in {result.packets:,} packets "
            f"({result.duplicates:,} duplicates, {result.trimmed:,} trimmed)",
        )

    with setup.driver() as driver:
        server = await Server(setup.host(driver), memory, on_session).listen(address)
        control = str(HostPort(*server.sockets[0].getsockname()[:2]))
        ports = [{"plane": port.plane, "interface": port.interface.name, "up": port.is_open} for port in driver.ports]
        where = ", ".join(f"{port['interface']}{'' if port['up'] else ' (down)'}" for port in ports)
        _say(
            as_json,
            {"event": "ready", "nic": setup.nic.name, "control": control, "ports": ports},
            f"{setup.nic.name} on {where}; control address {control}; Ctrl-C ends it",
        )
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:  # by a signal
            server.close()
        counts = _untaken(driver)
        _say(as_json, {"event": "end", "untaken": counts}, _untaken_text(counts))


@nic_app.command("write")
def nic_write(
    arguments: Annotated[
        list[str], typer.Argument(metavar="[FILE] PEER", help="A file, and the peer's control address.")
    ],
    paths: Paths,
    name: Name,
    port: Ports = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Instead of a file: so many, such as 10MB, that count up.")
    ] = None,
    timeout: Timeout = 60.0,
    profile: ProfileName = BMV2.name,
    path_mtu: PathMtu = 4096,
    as_json: AsJson = False,
) -> None:
    """Write a file, or a pattern, into the memory of a NIC that serves, and compare checksums.

    Examples: mrcfab nic write model.bin nic2:4790 --paths paths/row-0.jsonl --name nic0 --port 0=eth0 --port 1=eth1;
    mrcfab nic write --pattern 10MB nic2:4790 --paths paths/row-0.jsonl --name nic0
    """
    with _errors(BAD_INPUT):
        if len(arguments) != (1 if pattern is not None else 2):
            raise ValueError("give FILE PEER, or --pattern BYTES PEER")
        address = HostPort.parse(arguments[-1])
        setup = _set_up(paths, name, port or [], profile, path_mtu)
        data = _load(Path(arguments[0])) if pattern is None else _pattern(_bytes(pattern))
    with Progress(
        TextColumn("writing"), BarColumn(), DownloadColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        task = bar.add_task("writing", total=len(data))
        result, untaken = _run(_write(setup, address, data, timeout, lambda done: bar.update(task, completed=done)))
    if as_json:
        typer.echo(json.dumps(_write_record(result, untaken)))
    else:
        _show_write(result, untaken)
    raise typer.Exit(0 if result.verified else FAILED)


async def _write(
    setup: _Setup, address: HostPort, data: bytearray, seconds: float, progress: Callable[[int], None]
) -> tuple[WriteResult, dict[str, int]]:
    until = asyncio.get_running_loop().time() + seconds
    with setup.driver() as driver:
        channel = await Channel.open(address, until)
        try:
            result = await write(setup.host(driver), channel, data, until, progress)
        finally:
            channel.close()
        return result, _untaken(driver)


@nic_app.command("probe")
def nic_probe(
    peer: Annotated[str, typer.Argument(metavar="PEER", help="The peer's control address.", show_default=False)],
    paths: Paths,
    name: Name,
    port: Ports = None,
    count: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Probes of each path.")] = 3,
    patience: Annotated[
        float, typer.Option(min=0.001, max=10, metavar="SECONDS", help="After which a probe is lost.")
    ] = 0.2,
    timeout: Timeout = 60.0,
    profile: ProfileName = BMV2.name,
    as_json: AsJson = False,
) -> None:
    """Probe every path to a NIC that serves (EV_PROBE): round-trip time, or loss. Fails if a path never answers.

    Example: mrcfab nic probe 127.0.0.1:4790 --paths paths/row-0.jsonl --name nic0 --port 0=eth0 --port 1=eth1
    """
    with _errors(BAD_INPUT):
        address = HostPort.parse(peer)
        setup = _set_up(paths, name, port or [], profile, path_mtu=PATH_MTUS[0])  # probes are small
    description, results = _run(_probe(setup, address, count, patience, timeout))
    if as_json:
        record = {"peer": description.name, "address": str(description.address)}
        typer.echo(json.dumps(record | {"paths": [_path_record(path) for path in results]}))
    else:
        _console().print(_path_table(f"{setup.nic.name} to {description.name}, round trips in ms", results))
    raise typer.Exit(0 if all(path.rtts for path in results) else FAILED)


async def _probe(
    setup: _Setup, address: HostPort, count: int, patience: float, seconds: float
) -> tuple[Description, list[PathResult]]:
    until = asyncio.get_running_loop().time() + seconds
    with setup.driver() as driver:
        channel = await Channel.open(address, until)
        try:
            description = await channel.ask(Describe(), Description, until)
            async with asyncio.timeout_at(until):
                return description, await probe(setup.host(driver), description.address, count, patience)
        except TimeoutError:
            raise HostError(f"not done within {seconds:g} s") from None
        finally:
            channel.close()


# ---- what was given ---------------------------------------------------------------------------------------


def _set_up(paths: Path, name: str, ports: list[str], profile: str, path_mtu: int) -> _Setup:
    """Raises ValueError, PathFileError or InterfaceError."""
    if profile not in PROFILES:
        raise ValueError(f"no profile {profile!r}; there are {', '.join(PROFILES)}")
    if path_mtu not in PATH_MTUS:
        raise ValueError(f"--path-mtu is {path_mtu}, must be one of {', '.join(map(str, PATH_MTUS))}")
    rows = PathFile.load(paths)
    try:
        nic = PROFILES[profile].nic(rows, name, path_mtu, random.Random())
    except KeyError:
        raise ValueError(f"{paths}: no NIC {name!r}; there are {', '.join(nic.name for nic in rows.nics)}") from None
    wanted = {port.plane: port.mac.hex(":") for port in nic.ports} | dict(map(_port, ports))
    if len(wanted) > len(nic.ports):
        raise ValueError(f"{name} has {len(nic.ports)} ports, there is no plane {max(wanted)}")
    return _Setup(nic, [find(wanted[port.plane]) for port in nic.ports], PROFILES[profile], path_mtu)


def _port(text: str) -> tuple[int, str]:
    plane, _, interface = text.partition("=")
    if not plane.isdecimal() or not interface:
        raise ValueError(f"--port is {text!r}, must be PLANE=INTERFACE, such as 0=eth0")
    return int(plane), interface


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+) ?([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a number of bytes, such as 65536, 10MB or 64MiB")
    return int(match[1]) * _UNITS[match[2]]


def _load(file: Path) -> bytearray:
    try:
        data = bytearray(file.read_bytes())
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None
    if not data:
        raise ValueError(f"{file}: is empty")
    return data


def _pattern(size: int) -> bytearray:
    """32-bit words that count up, so that every place has its own."""
    return bytearray(np.arange(-(-size // 4), dtype=">u4").tobytes()[:size])


# ---- running ----------------------------------------------------------------------------------------------


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Run until the end, or until SIGINT or SIGTERM cancels it."""

    async def cancellable() -> T:
        task = asyncio.current_task()
        if task is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await main

    with _errors(FAILED), asyncio.Runner(loop_factory=event_loop) as runner:
        return runner.run(cancellable())


@contextmanager
def _errors(code: int) -> Iterator[None]:
    """One line and an exit code for what can go wrong."""
    try:
        yield
    except (ValueError, PathFileError, InterfaceError, HostError, ControlError) as error:
        _fail(str(error), code)
    except asyncio.CancelledError:
        _fail("interrupted", code)


def _fail(reason: str, code: int) -> NoReturn:
    typer.echo(f"error: {reason}", err=True)
    raise typer.Exit(code)


# ---- what is shown ----------------------------------------------------------------------------------------


def _say(as_json: bool, record: dict[str, Any], text: str) -> None:
    typer.echo(json.dumps(record) if as_json else text)


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def _untaken(driver: RawDriver) -> dict[str, int]:
    """Frames that came and were not taken, or did not leave, by reason."""
    counts = Counter(driver.nic.counters.refused)
    for port in driver.ports:
        port.count_overrun()
        counts.update(asdict(port.counters))
    return {reason: count for reason, count in sorted(counts.items()) if count}


def _untaken_text(counts: dict[str, int]) -> str:
    listed = ", ".join(f"{reason} {count:,}" for reason, count in counts.items())
    hint = "; turn off receive offload (ethtool -K INTERFACE gro off lro off)" if "oversized" in counts else ""
    return f"frames not taken: {listed or 'none'}{hint}"


def _write_record(result: WriteResult, untaken: dict[str, int]) -> dict[str, Any]:
    events = [asdict(event) | {"old": event.old.value, "new": event.new.value} for event in result.ev_events]
    return asdict(result) | {
        "ev_events": events,
        "goodput_mbps": round(result.goodput_mbps, 3),
        "verified": result.verified,
        "untaken": untaken,
    }


def _show_write(result: WriteResult, untaken: dict[str, int]) -> None:
    console = _console()
    table = Table("plane", "packets", "share", "retransmissions", box=box.SIMPLE_HEAD)
    for plane in result.planes:
        table.add_row(f"{plane.plane}", f"{plane.packets:,}", f"{plane.share:.1%}", f"{plane.retransmissions:,}")
    console.print(table)
    for event in result.ev_events[:_EVENTS_SHOWN]:
        console.print(
            f"{event.time / 1e6:9.1f} ms  plane {event.plane} EV {event.value:#010x}: "
            f"{event.old.value} -> {event.new.value} ({event.reason})"
        )
    if len(result.ev_events) > _EVENTS_SHOWN:
        console.print(f"and {len(result.ev_events) - _EVENTS_SHOWN} more EV events")
    if result.losses:
        console.print("taken for lost: " + ", ".join(f"{why} {count:,}" for why, count in result.losses.items()))
    if untaken:
        console.print(_untaken_text(untaken))
    console.print(
        f"{result.payload_bytes:,} bytes to {result.peer} in {result.seconds:.3f} s, {result.goodput_mbps:,.0f} Mb/s; "
        f"{result.packets:,} packets, {result.retransmissions:,} retransmissions, {result.timeouts:,} timeouts"
    )
    console.print(f"sha256 {result.sha256}")
    if result.error:
        console.print(f"error: {result.error}", style="bold red", markup=False)
    else:
        console.print("the peer has the same", style="bold green")


def _path_record(path: PathResult) -> dict[str, Any]:
    record = {"plane": path.plane, "uplink": path.uplink, "sent": path.sent, "answered": len(path.rtts)}
    return record | ({"rtt_us": round(min(path.rtts) / 1000, 1)} if path.rtts else {})


def _path_table(title: str, paths: list[PathResult]) -> Table:
    """A row for each uplink, a column for each plane: the smallest round trip, and losses if there are any."""
    planes = sorted({path.plane for path in paths})
    table = Table("uplink", *(f"plane {plane}" for plane in planes), title=title, box=box.SIMPLE_HEAD)
    by_place = {(path.plane, path.uplink): path for path in paths}
    for uplink in sorted({path.uplink for path in paths}):
        table.add_row(f"{uplink}", *(_path_text(by_place[plane, uplink]) for plane in planes))
    return table


def _path_text(path: PathResult) -> str:
    lost = path.sent - len(path.rtts)
    if not path.rtts:
        return "lost"
    return f"{min(path.rtts) / 1e6:.3f}" + (f" ({lost} of {path.sent} lost)" if lost else "")
