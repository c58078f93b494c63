"""What happens to a frame's bytes: on its way, where only the outermost IPv6 header changes, and in damage."""

import struct

from nic_model.headers import NEXT_HEADER_IPV6, UDP, Ethernet, IPv6
from nic_model.packet import Frame

CLASS_AT = Ethernet.SIZE
PAYLOAD_LEN_AT = Ethernet.SIZE + 4
NEXT_HEADER_AT = Ethernet.SIZE + 6
HOP_LIMIT_AT = Ethernet.SIZE + 7
_DSCP_SHIFT, _ECN_SHIFT = 6, 4
_NEXT_HEADER_ROUTING, _SEGMENT_ROUTING = 43, 4


def whole(frame: Frame) -> bytes:
    """A frame of the codec in one piece, as all others here are."""
    return frame[0] + frame[1]


def udp_at(frame: bytes) -> int:
    """Where UDP begins, with one or two IPv6 headers before it."""
    return Ethernet.SIZE + IPv6.SIZE * (2 if frame[NEXT_HEADER_AT] == NEXT_HEADER_IPV6 else 1)


def bth_at(frame: bytes) -> int:
    return udp_at(frame) + UDP.SIZE


# ---- on its way -----------------------------------------------------------------------------------------------


def forwarded(frame: bytes, *, hops: int = 0, dscp: int | None = None, ecn: int | None = None) -> bytes:
    """After `hops` switches, which set the outermost DSCP and ECN."""
    data = bytearray(frame)
    first = int.from_bytes(data[CLASS_AT : CLASS_AT + 2])
    if dscp is not None:
        first = first & ~(0x3F << _DSCP_SHIFT) | dscp << _DSCP_SHIFT
    if ecn is not None:
        first = first & ~(0x3 << _ECN_SHIFT) | ecn << _ECN_SHIFT
    data[CLASS_AT : CLASS_AT + 2] = first.to_bytes(2)
    data[HOP_LIMIT_AT] -= hops
    return bytes(data)


def trimmed(frame: bytes, size: int, dscp: int) -> bytes:
    """Trimmed to `size` bytes: outermost DSCP and length are rewritten, the inner ones and UDP's left alone."""
    data = bytearray(forwarded(frame, dscp=dscp)[:size])
    data[PAYLOAD_LEN_AT : PAYLOAD_LEN_AT + 2] = (len(data) - Ethernet.SIZE - IPv6.SIZE).to_bytes(2)
    return bytes(data)


# ---- otherwise ------------------------------------------------------------------------------------------------


def corrupted(frame: bytes, at: int, flipped: int = 0x10) -> bytes:
    """With some bits of one byte flipped."""
    return frame[:at] + bytes([frame[at] ^ flipped]) + frame[at + 1 :]


def with_udp_length(frame: bytes, length: int) -> bytes:
    at = udp_at(frame) + 4
    return frame[:at] + length.to_bytes(2) + frame[at + 2 :]


def shortened(frame: bytes, size: int) -> bytes:
    """The first `size` bytes, with all lengths made to fit them."""
    data = bytearray(with_udp_length(frame, size - udp_at(frame))[:size])
    for header_at in range(Ethernet.SIZE, udp_at(frame), IPv6.SIZE):
        data[header_at + 4 : header_at + 6] = (size - header_at - IPv6.SIZE).to_bytes(2)
    return bytes(data)


def with_routing_header(frame: bytes) -> bytes:
    """With a segment routing header of one segment (RFC 8754) between its IPv6 headers."""
    at = Ethernet.SIZE + IPv6.SIZE
    segment = frame[at + 24 : at + 40]
    srh = struct.pack("!BBBBBBH", NEXT_HEADER_IPV6, 2, _SEGMENT_ROUTING, 0, 0, 0, 0) + segment
    data = bytearray(frame[:at] + srh + frame[at:])
    data[PAYLOAD_LEN_AT : PAYLOAD_LEN_AT + 2] = (len(data) - at).to_bytes(2)
    data[NEXT_HEADER_AT] = _NEXT_HEADER_ROUTING
    return bytes(data)
