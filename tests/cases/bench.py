"""The bench on which every case plays: two NICs, in rows 0 and 1 of a fabric, and their names for each other.

The device under test (DUT) is the NIC of row 0, the script plays the NIC of row 1 and the network between. Numbers
that a device may choose itself (its QP number, keys and addresses of its memory) are fixed here so that frames can be
written down; README.md says what to do if yours chooses others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["srv6", "ecmp"]

UPLINKS = 8
"""T1 switches in each plane, and so paths of a plane between the two rows."""
DUT_ROW, PEER_ROW = 0, 1
DUT_QPN, PEER_QPN = 0x5A0011, 0xA50022
REMOTE_ADDR, REMOTE_RKEY = 0x7F00_0000_0000, 0xC0FFEE00
"""The peer's memory, into which the DUT writes."""

_BLOCK = 0xFCBB_BBBB
_T0, _T1, _NIC = 0x2000, 0x4000, 0xE000
"""uSIDs are kind 3 bits | plane 3 bits | index 10 bits."""
_PLANE_SHIFT = 10
EV_PLANE_SHIFT, EV_UPLINK_SHIFT = 29, 19


def address(row: int, plane: int) -> int:
    """The port's IPv6 address: the row's /64, the plane, and NIC 0 of the row."""
    return 0xFD00_6D72_6300_0000 + row << 64 | plane << 48


def mac(row: int, plane: int) -> int:
    """The port's MAC address, 02:01:00:row:plane:00."""
    return 0x0201_0000_0000 | row << 16 | plane << 8


def gateway(row: int, plane: int) -> int:
    """The MAC address of the port's T0, 02:00:00:row:plane:00."""
    return 0x0200_0000_0000 | row << 16 | plane << 8


def ev(plane: int, uplink: int) -> int:
    """The EV of a path in SRv6 mode."""
    return plane << EV_PLANE_SHIFT | uplink << EV_UPLINK_SHIFT


def ev_plane(value: int) -> int:
    """The plane that an EV's top bits name."""
    return value >> EV_PLANE_SHIFT


def _usids(*usids: int) -> int:
    packed = _BLOCK
    for position in range(6):
        packed = packed << 16 | (usids[position] if position < len(usids) else 0)
    return packed


def leaving_da(value: int) -> int:
    """The outer destination of what the DUT sends on an EV: block : T0 : T1 : T0 : NIC."""
    plane = ev_plane(value) << _PLANE_SHIFT
    uplink = value >> EV_UPLINK_SHIFT & 0x3FF
    return _usids(_T0 | plane | DUT_ROW, _T1 | plane | uplink, _T0 | plane | PEER_ROW, _NIC | plane)


def arriving_da(plane: int) -> int:
    """The outer destination of what reaches the DUT: the switches have used up all but its own uSID."""
    return _usids(_NIC | plane << _PLANE_SHIFT)


@dataclass(frozen=True, slots=True)
class Region:
    """Where a memory region lies in the frames as they are written down."""

    addr: int
    rkey: int


REMOTE = Region(REMOTE_ADDR, REMOTE_RKEY)


def region(number: int) -> Region:
    """The DUT's region `number`, counted from 1 in the order of the case."""
    return Region(number << 32, number << 8)
