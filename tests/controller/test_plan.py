"""Entries per switch, against the tables of the plan worked out by hand, and their comparison."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from ipaddress import IPv6Address, IPv6Network

import pytest

from controller.plan import TABLES, Difference, Entry, Member, action_set, compare, ecmp_seed, entries
from controller.topology import Topology
from tests.controller.test_topology import small


def planned(preset: str, switch: str) -> list[str]:
    topo = Topology.preset(preset)
    return [str(entry) for entry in entries(topo, topo.switch(switch))]


def of(topo: Topology, switch: str, *tables: str) -> list[str]:
    return [str(entry) for entry in entries(topo, topo.switch(switch)) if entry.table in tables]


TRAFFIC_CLASSES = [
    "traffic_class dscp=0 -> classify(queue=0, trimmable=0)",
    "traffic_class dscp=4 -> classify(queue=0, trimmable=1)",
    "traffic_class dscp=8 -> classify(queue=0, trimmable=1)",
    "traffic_class dscp=12 -> classify(queue=1, trimmable=0)",
    "traffic_class dscp=16 -> classify(queue=1, trimmable=0)",
    "traffic_class dscp=46 -> classify(queue=2, trimmable=0)",
]


def test_the_entries_of_a_t0() -> None:
    assert planned("compose", "p1t0-1") == [
        "next_hop next_hop_id=1 -> forward(port=1, src_mac=02:00:00:00:24:01, dst_mac=02:01:00:01:e4:00)",
        "next_hop next_hop_id=2 -> forward(port=2, src_mac=02:00:00:00:24:01, dst_mac=02:01:00:01:e4:01)",
        "next_hop next_hop_id=3 -> forward(port=3, src_mac=02:00:00:00:24:01, dst_mac=02:00:00:00:44:00)",
        "next_hop next_hop_id=4 -> forward(port=4, src_mac=02:00:00:00:24:01, dst_mac=02:00:00:00:44:01)",
        "ecmp_group group_id=1 -> {set_next_hop(next_hop_id=3), set_next_hop(next_hop_id=4)}",
        "fib dst_addr=fcbb:bbbb:e400::/48 -> route_to(next_hop_id=1)",
        "fib dst_addr=fcbb:bbbb:e401::/48 -> route_to(next_hop_id=2)",
        "fib dst_addr=fcbb:bbbb:4400::/48 -> route_to(next_hop_id=3)",
        "fib dst_addr=fcbb:bbbb:4401::/48 -> route_to(next_hop_id=4)",
        "fib dst_addr=fd00:6d72:6300:1:1::/128 -> route_to(next_hop_id=1)",
        "fib dst_addr=fd00:6d72:6300:1:1::1/128 -> route_to(next_hop_id=2)",
        # 0x2401 * 0x9e3779b1 = 0x1640_6b54_5db1
        f"fib dst_addr=fd00:6d72:6300::/64 -> route_to_group(group_id=1, seed={0x6B545DB1})",
        "my_sid dst_addr=fcbb:bbbb:2401::/48 -> end_un()",
        *TRAFFIC_CLASSES,
        "queue_limits egress_port=1 -> set_limits(data_packets=48, trim_packets=60)",
        "queue_limits egress_port=2 -> set_limits(data_packets=48, trim_packets=60)",
        "queue_limits egress_port=3 -> set_limits(data_packets=48, trim_packets=60)",
        "queue_limits egress_port=4 -> set_limits(data_packets=48, trim_packets=60)",
        "port_role egress_port=1 -> host_role(dscp=16, size=128)",
        "port_role egress_port=2 -> host_role(dscp=16, size=128)",
        "port_role egress_port=3 -> fabric_role(dscp=12, size=128, from=10, span=28)",
        "port_role egress_port=4 -> fabric_role(dscp=12, size=128, from=10, span=28)",
        "punt drop_reason=4 -> punt_to_controller()",
        "guard ingress_port=1 src_addr=fd00:6d72:6300:1:1:: dst_addr=fcbb:bbbb:2401::/48 -> pass_guard()",
        "guard ingress_port=1 src_addr=fd00:6d72:6300:1:1:: dst_addr=fd00:6d72:6300::/63 -> pass_guard()",
        "guard ingress_port=2 src_addr=fd00:6d72:6300:1:1::1 dst_addr=fcbb:bbbb:2401::/48 -> pass_guard()",
        "guard ingress_port=2 src_addr=fd00:6d72:6300:1:1::1 dst_addr=fd00:6d72:6300::/63 -> pass_guard()",
        "host_port ingress_port=1 -> guard_this_port()",
        "host_port ingress_port=2 -> guard_this_port()",
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
        *TRAFFIC_CLASSES,
        "queue_limits egress_port=1 -> set_limits(data_packets=48, trim_packets=60)",
        "queue_limits egress_port=2 -> set_limits(data_packets=48, trim_packets=60)",
        "port_role egress_port=1 -> fabric_role(dscp=12, size=128, from=10, span=28)",
        "port_role egress_port=2 -> fabric_role(dscp=12, size=128, from=10, span=28)",
        "punt drop_reason=4 -> punt_to_controller()",
        "my_station ingress_port=1 dst_mac=02:00:00:00:40:01 -> admit_frame()",
        "my_station ingress_port=2 dst_mac=02:00:00:00:40:01 -> admit_frame()",
    ]


def test_the_size_of_the_demo() -> None:
    topo = Topology.preset("demo")
    counts = {switch.name: sum(1 for _ in entries(topo, switch)) for switch in topo.switches()}
    # In the order of TABLES. T0: 12 ports, of which 4 to NICs; T1: 2 ports.
    t0 = 12 + 1 + (12 + 4 + 1) + 1 + 6 + 12 + 12 + 1 + 4 * 2 + 4 + 12
    t1 = 2 + (2 + 2) + 1 + 6 + 2 + 2 + 1 + 2
    assert (t0, t1) == (86, 20)
    assert counts == {switch.name: t0 if switch.role == "t0" else t1 for switch in topo.switches()}


def test_a_t0_of_the_demo() -> None:
    demo = Topology.preset("demo")
    members = ", ".join(f"set_next_hop(next_hop_id={port})" for port in range(5, 13))
    assert of(demo, "p3t0-0", "ecmp_group") == [f"ecmp_group group_id=1 -> {{{members}}}"]
    assert of(demo, "p3t0-0", "fib") == [
        *(f"fib dst_addr=fcbb:bbbb:ec0{nic}::/48 -> route_to(next_hop_id={1 + nic})" for nic in range(4)),
        *(f"fib dst_addr=fcbb:bbbb:4c0{t1}::/48 -> route_to(next_hop_id={5 + t1})" for t1 in range(8)),
        "fib dst_addr=fd00:6d72:6300:0:3::/128 -> route_to(next_hop_id=1)",
        *(f"fib dst_addr=fd00:6d72:6300:0:3::{nic}/128 -> route_to(next_hop_id={1 + nic})" for nic in range(1, 4)),
        # 0x2c00 * 0x9e3779b1 = 0x1b31_88ea_6c00
        f"fib dst_addr=fd00:6d72:6300:1::/64 -> route_to_group(group_id=1, seed={0x88EA6C00})",
    ]
    assert of(demo, "p3t0-0", "guard")[-2:] == [
        "guard ingress_port=4 src_addr=fd00:6d72:6300:0:3::3 dst_addr=fcbb:bbbb:2c00::/48 -> pass_guard()",
        "guard ingress_port=4 src_addr=fd00:6d72:6300:0:3::3 dst_addr=fd00:6d72:6300::/63 -> pass_guard()",
    ]


def test_what_the_file_says_of_ports() -> None:
    topo = small(
        extra="""\
queues: {data_packets: 40, trim_packets: 50, mark_from: 20, mark_to: 20}
trim_size: 256
dscp: {no_trim: 1, trimmable: 2, trimmable_retx: 3, trimmed: 5, trimmed_lasthop: 6, control: 7}
guard: false
overrides:
  links:
  - between: [p0t1-1, p0t0-0]
    queues: {data_packets: 30, mark_to: 25}
  - between: [nic1, p0t0-0]
    queues: {trim_packets: 63}
"""
    )
    assert of(topo, "p0t0-0", "traffic_class", "queue_limits", "port_role", "guard", "host_port") == [
        "traffic_class dscp=1 -> classify(queue=0, trimmable=0)",
        "traffic_class dscp=2 -> classify(queue=0, trimmable=1)",
        "traffic_class dscp=3 -> classify(queue=0, trimmable=1)",
        "traffic_class dscp=5 -> classify(queue=1, trimmable=0)",
        "traffic_class dscp=6 -> classify(queue=1, trimmable=0)",
        "traffic_class dscp=7 -> classify(queue=2, trimmable=0)",
        "queue_limits egress_port=1 -> set_limits(data_packets=40, trim_packets=50)",
        "queue_limits egress_port=2 -> set_limits(data_packets=40, trim_packets=63)",
        "queue_limits egress_port=3 -> set_limits(data_packets=40, trim_packets=50)",
        "queue_limits egress_port=4 -> set_limits(data_packets=30, trim_packets=50)",
        "port_role egress_port=1 -> host_role(dscp=6, size=256)",
        "port_role egress_port=2 -> host_role(dscp=6, size=256)",
        "port_role egress_port=3 -> fabric_role(dscp=5, size=256, from=20, span=1)",
        "port_role egress_port=4 -> fabric_role(dscp=5, size=256, from=20, span=5)",
    ]
    assert of(topo, "p0t1-1", "queue_limits", "port_role") == [
        "queue_limits egress_port=1 -> set_limits(data_packets=30, trim_packets=50)",
        "queue_limits egress_port=2 -> set_limits(data_packets=40, trim_packets=50)",
        "port_role egress_port=1 -> fabric_role(dscp=5, size=256, from=20, span=5)",
        "port_role egress_port=2 -> fabric_role(dscp=5, size=256, from=20, span=1)",
    ]


def test_a_lossless_fabric_that_marks_at_every_hop() -> None:
    pfc = "pfc: {xoff_bytes: 1000, xon_bytes: 1000}"
    topo = small(
        {"links:\n": f"links:\n  {pfc}\n"},
        extra="""\
queues: {mark_from: 3, mark_to: 11625, mark_last_hop: true}
overrides:
  links:
  - between: [nic1, p0t0-0]
    queues: {mark_last_hop: false}
""",
    )
    assert of(topo, "p0t0-0", "queue_limits", "port_role") == [
        *(
            f"queue_limits egress_port={port} -> set_limits(data_packets=4294967295, trim_packets=60)"
            for port in (1, 2, 3, 4)
        ),
        "port_role egress_port=2 -> host_role(dscp=16, size=128)",
        "port_role egress_port=1 -> fabric_role(dscp=16, size=128, from=3, span=11622)",
        "port_role egress_port=3 -> fabric_role(dscp=12, size=128, from=3, span=11622)",
        "port_role egress_port=4 -> fabric_role(dscp=12, size=128, from=3, span=11622)",
    ]


# Rows of two NICs: red has row 0 and half of row 1, blue the other half.
TWO_TENANTS = """\
tenants:
- {name: red, block: "fcaa:1::/32", nics: [nic0..1, nic3]}
- {name: blue, block: "fcaa:2::/32", nics: [nic2]}
"""


def test_two_tenants() -> None:
    topo = small({"block: fcbb:bbbb::/32\n": TWO_TENANTS})
    assert of(topo, "p1t0-1", "my_sid", "guard") == [
        "my_sid dst_addr=fcaa:1:2401::/48 -> end_un()",
        "my_sid dst_addr=fcaa:2:2401::/48 -> end_un()",
        # nic2, blue: itself only. nic3, red: row 0 is red's, of row 1 the address in this plane.
        "guard ingress_port=1 src_addr=fd00:6d72:6300:1:1:: dst_addr=fcaa:2:2401::/48 -> pass_guard()",
        "guard ingress_port=1 src_addr=fd00:6d72:6300:1:1:: dst_addr=fd00:6d72:6300:1:1::/128 -> pass_guard()",
        "guard ingress_port=2 src_addr=fd00:6d72:6300:1:1::1 dst_addr=fcaa:1:2401::/48 -> pass_guard()",
        "guard ingress_port=2 src_addr=fd00:6d72:6300:1:1::1 dst_addr=fd00:6d72:6300::/64 -> pass_guard()",
        "guard ingress_port=2 src_addr=fd00:6d72:6300:1:1::1 dst_addr=fd00:6d72:6300:1:1::1/128 -> pass_guard()",
    ]
    assert of(topo, "p1t0-1", "fib")[:6] == [
        "fib dst_addr=fcaa:1:e401::/48 -> route_to(next_hop_id=2)",
        "fib dst_addr=fcaa:1:4400::/48 -> route_to(next_hop_id=3)",
        "fib dst_addr=fcaa:1:4401::/48 -> route_to(next_hop_id=4)",
        "fib dst_addr=fcaa:2:e400::/48 -> route_to(next_hop_id=1)",
        "fib dst_addr=fcaa:2:4400::/48 -> route_to(next_hop_id=3)",
        "fib dst_addr=fcaa:2:4401::/48 -> route_to(next_hop_id=4)",
    ]
    assert of(topo, "p0t0-0", "my_sid") == ["my_sid dst_addr=fcaa:1:2000::/48 -> end_un()"]
    assert of(topo, "p0t1-0", "my_sid", "fib") == [
        "fib dst_addr=fcaa:1:2000::/48 -> route_to(next_hop_id=1)",
        "fib dst_addr=fcaa:1:2001::/48 -> route_to(next_hop_id=2)",
        "fib dst_addr=fcaa:2:2001::/48 -> route_to(next_hop_id=2)",
        "fib dst_addr=fd00:6d72:6300::/64 -> route_to(next_hop_id=1)",
        "fib dst_addr=fd00:6d72:6300:1::/64 -> route_to(next_hop_id=2)",
        "my_sid dst_addr=fcaa:1:4000::/48 -> end_un()",
        "my_sid dst_addr=fcaa:2:4000::/48 -> end_un()",
    ]


SCATTERED = """\
tenants:
- {name: a, block: "fcaa:1::/32", nics: [nic1..6, nic16, nic20..23]}
- {name: b, block: "fcaa:2::/32", nics: [nic0, nic9..15, nic24..29]}
- {name: c, block: "fcaa:3::/32", nics: [nic7..8, nic17..19, nic30..31]}
"""


def test_no_tenant_is_let_to_another() -> None:
    topo = small({"block: fcbb:bbbb::/32\n": SCATTERED, "rows: 2": "rows: 8", "nics_per_row: 2": "nics_per_row: 4"})
    owners = {nic.name: nic.tenant for nic in topo.nics()}
    assert Counter(owners.values()) == {"a": 11, "b": 14, "c": 7}
    blocks = {tenant.name: tenant.block for tenant in topo.tenants}
    for switch in topo.switches():
        plan = list(entries(topo, switch))
        peers = {port.number: owners.get(port.peer) for port in topo.ports(switch)}
        for entry in plan:
            if entry.table == "fib" and entry.action == "route_to":
                # Behind a uSID of a tenant's block there is no other tenant's NIC.
                owner = peers[int(dict(entry.params)["next_hop_id"])]
                prefix = IPv6Network(dict(entry.match)["dst_addr"])
                users = {name for name, block in blocks.items() if prefix.subnet_of(block)}
                assert owner is None or not users or users == {owner}
        allowed = [dict(entry.match) for entry in plan if entry.table == "guard"]
        for nic in topo.nics():
            address = nic.ports[switch.plane].address
            reached_from = {peers[int(match["ingress_port"])] for match in allowed if address in network(match)}
            assert reached_from == ({owners[nic.name]} & set(peers.values()))
        for match in allowed:
            tenant = peers[int(match["ingress_port"])]
            sids = {name for name, block in blocks.items() if network(match).overlaps(block)}
            assert sids <= {tenant}


def network(match: dict[str, int | str]) -> IPv6Network:
    return IPv6Network(match["dst_addr"])


def test_seeds_make_switches_choose_apart() -> None:
    """Of flows that share a link behind one T0, each link behind another T0 gets its share."""
    topo = Topology.preset("demo")
    links, flows = 8, 1 << 14
    seeds = [ecmp_seed(switch) for switch in topo.switches() if switch.role == "t0"]
    assert len(set(seeds)) == 8
    hashes = [flow * 0x0123_4567 & 0xFFFF_FFFF for flow in range(flows)]
    for one, other in itertools.combinations(seeds, 2):
        joint = Counter((mixed(value, one) % links, mixed(value, other) % links) for value in hashes)
        expected = flows / links**2
        assert all(0.7 * expected < joint[a, b] < 1.3 * expected for a in range(links) for b in range(links))


def mixed(flow_hash: int, seed: int) -> int:
    """What p4src/route.p4 makes of a flow's CRC-32."""
    h = (flow_hash + seed) * 0x9E37_79B1 & 0xFFFF_FFFF
    h ^= h >> 15
    return (h * 0x85EB_CA77 & 0xFFFF_FFFF) >> 16


@pytest.mark.parametrize("name", ["demo", "compose"])
def test_entries_are_in_writing_order_unique_and_canonical(name: str) -> None:
    topo = Topology.preset(name)
    for switch in topo.switches():
        plan = list(entries(topo, switch))
        assert [entry.table for entry in plan] == sorted((entry.table for entry in plan), key=TABLES.index)
        assert len({entry.key for entry in plan}) == len(plan)
        hops = {dict(entry.match)["next_hop_id"] for entry in plan if entry.table == "next_hop"}
        calls = [entry.params for entry in plan] + [member.params for entry in plan for member in entry.members]
        assert {dict(params)["next_hop_id"] for params in calls if "next_hop_id" in dict(params)} == hops
        sources = [str(value) for entry in plan for field, value in entry.match if field == "src_addr"]
        assert sources == [str(IPv6Address(source)) for source in sources]
        prefixes = [str(value) for entry in plan for field, value in entry.match if field == "dst_addr"]
        assert prefixes == [str(IPv6Network(prefix)) for prefix in prefixes]


def test_a_switch_of_the_paper_design_is_planned_alone() -> None:
    topo = Topology.preset("paper-8x100")
    started = time.process_time()
    t0 = sum(1 for _ in entries(topo, topo.switch("p7t0-511")))
    t1 = sum(1 for _ in entries(topo, topo.switch("p7t1-255")))
    assert (t0, t1) == (513 + (512 + 256 + 511) + 1 + 6 + 2 * 512 + 1 + 256 * 3 + 512, 5 * 512 + 1 + 6 + 1 + 512)
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


def test_an_action_set() -> None:
    port_3, port_4 = (("next_hop_id", 3),), (("next_hop_id", 4),)
    calls = [Member("set_next_hop", port_4), Member("set_next_hop", port_3), Member("set_next_hop", port_4, 2)]
    entry = action_set("ecmp_group", (("group_id", 1),), calls)
    assert entry.members == (Member("set_next_hop", port_3, 1), Member("set_next_hop", port_4, 3))
    assert str(entry) == "ecmp_group group_id=1 -> {set_next_hop(next_hop_id=3), 3 x set_next_hop(next_hop_id=4)}"
    assert entry.as_json() == {
        "table": "ecmp_group",
        "match": {"group_id": 1},
        "members": [
            {"action": "set_next_hop", "params": {"next_hop_id": 3}, "weight": 1},
            {"action": "set_next_hop", "params": {"next_hop_id": 4}, "weight": 3},
        ],
    }
    other = action_set("ecmp_group", (("group_id", 1),), calls[1:])
    assert compare([entry], [other]).changed == [(entry, other)]


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
