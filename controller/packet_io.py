"""Packets between one switch and its controller, and what the controller answers to one whose hop limit ran out."""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from typing import NamedTuple

from finsy import P4PacketIn, P4PacketOut

from controller.p4runtime import Pipeline, SwitchClient
from nic_model.icmp import internet_checksum

_ETHERNET = struct.Struct("!6s6s2s")
_IPV6 = struct.Struct("!IHBB16s16s")
_ICMPV6 = struct.Struct("!BBHI")
_PSEUDO_HEADER = struct.Struct("!16s16sII")

_IPV6_VERSION = 6 << 28
_HOP_LIMIT = 64
_NEXT_HEADER_ICMPV6 = 58
_MIN_MTU = 1280  # RFC 8200 5
_TIME_EXCEEDED = 3  # RFC 4443 3.3, with code 0 for the hop limit
_FIRST_INFORMATIONAL = 128  # RFC 4443 2.1: what is below is an error message
_REDIRECT = 137
_SECOND = 1_000_000_000

ANSWERS_PER_SECOND = 100
ANSWER_BURST = 10
"""Of Time Exceeded, from one switch (RFC 4443 2.4 f asks for a limit; it suggests a burst of 10)."""


class PacketIn(NamedTuple):
    """A frame that a switch gave to its controller, as it was received, and why: one of DROP_REASONS."""

    ingress_port: int
    reason: str
    frame: bytes


class PacketIo:
    """The packets of one switch. `client` must be its primary controller and run the pipeline."""

    def __init__(self, client: SwitchClient, pipeline: Pipeline) -> None:
        self._client = client
        self._schema = pipeline.schema
        reasons = pipeline.schema.p4info.type_info.serializable_enums["DropReason"].members
        self._reasons = {int.from_bytes(reason.value, "big"): reason.name.lower() for reason in reasons}

    async def receive(self) -> PacketIn:
        """Wait for the next packet. Raises SwitchError."""
        packet = P4PacketIn.decode(await self._client.next_packet(), self._schema)
        return PacketIn(packet["ingress_port"], self._reasons[packet["reason"]], packet.payload)

    async def send(self, egress_port: int, frame: bytes) -> None:
        """Let a frame out of a port, past all tables. Raises SwitchError."""
        await self._client.send_packet(P4PacketOut(frame, egress_port=egress_port, pad=0).encode_update(self._schema))


class TimeExceededAnswers:
    """What a controller answers to the packets of one switch whose hop limit ran out; sans-IO.

    A token bucket limits it (RFC 4443 2.4 f): at most `burst` at once, and `rate` a second.
    """

    def __init__(self, address: IPv6Address, rate: int = ANSWERS_PER_SECOND, burst: int = ANSWER_BURST) -> None:
        """`address` is the switch's."""
        self._address = address
        self._interval = _SECOND // rate
        self._room = burst * self._interval
        self._due = 0  # when the bucket would be full again, ns
        self.suppressed = 0
        """Answers that the limit has kept back."""

    def answer(self, packet: PacketIn, now: int) -> bytes | None:
        """The frame for the port that the packet came in through, None if it gets none. `now` in ns."""
        if packet.reason != "hop_limit":
            return None
        frame = icmp_time_exceeded(self._address, packet.frame)
        if frame is None:
            return None
        due = max(self._due, now) + self._interval
        if due - now > self._room:
            self.suppressed += 1
            return None
        self._due = due
        return frame


def icmp_time_exceeded(address: IPv6Address, frame: bytes) -> bytes | None:
    """The frame that tells a packet's source that its hop limit ran out at the switch with `address` (RFC 4443 3.3).

    `frame` is the packet as received, in Ethernet; the answer belongs to the port that it came through. It holds as
    much of the packet as fits into 1280 bytes. None where no answer may be given (RFC 4443 2.4 e): to an error message,
    and to a source that is not a node's address.
    """
    dst_mac, src_mac, ethertype = _ETHERNET.unpack_from(frame)
    _, payload_length, next_header, _, source, _ = _IPV6.unpack_from(frame, _ETHERNET.size)
    packet = frame[_ETHERNET.size :][: _IPV6.size + payload_length]  # without Ethernet's padding
    if next_header == _NEXT_HEADER_ICMPV6 and _is_error(packet[_IPV6.size :]):
        return None
    if IPv6Address(source).is_unspecified or IPv6Address(source).is_multicast:
        return None

    quoted = packet[: _MIN_MTU - _IPV6.size - _ICMPV6.size]
    length = _ICMPV6.size + len(quoted)
    pseudo_header = _PSEUDO_HEADER.pack(address.packed, source, length, _NEXT_HEADER_ICMPV6)
    checksum = internet_checksum(pseudo_header + _ICMPV6.pack(_TIME_EXCEEDED, 0, 0, 0) + quoted)
    return (
        _ETHERNET.pack(src_mac, dst_mac, ethertype)
        + _IPV6.pack(_IPV6_VERSION, length, _NEXT_HEADER_ICMPV6, _HOP_LIMIT, address.packed, source)
        + _ICMPV6.pack(_TIME_EXCEEDED, 0, checksum, 0)
        + quoted
    )


def _is_error(message: bytes) -> bool:
    """Whether an ICMPv6 message is one that must not be answered with an error: so is one without a type."""
    return not message or message[0] < _FIRST_INFORMATIONAL or message[0] == _REDIRECT
