"""Links: rate, propagation delay, and what can go wrong on them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from fabric.events import EventList, Ties

Frame = tuple[bytes, bytes]
"""An Ethernet frame without FCS, as (head, tail)."""

MIN_FRAME = 60
WIRE_OVERHEAD = 24
"""FCS 4, preamble and start delimiter 8, gap 12 bytes (IEEE 802.3)."""
FULL_FRAME = 4262
"""Bytes of the longest frame, a 4096-byte data packet with its SRv6 headers, and WIRE_OVERHEAD."""


class LinkLoss(StrEnum):
    """Why a frame did not come out of a link."""

    DOWN = "link_down"
    RANDOM = "random_loss"
    FCS = "fcs_error"
    """It came out damaged, and the receiver's MAC dropped it."""


@dataclass(frozen=True, slots=True, eq=False)
class Impairment:
    """What happens to a frame with probability `rate`: it is lost, for `loss`'s reason, or (None) one of its bits is
    flipped and no FCS tells."""

    rate: float
    loss: LinkLoss | None


@dataclass(slots=True)
class WireCounters:
    """Frames of one direction of a link: sent = delivered + lost + still on the wire. `corrupted` of them got a flipped
    bit that no FCS tells."""

    sent: int = 0
    delivered: int = 0
    corrupted: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def in_flight(self) -> int:
        """Frames on the wire."""
        return self.sent - self.delivered - self.lost.total()


@dataclass(slots=True)
class LinkState:
    """What both directions share. `down` counts the faults that hold the link down now, `cuts` how often it went down:
    what was on it then is lost. A frame passes the impairments one after the other."""

    down: int = 0
    cuts: int = 0
    impairments: list[Impairment] = field(default_factory=list)


class Wire:
    """One direction of a link: serialises a frame at its rate, then carries it to the other end.

    `rate` is in Gb/s (bits per ns), `delay` in ns. `rng` decides what random impairments do, and how its frames come
    before or behind those of other wires that arrive at the same time.
    """

    __slots__ = (
        "_deliver", "_events", "_fs_per_byte", "_rng", "_state", "_ties", "_waking",
        "counters", "delay", "free_at", "rate",
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
        self.rate = rate
        self._fs_per_byte = round(8e6 / rate)
        self.delay = delay
        self._state = state
        self._rng = rng
        self._ties = Ties(rng)
        self._deliver = deliver
        self._waking = False

    def send(self, frame: Frame) -> None:
        """Put a frame on the wire, which must be free. If the link is down it goes nowhere."""
        size = len(frame[0]) + len(frame[1])
        if size < MIN_FRAME:
            size = MIN_FRAME
        events, state = self._events, self._state
        self.free_at = free_at = events.now + ((size + WIRE_OVERHEAD) * self._fs_per_byte + 500_000) // 1_000_000
        self.counters.sent += 1
        if state.down:
            self.counters.lost[LinkLoss.DOWN] += 1
        elif state.impairments:
            self._send_impaired(frame)
        else:
            arrival = free_at + self.delay
            events.arrive(arrival, self._ties, self._arrive, frame, state.cuts)

    def _send_impaired(self, frame: Frame) -> None:
        loss: LinkLoss | None = None
        for impairment in self._state.impairments:
            if self._rng.random() >= impairment.rate:
                continue
            loss = impairment.loss
            if loss is not None:
                break
            frame = _with_flipped_bit(frame, self._rng)
            self.counters.corrupted += 1
        if loss is LinkLoss.RANDOM:
            self.counters.lost[loss] += 1
        else:
            arrive = self._arrive if loss is None else self._arrive_damaged
            arrival = self.free_at + self.delay
            self._events.arrive(arrival, self._ties, arrive, frame, self._state.cuts)

    def _arrive(self, frame: Frame, cuts: int) -> None:
        if cuts != self._state.cuts:
            self.counters.lost[LinkLoss.DOWN] += 1
        else:
            self.counters.delivered += 1
            self._deliver(frame)

    def _arrive_damaged(self, _frame: Frame, cuts: int) -> None:
        self.counters.lost[LinkLoss.FCS if cuts == self._state.cuts else LinkLoss.DOWN] += 1

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back as soon as the wire is free; one such call is enough, more are dropped."""
        if not self._waking:
            self._waking = True
            self._events.at(self.free_at, self._wake, callback)

    def _wake(self, callback: Callable[[], None]) -> None:
        self._waking = False
        callback()


def _with_flipped_bit(frame: Frame, rng: random.Random) -> Frame:
    head = len(frame[0])
    data = bytearray(frame[0] + frame[1])
    bit = rng.randrange(8 * len(data))
    data[bit >> 3] ^= 0x80 >> (bit & 7)
    return bytes(data[:head]), bytes(data[head:])


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

    def cut(self) -> None:
        """One cause more that holds the link down. What is on the wire when it goes down is lost."""
        self.state.down += 1
        if self.state.down == 1:
            self.state.cuts += 1
            self._notify(False)

    def mend(self) -> None:
        """One cause less; without any the link is up."""
        self.state.down -= 1
        if not self.state.down:
            self._notify(True)

    def impair(self, impairment: Impairment) -> None:
        """From now on, in both directions."""
        self.state.impairments.append(impairment)

    def relieve(self, impairment: Impairment) -> None:
        """Take an impairment away."""
        self.state.impairments.remove(impairment)

    def _notify(self, up: bool) -> None:
        for notify in self.on_status:
            notify(up)

    def lost(self) -> Counter[str]:
        """Frames lost in both directions, by LinkLoss."""
        total: Counter[str] = Counter()
        for wire in self.wires:
            total += wire.counters.lost
        return total
