"""uN (RFC 9800 4.1) on both targets: the vectors of tests/vectors/un.json, byte for byte, and the drops' reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.dataplane.harness import HOST_MAC, INGRESS_PORT, OWN_UN, ROUTER_MAC, Switch, basic, forwarded, marker
from tests.dataplane.targets import PORTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "un.json").read_text())
DROP_REASON = {
    "zero-gap": "no_route",
    "zero-gap-far": "no_route",
    "host-bits": "no_route",
    "last-usid-v6": "last_usid",
    "last-usid-udp": "last_usid",
    "own-usid-twice": "no_route",
    "not-mine-no-route": "no_route",
    "block-mismatch": "no_route",
    "hop-limit-1": "hop_limit",
    "hop-limit-0": "hop_limit",
    "no-route-after-shift": "no_route",
}


def frame(vector: dict[str, Any]) -> bytes:
    """A frame with the vector's outer header; every other field has a value of its own."""
    header = IPv6(src="fd00::1", dst=vector["in_da"], hlim=vector["hop_limit"], tc=0x12, fl=0xABCDE)
    ethernet = Ether(dst=ROUTER_MAC, src=HOST_MAC)
    inner = IPv6(src="fd00::1", dst="fd00::2", hlim=9)
    udp = UDP(sport=0xC123, dport=4791, chksum=0xBEEF) / Raw(bytes(range(200)))
    if vector["next_header"] == 43:
        segments = vector["srh"]["segments"]
        srh = IPv6ExtHdrSegmentRouting(addresses=segments, segleft=vector["srh"]["segments_left"], nh=41)
        return bytes(ethernet / header / srh / inner / udp)
    return bytes(ethernet / header / (inner / udp if vector["next_header"] == 41 else udp))


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["id"])
async def test_vector(switch: Switch, vector: dict[str, Any]) -> None:
    assert VECTORS["own"] == OWN_UN
    await switch.program(basic({prefix: 1 + index for index, prefix in enumerate(vector["routes"])}))
    sent = frame(vector)
    out = await switch.exchange(sent)
    if vector["result"] == "forward":
        assert out == [(1, forwarded(sent, 1, dst=vector["out_da"]))]
        assert out[0][1][21] == vector["out_hop_limit"]
        assert await switch.drops() == {}
    else:
        assert out == []
        assert await switch.drops() == {DROP_REASON[vector["id"]]: (1, len(sent))}


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("not_my_station", {0: 0x02, 5: 0x77}),  # another MAC
        ("not_ipv6", {12: 0x08, 13: 0x00}),  # IPv4's ethertype
        ("not_ipv6", {14: 0x40}),  # version 4
        ("martian", {22: 0xFF}),  # multicast source
        ("martian", {38: 0xFF}),  # multicast destination
        ("martian", {38: 0xFE, 39: 0x80}),  # link-local destination
    ],
)
async def test_what_is_not_routed(switch: Switch, reason: str, change: dict[int, int]) -> None:
    await switch.program(basic({"fcbb:bbbb:2::/48": 1, "::/0": 2}))
    sent = bytearray(frame(VECTORS["vectors"][0]))
    for position, value in change.items():
        sent[position] = value
    assert await switch.exchange(bytes(sent)) == []
    assert await switch.drops() == {reason: (1, len(sent))}


@pytest.mark.parametrize("length", [14, 20, 53, 54, 60, 93, 101])
async def test_a_frame_that_ends_inside_its_headers_is_dropped(switch: Switch, length: int) -> None:
    await switch.program(basic({"fcbb:bbbb:2::/48": 1}))
    sent = frame(VECTORS["vectors"][0])[:length]
    assert await switch.exchange(sent) == []
    assert await switch.drops() == {"parser_error": (1, length)}


async def test_counters_of_ports(switch: Switch) -> None:
    await switch.program(basic({"fcbb:bbbb:2::/48": 1}))
    sent = frame(VECTORS["vectors"][0])
    assert len(await switch.exchange(sent, sent, sent)) == 3
    size = len(marker(0))
    assert await switch.counter("port_rx") == {INGRESS_PORT: (3 + len(PORTS), 3 * len(sent) + len(PORTS) * size)}
    assert await switch.counter("port_tx") == {
        port: (4, 3 * len(sent) + size) if port == 1 else (1, size) for port in PORTS
    }
