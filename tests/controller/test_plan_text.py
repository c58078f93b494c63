"""A plan as text is the plan, entry by entry, although no entry is made on the way."""

from __future__ import annotations

import json

import pytest

from controller.plan import entries
from controller.plan_text import json_lines, readable
from controller.topology import Topology
from tests.controller.test_plan import TWO_TENANTS
from tests.controller.test_topology import small

OVERRIDES = """\
overrides:
  links:
  - {between: [p0t0-0, p0t1-1], ports: {p0t0-0: 77, p0t1-1: 9}, queues: {data_packets: 20, mark_from: 5, mark_to: 5}}
  - {between: [nic3, p1t0-1], ports: {p1t0-1: 200}}
"""


def topologies() -> dict[str, Topology]:
    two = small({"block: fcbb:bbbb::/32\n": TWO_TENANTS}, OVERRIDES)
    bare = small(extra="guard: false\nmode: ecmp\n" + OVERRIDES)
    return {"demo": Topology.preset("demo"), "compose": Topology.preset("compose"), "two tenants": two, "bare": bare}


@pytest.mark.parametrize("name", list(topologies()))
def test_the_text_is_the_plan(name: str) -> None:
    topo = topologies()[name]
    for switch in topo.switches():
        check(topo, switch.name)


@pytest.mark.parametrize("switch", ["p0t0-0", "p7t0-511", "p3t1-255"])
def test_the_text_is_the_plan_of_the_biggest_design(switch: str) -> None:
    check(Topology.preset("paper-8x100"), switch)


def check(topo: Topology, name: str) -> None:
    switch = topo.switch(name)
    planned = list(entries(topo, switch))
    assert "".join(part.text for part in readable(topo, switch)) == "".join(f"{name}: {entry}\n" for entry in planned)
    parts = list(json_lines(topo, switch))
    lines = [json.loads(line) for part in parts for line in part.text.splitlines()]
    assert lines == [{"switch": name, **entry.as_json()} for entry in planned]
    assert [part.table for part in parts for _ in range(part.entries)] == [entry.table for entry in planned]


def test_the_size_of_the_biggest_design() -> None:
    """The design's tables worked out by hand: 512 ports a switch; 256 NICs, 256 T1s and 512 rows in each plane."""
    topo = Topology.preset("paper-8x100")
    t0 = 512 + 1 + (512 + 256 + 511) + 1 + 6 + 512 + 512 + 1 + 2 * 256 + 256 + 512
    t1 = 512 + (512 + 512) + 1 + 6 + 512 + 512 + 1 + 512
    for name, expected in (("p0t0-0", t0), ("p0t1-0", t1)):
        assert sum(part.entries for part in json_lines(topo, topo.switch(name))) == expected
    assert 8 * (512 * t0 + 256 * t1) == 23_117_824
