"""Links: rate, propagation delay, and what can go wrong on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from fabric.events import EventList

Frame = tuple[bytes, bytes]
"""An Ethernet frame without FCS, as (head, tail)."""

MIN_FRAME = 60
WIRE_OVERHEAD = 24
"""FCS 4, preamble and start delimiter 8, gap 12 bytes (IEEE 802.3)."""


@dataclass(slots=True)
class WireCounters:
    """Frames of one direction of a link. sent = delivered + lost_down + lost_random + still on the wire."""

    sent: int = 0
    delivered: int = 0
    lost_down: int = 0
    lost_random: int = 0

    @property
    def lost(self) -> int:
        return self.lost_down + self.lost_random


@dataclass(slots=True)
class LinkState:
    """What both directions share. `cuts` counts how often the link went down: what was on it then is lost."""

    up: bool = True
    cuts: int = 0
    loss: float = 0.0


class Wire:
    """One direction of a link: serialises a frame at its rate, then carries it to the other end.

    `rate` in Gb/s (bits per ns), `delay` in ns. `rng` decides random losses.
    """

    __slots__ = (
        "_delay", "_deliver", "_events", "_rate", "_rng", "_state", "_waking", "counters", "free_at"
    )  # fmt: skip

    def __init__(
        self,
        events: EventList,
        rate: float,
        delay: int,
        state: LinkState,
        rng: random.Random,
        deliver: Callable[[Frame], None],
    ) -> None:
        self.free_at = 0
        """When the last bit of the frame that is being sent has left, ns."""
        self.counters = WireCounters()
        self._events = events
        self._rate = rate
        self._delay = delay
        self._state = state
        self._rng = rng
        self._deliver = deliver
        self._waking = False

    def send(self, frame: Frame) -> None:
        """Put a frame on the wire, which must be free. If the link is down it goes nowhere."""
        size = max(len(frame[0]) + len(frame[1]), MIN_FRAME) + WIRE_OVERHEAD
        self.free_at = self._events.now + max(1, round(size * 8 / self._rate))
        state, counters = self._state, self.counters
        counters.sent += 1
        if not state.up:
            counters.lost_down += 1
        elif state.loss and self._rng.random() < state.loss:
            counters.lost_random += 1
        else:
            self._events.at(self.free_at + self._delay, self._arrive, frame, state.cuts)

    def _arrive(self, frame: Frame, cuts: int) -> None:
        if cuts != self._state.cuts:
            self.counters.lost_down += 1
        else:
            self.counters.delivered += 1
            self._deliver(frame)

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back as soon as the wire is free; one such call is enough, more are dropped."""
        if not self._waking:
            self._waking = True
            self._events.at(self.free_at, self._wake, callback)

    def _wake(self, callback: Callable[[], None]) -> None:
        self._waking = False
        callback()


@dataclass(slots=True)
class Link:
    """A cable between two ports, with both of its directions."""

    ends: tuple[tuple[str, int], tuple[str, int]]
    plane: int
    state: LinkState
    wires: tuple[Wire, ...]
    on_status: list[Callable[[bool], None]] = field(default_factory=list)
    """Called with up or down: a NIC sees its own links."""

    @property
    def name(self) -> str:
        """The two nodes, as a scenario names the link."""
        return f"{self.ends[0][0]} - {self.ends[1][0]}"

    def set_up(self, up: bool) -> None:
        """Cut the link, or mend it. What is on the wire at a cut is lost."""
        if self.state.up == up:
            return
        self.state.up = up
        self.state.cuts += not up
        for notify in self.on_status:
            notify(up)
