"""The embedded target against BMv2: the same entries and frames, made up by hypothesis, give the same frames out of the
same ports and the same counters.

Nothing here depends on when a queue is served: a queue takes all or nothing, and no threshold for marks is reached.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import IPv6Address

import pytest
import pytest_asyncio
from finsy import P4Client
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.p4runtime import Pipeline
from controller.plan import Entry, Member
from tests.dataplane.entries import (
    HOST_MAC,
    INGRESS_PORT,
    ROUTER_MAC,
    basic,
    fabric_role,
    host_role,
    queue_limits,
    traffic_class,
)
from tests.dataplane.harness import Switch
from tests.dataplane.targets import BMV2, DEVICE_ID, bmv2, embedded

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(BMV2 is None, reason="no simple_switch_grpc on the PATH"),
]

EXAMPLES = 40
HOST_PORT = 5
OUT_PORTS = (1, 2, 3, HOST_PORT)
NEXT_HOPS = (2, 3, 4, 6, 2, 3, 4, 6, 99)
"""Of the ports 1, 2, 3 and 5 (harness.basic), and one that is not there."""
GROUPS = (1, 2, 3)
ALL_OR_NOTHING = (0, 1000)
"""Packets in a queue."""
INDIRECT_COUNTERS = ("port_rx", "port_tx", "drop_reasons", "port_trims", "port_marks")
COUNTED_TABLES = ("my_station", "guard", "my_sid", "fib", "next_hop")

PREFIXES = (
    *("::/0", "fcbb:bbbb::/32", "fcbb:bbbb:2::/48", "fcbb:bbbb:2:3::/64", "fcbb:bbbb:2:3::/128", "fcbb:bbbb:e005::/48"),
    *("fd00:9::/64", "fd00:9::2/128", "fd00:9:0:0:8000::/65", "fd00:9::/127", "fc00::/7"),
)
SIDS = ("fcbb:bbbb:2::/48", "fcbb:bbbb:1:2::/64", "fcbb:cccc:1::/48", "fd00:9::/64")
SOURCES = ("fd00:1::5", "fd00:1::6")
DESTINATIONS = (
    *("fcbb:bbbb:1:2:3::", "fcbb:bbbb:1:2::", "fcbb:bbbb:1:0:2::", "fcbb:bbbb:1:1:2::", "fcbb:bbbb:2:3::"),
    *("fcbb:bbbb:1:e005::", "fcbb:cccc:1:2::", "fd00:9::2", "fd00:9::3", "fd00:9:0:0:8000::1", "fec0::9"),
)
LAST_USIDS = ("fcbb:bbbb:1::", "fcbb:bbbb:1::1")
MARTIANS = ("fe80::9", "febf::9", "ff02::9")
DSCPS = (0, 4, 8, 12, 16, 33, 63)
UDP, IPV6, ROUTING, NO_NEXT_HEADER = 17, 41, 43, 59


@dataclass(frozen=True)
class Case:
    """What both switches get: entries, and frames by the port that they arrive on."""

    entries: list[Entry]
    frames: dict[int, list[bytes]]


def route(prefix: str, action: str, *params: tuple[str, int]) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), action, params)


def routes(prefix: str) -> st.SearchStrategy[Entry]:
    seeds = st.integers(0, 2**32 - 1)
    return st.one_of(
        st.sampled_from(NEXT_HOPS).map(lambda hop: route(prefix, "route_to", ("next_hop_id", hop))),
        st.builds(
            lambda g, s: route(prefix, "route_to_group", ("group_id", g), ("seed", s)), st.sampled_from(GROUPS), seeds
        ),
        st.just(route(prefix, "discard")),
    )


def groups(group_id: int) -> st.SearchStrategy[Entry]:
    members = st.builds(
        lambda hop, weight: Member("set_next_hop", (("next_hop_id", hop),), weight),
        st.sampled_from(NEXT_HOPS),
        st.integers(1, 3),
    )
    match = (("group_id", group_id),)
    return st.lists(members, min_size=1, max_size=4).map(lambda some: Entry("ecmp_group", match, "", (), tuple(some)))


def roles(port: int) -> st.SearchStrategy[Entry]:
    size = st.sampled_from((40, 60, 82, 128, 200, 4000))
    return st.one_of(
        size.map(lambda octets: host_role(port, octets)),
        size.map(lambda octets: fabric_role(port, octets, mark_from=1000, span=1)),
    )


def guards() -> st.SearchStrategy[Entry]:
    return st.builds(
        lambda src, dst: Entry(
            "guard", (("ingress_port", HOST_PORT), ("src_addr", src), ("dst_addr", dst)), "pass_guard", ()
        ),
        st.sampled_from(SOURCES[:2]),
        st.sampled_from(PREFIXES[1:]),
    )


@st.composite
def some_entries(draw: st.DrawFn) -> list[Entry]:
    """Entries with different keys, besides those that the markers need."""

    def some(strategy: st.SearchStrategy[Entry], least: int, most: int) -> list[Entry]:
        return draw(st.lists(strategy, min_size=least, max_size=most, unique_by=lambda entry: entry.match))

    made = [
        *some(st.sampled_from(PREFIXES).flatmap(routes), 5, 9),
        *some(st.sampled_from(GROUPS).flatmap(groups), 2, 3),
        *some(st.sampled_from(SIDS).map(lambda sid: Entry("my_sid", (("dst_addr", sid),), "end_un", ())), 0, 2),
        *some(st.sampled_from(OUT_PORTS).flatmap(roles), 2, 4),
        *some(st.builds(queue_limits, st.sampled_from(OUT_PORTS), *[st.sampled_from(ALL_OR_NOTHING)] * 2), 1, 3),
        *some(st.builds(traffic_class, st.sampled_from((33, 63)), st.integers(0, 7), st.booleans()), 0, 2),
        *some(guards(), 2, 4),
        *some(st.just(Entry("host_port", (("ingress_port", HOST_PORT),), "guard_this_port", ())), 0, 1),
    ]
    return [*basic({}), *made]


@dataclass(frozen=True)
class Header:
    """The outer IPv6 header and what stands in front of it."""

    mac: str = ROUTER_MAC
    ethertype: int = 0x86DD
    version: int = 6
    hop_limit: int = 64
    src: str = SOURCES[0]
    dst: str = DESTINATIONS[0]


HEADERS = st.builds(Header, src=st.sampled_from(SOURCES), dst=st.sampled_from(DESTINATIONS))
FLAWED_HEADERS = st.one_of(
    st.just(Header(mac=HOST_MAC)),
    st.just(Header(ethertype=0x0800)),
    st.just(Header(version=4)),
    st.builds(Header, hop_limit=st.sampled_from((0, 1, 2))),
    st.builds(Header, src=st.sampled_from(("::", "ff02::1", "fe80::1"))),
    st.builds(Header, dst=st.sampled_from((*LAST_USIDS, *MARTIANS))),
)


@st.composite
def frames(draw: st.DrawFn, headers: st.SearchStrategy[Header]) -> bytes:
    """A frame behind one of these headers, with a payload length that need not be true."""

    def ipv6(header: Header, next_header: int, payload: bytes) -> bytes:
        word = header.version << 28 | draw(st.sampled_from(DSCPS)) << 22 | draw(st.integers(0, 0x3FFFFF))
        length = len(payload) + draw(st.sampled_from((0, 0, 0, 300)))
        addresses = IPv6Address(header.src).packed + IPv6Address(header.dst).packed
        return struct.pack(">IHBB", word, length, next_header, header.hop_limit) + addresses + payload

    ports = draw(st.tuples(st.integers(0, 0xFFFF), st.sampled_from((4791, 0))))
    udp = struct.pack(">HHHH", *ports, 8, 0xBEEF) + bytes(draw(st.sampled_from((0, 1, 100, 1000))))
    outer = draw(headers)
    next_header = draw(st.sampled_from((UDP, UDP, IPV6, IPV6, ROUTING, NO_NEXT_HEADER)))
    payload = ipv6(draw(HEADERS), draw(st.sampled_from((UDP, NO_NEXT_HEADER))), udp) if next_header == IPV6 else udp
    macs = bytes.fromhex(outer.mac.replace(":", "")) + bytes(5) + b"\x09"
    return macs + outer.ethertype.to_bytes(2) + ipv6(outer, next_header, payload)


CUT_FRAMES = st.builds(lambda frame, length: frame[:length], frames(HEADERS), st.integers(1, 110))
CASES = st.builds(
    lambda entries, good, flawed, cut, from_host: Case(
        entries, {INGRESS_PORT: good + flawed + cut, HOST_PORT: from_host}
    ),
    some_entries(),
    st.lists(frames(HEADERS), min_size=10, max_size=20),
    st.lists(frames(FLAWED_HEADERS), max_size=4),
    st.lists(CUT_FRAMES, max_size=2),
    st.lists(frames(HEADERS), min_size=3, max_size=10),
)


async def observed(switch: Switch, case: Case) -> dict[str, object]:
    """All that can be seen of what a switch did."""
    await switch.program(case.entries)
    seen: dict[str, object] = {
        f"from port {port}": sorted(await switch.exchange(*sent, port=port)) for port, sent in case.frames.items()
    }
    for name in INDIRECT_COUNTERS:
        seen[name] = await switch.counter(name)
    for name in COUNTED_TABLES:
        seen[name] = await direct_counters(switch, name)
    return seen


async def direct_counters(switch: Switch, table: str) -> list[str]:
    """The counts of a table's entries, with their keys, as text."""
    selector = p4r.TableEntry(table_id=switch.pipeline.schema.tables[table].id)
    entity = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=selector))
    client = P4Client(switch.target.control.address)
    await client.open()
    try:
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=[entity])
        return sorted(
            str(found) for reply in [r async for r in client.request_iter(request)] for found in reply.entities
        )
    finally:
        await client.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def switches() -> AsyncIterator[tuple[Switch, Switch]]:
    async with embedded() as here, bmv2() as there:
        pipeline = Pipeline()
        yield Switch(here, pipeline), Switch(there, pipeline)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(CASES)
async def test_both_targets_do_the_same(switches: tuple[Switch, Switch], case: Case) -> None:
    ours, theirs = [await observed(switch, case) for switch in switches]
    assert ours == theirs
