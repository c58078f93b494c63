"""Virtual time and wires: exact times, order, losses."""

from __future__ import annotations

import random

from fabric.events import EventList
from fabric.links import Frame, Link, LinkState, Wire

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


class Recorder:
    def __init__(self, rate: float = 100, delay: int = 500, loss: float = 0.0) -> None:
        self.events = EventList()
        self.state = LinkState(loss=loss)
        self.arrived: list[int] = []
        self.wire = Wire(self.events, rate, delay, self.state, random.Random(1), self._deliver)

    def _deliver(self, _frame: Frame) -> None:
        self.arrived.append(self.events.now)


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
    link = Link((("a", 1), ("b", 1)), 0, r.state, (r.wire,))
    seen: list[bool] = []
    link.on_status.append(seen.append)
    r.wire.send(FULL)
    r.events.at(600, link.set_up, False)
    r.events.at(700, r.wire.send, FULL)
    r.events.at(5_000, link.set_up, True)
    r.events.at(6_000, r.wire.send, FULL)
    r.events.run(10_000)
    assert r.arrived == [6_841] and seen == [False, True]
    assert (r.wire.counters.sent, r.wire.counters.delivered, r.wire.counters.lost_down) == (3, 1, 2)


def test_a_link_that_went_down_and_up_meanwhile_still_lost_the_frame() -> None:
    r = Recorder()
    link = Link((("a", 1), ("b", 1)), 0, r.state, (r.wire,))
    r.wire.send(FULL)
    r.events.at(400, link.set_up, False)
    r.events.at(450, link.set_up, True)
    r.events.run(10_000)
    assert r.arrived == []


def test_random_loss_has_its_rate() -> None:
    r = Recorder(loss=0.1)
    for n in range(10_000):
        r.events.at(n * 1000, r.wire.send, FULL)
    r.events.run(100_000_000)
    counters = r.wire.counters
    assert counters.delivered + counters.lost_random == 10_000
    assert 850 < counters.lost_random < 1150
