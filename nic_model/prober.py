"""Background probes of the paths that a QP gave up: one that works again comes back (OCP MRC, EV state machine)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nic_model.ev import Ev
from nic_model.spray import Spray

PROBES_TO_TRUST = 3
"""Answers in a row that make an ASSUMED_BAD EV GOOD again."""

SendProbe = Callable[[Ev, Callable[[bool, int], None], int], None]
"""(EV, what to call with the outcome and the time, now)"""


@dataclass(slots=True)
class _Watch:
    """One EV that was given up. Its probes are numbered from 1; `in_a_row` of them were answered, the last `newest`."""

    due: int
    sent: int = 0
    newest: int = 0
    in_a_row: int = 0


class PathProber:
    """Probes each ASSUMED_BAD EV of one QP once per `interval()` ns, while the QP has work.

    An answer may take longer than the interval: what counts is that probes sent one after another are answered.
    """

    def __init__(self, evs: Spray, interval: Callable[[], int], send: SendProbe) -> None:
        self._evs = evs
        self._interval = interval
        self._send = send
        self._watched: dict[Ev, _Watch] = {}

    @property
    def deadline(self) -> int | None:
        """When `on_timer` is due, ns."""
        return min(watch.due for watch in self._watched.values()) if self._watched else None

    def watch(self, ev: Ev, now: int) -> None:
        """The EV has been given up."""
        self._watched[ev] = _Watch(now + self._interval())

    def on_timer(self, now: int) -> None:
        """Send what is due."""
        for ev, watch in list(self._watched.items()):
            if watch.due <= now:
                watch.due = now + self._interval()
                watch.sent += 1
                self._send(ev, partial(self._on_outcome, ev, watch, watch.sent), now)

    def _on_outcome(self, ev: Ev, watch: _Watch, number: int, worked: bool, now: int) -> None:
        if not worked or self._watched.get(ev) is not watch:
            return
        watch.in_a_row = watch.in_a_row + 1 if number == watch.newest + 1 else 1
        watch.newest = number
        if watch.in_a_row == PROBES_TO_TRUST:
            del self._watched[ev]
            self._evs.restore(ev, f"{PROBES_TO_TRUST} probes answered", now)

    def stop(self) -> None:
        """The QP is gone."""
        self._watched.clear()
