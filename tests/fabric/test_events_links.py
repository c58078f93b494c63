"""Virtual time and wires: exact times, order, losses."""

from __future__ import annotations

import random
from functools import partial

import pytest

from fabric.events import EventList, Ties
from fabric.links import Frame, Impairment, Link, LinkLoss, LinkState, Wire

FULL: Frame = (bytes(134), bytes(4100))  # 4234 + 24 bytes on the wire: 340.64 ns at 100 Gb/s


def test_events_run_in_order_of_time_then_of_adding() -> None:
    events = EventList()
    ran: list[tuple[int, str]] = []
    for time, name in ((20, "c"), (10, "a"), (10, "b"), (5, "first")):
        events.at(time, lambda name=name: ran.append((events.now, name)))
    assert events.run(until=15) is False
    assert ran == [(5, "first"), (10, "a"), (10, "b")] and events.now == 15
    assert events.run(until=100) is True
    assert ran[-1] == (20, "c")


def test_the_past_is_now() -> None:
    events = EventList()
    ran: list[int] = []
    events.at(50, lambda: events.at(10, lambda: ran.append(events.now)))
    events.run(100)
    assert ran == [50]


def test_arrivals_come_behind_what_nodes_do_by_themselves_in_the_order_of_their_ties() -> None:
    events = EventList()
    ran: list[str] = []
    low, high = Ties(random.Random(1)), Ties(random.Random(1))
    low.factor, low.offset = 1, 0
    high.factor, high.offset = 2, 0
    events.arrive(10, high, ran.append, "tie 20")
    events.arrive(10, low, ran.append, "tie 10")
    events.arrive(10, high, ran.append, "tie 20, added later")
    events.at(10, ran.append, "by itself")
    events.arrive(9, high, ran.append, "earlier")
    events.run(10)
    assert ran == ["earlier", "by itself", "tie 10", "tie 20", "tie 20, added later"]


def race(seed: int, starts: int = 400) -> list[str]:
    """Who of three senders arrives first each time that all send at once. 'a' is always asked first."""
    events = EventList()
    arrived: list[str] = []

    def arrive(name: str, _frame: Frame) -> None:
        arrived.append(name)

    wires = [
        Wire(events, 100, 500, LinkState(), random.Random(f"{seed}/{name}"), partial(arrive, name)) for name in "abc"
    ]
    for start in range(starts):
        for wire in wires:
            events.at(start * 1000, wire.send, FULL)
    events.run(starts * 1000 + 1000)
    assert len(arrived) == 3 * starts
    return arrived[::3]


@pytest.mark.parametrize("seed", range(5))
def test_ties_between_senders_are_broken_fairly_by_seed(seed: int) -> None:
    first = race(seed)
    assert race(seed) == first != race(seed + 1)
    for name in "abc":  # 133 each, if it is fair
        assert 100 <= first.count(name) <= 167


def test_a_wire_keeps_the_order_of_its_frames_even_if_they_take_no_time() -> None:
    r = Recorder(rate=1e9, delay=0)
    frames: list[Frame] = [(bytes([number]) * 60, b"") for number in range(20)]
    for frame in frames:
        r.wire.send(frame)
    r.events.run(1)
    assert r.frames == frames


class Recorder:
    """A link of one direction, and what came out of it when."""

    def __init__(self, rate: float = 100, delay: int = 500) -> None:
        self.events = EventList()
        state = LinkState()
        self.arrived: list[int] = []
        self.frames: list[Frame] = []
        self.wire = Wire(self.events, rate, delay, state, random.Random(1), self._deliver)
        self.link = Link((("a", 1), ("b", 1)), 0, state, (self.wire,))

    def _deliver(self, frame: Frame) -> None:
        self.arrived.append(self.events.now)
        self.frames.append(frame)


def test_a_frame_takes_its_length_and_the_delay() -> None:
    r = Recorder()
    r.wire.send(FULL)
    assert r.wire.free_at == 341
    r.events.run(10_000)
    assert r.arrived == [841]


def test_a_short_frame_is_padded_to_84_bytes_on_the_wire() -> None:
    r = Recorder(rate=1)
    r.wire.send((bytes(20), b""))
    assert r.wire.free_at == (60 + 24) * 8


def test_a_down_link_loses_and_what_was_on_it_too() -> None:
    r = Recorder()
    seen: list[bool] = []
    r.link.on_status.append(seen.append)
    r.wire.send(FULL)
    r.events.at(600, r.link.cut)
    r.events.at(700, r.wire.send, FULL)
    r.events.at(5_000, r.link.mend)
    r.events.at(6_000, r.wire.send, FULL)
    r.events.run(10_000)
    assert r.arrived == [6_841] and seen == [False, True]
    assert (r.wire.counters.sent, r.wire.counters.delivered) == (3, 1)
    assert r.link.lost() == {"link_down": 2}


def test_a_link_that_went_down_and_up_meanwhile_still_lost_the_frame() -> None:
    r = Recorder()
    r.wire.send(FULL)
    r.events.at(400, r.link.cut)
    r.events.at(450, r.link.mend)
    r.events.run(10_000)
    assert r.arrived == []


def test_a_link_with_two_causes_to_be_down_is_up_when_both_have_ended() -> None:
    r = Recorder()
    seen: list[tuple[int, bool]] = []
    r.link.on_status.append(lambda up: seen.append((r.events.now, up)))
    for time, change in ((10, r.link.cut), (20, r.link.cut), (30, r.link.mend), (40, r.link.mend)):
        r.events.at(time, change)
    r.events.run(100)
    assert seen == [(10, False), (40, True)]


def test_random_loss_has_its_rate() -> None:
    r = Recorder()
    r.link.impair(Impairment(0.1, LinkLoss.RANDOM))
    for n in range(10_000):
        r.events.at(n * 1000, r.wire.send, FULL)
    r.events.run(100_000_000)
    counters = r.wire.counters
    assert counters.delivered + counters.lost["random_loss"] == 10_000 and counters.in_flight == 0
    assert 850 < counters.lost["random_loss"] < 1150


def test_a_damaged_frame_reaches_the_receivers_fcs_and_no_further() -> None:
    r = Recorder()
    corruption = Impairment(1.0, LinkLoss.FCS)
    r.link.impair(corruption)
    r.wire.send(FULL)
    r.events.run(840)
    assert r.wire.counters.in_flight == 1
    r.events.run(841)
    assert r.wire.counters.in_flight == 0 and r.link.lost() == {"fcs_error": 1}
    r.link.relieve(corruption)
    r.events.at(1000, r.wire.send, FULL)
    r.events.run(2000)
    assert r.frames == [FULL] and r.wire.counters.corrupted == 0


def test_a_damaged_frame_on_a_link_that_goes_down_is_lost_to_that() -> None:
    r = Recorder()
    r.link.impair(Impairment(1.0, LinkLoss.FCS))
    r.wire.send(FULL)
    r.events.at(100, r.link.cut)
    r.events.run(2000)
    assert r.link.lost() == {"link_down": 1}


def test_undetected_corruption_flips_one_bit_and_delivers() -> None:
    r = Recorder()
    r.link.impair(Impairment(1.0, None))
    r.wire.send(FULL)
    r.events.run(1000)
    ((head, tail),) = r.frames
    assert (len(head), len(tail)) == (134, 4100)
    assert sum(byte.bit_count() for byte in head + tail) == 1  # FULL is all zeros
    assert (r.wire.counters.corrupted, r.wire.counters.delivered) == (1, 1)


def test_impairments_of_one_link_add_up() -> None:
    r = Recorder()
    r.link.impair(Impairment(1.0, None))
    r.link.impair(Impairment(1.0, LinkLoss.RANDOM))
    r.wire.send(FULL)
    r.events.run(1000)
    assert r.arrived == [] and r.link.lost() == {"random_loss": 1}
