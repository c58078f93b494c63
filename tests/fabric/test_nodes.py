"""A switch at its place: what it does to frames when it works, is a black hole, or is off."""

from __future__ import annotations

import random
from typing import cast

from fabric.events import EventList
from fabric.links import Frame, LinkState, Wire
from fabric.nodes import CPU_PORT, SwitchNode
from switch_model.device import Device

FRAME: Frame = (bytes(134), bytes(4100))


class FakeDevice:
    """Forwards everything to port 1, or nowhere without a pipeline."""

    def __init__(self) -> None:
        self.pipeline: object | None = None
        self.queue: list[Frame] = []
        self.out = 1

    def ingress(self, _port: int, frame: Frame, _now: int) -> int:
        if self.pipeline is None:
            return -1
        self.queue.append(frame)
        return self.out

    def dequeue(self, _port: int, _now: int) -> Frame | None:
        return self.queue.pop(0) if self.queue else None

    def depth(self, _port: int) -> int:
        return len(self.queue)

    def occupancy(self) -> int:
        return len(self.queue)

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        values = {("drop_reasons", 5): 3, ("port_trims", 1): 4, ("port_marks", 1): 2}
        return values.get((name, index), 0), 0


class Bench:
    """A switch whose port 1 leads to `out` over a wire of 100 Gb/s."""

    def __init__(self, *, programmed: bool = True) -> None:
        self.events = EventList()
        self.devices: list[FakeDevice] = []
        self.node = SwitchNode(self._boot, "t1", 0, self.events)
        self.out: list[Frame] = []
        self.node.connect(1, Wire(self.events, 100, 500, LinkState(), random.Random(1), self.out.append))
        if programmed:
            self.program()

    def _boot(self) -> Device:
        self.devices.append(FakeDevice())
        return cast(Device, self.devices[-1])

    def program(self) -> None:
        self.devices[-1].pipeline = object()


def test_one_frame_leaves_at_once_and_the_others_wait_their_turn() -> None:
    b = Bench()
    for _ in range(4):
        b.node.arrive(2, FRAME)
    assert b.devices[0].depth(1) == 3 and b.node.peak_depth == 3
    b.events.run(500 + 4 * 341)
    assert len(b.out) == 4 and b.node.device.occupancy() == 0


def test_counts_are_those_of_the_program() -> None:
    counts = Bench().node.counts()
    assert (dict(counts.drops), counts.trims, counts.marks) == ({"no_route": 3}, 4, 2)


def test_a_black_hole_swallows_what_enters_and_lets_out_what_waits() -> None:
    b = Bench()
    for _ in range(3):
        b.node.arrive(2, FRAME)
    b.node.open_black_hole()
    b.node.open_black_hole()
    b.node.arrive(2, FRAME)
    b.node.close_black_hole()
    b.node.arrive(2, FRAME)
    b.node.close_black_hole()
    b.node.arrive(2, FRAME)
    b.events.run(10_000)
    assert len(b.out) == 4 and b.node.counts().drops["black_hole"] == 2


def test_without_power_a_switch_loses_its_queues_and_its_pipeline_but_not_its_counts() -> None:
    b = Bench()
    for _ in range(5):
        b.node.arrive(2, FRAME)
    b.node.power_off()
    assert not b.node.powered and len(b.devices) == 2
    b.events.run(10_000)
    assert len(b.out) == 1  # it was on the wire already
    b.node.power_on()
    b.node.arrive(2, FRAME)
    b.program()
    b.node.arrive(2, FRAME)
    b.events.run(20_000)
    counts = b.node.counts()
    assert b.node.powered and len(b.out) == 2
    assert dict(counts.drops) == {"powered_off": 4, "no_pipeline": 1, "no_route": 6}
    assert (counts.trims, counts.marks) == (8, 4)


def test_of_two_outages_the_last_to_end_gives_the_power_back() -> None:
    b = Bench()
    b.node.power_off()
    b.node.power_off()
    b.node.power_on()
    assert not b.node.powered
    b.node.power_on()
    assert b.node.powered


def test_a_port_without_a_link_loses_and_counts() -> None:
    b = Bench()
    b.devices[0].out = 7
    b.node.arrive(2, FRAME)
    assert b.node.counts().drops["unconnected_port"] == 1 and b.node.device.occupancy() == 0


def test_what_goes_to_the_controller_was_counted_by_the_program() -> None:
    b = Bench()
    b.devices[0].out = CPU_PORT
    b.node.arrive(2, FRAME)
    assert dict(b.node.counts().drops) == {"no_route": 3} and b.node.device.occupancy() == 0
