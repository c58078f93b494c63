"""The paths of a QP's control packets: a small reverse EV set, one EV for each plane, known to work.

A path from A to B says nothing sure of the way back, so SACKs, NACKs and Transport ACKs have EVs of their own
(arXiv 2605.04333, section 3). With two-way traffic the QP's own data SACKs confirm them; in each round trip in which it
only receives, it probes a random EV, and an answer makes that one its plane's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nic_model.peer import Peer

SendProbe = Callable[[int, int, Callable[[int | None, int], None], int], None]
"""(plane, EV, what to call with the round-trip time or None and the time, now)"""


class ReverseEvs:
    """`initial` is one EV for each plane, `interval` the first guess of a round trip in ns; `peer` chooses others."""

    def __init__(self, initial: Sequence[int], interval: int, peer: Peer, send: SendProbe) -> None:
        self._evs = list(initial)
        self._interval = interval
        self._peer = peer
        self._send = send
        self._next_probe_at = 0

    def ev(self, plane: int) -> int:
        """The EV for a control packet that leaves through port `plane`."""
        return self._evs[plane]

    def confirm(self, plane: int, ev: int) -> None:
        """This path works now."""
        if not self._peer.is_denied(plane, ev):
            self._evs[plane] = ev

    def leave_denied(self) -> None:
        """What the administrator forbids now is replaced, if its plane has something else."""
        for plane, ev in enumerate(self._evs):
            if self._peer.is_denied(plane, ev):
                self._evs[plane] = self._peer.any_ev(plane)

    def on_inbound(self, now: int) -> None:
        """The QP receives and does not send: once per round trip, probe."""
        if now < self._next_probe_at:
            return
        self._next_probe_at = now + self._interval
        path = self._peer.any_path()
        if path is not None:
            plane, ev = path
            self._send(plane, ev, lambda rtt, _: self._on_answer(plane, ev, rtt), now)

    def _on_answer(self, plane: int, ev: int, rtt: int | None) -> None:
        if rtt is not None:
            self._interval = rtt
            self.confirm(plane, ev)
