"""The vectors of tests/vectors/, and the frames that they are about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.packet import Packet, Raw

from tests.dataplane.frames import SOURCE, to_router

_DIRECTORY = Path(__file__).parents[1] / "vectors"
UN: dict[str, Any] = json.loads((_DIRECTORY / "un.json").read_text())
TRIM: dict[str, Any] = json.loads((_DIRECTORY / "trim.json").read_text())

IPV4, UDP_HEADER, IPV6, ROUTING, NO_NEXT_HEADER = 4, 17, 41, 43, 59
"""Next headers."""


def un_frame(
    dst: str, next_header: int = IPV6, hop_limit: int = 64, srh: dict[str, Any] | None = None, tc: int = 0x12
) -> bytes:
    """A frame with this outer header; every other field has a value of its own."""
    udp = UDP(sport=0xC123, dport=4791, chksum=0xBEEF) / Raw(bytes(range(200)))
    inner = IPv6(src=SOURCE, dst="fd00::2", hlim=9) / udp
    below: dict[int, Packet] = {
        IPV4: IP(src="10.0.0.1", dst="10.0.0.2", ttl=9) / udp,
        UDP_HEADER: udp,
        IPV6: inner,
        NO_NEXT_HEADER: Raw(bytes(range(200))),
    }
    if srh is not None:
        header = IPv6ExtHdrSegmentRouting(addresses=srh["segments"], segleft=srh["segments_left"], nh=IPV6)
        below[ROUTING] = header / inner
    return to_router(IPv6(src=SOURCE, dst=dst, nh=next_header, hlim=hop_limit, tc=tc, fl=0xABCDE) / below[next_header])


def vector_frame(vector: dict[str, Any]) -> bytes:
    """The frame that a vector of `UN` is about."""
    return un_frame(vector["in_da"], vector["next_header"], vector["hop_limit"], vector.get("srh"))
