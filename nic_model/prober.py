"""Background probes of the paths that a QP gave up: one that works again comes back (OCP MRC, EV state machine)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nic_model.ev import Ev
from nic_model.spray import Spray

PROBES_TO_TRUST = 3
"""Answers in a row that make an ASSUMED_BAD EV GOOD again."""

SendProbe = Callable[[Ev, Callable[[bool, int], None], int], None]
"""(EV, what to call with the outcome and the time, now)"""


class PathProber:
    """Probes each ASSUMED_BAD EV of one QP once per `interval` ns, while the QP has work."""

    def __init__(self, evs: Spray, interval: int, send: SendProbe) -> None:
        self._evs = evs
        self._interval = interval
        self._send = send
        self._due: dict[Ev, int] = {}
        self._answers: dict[Ev, int] = {}

    @property
    def deadline(self) -> int | None:
        """When `on_timer` is due, ns."""
        return min(self._due.values(), default=None)

    def watch(self, ev: Ev, now: int) -> None:
        """The EV has been given up."""
        self._due[ev] = now + self._interval
        self._answers[ev] = 0

    def on_timer(self, now: int) -> None:
        """Send what is due."""
        for ev, due in list(self._due.items()):
            if due <= now:
                self._due[ev] = now + self._interval
                self._send(ev, partial(self._on_outcome, ev), now)

    def _on_outcome(self, ev: Ev, worked: bool, now: int) -> None:
        if ev not in self._due:
            return
        self._answers[ev] = self._answers[ev] + 1 if worked else 0
        if self._answers[ev] == PROBES_TO_TRUST:
            del self._due[ev], self._answers[ev]
            self._evs.restore(ev, f"{PROBES_TO_TRUST} probes answered", now)

    def stop(self) -> None:
        """The QP is gone."""
        self._due.clear()
