"""One QP of the endpoint: its states, its two halves, and the paths between it and its peer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nic_model.endpoint import Answered
from nic_model.ev import Ev, EvProfile
from nic_model.ev_format import ProfileState
from nic_model.events import EvEvent, EvState, QpEvent
from nic_model.headers import WRITE_OPCODES, Opcode
from nic_model.packet import Packet, build_control
from nic_model.peer import Peer
from nic_model.prober import PathProber
from nic_model.requester import Requester
from nic_model.responder import Responder
from nic_model.retry import TIMEOUT_UNIT, RetryTimes
from nic_model.reverse import ReverseEvs
from nic_model.verbs import MPR_UNIT, PD, QPAttr, QPInitAttr, QPState, VerbsError, WCStatus
from nic_model.work_queues import WorkQueues

if TYPE_CHECKING:
    from nic_model.nic import Nic

SACK = int(Opcode.SACK)
PROBES_PER_TIMEOUT = 8
"""How often in one ACK timeout a path that was given up is probed."""


class QueuePair(WorkQueues):
    """The endpoint's side of a `verbs.QP`."""

    requester: Requester | None = None

    def __init__(self, nic: Nic, qpn: int, pd: PD, init_attr: QPInitAttr) -> None:
        super().__init__(nic.regions, qpn, pd, init_attr)
        self.enlisted = False
        """Is it waiting for a port to become free? Kept by the NIC."""
        self.alarm: int | None = None
        """When the NIC looks at its timers, ns. Kept by the NIC, too."""
        self.planes_up = 0
        """Bit p is set if port p can send and the peer's port p can be reached."""
        self.responder: Responder | None = None
        self.peer: Peer | None = None
        self.prober: PathProber | None = None
        self._reverse: ReverseEvs | None = None
        self._nic = nic
        self._profile = EvProfile()
        self._dest_qpn = 0
        self._arrival_port = 0
        self._timeout = 0  # ns
        self._longest_silence = 0  # ns that all retries take
        self._cut_off_at: int | None = None  # when the QP ends if no port comes back until then

    # ---- states --------------------------------------------------------------------------------------

    def _enter(self, state: QPState, status: WCStatus | None = None) -> None:
        self.state = state
        if self._nic.log is not None:
            self._nic.log(QpEvent(self._nic.now, self.qpn, state.name, None if status is None else status.name))

    def _forget(self) -> None:
        self._nic.leave_peer(self)
        self.peer = self.responder = self.prober = self._reverse = None
        self.look_at_ports()

    def to_reset(self) -> None:
        super().to_reset()
        self._enter(QPState.RESET)

    def to_init(self, attr: QPAttr) -> None:
        self._require(QPState.RESET)
        profile = self._nic.ev_profiles.get(attr.ev_profile_id)
        if profile is None or profile.state is not ProfileState.ONLINE:
            raise VerbsError(f"the NIC has no EV profile {attr.ev_profile_id} that is ONLINE")
        self._profile = profile
        self._enter(QPState.INIT)

    def to_rtr(self, attr: QPAttr) -> None:
        self._require(QPState.INIT)
        self.peer = self._nic.peer(attr.dgid)
        if self.peer is None:
            raise VerbsError(f"QPAttr.dgid {attr.dgid.hex(':')} is no address that this NIC has a path to")
        self.peer.queue_pairs.append(self)
        self.look_at_ports()
        self._dest_qpn = attr.dest_qp_num
        self._timeout = TIMEOUT_UNIT << attr.timeout
        evs = [self.peer.any_ev(port.plane) for port in self._nic.ports]
        self._reverse = ReverseEvs(evs, self._timeout // PROBES_PER_TIMEOUT, self.peer, self._probe_path)
        self.responder = Responder(
            qpn=self.qpn,
            dest_qpn=self._dest_qpn,
            first_psn=attr.rq_psn,
            mpr=attr.mpr_dest * MPR_UNIT,
            dynamic_mpr=attr.dynamic_mpr,
            max_wimm=attr.max_wimm_dest,
            silent_above_window=attr.silent_above_window,
            pd=self._pd,
            regions=self._regions,
            rcq=self._init_attr.rcq,
            receive_queue=self._receive_queue,
            penalty=self._nic.host_penalty,
            send_control=self._answer,
            fail=self._fail,
        )
        self._enter(QPState.RTR)

    def to_rts(self, attr: QPAttr) -> None:
        self._require(QPState.RTR)
        self._timeout = TIMEOUT_UNIT << attr.timeout
        try:
            evs = self._the_peer().spray(self._profile, self._on_ev_transition)
        except ValueError as error:
            raise VerbsError(f"the EV profile of QP {self.qpn} does not fit: {error}") from None
        self.prober = PathProber(evs, self._probe_interval, self._probe)
        self.requester = Requester(
            qpn=self.qpn,
            dest_qpn=self._dest_qpn,
            first_psn=attr.sq_psn,
            mtu=attr.path_mtu,
            mpr=attr.mpr * MPR_UNIT,
            max_wimm=attr.max_wimm,
            timeout=attr.timeout,
            linear_cnt=attr.linear_cnt,
            exp_cnt=attr.exp_cnt,
            late_tolerance=self._nic.late_tolerance,
            evs=evs,
            window=self._the_peer().window(attr.cc_profile_id),
            wire=self._nic.wire,
            complete=self._complete,
            fail=self._fail,
            ask_paths=self._ask_paths,
            log=self._nic.log,
            log_windows=self._nic.log_windows,
            no_trim=attr.no_trim,
        )
        self._longest_silence = RetryTimes(self._timeout, attr.linear_cnt, attr.exp_cnt).total
        self._enter(QPState.RTS)
        self.look_at_ports()
        self.apply_denylist(self._nic.now)

    def apply_denylist(self, now: int) -> None:
        """Forbid the paths that the NIC's denylist covers, and allow all others."""
        requester, peer = self.requester, self.peer
        if requester is None or peer is None:
            return
        for ev in requester.evs:
            denied = peer.is_denied(ev.plane, ev.value)
            change = requester.evs.deny if denied else requester.evs.allow
            change(ev, "denylist", now)
        if self._reverse is not None:
            self._reverse.leave_denied()

    def _the_peer(self) -> Peer:
        if self.peer is None:
            raise VerbsError(f"QP {self.qpn} has no peer")
        return self.peer

    def _fail(self, status: WCStatus) -> None:
        if self.state is QPState.ERR:
            return
        super()._fail(status)
        self._enter(QPState.ERR, status)
        if self.prober is not None:
            self.prober.stop()
        self._nic.endpoint.withdraw(self)

    def close(self) -> None:
        """Flush what is outstanding and leave the NIC."""
        self._fail(WCStatus.WR_FLUSH_ERR)
        self._nic.forget_queue_pair(self)

    def _posted(self) -> None:
        self._nic.enlist(self)

    # ---- packets -------------------------------------------------------------------------------------

    def receive(self, packet: Packet, port: int, now: int) -> None:
        """A packet from the peer, parsed and with a right ICRC."""
        requester, responder = self.requester, self.responder
        self._arrival_port = port
        if responder is None:
            return
        if self.state is QPState.ERR:
            self._nic.counters.refused["QP in error"] += 1
            if packet.rtx or packet.opcode == Opcode.RELIABILITY_PROBE:
                responder.repeat_refusal()
            return
        opcode = packet.opcode
        if opcode in WRITE_OPCODES:
            if packet.rtx:
                self._answer_the_way_it_came(packet, port)
            self._nic.ports[port].payload_bytes += responder.on_data(packet)
            if self._reverse is not None and (requester is None or not requester.in_flight):
                self._reverse.on_inbound(now)
        elif opcode == SACK and requester is not None:
            sack, state = packet.sack, packet.cc
            works = requester.on_sack(sack, state, self.planes_up, now)
            if works is not None:
                self._reverse_evs().confirm(works.plane, works.value)
        elif opcode == Opcode.RELIABILITY_PROBE:
            self._answer_the_way_it_came(packet, port)
            responder.on_probe(packet, packet.probe)
        elif opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE):
            self._nic.counters.refused["endpoint operation to a QP"] += 1
        elif requester is None:
            self._nic.counters.refused["feedback for a QP that does not send"] += 1
        elif opcode == Opcode.NACK:
            requester.on_nack(packet.nack, self.planes_up, now)
        elif opcode == Opcode.TRANSPORT_ACK:
            requester.on_transport_ack(packet.aeth, now)

    def _answer_the_way_it_came(self, packet: Packet, port: int) -> None:
        """A peer that repeats itself may not have heard us: what a path has brought shows that it works."""
        self._reverse_evs().confirm(port, self._the_peer().reply_ev(port, packet.envelope.ev))

    def _reverse_evs(self) -> ReverseEvs:
        if self._reverse is None:
            raise AssertionError("control packets are sent from RTR on")
        return self._reverse

    def _answer(self, opcode: Opcode, psn: int, extension: bytes) -> None:
        """Control packets leave in the plane that their cause came in, or in another if that one is down."""
        nic, peer = self._nic, self._the_peer()
        plane, ev = self._arrival_port, self._reverse_evs().ev(self._arrival_port)
        if not self.planes_up >> plane & 1:
            path = peer.any_path()
            if path is None:
                return
            plane, ev = path
        encap = peer.encap(plane, ev)
        nic.send_control(plane, build_control(encap, opcode=opcode, dqpn=self._dest_qpn, psn=psn, extension=extension))

    # ---- paths ---------------------------------------------------------------------------------------

    def look_at_ports(self) -> None:
        """A port of the NIC or of the peer went down or came up. Without any, the QP has an end (arXiv 2605.04333)."""
        self.planes_up = self._nic.planes_up & (0 if self.peer is None else self.peer.ports_up)
        if self.planes_up or self.state is not QPState.RTS:
            self._cut_off_at = None
        elif self._cut_off_at is None:
            self._cut_off_at = self._nic.now + self._longest_silence

    def _on_ev_transition(self, now: int, ev: Ev, old: EvState, new: EvState, reason: str) -> None:
        if new is EvState.ASSUMED_BAD and self.prober is not None:
            self.prober.watch(ev, now)
        elif new is EvState.GOOD and old is not EvState.SKIP:
            self._nic.enlist(self)  # it may have waited for just this path
        if self._nic.log is not None:
            self._nic.log(EvEvent(now, self.qpn, ev.plane, ev.value, old, new, reason, ev.losses))

    def _ask_paths(self, now: int) -> None:
        """The peer is silent: find any path that still leads to it."""
        requester = self.requester
        if requester is None:
            return
        for ev in requester.evs:
            if ev.state is not EvState.DENIED and self.planes_up >> ev.plane & 1:
                self._probe_path(ev.plane, ev.value, partial(self._on_answer, requester, ev), now)

    def _on_answer(self, requester: Requester, ev: Ev, rtt: int | None, now: int) -> None:
        if rtt is not None:
            requester.on_path_works(ev, now)
            self._nic.enlist(self)

    def _probe(self, ev: Ev, outcome: Callable[[bool, int], None], now: int) -> None:
        def answered(rtt: int | None, at: int) -> None:
            outcome(rtt is not None, at)

        self._probe_path(ev.plane, ev.value, answered, now)

    def _probe_path(self, plane: int, ev: int, answered: Answered, now: int) -> None:
        self._nic.endpoint.probe(self._the_peer(), plane, ev, self._timeout, answered, now, self)

    def _probe_interval(self) -> int:
        """A path that was given up is probed the less often the longer the peer is silent."""
        wait = self._timeout if self.requester is None else self.requester.wait
        return wait // PROBES_PER_TIMEOUT

    # ---- timers --------------------------------------------------------------------------------------

    @property
    def deadline(self) -> int | None:
        """When `on_timer` is due, ns. Paths are probed while there is work for them."""
        deadline = None if self.requester is None else self.requester.deadline
        if deadline is not None and self.prober is not None and self.prober.deadline is not None:
            deadline = min(deadline, self.prober.deadline)
        if self._cut_off_at is None:
            return deadline
        return self._cut_off_at if deadline is None else min(deadline, self._cut_off_at)

    def on_timer(self, now: int) -> None:
        """Run what is due."""
        if self._cut_off_at is not None and now >= self._cut_off_at:
            self._cut_off_at = None
            self._fail(WCStatus.RETRY_EXC_ERR)
        requester, prober = self.requester, self.prober
        if requester is not None and prober is not None:
            requester.on_timer(self.planes_up, now)
            if self.state is QPState.RTS:
                prober.on_timer(now)
