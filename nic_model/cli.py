"""`mrcfab nic`: a NIC on real interfaces. Exit codes: 0 done and right, 1 something failed, 2 bad input."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, NoReturn, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from nic_model.drivers import report
from nic_model.drivers.client import PathResult, WriteResult, probe, write
from nic_model.drivers.control import Channel, ControlError, Describe, Description, HostPort
from nic_model.drivers.host import Host, HostError
from nic_model.drivers.interface import InterfaceError, find
from nic_model.drivers.profile import BMV2, PROFILES, Profile
from nic_model.drivers.raw import RawDriver, RawPort, event_loop, raw_ports
from nic_model.drivers.serve import Server, SessionResult
from nic_model.event_log import EventLog
from nic_model.events import Log
from nic_model.nic import Nic
from nic_model.paths import PathFile
from nic_model.verbs import RDMA_MAX_MESSAGE, VerbsError

FAILED = 1
BAD_INPUT = 2
PATH_MTUS = (256, 512, 1024, 2048, 4096)
_FILE_WIDTH = 120
"""Columns of a table that does not go to a terminal."""
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

T = TypeVar("T")

nic_app = typer.Typer(help="A NIC on real interfaces: serve memory, write to it, probe paths.", no_args_is_help=True)

Paths = Annotated[
    Path,
    typer.Option(
        "--paths", metavar="FILE", envvar="MRCFAB_PATHS", help="The path file of the NIC's row.", show_default=False
    ),
]
Name = Annotated[
    str, typer.Option("--name", metavar="NIC", envvar="MRCFAB_NIC", help="Its name there.", show_default=False)
]
Ports = Annotated[
    list[str] | None,
    typer.Option(
        "--port",
        metavar="PLANE=INTERFACE",
        envvar="MRCFAB_PORTS",
        help="Where a port is: an interface's name, MAC, IP address or subnet. Else the one with the port's MAC.",
    ),
]
ProfileName = Annotated[str, typer.Option("--profile", metavar="NAME", help=f"One of: {', '.join(PROFILES)}.")]
Pace = Annotated[
    int | None,
    typer.Option(
        "--pace",
        min=1,
        max=10**7,
        metavar="PACKETS/S",
        envvar="MRCFAB_PACE",
        help="Of each port, instead of the profile's.",
    ),
]
PathMtu = Annotated[int, typer.Option("--path-mtu", metavar="BYTES", help="Payload of a packet: 256 to 4096.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Timeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For all of it; then it has failed.")]


@dataclass(frozen=True, slots=True)
class _Setup:
    """A NIC and its ports, checked, before anything is opened."""

    nic: Nic
    ports: list[RawPort]
    profile: Profile
    path_mtu: int

    def driver(self) -> RawDriver:
        """To be entered inside the loop."""
        return RawDriver(self.nic, self.ports)

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
    pace: Pace = None,
    path_mtu: PathMtu = 4096,
    as_json: AsJson = False,
) -> None:
    """Run a NIC that others may write to, until Ctrl-C. Whoever reaches the control address may do so.

    Example: mrcfab nic serve --paths paths/row-1.jsonl --name nic2 --port 0=eth0 --port 1=eth1
    """
    with _bad_input():
        setup = _set_up(paths, name, port or [], profile, pace, path_mtu)
        size, address = _bytes(memory), HostPort.parse(listen)
    _run(_serve(setup, size, address, as_json))


async def _serve(setup: _Setup, memory: int, address: HostPort, as_json: bool) -> None:
    def on_link(port: RawPort) -> None:
        name, up = port.interface.name, port.is_open
        record = {"event": "link", "plane": port.plane, "interface": name, "up": up}
        _say(as_json, record, f"{name} is {'up' if up else 'down'}")

    def on_connect(peer: str, length: int) -> None:
        _say(as_json, {"event": "connected", "peer": peer, "length": length}, f"{peer} has {length:,} bytes of memory")

    def on_close(result: SessionResult) -> None:
        _say(
            as_json,
            {"event": "closed", **asdict(result)},
            f"{result.peer} wrote {result.payload_bytes:,} bytes in {result.packets:,} packets "
            f"({result.duplicates:,} duplicates, {result.trimmed:,} trimmed)",
        )

    with setup.driver() as driver:
        server = await Server(setup.host(driver), memory, on_connect, on_close).listen(address)
        control = str(HostPort(*server.sockets[0].getsockname()[:2]))
        ports = [{"plane": port.plane, "interface": port.interface.name, "up": port.is_open} for port in driver.ports]
        where = ", ".join(f"{port['interface']}{'' if port['up'] else ' (down)'}" for port in ports)
        _say(
            as_json,
            {"event": "ready", "nic": setup.nic.name, "control": control, "ports": ports},
            f"{setup.nic.name} on {where}; control address {control}; Ctrl-C ends it",
        )
        driver.on_link = on_link
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:  # by a signal
            server.close()
        counts = report.untaken(driver)
        _say(as_json, {"event": "end", "untaken": counts}, report.untaken_text(counts))


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
    pace: Pace = None,
    path_mtu: PathMtu = 4096,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what the NIC decided and why, as JSON lines.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a file, or a pattern, into the memory of a NIC that serves, and compare checksums.

    Examples: mrcfab nic write model.bin nic2:4790 --paths paths/row-0.jsonl --name nic0 --port 0=eth0 --port 1=eth1;
    mrcfab nic write --pattern 10MB nic2:4790 --paths paths/row-0.jsonl --name nic0
    """
    with _bad_input():
        if len(arguments) != (1 if pattern is not None else 2):
            raise ValueError("give FILE PEER, or --pattern BYTES PEER")
        address = HostPort.parse(arguments[-1])
        data = _load(Path(arguments[0])) if pattern is None else _pattern(_bytes(pattern))
        file = None if events is None else _create(events)
        log = None if file is None else partial(EventLog(file).add, name)
        setup = _set_up(paths, name, port or [], profile, pace, path_mtu, log)
    with file or nullcontext(), Progress(
        TextColumn("writing"), BarColumn(), DownloadColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        task = bar.add_task("writing", total=len(data))
        result, counts = _run(_write(setup, address, data, timeout, lambda done: bar.update(task, completed=done)))
    if as_json:
        typer.echo(json.dumps(report.write_record(result, counts)))
    else:
        _console().print(report.write_table(result))
        for line in report.write_lines(result, counts):
            typer.echo(line)
    if result.error:
        _fail(result.error, FAILED)


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
        return result, report.untaken(driver)


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
    with _bad_input():
        address = HostPort.parse(peer)
        setup = _set_up(paths, name, port or [], profile, None, PATH_MTUS[0])  # probes are small
    description, results = _run(_probe(setup, address, count, patience, timeout))
    if as_json:
        record = {"peer": description.name, "address": str(description.address)}
        typer.echo(json.dumps(record | {"paths": [report.path_record(path) for path in results]}))
    else:
        _console().print(report.path_table(f"round trips from {setup.nic.name} to {description.name}", results))
    silent = sum(not path.rtts for path in results)
    if silent:
        _fail(f"{silent} of {len(results)} paths never answered", FAILED)


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


def _set_up(
    paths: Path, name: str, ports: list[str], profile: str, pace: int | None, path_mtu: int, log: Log | None = None
) -> _Setup:
    """Raises ValueError or InterfaceError."""
    if profile not in PROFILES:
        raise ValueError(f"no profile {profile!r}; there are {', '.join(PROFILES)}")
    settings = PROFILES[profile] if pace is None else replace(PROFILES[profile], packet_rate=pace)
    if path_mtu not in PATH_MTUS:
        raise ValueError(f"--path-mtu is {path_mtu}, must be one of {', '.join(map(str, PATH_MTUS))}")
    rows = PathFile.load(paths)
    try:
        nic = settings.nic(rows, name, path_mtu, random.Random(), log)
    except KeyError:
        raise ValueError(f"{paths}: no NIC {name!r}; there are {', '.join(nic.name for nic in rows.nics)}") from None
    wanted = {port.plane: port.mac.hex(":") for port in nic.ports} | dict(map(_port, ports))
    if len(wanted) > len(nic.ports):
        raise ValueError(f"--port names plane {max(wanted)}, {name} has {len(nic.ports)} ports")
    interfaces = [find(wanted[port.plane]) for port in nic.ports]
    return _Setup(nic, raw_ports(nic, interfaces, settings, path_mtu), settings, path_mtu)


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
        if not 0 < file.stat().st_size <= RDMA_MAX_MESSAGE:
            raise ValueError(f"{file}: has {file.stat().st_size} bytes, must have 1 to {RDMA_MAX_MESSAGE}")
        return bytearray(file.read_bytes())
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None


def _create(file: Path) -> IO[str]:
    try:
        return file.open("w", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None


def _pattern(size: int) -> bytearray:
    """32-bit words that count up, so that every place has its own."""
    if size > RDMA_MAX_MESSAGE:
        raise ValueError(f"--pattern is {size} bytes, must be {RDMA_MAX_MESSAGE} at most")
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

    try:
        with asyncio.Runner(loop_factory=event_loop) as runner:
            return runner.run(cancellable())
    except (InterfaceError, HostError, ControlError, VerbsError) as error:
        _fail(str(error), FAILED)
    except asyncio.CancelledError:
        _fail("interrupted", FAILED)


@contextmanager
def _bad_input() -> Iterator[None]:
    try:
        yield
    except (ValueError, InterfaceError) as error:  # a PathFileError is a ValueError
        _fail(str(error), BAD_INPUT)


def _fail(reason: str, code: int) -> NoReturn:
    typer.echo(f"error: {reason}", err=True)
    raise typer.Exit(code)


def _say(as_json: bool, record: dict[str, Any], text: str) -> None:
    typer.echo(json.dumps(record) if as_json else text)


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console
