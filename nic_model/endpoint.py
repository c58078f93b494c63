"""Endpoint operations: requests between NICs, without a connection, to the reserved QP number 2 (OCP MRC 1.0).

PORT_STATUS_UPDATE tells a peer which of this NIC's ports can be reached; EV_PROBE asks whether a path works. The
response comes back the way the request went. An unanswered update is repeated, an unanswered probe has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from nic_model.headers import EETH, ENDPOINT_DQPN, ERTH, EndpointOp, Opcode
from nic_model.packet import Packet, build_control
from nic_model.retry import RetryTimes

if TYPE_CHECKING:
    from nic_model.nic import Nic
    from nic_model.peer import Peer

ANSWER_TIMEOUT = 1024 << 7
"""ns until a PORT_STATUS_UPDATE is repeated, by default: as long as a QP with the default attributes waits."""

PROBES_OPEN = 1 << 15
"""Probes that may wait for their response at one time; request ids have 16 bits, and updates need some too."""

Answered = Callable[[int | None, int], None]
"""Called with the round-trip time in ns, None if no answer came in time, and now."""


class ProbeResult(NamedTuple):
    """A path, and its round-trip time in ns, None if no answer came in time."""

    plane: int
    ev: int
    rtt: int | None


@dataclass(slots=True)
class _Request:
    """A request that waits for its response. `times` is None if it is not to be repeated; `asker` may withdraw it.

    `hop_limit` is the usual one if None.
    """

    peer: Peer
    op: EndpointOp
    path: tuple[int, int] | None
    sent_at: int
    deadline: int
    times: RetryTimes | None
    answered: Answered | None
    asker: object = None
    hop_limit: int | None = None


class EndpointOperations:
    """What one NIC asks of others, and answers to them."""

    def __init__(self, nic: Nic, answer_timeout: int) -> None:
        """`answer_timeout`: ns until a PORT_STATUS_UPDATE is repeated for the first time."""
        self._nic = nic
        self._answer_timeout = answer_timeout
        self._requests: dict[int, _Request] = {}
        self._next_id = 0
        self._due: list[tuple[int, int]] = []  # heap of (deadline, request id); those that were answered drop out late

    # ---- asking --------------------------------------------------------------------------------------

    def announce_ports(self, peer: Peer, now: int) -> None:
        """Tell `peer` which ports can be reached now. An older announcement is not repeated any more."""
        for request_id, request in list(self._requests.items()):
            if request.peer is peer and request.op is EndpointOp.PORT_STATUS_UPDATE:
                del self._requests[request_id]
        times = RetryTimes(self._answer_timeout)
        self._ask(_Request(peer, EndpointOp.PORT_STATUS_UPDATE, None, now, now + times.next_wait(), times, None), now)

    def probe(
        self,
        peer: Peer,
        plane: int,
        ev: int,
        timeout: int,
        answered: Answered,
        now: int,
        asker: object = None,
        hop_limit: int | None = None,
    ) -> int | None:
        """Ask over the path `ev` whether it works; the request's id, None if too many are open.

        `answered` is called exactly once, within `timeout` ns, unless `asker` withdraws its probes. With a small
        `hop_limit` the probe dies on its way there.
        """
        deadline = now + timeout
        path = (plane, ev)
        return self._ask(
            _Request(peer, EndpointOp.EV_PROBE, path, now, deadline, None, answered, asker, hop_limit), now
        )

    def probe_batch(
        self,
        peer: Peer,
        paths: Sequence[tuple[int, int]],
        timeout: int,
        done: Callable[[list[ProbeResult], int], None],
        now: int,
    ) -> None:
        """Ask over all of these (plane, EV) at once. `done` is called once, with results in their order and now."""
        results: list[ProbeResult | None] = [None] * len(paths)
        waiting = len(paths)

        def answered(index: int, rtt: int | None, at: int) -> None:
            nonlocal waiting
            waiting -= 1
            results[index] = ProbeResult(*paths[index], rtt)
            if not waiting:
                done([result for result in results if result is not None], at)

        for index, (plane, ev) in enumerate(paths):
            self.probe(peer, plane, ev, timeout, partial(answered, index), now)

    def withdraw(self, asker: object) -> None:
        """Nobody waits for the answers to this asker's probes any more."""
        for request_id, request in list(self._requests.items()):
            if request.asker is asker:
                del self._requests[request_id]

    def _ask(self, request: _Request, now: int) -> int | None:
        if request.answered is not None and len(self._requests) >= PROBES_OPEN:
            request.answered(None, now)
            return None
        self._next_id = self._next_id + 1 & 0xFFFF
        while self._next_id in self._requests:
            self._next_id = self._next_id + 1 & 0xFFFF
        self._requests[self._next_id] = request
        heappush(self._due, (request.deadline, self._next_id))
        self._send(self._next_id, request, now)
        return self._next_id

    def _send(self, request_id: int, request: _Request, now: int) -> None:
        path = request.path or request.peer.any_path()
        if path is None:
            return  # no port of both ends is up; the timer comes back to it
        plane, ev = path
        wire = self._nic.wire
        encap = request.peer.encap(plane, ev)
        if request.hop_limit is not None:
            encap = replace(encap, wire=replace(wire, hop_limit=request.hop_limit))
        erth = ERTH(op=request.op, port_status_mask=self._nic.planes_up, tx_timestamp=wire.timestamp(now), tsr=wire.tsr)
        self._nic.send_control(
            plane,
            build_control(
                encap,
                opcode=Opcode.ENDPOINT_REQUEST,
                dqpn=ENDPOINT_DQPN,
                psn=request_id,
                extension=erth.pack(),
            ),
        )

    @property
    def deadline(self) -> int | None:
        """When `on_timer` is due, ns."""
        while self._due:
            deadline, request_id = self._due[0]
            request = self._requests.get(request_id)
            if request is not None and request.deadline == deadline:
                return deadline
            heappop(self._due)
        return None

    def on_timer(self, now: int) -> None:
        """Repeat updates and give up probes whose time has passed."""
        while (deadline := self.deadline) is not None and deadline <= now:
            _, request_id = heappop(self._due)
            request = self._requests[request_id]
            if request.times is None or request.times.exhausted:
                del self._requests[request_id]
                if request.answered is not None:
                    request.answered(None, now)
            else:
                request.deadline = now + request.times.next_wait()
                heappush(self._due, (request.deadline, request_id))
                self._send(request_id, request, now)

    # ---- answering -----------------------------------------------------------------------------------

    def receive(self, packet: Packet, plane: int, now: int) -> None:
        """An endpoint packet. One that nobody asked for, or of an unknown operation, is counted and dropped."""
        if packet.opcode == Opcode.ENDPOINT_REQUEST:
            self._on_request(packet, plane, now)
        elif packet.opcode == Opcode.ENDPOINT_RESPONSE:
            self._on_response(packet, now)
        else:
            self._nic.counters.refused["not an endpoint operation"] += 1

    def _on_request(self, packet: Packet, plane: int, now: int) -> None:
        request = packet.endpoint
        peer = self._nic.peer(packet.envelope.src)
        if peer is None or not isinstance(request, ERTH):
            self._nic.counters.refused["from no known NIC"] += 1
            return
        if request.op == EndpointOp.PORT_STATUS_UPDATE:
            if not peer.is_overtaken(packet.psn & 0xFFFF, self._answer_timeout, now):
                self._nic.peer_ports(peer, request.port_status_mask, now)
        elif request.op != EndpointOp.EV_PROBE:
            self._nic.counters.refused["unknown endpoint operation"] += 1
            return
        eeth = EETH(op=request.op, tx_timestamp=request.tx_timestamp)
        ev = peer.reply_ev(plane, packet.envelope.ev)
        frame = build_control(
            peer.encap(plane, ev),
            opcode=Opcode.ENDPOINT_RESPONSE,
            dqpn=ENDPOINT_DQPN,
            psn=packet.psn & 0xFFFF,
            extension=eeth.pack(),
        )
        self._nic.send_control(plane, frame)

    def _on_response(self, packet: Packet, now: int) -> None:
        request = self._requests.get(packet.psn & 0xFFFF)
        if request is None or packet.endpoint.op != request.op or packet.envelope.src not in request.peer.addresses:
            self._nic.counters.refused["no such endpoint request"] += 1
            return
        del self._requests[packet.psn & 0xFFFF]
        if request.answered is not None:
            request.answered(now - request.sent_at, now)
