"""What a NIC reads of ICMPv6: that the hop limit of a packet it sent ran out (RFC 4443 3.3)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from nic_model.headers import (
    BTH,
    ENDPOINT_DQPN,
    ETHERTYPE_IPV6,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_UDP,
    UDP,
    Ethernet,
    IPv6,
    Opcode,
)

NEXT_HEADER_ICMPV6 = 58
_ICMP = struct.Struct("!BBHI")
_PSEUDO_HEADER = struct.Struct("!16s16sII")
_TIME_EXCEEDED, _HOP_LIMIT = 3, 0  # type, code


class TimeExceeded(NamedTuple):
    """`by` is the switch's address, `to` the port's that sent the packet, `destination` what the switch received as
    the packet's outermost destination (16 bytes each). `request_id` is the Endpoint Request's, if it was one."""

    by: bytes
    to: bytes
    destination: bytes
    request_id: int | None


def read_time_exceeded(frame: bytes) -> TimeExceeded | None:
    """A frame's Time Exceeded, None if it holds anything else or its checksum is wrong."""
    try:
        ethernet, ip = Ethernet.unpack(frame), IPv6.unpack(frame, Ethernet.SIZE)
        if ethernet.ethertype != ETHERTYPE_IPV6 or ip.next_hdr != NEXT_HEADER_ICMPV6:
            return None
        start = Ethernet.SIZE + IPv6.SIZE
        message = frame[start : start + ip.payload_len]
        kind, code, _, _ = _ICMP.unpack_from(message)
        pseudo_header = _PSEUDO_HEADER.pack(ip.src, ip.dst, ip.payload_len, NEXT_HEADER_ICMPV6)
        if (kind, code) != (_TIME_EXCEEDED, _HOP_LIMIT) or internet_checksum(pseudo_header + message):
            return None
        quoted = message[_ICMP.size :]
        return TimeExceeded(ip.src, ip.dst, IPv6.unpack(quoted).dst, _request_id(quoted))
    except (ValueError, struct.error):  # it ends before its headers
        return None


def _request_id(packet: bytes) -> int | None:
    at, ip = IPv6.SIZE, IPv6.unpack(packet)
    if ip.next_hdr == NEXT_HEADER_IPV6:
        ip = IPv6.unpack(packet, at)
        at += IPv6.SIZE
    if ip.next_hdr != NEXT_HEADER_UDP or len(packet) < at + UDP.SIZE + BTH.SIZE:
        return None
    bth = BTH.unpack(packet, at + UDP.SIZE)
    is_request = bth.opcode == Opcode.ENDPOINT_REQUEST and bth.dqpn == ENDPOINT_DQPN
    return bth.psn & 0xFFFF if is_request else None


def internet_checksum(data: bytes) -> int:
    """RFC 1071: the ones' complement of the ones' complement sum of all 16-bit words; 0 over what is intact."""
    padded = data + b"\0" * (len(data) % 2)
    # 2^16 is 1 modulo 0xFFFF, so the number as a whole is the sum of its words.
    return -int.from_bytes(padded, "big") % 0xFFFF
