"""Virtual time: one list of events for the whole fabric."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventList:
    """Runs callbacks in the order of their times; those of one time run in the order they were added.

    `now` is the virtual time in ns. What happens is a function of what was added, so a run repeats exactly.
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

    def run(self, until: int) -> bool:
        """Run all events up to `until` (ns), which is then the time. True if no event is left."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, callback, args = heappop(heap)
            callback(*args)
        self.now = until
        return not heap
