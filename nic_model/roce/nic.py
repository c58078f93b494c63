"""The RoCEv2 endpoint: a NIC whose QPs are RC, each on one path, sans-IO.

A driver uses it as it uses `nic_model.nic.Nic`; beside that it may `pause` a port, for PFC. Nothing here moves a QP to
another port: if its port or its path fails, so does the QP, after its retries.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

from nic_model.device import NicBase, Port
from nic_model.packet import Frame, MalformedError, Wire
from nic_model.paths import PathFile, port_plane
from nic_model.roce.dcqcn import DcqcnParameters
from nic_model.roce.packet import parse
from nic_model.roce.queue_pair import RoceQueuePair
from nic_model.verbs import PD, QPInitAttr, QPState, VerbsError

UNTIL_RESUMED = 1 << 62
"""ns, for `RoceNic.pause`: the pause has no end of its own."""
WINDOW_BDPS = 1.5
"""The most that a QP may have outstanding, in bandwidth-delay products: as much as MRC's largest window."""


@dataclass(frozen=True, slots=True)
class RoceSettings:
    """What all QPs of a NIC share.

    `dcqcn` None is no rate control, and packets that are not ECN-capable (PFC only). A QP may have `max_outstanding`
    bytes of payload unacknowledged, at least one packet, and asks for an ACK every `ack_interval` packets.
    """

    dcqcn: DcqcnParameters | None
    max_outstanding: int
    ack_interval: int = 16

    def __post_init__(self) -> None:
        if self.max_outstanding < 1 or self.ack_interval < 1:
            raise ValueError(f"RoCE needs max_outstanding >= 1 and ack_interval >= 1: {self}")

    @classmethod
    def scaled(cls, rate_gbps: float, base_rtt: int) -> RoceSettings:
        """DCQCN and window for ports of `rate_gbps` and a network of `base_rtt` ns."""
        return cls(DcqcnParameters.scaled(rate_gbps), round(WINDOW_BDPS * rate_gbps * base_rtt / 8))


@dataclass(slots=True)
class RocePort(Port):
    """One port, and the QPs whose next packet may leave as soon as it is free."""

    ready: deque[RoceQueuePair] = field(default_factory=deque)
    paused_until: int = 0
    """Data waits until then (PFC), ns."""


class RoceNic(NicBase[RocePort, RoceQueuePair]):
    """`paths` is the path file of the NIC's row, `name` its name there; its templates are not used, only addresses."""

    def __init__(
        self, paths: PathFile, name: str, *, rng: random.Random, settings: RoceSettings, wire: Wire | None = None
    ) -> None:
        super().__init__()
        self.name = name
        self.rng = rng
        self.settings = settings
        self.wire = Wire() if wire is None else wire
        self.ports = [
            RocePort(plane, port.address, port.mac, port.gateway) for plane, port in enumerate(paths.local(name).ports)
        ]
        self._paths = paths
        # Heaps of (time, QP number): QPs that may send at that time, and QPs whose timer is to be looked at.
        self._paced: list[tuple[int, int]] = []
        self._alarms: list[tuple[int, int]] = []

    # ---- for the verbs -------------------------------------------------------------------------------

    def _new_queue_pair(self, qpn: int, pd: PD, init_attr: QPInitAttr) -> RoceQueuePair:
        return RoceQueuePair(self, qpn, pd, init_attr)

    def forget_queue_pair(self, queue_pair: RoceQueuePair) -> None:
        """A QP is closed: what still comes for it is refused. Twice is no error."""
        if self._queue_pairs.pop(queue_pair.qpn, None) is not None:
            self.leave_port(queue_pair)

    def leave_port(self, queue_pair: RoceQueuePair) -> None:
        """A QP sends nothing any more."""
        queue_pair.enlisted = False
        ready = self.ports[queue_pair.plane].ready
        if queue_pair in ready:
            ready.remove(queue_pair)

    def plane_of(self, address: bytes) -> int:
        """The plane of a peer's port. Raises VerbsError if the path file has no such row or this NIC no such port."""
        try:
            self._paths.template_for(address)
            known = len(address) == 16 and port_plane(address) < len(self.ports)
        except KeyError:
            known = False
        if not known:
            raise VerbsError(f"QPAttr.dgid {address.hex(':')} is no address that this NIC has a path to")
        return port_plane(address)

    def on_posted(self, queue_pair: RoceQueuePair) -> None:
        """The QP has more to send."""
        if not self.ports[queue_pair.plane].up:
            queue_pair.on_port_down(self._now)
        self._attend(queue_pair)

    # ---- for the driver ------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Bit p is set if `pull(p, now)` may have a frame."""
        mask = 0
        for port in self.ports:
            if port.up and (port.control or (port.ready and port.paused_until <= self._now)):
                mask |= 1 << port.plane
        return mask

    def _pull_data(self, port: RocePort, now: int) -> Frame | None:
        while port.ready and port.paused_until <= now:
            queue_pair = port.ready.popleft()
            queue_pair.enlisted = False
            frame = None
            requester = queue_pair.requester
            if requester is not None and requester.send_at is not None:  # ACKs may have left nothing to send
                frame = requester.transmit(now)
            self._attend(queue_pair)
            if frame is not None:
                return frame
        return None

    def receive(self, plane: int, frame: Frame, now: int) -> None:
        """A frame from the wire."""
        self._now = now
        port = self.ports[plane]
        port.packets_in += 1
        try:
            packet = parse(frame, self.wire)
        except MalformedError as error:
            self.counters.refused[error.reason] += 1
            return
        if packet.eth_dst != port.mac or packet.dst != port.address:
            self.counters.refused["not mine"] += 1
            return
        queue_pair = self._queue_pairs.get(packet.dqpn)
        if queue_pair is None or not queue_pair.peer_address:
            self.counters.refused["no such QP"] += 1
            return
        if packet.src != queue_pair.peer_address:
            self.counters.refused["not from the peer"] += 1
            return
        if queue_pair.state is QPState.ERR:
            self.counters.refused["QP in error"] += 1
            return
        port.payload_bytes += queue_pair.receive(packet, now)
        self._attend(queue_pair)

    def next_deadline(self) -> int | None:
        """When `poll` is due next, None if nothing waits for time to pass."""
        while self._paced and self._paced[0][1] not in self._queue_pairs:
            heappop(self._paced)
        while self._alarms and not self._is_valid(*self._alarms[0]):
            heappop(self._alarms)
        deadlines = [port.paused_until for port in self.ports if self._now < port.paused_until < UNTIL_RESUMED]
        deadlines += [heap[0][0] for heap in (self._paced, self._alarms) if heap]
        return min(deadlines, default=None)

    def poll(self, now: int) -> None:
        """Run what is due: QPs whose rate limiter lets them send again, and retransmission timers."""
        self._now = now
        while self._paced and self._paced[0][0] <= now:
            paced = self._queue_pairs.get(heappop(self._paced)[1])
            if paced is not None:
                self.ports[paced.plane].ready.append(paced)
        while self._alarms and self._alarms[0][0] <= now:
            time, qpn = heappop(self._alarms)
            if self._is_valid(time, qpn):
                queue_pair = self._queue_pairs[qpn]
                queue_pair.alarm = None
                queue_pair.on_timer(now)
                self._attend(queue_pair)

    def port_status(self, plane: int, up: bool, now: int) -> None:
        """A port's link went down or came up. Its QPs stay: they wait, and fail after their retries. What PFC said is
        forgotten with the link."""
        self._now = now
        port = self.ports[plane]
        port.up = up
        if not up:
            port.control.clear()
            port.paused_until = now
            for queue_pair in self._queue_pairs.values():
                if queue_pair.plane == plane:
                    queue_pair.on_port_down(now)
                    self._attend(queue_pair)

    def pause(self, plane: int, until: int, now: int) -> None:
        """PFC (IEEE 802.1Qbb) of the data class: no data leaves the port before `until` ns, whatever waits there.

        A new call replaces the one before: `now` resumes, UNTIL_RESUMED leaves that to another call. Control packets
        (ACK, NAK, CNP) are in a class of their own and go on.
        """
        self._now = now
        self.ports[plane].paused_until = until

    # ---- who waits for what --------------------------------------------------------------------------

    def _attend(self, queue_pair: RoceQueuePair) -> None:
        """After anything that happened to a QP: let it wait for its port, or before that for its time."""
        send_at = queue_pair.send_at
        if send_at is not None and not queue_pair.enlisted:
            queue_pair.enlisted = True
            if send_at <= self._now:
                self.ports[queue_pair.plane].ready.append(queue_pair)
            else:
                heappush(self._paced, (send_at, queue_pair.qpn))
        deadline = queue_pair.deadline
        # An alarm that comes too early does no harm, so that a deadline that moves on costs nothing.
        if deadline is not None and (queue_pair.alarm is None or deadline < queue_pair.alarm):
            queue_pair.alarm = deadline
            heappush(self._alarms, (deadline, queue_pair.qpn))

    def _is_valid(self, time: int, qpn: int) -> bool:
        """An earlier alarm replaces a later one, and a QP may be closed."""
        queue_pair = self._queue_pairs.get(qpn)
        return queue_pair is not None and queue_pair.alarm == time
