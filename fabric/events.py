"""Virtual time: one list of events for the whole fabric."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

_ADDED_BITS = 40
"""A run adds fewer events than 2 to this."""
_TIE_MASK = 0xF_FFFF
"""With the bits above, a number that is still quick to compare."""


class Ties:
    """Who comes first when frames of several wires arrive at one time: at each time another, as a seed has it.

    One for each wire. Its tie at time t is t x factor + offset, modulo 2^20 (a Weyl sequence), so that no wire is ahead
    of another more often than behind it, and the frames of one wire keep their order.
    """

    __slots__ = ("factor", "offset")

    def __init__(self, rng: Random) -> None:
        self.factor = rng.getrandbits(20) | 1
        self.offset = rng.getrandbits(20)


class EventList:
    """Runs callbacks in the order of their times. `now` is the virtual time in ns.

    At one time first comes what nodes do by themselves (`at`), in the order it was added; then the frames that arrive
    (`arrive`), in the order of their ties. What happens is a function of what was added, so a run repeats exactly.
    """

    def __init__(self) -> None:
        self.now = 0
        self._added = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time: int, callback: Callable[..., None], *args: Any) -> None:
        """Call `callback(*args)` at `time` (ns); the past is now."""
        if time < self.now:
            time = self.now
        self._added = added = self._added + 1
        heappush(self._heap, (time, added, callback, args))

    def arrive(self, time: int, ties: Ties, callback: Callable[..., None], *args: Any) -> None:
        """Call `callback(*args)` at `time` (ns), not in the past; among arrivals of one time `ties`, of the wire, tell
        the order, and with the same tie the one that was added first is first."""
        self._added = added = self._added + 1
        tie = (time * ties.factor + ties.offset & _TIE_MASK) + 1
        heappush(self._heap, (time, (tie << _ADDED_BITS) + added, callback, args))

    def run(self, until: int) -> bool:
        """Run all events up to `until` (ns), which is then the time. True if no event is left."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, callback, args = heappop(heap)
            callback(*args)
        self.now = until
        return not heap
