"""One RC QP: its states, its two halves, and the one 5-tuple between it and its peer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nic_model.headers import Ecn, ev_from
from nic_model.packet import Encap
from nic_model.retry import TIMEOUT_UNIT, RetryTimes
from nic_model.roce.dcqcn import Dcqcn, LineRate
from nic_model.roce.packet import WRITE_OPCODES, Opcode, Packet
from nic_model.roce.requester import Requester
from nic_model.roce.responder import Responder
from nic_model.verbs import PD, QPAttr, QPInitAttr, QPState, WCStatus
from nic_model.work_queues import WorkQueues

if TYPE_CHECKING:
    from nic_model.roce.nic import RoceNic

UDP_SPORT_MIN = 0xC000
"""UDP source ports are of the dynamic range (annex A17, RFC 6335)."""
UDP_SPORT_BITS = 14


class RoceQueuePair(WorkQueues):
    """The endpoint's side of a `verbs.QP`.

    Of QPAttr an RC QP uses dest_qp_num, rq_psn, sq_psn, dgid, path_mtu, timeout, linear_cnt and exp_cnt. `dgid` is one
    port of the peer: the QP uses its own port in that plane and no other, so both ends must name the same plane.
    """

    requester: Requester | None = None

    def __init__(self, nic: RoceNic, qpn: int, pd: PD, init_attr: QPInitAttr) -> None:
        super().__init__(nic.regions, qpn, pd, init_attr)
        self.plane = 0
        """The port that it uses; known from RTR on."""
        self.peer_address = b""
        """16 bytes; known from RTR on."""
        self.udp_sport = UDP_SPORT_MIN | nic.rng.getrandbits(UDP_SPORT_BITS)
        """What tells the QPs between two ports apart for ECMP."""
        self.enlisted = False
        """Is it waiting for its time or its port to send? Kept by the NIC."""
        self.alarm: int | None = None
        """When the NIC looks at its timer, ns. Kept by the NIC."""
        self.responder: Responder | None = None
        self._nic = nic
        self._dest_qpn = 0
        self._encap: Encap | None = None

    # ---- states --------------------------------------------------------------------------------------

    def to_init(self, attr: QPAttr) -> None:  # noqa: ARG002
        """See verbs.QP. RC has no profiles to choose."""
        self._require(QPState.RESET)
        self.state = QPState.INIT

    def to_rtr(self, attr: QPAttr) -> None:
        """See verbs.QP."""
        self._require(QPState.INIT)
        self._encap = self._encap_to(attr.dgid)
        self._dest_qpn = attr.dest_qp_num
        dcqcn = self._nic.settings.dcqcn
        self.responder = Responder(
            qpn=self.qpn,
            dest_qpn=self._dest_qpn,
            first_psn=attr.rq_psn,
            mtu=attr.path_mtu,
            cnp_interval=None if dcqcn is None else dcqcn.n,
            encap=self._encap,
            pd=self._pd,
            regions=self._regions,
            rcq=self._init_attr.rcq,
            receive_queue=self._receive_queue,
            send_control=self._nic.ports[self.plane].send_control,
            fail=self._fail,
        )
        self.state = QPState.RTR

    def _encap_to(self, address: bytes) -> Encap:
        nic = self._nic
        self.plane = nic.plane_of(address)
        self.peer_address = address
        port = nic.ports[self.plane]
        return Encap(
            eth_dst=port.gateway,
            eth_src=port.mac,
            outer_src=None,
            outer_dst=None,
            inner_src=port.address,
            inner_dst=address,
            ev=ev_from(self.udp_sport, 0),
            wire=nic.wire,
        )

    def to_rts(self, attr: QPAttr) -> None:
        """See verbs.QP."""
        self._require(QPState.RTR)
        if self._encap is None:
            raise AssertionError("a QP in RTR without a peer")
        settings = self._nic.settings
        self.requester = Requester(
            dest_qpn=self._dest_qpn,
            first_psn=attr.sq_psn,
            mtu=attr.path_mtu,
            window=max(1, settings.max_outstanding // attr.path_mtu),
            ack_interval=settings.ack_interval,
            times=RetryTimes(TIMEOUT_UNIT << attr.timeout, attr.linear_cnt, attr.exp_cnt),
            limiter=LineRate() if settings.dcqcn is None else Dcqcn(settings.dcqcn),
            encap=self._encap,
            ecn=Ecn.NOT_ECT if settings.dcqcn is None else Ecn.ECT0,
            complete=self._complete,
            fail=self._fail,
        )
        self.state = QPState.RTS

    # ---- for the NIC ---------------------------------------------------------------------------------

    def _posted(self) -> None:
        self._nic.on_posted(self)

    def receive(self, packet: Packet, now: int) -> int:
        """A packet from the peer, with a right ICRC. Returns how many bytes it put into memory."""
        if packet.opcode in WRITE_OPCODES and self.responder is not None:
            return self.responder.on_data(packet, now)
        if self.requester is None:
            self._nic.counters.refused["QP does not send"] += 1
        elif packet.opcode == Opcode.ACKNOWLEDGE:
            self.requester.on_acknowledge(packet, now)
        else:
            self.requester.on_cnp(now)
        return 0

    @property
    def send_at(self) -> int | None:
        """When its next packet may leave, ns; None if there is none."""
        return None if self.requester is None else self.requester.send_at

    @property
    def deadline(self) -> int | None:
        """When `on_timer` is due, ns."""
        return None if self.requester is None else self.requester.deadline

    def _forget(self) -> None:
        self._nic.leave_port(self)
        self.responder = None

    def close(self) -> None:
        """Flush what is outstanding and leave the NIC."""
        self._fail(WCStatus.WR_FLUSH_ERR)
        self._nic.forget_queue_pair(self)

    def on_timer(self, now: int) -> None:
        """Run what is due."""
        if self.requester is not None:
            self.requester.on_timer(now)

    def on_port_down(self, now: int) -> None:
        """Its port can't send: another one it does not use."""
        if self.requester is not None:
            self.requester.on_port_down(now)

    def record(self, nic: str) -> dict[str, Any]:
        """Its counters, as one line of a file of them: `nic` is the NIC's name."""
        return {
            "nic": nic,
            "qpn": self.qpn,
            "plane": self.plane,
            "udp_sport": self.udp_sport,
            "state": self.state.name,
            "sent": None if self.requester is None else asdict(self.requester.counters),
            "received": None if self.responder is None else asdict(self.responder.counters),
        }
