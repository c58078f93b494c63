"""Frames into the switch under test, and what it must make of them, byte by byte."""

from __future__ import annotations

from ipaddress import IPv6Address

from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from tests.dataplane.entries import (
    CONTROL_DSCP,
    HOST_MAC,
    MARKER_DESTINATION,
    MARKER_SOURCE,
    ROUTER_MAC,
    TRIMMABLE,
    neighbour_mac,
)

SOURCE = "fd00::1"
ETHERNET, IP6, UDP_HEADER = 14, 40, 8
"""Bytes."""
DSCP, LENGTH, NEXT_HEADER, HOP_LIMIT, SRC_ADDR, DST_ADDR = 14, 18, 20, 21, 22, 38
"""Where the fields of the outer header begin in a frame; the DSCP shares its two bytes with others."""


def to_router(packet: Packet, dst_mac: str = ROUTER_MAC) -> bytes:
    return bytes(Ether(dst=dst_mac, src=HOST_MAC) / packet)


def marker() -> bytes:
    """A frame that overtakes all data and leaves through MARKER_PORT."""
    return to_router(IPv6(src=MARKER_SOURCE, dst=MARKER_DESTINATION, tc=CONTROL_DSCP << 2) / UDP())


def frame(
    length: int, *, dscp: int = TRIMMABLE, ecn: int = 2, inner: bool = False, dst: str, hop_limit: int = 64
) -> bytes:
    """A UDP frame of `length` bytes: every payload byte of its own, a checksum that a switch must not touch.

    `inner` puts the UDP packet into IPv6 in IPv6. Every field of the outer header has a value that tells it apart.
    """
    headers = ETHERNET + IP6 + UDP_HEADER + (IP6 if inner else 0)
    udp = UDP(sport=0xC123, dport=4791, chksum=0xBEEF) / Raw(bytes(n % 251 for n in range(length - headers)))
    below = IPv6(src=SOURCE, dst="fd00::9", hlim=9, tc=dscp << 2 | ecn) / udp if inner else udp
    made = to_router(IPv6(src=SOURCE, dst=dst, hlim=hop_limit, tc=dscp << 2 | ecn, fl=0xABCDE) / below)
    assert len(made) == length
    return made


def routed(sent: bytes, src_mac: str, dst_mac: str, dst: str | None = None) -> bytes:
    """What a router makes of a frame: MACs, hop limit, and `dst` in place of the destination; all else is the same."""
    macs = bytes.fromhex((dst_mac + src_mac).replace(":", ""))
    destination = sent[DST_ADDR:54] if dst is None else IPv6Address(dst).packed
    return macs + sent[12:HOP_LIMIT] + bytes([sent[HOP_LIMIT] - 1]) + sent[SRC_ADDR:DST_ADDR] + destination + sent[54:]


def forwarded(sent: bytes, port: int, *, dst: str | None = None) -> bytes:
    """The frame as it leaves the switch under test through `port`."""
    return routed(sent, ROUTER_MAC, neighbour_mac(port), dst)


def remarked(sent: bytes, dscp: int) -> bytes:
    """The outer DSCP rewritten; ECN as it was."""
    word = int.from_bytes(sent[DSCP : DSCP + 2], "big") & 0xF03F | dscp << 6
    return sent[:DSCP] + word.to_bytes(2, "big") + sent[DSCP + 2 :]


def cut(out: bytes, dscp: int, size: int = 128) -> bytes:
    """What is left of a frame that is trimmed to `size` bytes: outer DSCP and length, a prefix of everything else.

    The strict rule (SAI_SWITCH_ATTR_PACKET_TRIM_SIZE; UEC 1.0 4.1): ECN, flow label, inner header, UDP length and
    checksum stay, so that UDP's length tells what was cut off.
    """
    length = min(int.from_bytes(out[LENGTH : LENGTH + 2], "big"), size - ETHERNET - IP6)
    out = remarked(out, dscp)
    return (out[:LENGTH] + length.to_bytes(2, "big") + out[LENGTH + 2 :])[:size]


def trimmed(sent: bytes, port: int, dscp: int, size: int = 128, dst: str | None = None) -> bytes:
    """The frame as it leaves the switch under test through a congested `port`."""
    return cut(forwarded(sent, port, dst=dst), dscp, size)


def ecn_of(one: bytes) -> int:
    return one[15] >> 4 & 3


def marked(one: bytes) -> bytes:
    """The same frame with CE (RFC 3168 5)."""
    return one[:15] + bytes([one[15] | 0x30]) + one[16:]
