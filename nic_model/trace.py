"""Follows one path, hop by hop: probes whose hop limit ends one hop later each time, until the peer itself answers.

A switch of this fabric gives a packet whose hop limit ran out to its controller, which answers with ICMPv6 Time
Exceeded; the packet quoted there shows the destination as the switch received it, before its own uN shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nic_model.icmp import TimeExceeded
from nic_model.nic import Nic
from nic_model.peer import Peer

MAX_HOPS = 8
"""A path of a two-tier Clos has four; a packet that goes in circles must end too."""


class Answer(NamedTuple):
    """What came back on one hop limit.

    `by` (an address, 16 bytes) answered; None if nobody did. `destination` is the outermost one as it was received
    there: None from the peer, who does not tell. `rtt` in ns.
    """

    hop_limit: int
    by: bytes | None = None
    destination: bytes | None = None
    rtt: int | None = None
    arrived: bool = False


@dataclass(slots=True)
class _Probe:
    hop_limit: int
    request_id: int | None
    sent_at: int


class PathTrace:
    """A trace over the path `ev` of `nic` to `peer`, sans-IO like the NIC; one probe is out at a time.

    Each hop has `timeout` ns to answer. Done when the peer has answered, or after MAX_HOPS. `answers` has the hops in
    order.
    """

    def __init__(self, nic: Nic, peer: Peer, plane: int, ev: int, timeout: int, now: int) -> None:
        self._nic = nic
        self._peer = peer
        self._path = (plane, ev)
        self._timeout = timeout
        self._probe = _Probe(0, None, now)
        self.answers: list[Answer] = []
        self.done = False
        nic.on_time_exceeded = self._on_time_exceeded
        self._send(now)

    def _send(self, now: int) -> None:
        hop_limit = self._probe.hop_limit + 1
        self._probe = _Probe(hop_limit, None, now)
        self._probe.request_id = self._nic.endpoint.probe(
            self._peer, *self._path, self._timeout, self._on_outcome, now, asker=self, hop_limit=hop_limit
        )

    def _on_outcome(self, rtt: int | None, now: int) -> None:
        by = None if rtt is None else self._peer.addresses[self._path[0]]
        self._next(Answer(self._probe.hop_limit, by, rtt=rtt, arrived=rtt is not None), now)

    def _on_time_exceeded(self, message: TimeExceeded, now: int) -> None:
        if message.request_id is not None and message.request_id == self._probe.request_id:
            self._nic.endpoint.withdraw(self)
            rtt = now - self._probe.sent_at
            self._next(Answer(self._probe.hop_limit, message.by, message.destination, rtt), now)

    def _next(self, answer: Answer, now: int) -> None:
        self.answers.append(answer)
        if answer.arrived or answer.hop_limit == MAX_HOPS:
            self._nic.on_time_exceeded = None
            self.done = True
        else:
            self._send(now)
