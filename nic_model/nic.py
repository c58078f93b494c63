"""The MRC endpoint: a NIC with one port per plane, sans-IO.

Whoever drives it (virtual time, raw sockets) calls
- `receive(port, frame, now)` for every frame that arrives,
- `pull(port, now)` whenever that port can send, as long as `ready` has the port's bit set,
- `poll(now)` when `next_deadline()` has come,
- `port_status(port, up, now)` when a link goes down or up.
It reads no clock, opens no socket, and draws only from the generator that it is given. Times are in ns.
A bad packet never raises: it is counted by its reason in `counters.refused`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from ipaddress import IPv6Address

from nic_model.congestion import CongestionControl
from nic_model.device import FIRST_QPN, NicBase, Port
from nic_model.endpoint import ANSWER_TIMEOUT, EndpointOperations
from nic_model.ev import Ev, EvProfile
from nic_model.ev_format import ProfileState, step
from nic_model.events import Log, PortEvent
from nic_model.headers import ENDPOINT_DQPN, WRITE_OPCODES
from nic_model.icmp import TimeExceeded, read_time_exceeded
from nic_model.packet import Frame, Malformed, MalformedError, Parser, Wire
from nic_model.paths import PathFile
from nic_model.peer import Deny, Peer
from nic_model.queue_pair import QueuePair
from nic_model.requester import Requester
from nic_model.responder import HostPenalty
from nic_model.verbs import PD, QPInitAttr


@dataclass(slots=True)
class MrcPort(Port):
    """One port, and the QPs whose next packet leaves through it."""

    ready: deque[QueuePair] = field(default_factory=deque)


class Nic(NicBase[MrcPort, QueuePair]):
    """`paths` is the path file of the NIC's row, `name` its name there."""

    def __init__(
        self,
        paths: PathFile,
        name: str,
        *,
        rng: random.Random,
        congestion: Callable[[int], CongestionControl],
        ev_profiles: dict[int, EvProfile] | None = None,
        wire: Wire | None = None,
        log: Log | None = None,
        log_windows: bool = False,
        first_qpn: int = FIRST_QPN,
        answer_timeout: int = ANSWER_TIMEOUT,
        late_tolerance: int = 0,
        remap_delay: int = 0,
    ) -> None:
        """`congestion` makes the controller of a new QP from its cc_profile_id.

        QPs are numbered from `first_qpn`. A PORT_STATUS_UPDATE is repeated `answer_timeout` ns later if need be.
        A packet that is less than `late_tolerance` ns late is never taken for lost for that: software switches, and
        hosts under load, stand still now and then. QPs leave a port of the NIC that went down `remap_delay` ns later:
        until then their packets wait for it. `log` is told of every decision (see
        `nic_model.events`), and with `log_windows` of what each SACK does to a congestion window.
        """
        super().__init__(first_qpn)
        self.name = name
        self.paths = paths
        self.rng = rng
        self.wire = Wire(dscp=paths.dscp) if wire is None else wire
        self.ev_profiles = {0: EvProfile()} if ev_profiles is None else ev_profiles
        self.congestion = congestion
        self.log = log
        self.log_windows = log_windows
        self.srv6 = paths.mode == "srv6"
        """SRv6 mode: packets are encapsulated and steered. Else ECMP mode: switches hash their EV."""
        self.late_tolerance = late_tolerance
        self.host_penalty = HostPenalty()
        """Set `host_penalty.value` while the host is slow."""
        self.ports = [
            MrcPort(plane, port.address, port.mac, port.gateway) for plane, port in enumerate(paths.local(name).ports)
        ]
        self._addresses = frozenset(port.address for port in self.ports)
        self.endpoint = EndpointOperations(self, answer_timeout)
        self.on_time_exceeded: Callable[[TimeExceeded, int], None] | None = None
        """Called, with the time, when a switch tells that the hop limit of one of this NIC's packets ran out there."""
        self.planes_up = (1 << len(self.ports)) - 1
        """Bit p is set if QPs use port p."""
        self._remap_delay = remap_delay
        self._remaps: list[tuple[int, int]] = []  # (when, port): QPs still have to leave it
        self.denylist: list[Deny] = []
        """What the administrator forbids; see `set_denylist`."""
        self.ready = 0
        """Bit p is set if `pull(p, now)` may have a frame."""
        self._peers: dict[bytes, Peer] = {}
        self._alarms: list[tuple[int, int]] = []  # heap of (alarm, QP number); those that were moved drop out late
        self._parser = Parser(self.wire)

    # ---- for the administrator -----------------------------------------------------------------------

    def step_ev_profile(self, profile_id: int, state: ProfileState) -> None:
        """Move a profile to its next state; new QPs take only one that is ONLINE.

        Raises KeyError for a profile that is not there, ValueError for a step that is none.
        """
        profile = self.ev_profiles[profile_id]
        self.ev_profiles[profile_id] = replace(profile, state=step(profile.state, state))

    # ---- for the verbs -------------------------------------------------------------------------------

    def _new_queue_pair(self, qpn: int, pd: PD, init_attr: QPInitAttr) -> QueuePair:
        return QueuePair(self, qpn, pd, init_attr)

    def forget_queue_pair(self, queue_pair: QueuePair) -> None:
        """A QP is closed: what still comes for it is refused. Twice is no error."""
        if self._queue_pairs.pop(queue_pair.qpn, None) is None:
            return
        self.leave_peer(queue_pair)

    def leave_peer(self, queue_pair: QueuePair) -> None:
        """A QP sends nothing any more."""
        if queue_pair.enlisted:
            queue_pair.enlisted = False
            for port in self.ports:
                if queue_pair in port.ready:
                    port.ready.remove(queue_pair)
        if queue_pair.peer is not None:
            queue_pair.peer.queue_pairs.remove(queue_pair)
            self._enlist_all(queue_pair.peer)  # its part of the window is free

    def enlist(self, queue_pair: QueuePair) -> None:
        """If the QP has a packet to send, let it wait for the port that the packet's EV names."""
        requester = queue_pair.requester
        if requester is None or queue_pair.enlisted:
            return
        self._enlist(queue_pair, requester, requester.upcoming(queue_pair.planes_up, self._now))

    def _enlist(self, queue_pair: QueuePair, requester: Requester, ev: Ev | None) -> None:
        deadline = requester.deadline
        if deadline is not None and (queue_pair.alarm is None or deadline < queue_pair.alarm):
            self._set_alarm(queue_pair)
        if ev is not None:
            queue_pair.enlisted = True
            self.ports[ev.plane].ready.append(queue_pair)
            self.ready |= 1 << ev.plane

    def _enlist_all(self, peer: Peer) -> None:
        """What one QP to a peer sets free, any of them may use: their congestion window is one."""
        for queue_pair in peer.queue_pairs:
            self.enlist(queue_pair)

    def peer(self, address: bytes) -> Peer | None:
        """The NIC that has this port address, None if the path file has no way to it."""
        key = address[:8] + address[14:]
        peer = self._peers.get(key)
        if peer is None:
            try:
                peer = self._peers[key] = Peer(self, address)
            except KeyError:
                return None
        return peer if address in peer.addresses else None

    def send_control(self, plane: int, frame: Frame) -> None:
        """Queue a control packet on a port; it is lost if the port is down."""
        port = self.ports[plane]
        port.send_control(frame)
        if port.up:
            self.ready |= 1 << plane

    def peer_ports(self, peer: Peer, ports_up: int, now: int) -> None:
        """A peer tells which of its ports can be reached: its QPs leave the others, or use them again."""
        came_down, changed = peer.ports_up & ~ports_up, peer.ports_up ^ ports_up
        peer.ports_up = ports_up
        if self.log is not None:
            for port in self.ports:
                if changed >> port.plane & 1:
                    address = str(IPv6Address(peer.addresses[port.plane]))
                    self.log(PortEvent(now, port.plane, bool(ports_up >> port.plane & 1), address))
        for queue_pair in peer.queue_pairs:
            queue_pair.look_at_ports()
            self._set_alarm(queue_pair)
            if queue_pair.requester is not None:
                for port in self.ports:
                    if came_down >> port.plane & 1:
                        queue_pair.requester.on_port_down(port.plane, now)
                self.enlist(queue_pair)

    # ---- for the driver ------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The newest time that the driver has told, ns."""
        return self._now

    def pull(self, plane: int, now: int) -> Frame | None:
        """See Device."""
        self._now = now
        port = self.ports[plane]
        frame = None
        if port.up:
            frame = port.control.popleft() if port.control else self._pull_data(port, now)
            if frame is not None:
                port.packets_out += 1
        if not port.ready and not port.control:
            self.ready &= ~(1 << plane)
        return frame

    def _pull_data(self, port: MrcPort, now: int) -> Frame | None:
        while port.ready:
            queue_pair = port.ready.popleft()
            queue_pair.enlisted = False
            requester = queue_pair.requester
            if requester is None:
                continue
            planes_up = queue_pair.planes_up
            frame = requester.transmit(port.plane, planes_up, now)
            if frame is None:  # since it was enlisted the packet has become needless, or its EV unusable
                self.enlist(queue_pair)
                continue
            self._enlist(queue_pair, requester, requester.following(planes_up, now))
            return frame
        return None

    def receive(self, plane: int, frame: Frame, now: int) -> None:
        """A frame from the wire."""
        self._now = now
        port = self.ports[plane]
        port.packets_in += 1
        try:
            packet = self._parser.parse(frame)
        except MalformedError as error:
            if error.reason is not Malformed.NEXT_HEADER or not self._take_time_exceeded(frame, now):
                self.counters.refused[error.reason] += 1
            return
        envelope = packet.envelope
        if envelope.eth_dst != port.mac or envelope.dst not in self._addresses:
            self.counters.refused["not mine"] += 1
            return
        if packet.dqpn == ENDPOINT_DQPN:
            self.endpoint.receive(packet, plane, now)
            return
        queue_pair = self._queue_pairs.get(packet.dqpn)
        if queue_pair is None or queue_pair.peer is None:
            self.counters.refused["no such QP"] += 1
            return
        if envelope.src not in queue_pair.peer.addresses:
            self.counters.refused["not from the peer"] += 1
            return
        queue_pair.receive(packet, plane, now)
        if packet.opcode not in WRITE_OPCODES:
            self._enlist_all(queue_pair.peer)
            self._set_alarm(queue_pair)

    def _take_time_exceeded(self, frame: Frame, now: int) -> bool:
        if self.on_time_exceeded is None:
            return False
        message = read_time_exceeded(b"".join(frame))
        if message is None or message.to not in self._addresses:
            return False
        self.on_time_exceeded(message, now)
        return True

    def _set_alarm(self, queue_pair: QueuePair) -> None:
        """Its timers may have been set. An alarm that comes too early is set again."""
        deadline = queue_pair.deadline
        if deadline is not None and (queue_pair.alarm is None or deadline < queue_pair.alarm):
            queue_pair.alarm = deadline
            heappush(self._alarms, (deadline, queue_pair.qpn))

    def _first_alarm(self) -> tuple[int, QueuePair] | None:
        """When the first timer of all QPs is due, ns, and whose it is."""
        while self._alarms:
            alarm, qpn = self._alarms[0]
            queue_pair = self._queue_pairs.get(qpn)
            if queue_pair is not None and alarm == queue_pair.alarm:
                if alarm == queue_pair.deadline:
                    return alarm, queue_pair
                queue_pair.alarm = None
            heappop(self._alarms)
            if queue_pair is not None and queue_pair.alarm is None:
                self._set_alarm(queue_pair)
        return None

    def next_deadline(self) -> int | None:
        """When `poll` is due next, None if nothing waits for time to pass."""
        first = self._first_alarm()
        deadline = None if first is None else first[0]
        for other in (self.endpoint.deadline, self._remaps[0][0] if self._remaps else None):
            if other is not None and (deadline is None or other < deadline):
                deadline = other
        return deadline

    def poll(self, now: int) -> None:
        """Run the timers that are due."""
        self._now = now
        self.endpoint.on_timer(now)
        while self._remaps and self._remaps[0][0] <= now:
            _, plane = self._remaps.pop(0)
            self._remap(plane, False, now)
        while (first := self._first_alarm()) is not None and first[0] <= now:
            _, queue_pair = first
            queue_pair.on_timer(now)
            self._set_alarm(queue_pair)
            if queue_pair.peer is not None:
                self._enlist_all(queue_pair.peer)

    def port_status(self, plane: int, up: bool, now: int) -> None:
        """A port's link went down or came up: all QPs leave it (after the remap delay) or may use it again."""
        self._now = now
        port = self.ports[plane]
        if port.up == up:
            return
        port.up = up
        if self.log is not None:
            self.log(PortEvent(now, plane, up, None))
        self._remaps = [remap for remap in self._remaps if remap[1] != plane]
        if up:
            if port.ready:
                self.ready |= 1 << plane
            self._remap(plane, up, now)
            return
        port.control.clear()
        self.ready &= ~(1 << plane)
        for queue_pair in self._queue_pairs.values():
            if queue_pair.requester is not None:
                queue_pair.requester.on_port_down(plane, now)
        if self._remap_delay:
            self._remaps.append((now + self._remap_delay, plane))
        else:
            self._remap(plane, up, now)

    def _remap(self, plane: int, up: bool, now: int) -> None:
        """QPs leave a port or use it again, and every peer is told: what it sends to a port that is down is lost."""
        mask = self.planes_up | 1 << plane if up else self.planes_up & ~(1 << plane)
        if mask == self.planes_up:
            return
        self.planes_up = mask
        port = self.ports[plane]
        waiting = [qp for qp in self._queue_pairs.values() if not qp.enlisted]
        if not up:
            waiting = list(port.ready)
            port.ready.clear()
        for queue_pair in self._queue_pairs.values():
            queue_pair.look_at_ports()
            self._set_alarm(queue_pair)
        for queue_pair in waiting:
            queue_pair.enlisted = False
            self.enlist(queue_pair)
        for peer in dict.fromkeys(qp.peer for qp in self._queue_pairs.values() if qp.peer is not None):
            self.endpoint.announce_ports(peer, now)

    def set_denylist(self, rules: Iterable[Deny], now: int) -> None:
        """Take a whole new denylist: what it forbids goes out of use at once, what it no longer does comes back."""
        self._now = now
        self.denylist = list(rules)
        for queue_pair in self._queue_pairs.values():
            queue_pair.apply_denylist(now)
            self.enlist(queue_pair)
