"""uN (RFC 9800 4.1) on every target: the vectors of tests/vectors/un.json, byte for byte, and the drops' reasons."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from finsy.p4schema import P4UpdateType
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from controller.drop_reasons import DROP_REASONS
from controller.p4runtime import Pipeline, SwitchClient
from controller.plan import Entry
from tests.dataplane.targets import BMV2, PORTS, Target, bmv2, embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "un.json").read_text())
INGRESS_PORT = 7
ROUTER_MAC = "02:00:00:00:20:01"
HOST_MAC = "02:01:00:00:e0:00"
MARKER_PREFIX = "fd00:ffff::"
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


def neighbour_mac(port: int) -> str:
    return f"02:00:00:00:99:{port:02x}"


def next_hop(port: int) -> Entry:
    params = (("port", port), ("src_mac", ROUTER_MAC), ("dst_mac", neighbour_mac(port)))
    return Entry("next_hop", (("next_hop_id", port + 1),), "forward", params)


def route(prefix: str, port: int) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to", (("next_hop_id", port + 1),))


def entries(routes: list[str]) -> list[Entry]:
    """A switch with the vectors' own uN and these routes, route i to port i + 1; and a marker route to each port."""
    station = (("ingress_port", INGRESS_PORT), ("dst_mac", ROUTER_MAC))
    return [
        *(next_hop(port) for port in PORTS),
        *(route(f"{MARKER_PREFIX}{port:x}/128", port) for port in PORTS),
        *(route(prefix, 1 + index) for index, prefix in enumerate(routes)),
        Entry("my_sid", (("dst_addr", VECTORS["own"]),), "end_un", ()),
        Entry("my_station", station, "admit_frame", ()),
    ]


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


def marker(port: int) -> bytes:
    return bytes(Ether(dst=ROUTER_MAC, src=HOST_MAC) / IPv6(src="fd00::1", dst=f"{MARKER_PREFIX}{port:x}") / UDP())


def expected(vector: dict[str, Any], port: int) -> bytes:
    """The same bytes but MACs, hop limit and destination address."""
    sent = frame(vector)
    macs = bytes.fromhex((neighbour_mac(port) + ROUTER_MAC).replace(":", ""))
    destination = IPv6Address(vector["out_da"]).packed
    return macs + sent[12:21] + bytes([vector["out_hop_limit"]]) + sent[22:38] + destination + sent[54:]


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["embedded", "bmv2"])
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    if request.param == "bmv2" and BMV2 is None:
        pytest.skip("no simple_switch_grpc on the PATH")
    async with embedded() if request.param == "embedded" else bmv2() as made:
        yield made


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline()


async def program(target: Target, pipeline: Pipeline, written: list[Entry]) -> None:
    async with SwitchClient(target.control, pipeline, 10) as client:
        await client.become_primary(1)
        await client.commit_pipeline()
        assert await client.write(P4UpdateType.INSERT, written) == []


async def outcome(target: Target, sent: bytes) -> list[tuple[int, bytes]]:
    """What comes out for one frame. A marker follows it out of every port, so nothing is missed and none waits."""
    await target.send(INGRESS_PORT, sent)
    for port in PORTS:
        await target.send(INGRESS_PORT, marker(port))
    out, pending = [], set(PORTS)
    while pending:
        port, received = await target.receive()
        if received[38:54] == IPv6Address(f"{MARKER_PREFIX}{port:x}").packed:
            pending.remove(port)
        else:
            out.append((port, received))
    return out


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["id"])
async def test_vector(target: Target, pipeline: Pipeline, vector: dict[str, Any]) -> None:
    await program(target, pipeline, entries(vector["routes"]))
    sent = frame(vector)
    out = await outcome(target, sent)
    reasons = {name: await target.counter(pipeline, "drop_reasons", index) for index, name in enumerate(DROP_REASONS)}
    dropped = {name: count for name, count in reasons.items() if count != (0, 0)}
    if vector["result"] == "forward":
        assert out == [(1, expected(vector, 1))]
        assert dropped == {}
    else:
        assert out == []
        assert dropped == {DROP_REASON[vector["id"]]: (1, len(sent))}


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
async def test_what_is_not_routed(target: Target, pipeline: Pipeline, reason: str, change: dict[int, int]) -> None:
    await program(target, pipeline, entries(["fcbb:bbbb:2::/48", "::/0"]))
    sent = bytearray(frame(VECTORS["vectors"][0]))
    for position, value in change.items():
        sent[position] = value
    assert await outcome(target, bytes(sent)) == []
    assert await target.counter(pipeline, "drop_reasons", DROP_REASONS.index(reason)) == (1, len(sent))


@pytest.mark.parametrize("length", [14, 20, 53, 54, 60, 93, 101])
async def test_a_frame_that_ends_inside_its_headers_is_dropped(target: Target, pipeline: Pipeline, length: int) -> None:
    await program(target, pipeline, entries(["fcbb:bbbb:2::/48"]))
    sent = frame(VECTORS["vectors"][0])[:length]
    assert await outcome(target, sent) == []
    assert await target.counter(pipeline, "drop_reasons", DROP_REASONS.index("parser_error")) == (1, length)


async def test_counters_of_ports_and_sids(target: Target, pipeline: Pipeline) -> None:
    await program(target, pipeline, entries(["fcbb:bbbb:2::/48"]))
    sent = frame(VECTORS["vectors"][0])
    for _ in range(5):
        await outcome(target, sent)
    markers = 5 * len(PORTS)
    size = len(marker(0))
    assert await target.counter(pipeline, "port_rx", INGRESS_PORT) == (5 + markers, 5 * len(sent) + markers * size)
    assert await target.counter(pipeline, "port_tx", 1) == (5 + 5, 5 * len(sent) + 5 * size)
    assert await target.counter(pipeline, "port_tx", 0) == (5, 5 * size)
