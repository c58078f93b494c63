"""Frames in a pcapng file (draft-ietf-opsawg-pcapng-03): one interface per port, both directions, virtual time."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from controller.topology import Topology
from fabric.links import Frame
from fabric.nodes import NicNode

_SECTION_HEADER = 0x0A0D0D0A
_INTERFACE_DESCRIPTION = 1
_ENHANCED_PACKET = 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_UNKNOWN_LENGTH = 0xFFFF_FFFF_FFFF_FFFF
_LINKTYPE_ETHERNET = 1

_OPT_END = 0
_SHB_USERAPPL = 4
_IF_NAME = 2
_IF_DESCRIPTION = 3
_IF_SPEED = 8
_IF_TSRESOL = 9
_EPB_FLAGS = 2

_NANOSECONDS = bytes([9])  # timestamps count 10^-9 s
_DIRECTION = (struct.pack("<I", 1), struct.pack("<I", 2))  # in, out

Option = tuple[int, bytes]


class Capture:
    """Writes what goes through a NIC's ports, as long as the context lasts.

    A frame is stamped with the time at which its last bit came in or its first bit left. Raises OSError.
    """

    def __init__(self, path: Path, node: NicNode, topo: Topology) -> None:
        self._path = path
        self._node = node
        self._topo = topo
        self._file: BinaryIO

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        head = struct.pack("<IHHQ", _BYTE_ORDER_MAGIC, 1, 0, _UNKNOWN_LENGTH)
        self._write(_SECTION_HEADER, head, [(_SHB_USERAPPL, b"mrcfab")])
        name = self._node.nic.name
        for link in self._topo.links():
            if link.a.node == name:
                options = [
                    (_IF_NAME, f"{name} plane {link.plane}".encode()),
                    (_IF_DESCRIPTION, f"link to {link.b.node}".encode()),
                    (_IF_SPEED, struct.pack("<Q", round(link.rate_gbps * 1e9))),
                    (_IF_TSRESOL, _NANOSECONDS),
                ]
                self._write(_INTERFACE_DESCRIPTION, struct.pack("<HHI", _LINKTYPE_ETHERNET, 0, 0), options)
        self._node.tap = self._frame
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._node.tap = None
        self._file.close()

    def _frame(self, plane: int, leaving: bool, frame: Frame) -> None:
        now, size = self._node.now, len(frame[0]) + len(frame[1])
        head = struct.pack("<IIIII", plane, now >> 32, now & 0xFFFF_FFFF, size, size)
        self._write(_ENHANCED_PACKET, head + _padded(frame[0] + frame[1]), [(_EPB_FLAGS, _DIRECTION[leaving])])

    def _write(self, kind: int, body: bytes, options: Iterable[Option]) -> None:
        for code, value in options:
            body += struct.pack("<HH", code, len(value)) + _padded(value)
        body += struct.pack("<HH", _OPT_END, 0)
        length = struct.pack("<I", 12 + len(body))
        self._file.write(struct.pack("<I", kind) + length + body + length)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
