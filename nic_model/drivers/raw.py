"""The NIC in real time: one packet socket per port, the monotonic clock, one asyncio loop, nothing else.

A port sends at its configured packet rate and at most a short burst back to back: a software switch loses longer
ones in front of its pipeline, untrimmed, which MRC reads as a failed path (OCP MRC: only congestion trims).

What a packet socket has to beware of:
- Its own transmissions: they are shown to sockets for all protocols only, and these are for IPv6.
- A port's MAC that is not its interface's: the kernel is asked to receive it too (PACKET_MR_UNICAST), by which
  a device that cannot filter becomes promiscuous. Frames for anybody else are counted as strays.
- Receive offloads (GRO, LRO) that join packets: a frame longer than the MTU allows is counted and not taken.
  `ethtool -K INTERFACE gro off lro off` ends it. Checksum offload does not matter: MRC sends no UDP checksum.
- VLAN tags: the kernel takes them off before a packet socket sees the frame. Planes are interfaces, not tags; give
  the driver the VLAN's own interface.
- The kernel's IPv6 on the same interface: it ignores packets that are not to its addresses, unless the host
  forwards IPv6, which a host with a NIC like this must not.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from nic_model.drivers.interface import Interface, InterfaceError, LinkWatch
from nic_model.drivers.profile import HEADERS, Profile
from nic_model.headers import ETHERTYPE_IPV6, Ethernet
from nic_model.nic import Nic
from nic_model.packet import Frame

_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_STATISTICS = 6
_PACKET_MR_UNICAST = 3
_SO_RCVBUFFORCE = 33

_RECEIVE_BUFFER = 8 << 20
"""Bytes that the kernel keeps for a port; without CAP_NET_ADMIN it allows net.core.rmem_max at most."""
_SEND_TIMEOUT_US = 10_000
"""How long a full interface may hold up everything else."""
_RECEIVE_BATCH = 64
"""Frames that are taken from one port before the NIC may send again."""
_SECOND = 1_000_000_000


def event_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are exact to microseconds, where epoll's are to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def packet_socket(interface: Interface, mac: bytes) -> socket.socket:
    """A socket that sends and receives the IPv6 frames of one port. Raises InterfaceError."""
    try:
        # Protocol 0 receives nothing, so that what comes before the socket is bound is not from elsewhere.
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError:
        raise InterfaceError(f"{interface.name}: packet sockets need root or CAP_NET_RAW") from None
    try:
        try:
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        except PermissionError:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, _SEND_TIMEOUT_US))
        opened.bind((interface.name, ETHERTYPE_IPV6))
        if interface.mac != mac:
            index = socket.if_nametoindex(interface.name)
            request = struct.pack("iHH8s", index, _PACKET_MR_UNICAST, len(mac), mac)
            opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, request)
    except OSError as error:
        opened.close()
        raise InterfaceError(f"{interface.name}: {error.strerror}") from None
    return opened


class Pacer:
    """At most `burst` packets back to back and `rate` packets/s in the long run (GCRA, ITU-T I.371)."""

    __slots__ = ("_gap", "_tolerance", "ready_at")

    def __init__(self, rate: int, burst: int) -> None:
        self._gap = _SECOND // rate
        self._tolerance = (burst - 1) * self._gap
        self.ready_at = -self._tolerance
        """When the next packet may leave, ns."""

    def sent(self, now: int) -> None:
        """A packet left."""
        due = max(self.ready_at + self._tolerance, now) + self._gap
        self.ready_at = due - self._tolerance


@dataclass(slots=True)
class DriverCounters:
    """Frames that a port's driver did not pass on: why is said in the module's text.

    `overrun`: nobody read them in time; `unsent`: the kernel did not take them.
    """

    strays: int = 0
    oversized: int = 0
    overrun: int = 0
    unsent: int = 0


class RawPort:
    """A NIC's port on an interface: it has a socket as long as the interface is running."""

    def __init__(
        self,
        plane: int,
        mac: bytes,
        interface: Interface,
        pacer: Pacer,
        open_socket: Callable[[Interface, bytes], socket.socket] = packet_socket,
    ) -> None:
        self.plane = plane
        self.interface = interface
        self.pacer = pacer
        self.counters = DriverCounters()
        self._mac = mac
        self._too_long = Ethernet.SIZE + interface.mtu + 1
        self._open_socket = open_socket
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """It has a socket."""
        return self._socket is not None

    def fileno(self) -> int:
        """Of the open socket, to wait on."""
        if self._socket is None:
            raise AssertionError(f"port {self.plane} is closed")
        return self._socket.fileno()

    def open(self) -> None:
        """The interface is running. Raises InterfaceError."""
        self._socket = self._open_socket(self.interface, self._mac)

    def close(self) -> None:
        """The interface is not running any more, or nobody needs it."""
        if self._socket is not None:
            self.count_overrun()
            self._socket.close()
            self._socket = None

    def receive(self) -> list[Frame]:
        """The frames that have come for this port, some of them at least."""
        frames: list[Frame] = []
        if self._socket is None:
            return frames
        receive, mac, limit = self._socket.recv, self._mac, self._too_long
        try:
            for _ in range(_RECEIVE_BATCH):
                frame = receive(limit, socket.MSG_DONTWAIT)
                if not frame.startswith(mac):
                    self.counters.strays += 1
                elif len(frame) == limit:
                    self.counters.oversized += 1
                else:
                    frames.append((frame, b""))
        except OSError:
            pass  # that was all (BlockingIOError), or the interface went down, which LinkWatch tells
        return frames

    def send(self, frame: Frame) -> None:
        """Send one frame. While the interface is full this waits, as on a wire."""
        try:
            if self._socket is not None:
                self._socket.sendmsg(frame)
        except OSError:
            self.counters.unsent += 1

    def count_overrun(self) -> None:
        """Bring `counters.overrun` up to date."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # not a packet socket
                statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
                self.counters.overrun += struct.unpack("II", statistics)[1]  # since it was asked last


def raw_ports(nic: Nic, interfaces: Sequence[Interface], profile: Profile, path_mtu: int) -> list[RawPort]:
    """A NIC's ports on the interfaces of its planes, in their order. Raises InterfaceError."""
    if len(interfaces) != len(nic.ports):
        raise InterfaceError(f"{nic.name} has {len(nic.ports)} ports, there are {len(interfaces)} interfaces for them")
    for interface in interfaces:
        needed = path_mtu + HEADERS
        if interface.mtu < needed:
            raise InterfaceError(
                f"{interface.name}: MTU {interface.mtu} is too small, a path MTU of {path_mtu} needs {needed}: "
                f"ip link set {interface.name} mtu {needed}"
            )
    return [
        RawPort(port.plane, port.mac, interface, Pacer(profile.packet_rate, profile.burst))
        for port, interface in zip(nic.ports, interfaces, strict=True)
    ]


class Links(Protocol):
    """What LinkWatch offers."""

    def fileno(self) -> int: ...
    def drain(self) -> None: ...
    def close(self) -> None: ...


class RawDriver:
    """Runs a NIC inside the running loop, as a context manager. Whoever posts work calls `attend` then."""

    def __init__(
        self,
        nic: Nic,
        ports: Sequence[RawPort],
        *,
        watch: Callable[[], Links] = LinkWatch,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`ports` by plane; `clock` in ns, the running loop's own."""
        self.nic = nic
        self.ports = ports
        self.now = clock
        self.on_link: Callable[[RawPort], None] = lambda _port: None
        """Called when a port's link went down or came up, and the port was closed or opened for it."""
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._links: Links | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> RawDriver:
        """Open the ports of all interfaces that are running. Raises InterfaceError."""
        try:
            self._links = self._watch()
            self._loop.add_reader(self._links.fileno(), self._on_link_change)
            self._follow_links()
            for port in self.ports:
                self.nic.port_status(port.plane, port.is_open, self.now())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for port in self.ports:
            self._close_port(port)
        if self._links is not None:
            self._loop.remove_reader(self._links.fileno())
            self._links.close()

    # ---- links ---------------------------------------------------------------------------------------

    def _on_link_change(self) -> None:
        if self._links is not None:
            self._links.drain()
        with contextlib.suppress(InterfaceError):  # it went down again, and that will be told
            self._follow_links()
        self.attend()

    def _follow_links(self) -> None:
        for port in self.ports:
            running = port.interface.is_running
            if running is port.is_open:
                continue
            if running:
                port.open()
                self._loop.add_reader(port.fileno(), self._on_readable, port)
            else:
                self._close_port(port)
            self.nic.port_status(port.plane, running, self.now())
            self.on_link(port)

    def _close_port(self, port: RawPort) -> None:
        if port.is_open:
            self._loop.remove_reader(port.fileno())
            port.close()

    # ---- frames and time -----------------------------------------------------------------------------

    def _on_readable(self, port: RawPort) -> None:
        receive, plane, now = self.nic.receive, port.plane, self.now
        for frame in port.receive():
            receive(plane, frame, now())
        self.attend()

    def attend(self) -> None:
        """Send what may be sent now, and be called again when there is more to do."""
        nic = self.nic
        deadline = nic.next_deadline()
        if deadline is not None and deadline <= self.now():
            nic.poll(self.now())
        while self._send_one_each():
            pass
        self._set_timer()

    def _send_one_each(self) -> bool:
        sent = False
        ready = self.nic.ready
        for port in self.ports:
            now = self.now()
            if ready >> port.plane & 1 and port.pacer.ready_at <= now:
                frame = self.nic.pull(port.plane, now)
                if frame is not None:
                    port.pacer.sent(now)
                    port.send(frame)
                    sent = True
        return sent

    def _set_timer(self) -> None:
        ready = self.nic.ready
        times = [port.pacer.ready_at for port in self.ports if ready >> port.plane & 1]
        deadline = self.nic.next_deadline()
        if deadline is not None:
            times.append(deadline)
        if not times:
            return
        due = min(times) / _SECOND
        # An earlier timer may stay: it comes back here.
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.attend()
