"""Every fault of a scenario, from its description to what it does when."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from controller.topology import Topology
from fabric import faults
from fabric.network import Fabric
from fabric.scenario import Fault
from fabric.transports import MrcTransport
from nic_model.congestion import FixedWindow
from nic_model.ev import EvProfile

T0_T1, NIC_T0 = ("p1t0-0", "p1t1-1"), ("nic0", "p1t0-0")


def fault(kind: str, **keys: Any) -> Fault:
    found: Fault = TypeAdapter(Fault).validate_python({"kind": kind, **keys})
    return found


def compose() -> Fabric:
    transport = MrcTransport(EvProfile(2, 2), congestion=lambda _: FixedWindow(100_000))
    return Fabric(Topology.preset("compose"), transport, seed=1)


class Timeline:
    """A fabric without work, and what it is like at each moment."""

    def __init__(self, *scheduled: Fault) -> None:
        self.fabric = compose()
        self.returned: list[tuple[int, str]] = []
        for one in scheduled:
            faults.schedule(self.fabric, one, lambda name: self.returned.append((self.fabric.events.now, name)))

    def down_at(self, link: tuple[str, str], *times_us: float) -> list[bool]:
        state = self.fabric.link(*link).state
        found = []
        for time in times_us:
            self.fabric.events.run(round(time * 1000))
            found.append(bool(state.down))
        return found


def test_link_down_and_up() -> None:
    t = Timeline(fault("link-down", link=T0_T1, at_us=2, until_us=3.5))
    assert t.down_at(T0_T1, 1.999, 2, 3.499, 3.5) == [False, True, True, False]


def test_a_link_that_two_faults_hold_down_is_up_after_both() -> None:
    t = Timeline(
        fault("link-down", link=T0_T1, at_us=1, until_us=5), fault("link-down", link=T0_T1[::-1], at_us=2, until_us=3)
    )
    assert t.down_at(T0_T1, 1, 3, 5) == [True, True, False]


def test_a_flap_by_its_count() -> None:
    flap = fault("flap", link=T0_T1, at_us=10, period_us=5, down_us=2, count=3)
    assert list(flap.spans()) == [(10_000, 12_000), (15_000, 17_000), (20_000, 22_000)]
    t = Timeline(flap)
    assert t.down_at(T0_T1, 9, 10, 12, 15, 17, 20, 22, 25) == [False, True, False, True, False, True, False, False]


def test_a_flap_by_its_end() -> None:
    flap = fault("flap", link=T0_T1, at_us=10, period_us=5, down_us=2, until_us=21)
    assert list(flap.spans()) == [(10_000, 12_000), (15_000, 17_000), (20_000, 21_000)]


def test_a_nics_port_goes_down_at_both_ends() -> None:
    t = Timeline(fault("nic-port-down", nic="nic0", plane=1, at_us=2, until_us=4))
    port = t.fabric.nics["nic0"].nic.ports[1]
    assert t.down_at(NIC_T0, 1) == [False] and port.up
    assert t.down_at(NIC_T0, 2) == [True] and not port.up
    assert t.down_at(NIC_T0, 4) == [False] and port.up


@pytest.mark.parametrize(
    ("one", "impairments"),
    [
        (fault("loss", link=T0_T1, rate=0.5, at_us=1, until_us=2), [(0.5, "random_loss")]),
        (fault("corrupt", link=T0_T1, rate=0.5, at_us=1, until_us=2), [(0.5, "fcs_error")]),
        (fault("corrupt", link=T0_T1, rate=0.5, at_us=1, until_us=2, undetected=True), [(0.5, None)]),
    ],
    ids=str,
)
def test_impairments_come_and_go(one: Fault, impairments: list[tuple[float, str | None]]) -> None:
    t = Timeline(one)
    state = t.fabric.link(*T0_T1).state
    t.fabric.events.run(1000)
    assert [(impairment.rate, impairment.loss) for impairment in state.impairments] == impairments
    t.fabric.events.run(2000)
    assert state.impairments == []


def test_a_switch_down_takes_all_its_links_down_and_returns_empty() -> None:
    t = Timeline(fault("switch-down", switch="p1t1-1", at_us=2, until_us=6))
    node = t.fabric.switch("p1t1-1")
    before = node.device
    both = (T0_T1, ("p1t0-1", "p1t1-1"))
    assert [t.down_at(link, 2) for link in both] == [[True], [True]] and not node.powered
    assert [t.down_at(link, 6) for link in both] == [[False], [False]] and node.powered
    assert node.device is not before and node.device.pipeline is None
    assert t.returned == [(6_000, "p1t1-1")]


def test_the_plane_of_every_fault() -> None:
    fabric = compose()
    for one in (
        fault("link-down", link=T0_T1, at_us=0),
        fault("nic-port-down", nic="nic0", plane=1, at_us=0),
        fault("switch-black-hole", switch="p1t0-1", at_us=0),
    ):
        assert faults.plane(fabric, one) == 1


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"kind": "link-down", "link": T0_T1}, "link p1t0-0 - p1t1-1 down until 9 us"),
        ({"kind": "flap", "link": T0_T1, "period_us": 5, "down_us": 2},
         "link p1t0-0 - p1t1-1 down for 2 us every 5 us until 9 us"),
        ({"kind": "loss", "link": T0_T1, "rate": 0.015}, "link p1t0-0 - p1t1-1 loses 1.50% until 9 us"),
        ({"kind": "corrupt", "link": T0_T1, "rate": 1, "undetected": True},
         "link p1t0-0 - p1t1-1 corrupts 100.00% undetected by FCS until 9 us"),
        ({"kind": "nic-port-down", "nic": "nic0", "plane": 1}, "nic0 port 1 down until 9 us"),
        ({"kind": "switch-black-hole", "switch": "p1t1-1"}, "switch p1t1-1 swallows everything until 9 us"),
        ({"kind": "switch-down", "switch": "p1t1-1"}, "switch p1t1-1 down until 9 us"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_fault(keys: dict[str, Any], text: str) -> None:
    assert str(fault(**keys, at_us=1, until_us=9)) == text


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"kind": "link-down", "link": T0_T1, "at_us": 5, "until_us": 5}, "until_us, 5, must be later than at_us, 5"),
        ({"kind": "flap", "link": T0_T1, "at_us": 5, "period_us": 4, "down_us": 1}, "give either count or until_us"),
        ({"kind": "flap", "link": T0_T1, "at_us": 5, "period_us": 4, "down_us": 1, "count": 1, "until_us": 9},
         "give either count or until_us"),
        ({"kind": "flap", "link": T0_T1, "at_us": 5, "period_us": 4, "down_us": 4, "count": 1},
         "down_us, 4, must be less than period_us, 4"),
    ],
)  # fmt: skip
def test_times_that_make_no_sense(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        fault(**keys)
