"""Two NICs in one process and one loop whose ports are joined by socket pairs: the driver without a network."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from nic_model.drivers.host import Host
from nic_model.drivers.interface import Interface
from nic_model.drivers.profile import BMV2, Profile
from nic_model.drivers.raw import Pacer, RawDriver, RawPort
from nic_model.paths import PathFile
from tests.nic_model.back_to_back import path_file

PLANES = 2
PATH_MTU = 4096
MTU = 4224
QUICK = replace(BMV2, packet_rate=50_000, timeout=13, late_tolerance=2_000_000)
"""Both ends share one thread: nothing in between needs to be spared."""
SOCKET_BUFFER = 1 << 20


def direct_paths(row: int) -> PathFile:
    """Of the NIC in a row, joined to the one in the other row without a switch: that is its gateway."""
    mine, other = path_file(row), path_file(1 - row)
    ports = zip(mine.nics[0].ports[:PLANES], other.nics[0].ports, strict=False)
    nic = replace(mine.nics[0], ports=tuple(replace(port, gateway=peer.mac) for port, peer in ports))
    templates = tuple(replace(template, planes=PLANES) for template in mine.templates)
    return replace(mine, planes=PLANES, nics=(nic,), templates=templates)


@dataclass(frozen=True)
class FakeInterface(Interface):
    """An interface that a test lets go down and come up."""

    state: dict[str, bool] = field(default_factory=lambda: {"running": True})

    @property
    def mtu(self) -> int:
        return MTU

    @property
    def is_running(self) -> bool:
        return self.state["running"]


@dataclass
class FakeLinks:
    """Stands in for LinkWatch."""

    _ends: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def drain(self) -> None:
        self._ends[0].recv(100)

    def close(self) -> None:
        for end in self._ends:
            end.close()

    def changed(self) -> None:
        self._ends[1].send(b"x")


class Side:
    """One NIC, its driver, and the other ends of its ports' sockets by plane."""

    def __init__(self, row: int, profile: Profile, wires: list[tuple[socket.socket, socket.socket]]) -> None:
        self.nic = profile.nic(direct_paths(row), f"nic{row}", PATH_MTU, random.Random(row))
        self.links = FakeLinks()
        self.interfaces = [FakeInterface(f"port{plane}") for plane in range(PLANES)]
        self.opened = 0
        self._wires = [wire[row] for wire in wires]
        self.ports = [
            RawPort(port.plane, port.mac, interface, Pacer(profile.packet_rate, profile.burst), self._open)
            for port, interface in zip(self.nic.ports, self.interfaces, strict=True)
        ]

    def _open(self, interface: Interface, _mac: bytes) -> socket.socket:
        self.opened += 1
        return self._wires[int(interface.name.removeprefix("port"))].dup()

    def driver(self, clock: Callable[[], int] | None = None) -> RawDriver:
        """Inside the loop."""
        if clock is None:
            return RawDriver(self.nic, self.ports, watch=lambda: self.links)
        return RawDriver(self.nic, self.ports, watch=lambda: self.links, clock=clock)

    def set_link(self, plane: int, up: bool) -> None:
        self.interfaces[plane].state["running"] = up
        self.links.changed()


def _wire() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        # Nobody may wait for himself.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 1000))
    return ends


@contextmanager
def sides(profile: Profile = QUICK) -> Iterator[tuple[Side, Side]]:
    """Both NICs, not driven yet."""
    wires = [_wire() for _ in range(PLANES)]
    with ExitStack() as held:
        for end in (end for wire in wires for end in wire):
            held.callback(end.close)
        yield Side(0, profile, wires), Side(1, profile, wires)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until the condition holds, for at most 5 s."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (both NICs live in this loop)
            await asyncio.sleep(0)


@contextmanager
def hosts() -> Iterator[tuple[Host, Host, tuple[Side, Side]]]:
    """Both NICs, driven in the running loop."""
    with sides() as (one, other), one.driver() as driver, other.driver() as other_driver:
        yield Host(driver, QUICK, PATH_MTU), Host(other_driver, QUICK, PATH_MTU), (one, other)
