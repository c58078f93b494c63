"""Entries per switch, against the tables of the plan worked out by hand, and their comparison."""

from __future__ import annotations

import time
from ipaddress import IPv6Network

import pytest

from controller.plan import TABLES, Difference, Entry, compare, entries
from controller.topology import Topology


def planned(preset: str, switch: str) -> list[str]:
    topo = Topology.preset(preset)
    return [str(entry) for entry in entries(topo, topo.switch(switch))]


def test_the_entries_of_a_t0() -> None:
    assert planned("compose", "p1t0-1") == [
        "next_hop next_hop_id=1 -> forward(port=1, src_mac=02:00:00:00:24:01, dst_mac=02:01:00:01:e4:00)",
        "next_hop next_hop_id=2 -> forward(port=2, src_mac=02:00:00:00:24:01, dst_mac=02:01:00:01:e4:01)",
        "next_hop next_hop_id=3 -> forward(port=3, src_mac=02:00:00:00:24:01, dst_mac=02:00:00:00:44:00)",
        "next_hop next_hop_id=4 -> forward(port=4, src_mac=02:00:00:00:24:01, dst_mac=02:00:00:00:44:01)",
        "fib dst_addr=fcbb:bbbb:e400::/48 -> route_to(next_hop_id=1)",
        "fib dst_addr=fcbb:bbbb:e401::/48 -> route_to(next_hop_id=2)",
        "fib dst_addr=fcbb:bbbb:4400::/48 -> route_to(next_hop_id=3)",
        "fib dst_addr=fcbb:bbbb:4401::/48 -> route_to(next_hop_id=4)",
        "fib dst_addr=fd00:6d72:6300:1:1::/128 -> route_to(next_hop_id=1)",
        "fib dst_addr=fd00:6d72:6300:1:1::1/128 -> route_to(next_hop_id=2)",
        "my_sid dst_addr=fcbb:bbbb:2401::/48 -> end_un()",
        "my_station ingress_port=1 dst_mac=02:00:00:00:24:01 -> admit_frame()",
        "my_station ingress_port=2 dst_mac=02:00:00:00:24:01 -> admit_frame()",
        "my_station ingress_port=3 dst_mac=02:00:00:00:24:01 -> admit_frame()",
        "my_station ingress_port=4 dst_mac=02:00:00:00:24:01 -> admit_frame()",
    ]


def test_the_entries_of_a_t1() -> None:
    assert planned("compose", "p0t1-1") == [
        "next_hop next_hop_id=1 -> forward(port=1, src_mac=02:00:00:00:40:01, dst_mac=02:00:00:00:20:00)",
        "next_hop next_hop_id=2 -> forward(port=2, src_mac=02:00:00:00:40:01, dst_mac=02:00:00:00:20:01)",
        "fib dst_addr=fcbb:bbbb:2000::/48 -> route_to(next_hop_id=1)",
        "fib dst_addr=fcbb:bbbb:2001::/48 -> route_to(next_hop_id=2)",
        "fib dst_addr=fd00:6d72:6300::/64 -> route_to(next_hop_id=1)",
        "fib dst_addr=fd00:6d72:6300:1::/64 -> route_to(next_hop_id=2)",
        "my_sid dst_addr=fcbb:bbbb:4001::/48 -> end_un()",
        "my_station ingress_port=1 dst_mac=02:00:00:00:40:01 -> admit_frame()",
        "my_station ingress_port=2 dst_mac=02:00:00:00:40:01 -> admit_frame()",
    ]


def test_the_size_of_the_demo() -> None:
    topo = Topology.preset("demo")
    counts = {switch.name: sum(1 for _ in entries(topo, switch)) for switch in topo.switches()}
    # T0: 12 ports -> 12 next hops, 12 stations, 12 uSID routes, 4 NIC addresses, 1 uN. T1: 2 ports.
    assert set(counts.values()) == {12 + 12 + 12 + 4 + 1, 2 + 2 + 2 + 2 + 1}
    assert sum(counts.values()) == 8 * 41 + 32 * 9


@pytest.mark.parametrize("name", ["demo", "compose"])
def test_entries_are_in_writing_order_unique_and_canonical(name: str) -> None:
    topo = Topology.preset(name)
    for switch in topo.switches():
        plan = list(entries(topo, switch))
        assert [entry.table for entry in plan] == sorted((entry.table for entry in plan), key=TABLES.index)
        assert len({entry.key for entry in plan}) == len(plan)
        hops = {dict(entry.match)["next_hop_id"] for entry in plan if entry.table == "next_hop"}
        assert {dict(entry.params)["next_hop_id"] for entry in plan if entry.table == "fib"} <= hops
        prefixes = [str(value) for entry in plan for field, value in entry.match if field == "dst_addr"]
        assert prefixes == [str(IPv6Network(prefix)) for prefix in prefixes]


def test_a_switch_of_the_paper_design_is_planned_alone() -> None:
    topo = Topology.preset("paper-8x100")
    started = time.process_time()
    t0 = sum(1 for _ in entries(topo, topo.switch("p7t0-511")))
    t1 = sum(1 for _ in entries(topo, topo.switch("p7t1-255")))
    assert (t0, t1) == (512 + 512 + 512 + 256 + 1, 512 + 512 + 512 + 512 + 1)
    assert time.process_time() - started < 0.5  # it takes about 10 ms: nothing of the other 6,142 is derived


def test_an_entry_as_json() -> None:
    topo = Topology.preset("compose")
    first, *_, last = entries(topo, topo.switch("p0t0-0"))
    assert first.as_json() == {
        "table": "next_hop",
        "match": {"next_hop_id": 1},
        "action": "forward",
        "params": {"port": 1, "src_mac": "02:00:00:00:20:00", "dst_mac": "02:01:00:00:e0:00"},
    }
    assert last.as_json() == {
        "table": "my_station",
        "match": {"ingress_port": 4, "dst_mac": "02:00:00:00:20:00"},
        "action": "admit_frame",
        "params": {},
    }


def route(prefix: str, hop: int) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to", (("next_hop_id", hop),))


def test_comparing_a_plan_with_a_switch() -> None:
    a, b, c = route("fcbb:bbbb:1::/48", 1), route("fcbb:bbbb:2::/48", 2), route("fcbb:bbbb:3::/48", 3)
    other_b = route("fcbb:bbbb:2::/48", 7)
    assert compare([a, b, c], [c, b, a]) == Difference([], [], [], 3)
    assert not compare([a, b], [b, a])
    assert compare([a, b], [other_b, c]) == Difference([a], [c], [(b, other_b)], 0)
    assert compare([a], [])
    assert compare([], [a])
    assert compare([b], [other_b])
