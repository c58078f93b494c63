"""A port of a switch on a network interface: a packet socket that takes every frame, as BMv2's ports do.

A frame's VLAN tag is taken off by the kernel before a packet socket sees it; frames that this socket sends are not
shown to it.
"""

import contextlib
import socket
import struct
from dataclasses import dataclass

from switch_model.codegen import Frame

_SOL_PACKET = 263
_ADD_MEMBERSHIP = 1
_STATISTICS = 6
_IGNORE_OUTGOING = 23
_MR_PROMISC = 1
_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33

_RECEIVE_BUFFER = 8 << 20
"""Bytes that the kernel keeps for a port; without CAP_NET_ADMIN it allows net.core.rmem_max at most."""
_BATCH = 32
"""Frames that are taken from one port before another has its turn."""
_MAX_FRAME = 1 << 16


class PortError(Exception):
    """An interface that can't be a port. str() is one line."""


@dataclass(slots=True)
class PortCounters:
    """Frames that the kernel lost: `overrun` came faster than they were taken, `unsent` met a full interface."""

    overrun: int = 0
    unsent: int = 0


class PacketPort:
    """Port `number` on `interface`. Raises PortError."""

    def __init__(self, number: int, interface: str) -> None:
        self.number = number
        self.interface = interface
        self.counters = PortCounters()
        try:
            # Protocol 0 receives nothing, so that what comes before the socket is bound is not from elsewhere.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError:
            raise PortError("packet sockets need root or CAP_NET_RAW") from None
        try:
            self._set_up()
        except OSError as error:
            self._socket.close()
            raise PortError(f"{interface}: {error.strerror or error}") from None

    def _set_up(self) -> None:
        index = socket.if_nametoindex(self.interface)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        self._socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, struct.pack("iHH8s", index, _MR_PROMISC, 0, b""))
        self._socket.bind((self.interface, _ETH_P_ALL))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """To wait on."""
        return self._socket.fileno()

    def receive(self) -> list[Frame]:
        """The frames that have come, some of them at least."""
        frames: list[Frame] = []
        receive = self._socket.recv
        with contextlib.suppress(OSError):  # that was all (BlockingIOError), or the interface went down
            for _ in range(_BATCH):
                frames.append((receive(_MAX_FRAME), b""))
        return frames

    def send(self, frame: Frame) -> None:
        """Send a frame, or count it as unsent."""
        try:
            self._socket.sendmsg(frame)
        except OSError:
            self.counters.unsent += 1

    def count_overrun(self) -> None:
        """Bring `counters.overrun` up to date."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
        self.counters.overrun += struct.unpack("II", statistics)[1]  # since it was asked last

    def close(self) -> None:
        """Leave the interface."""
        self._socket.close()
