"""One QP of the endpoint: its states, its two halves, and the paths between it and its peer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nic_model.ev import Ev, EvEvent, EvProfile, EvSet, EvState
from nic_model.headers import WRITE_OPCODES, Opcode
from nic_model.packet import Encap, Packet, build_control
from nic_model.paths import srv6_ev
from nic_model.requester import Message, Requester
from nic_model.responder import Responder
from nic_model.verbs import (
    MPR_UNIT,
    PD,
    WC,
    Access,
    QPAttr,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    VerbsError,
    WCOpcode,
    WCStatus,
    WROpcode,
)

if TYPE_CHECKING:
    from nic_model.nic import Nic

RDMA_MAX_MESSAGE = 1 << 31
"""Bytes in one message (InfiniBand 9.4.3)."""


class Peer:
    """The NIC at the other end: its port addresses and, for every EV, the headers that lead there."""

    def __init__(self, nic: Nic, address: bytes) -> None:
        self._nic = nic
        self._template = nic.paths.template_for(address)
        self._row = address[:8]
        self._index = address[14:16]
        self._encaps: dict[int, Encap] = {}
        self.paths = self._template.paths
        """Paths in each plane."""

    def owns(self, address: bytes) -> bool:
        """Is this one of the peer's port addresses? It may use any of them (one per plane)."""
        return address[:8] == self._row and address[14:] == self._index

    def encap(self, plane: int, ev: int) -> Encap:
        """The addresses of a packet that leaves through port `plane` on path `ev`."""
        encap = self._encaps.get(ev)
        if encap is None:
            port = self._nic.ports[plane]
            address = self._row + plane.to_bytes(2, "big") + bytes(4) + self._index
            encap = self._encaps[ev] = Encap(
                eth_dst=port.gateway,
                eth_src=port.mac,
                outer_src=port.address,
                outer_dst=self._template.outer_da(ev, int.from_bytes(self._index, "big")),
                inner_src=port.address,
                inner_dst=address,
                ev=ev,
                wire=self._nic.wire,
            )
        return encap

    def reply_ev(self, plane: int, ev: int) -> int:
        """The path of a control packet that answers one which came on `ev`: the same T1, from port `plane`.

        What a path brought shows that it works; a link that fails, fails in both directions. A peer's EV that is
        none of ours gives the plane's first path.
        """
        uplink = ev >> 19 & 0x3FF
        return srv6_ev(plane, uplink if uplink < self.paths else 0)

    def ev_set(self, profile: EvProfile, qp: QueuePair) -> EvSet:
        """Random paths inside each plane, the same number in each, without coordination between senders."""
        nic = self._nic
        planes = len(nic.ports)
        active_count, backup_count = profile.per_plane(planes, self.paths)
        active: list[Ev] = []
        backup: list[Ev] = []
        for plane in range(planes):
            chosen = nic.rng.sample(range(self.paths), active_count + backup_count)
            values = [srv6_ev(plane, uplink) for uplink in chosen]
            evs = [Ev(plane, value, self.encap(plane, value)) for value in values]
            active += evs[:active_count]
            backup += evs[active_count:]
        return EvSet(planes, active, backup, profile.min_active, qp.on_ev_transition)


class QueuePair:
    """The endpoint's side of a `verbs.QP`."""

    def __init__(self, nic: Nic, qpn: int, pd: PD, init_attr: QPInitAttr) -> None:
        self.qpn = qpn
        self.state = QPState.RESET
        self.enlisted = False
        """Is it waiting for a port to become free? Kept by the NIC."""
        self.requester: Requester | None = None
        self.responder: Responder | None = None
        self.peer: Peer | None = None
        self._nic = nic
        self._pd = pd
        self._init_attr = init_attr
        self._profile = EvProfile()
        self._receive_queue: deque[RecvWR] = deque()
        self._dest_qpn = 0
        self._arrival_port = 0

    # ---- states --------------------------------------------------------------------------------------

    def to_init(self, attr: QPAttr) -> None:
        self._require(QPState.RESET)
        profile = self._nic.ev_profiles.get(attr.ev_profile_id)
        if profile is None:
            raise VerbsError(f"the NIC has no EV profile {attr.ev_profile_id}")
        self._profile = profile
        self.state = QPState.INIT

    def to_rtr(self, attr: QPAttr) -> None:
        self._require(QPState.INIT)
        self.peer = Peer(self._nic, attr.dgid)
        self._dest_qpn = attr.dest_qp_num
        self.responder = Responder(
            qpn=self.qpn,
            dest_qpn=self._dest_qpn,
            first_psn=attr.rq_psn,
            mpr=attr.mpr * MPR_UNIT,
            max_wimm=attr.max_wimm,
            pd=self._pd,
            regions=self._nic.regions,
            rcq=self._init_attr.rcq,
            receive_queue=self._receive_queue,
            send_control=self._answer,
            fail=self._fail,
        )
        self.state = QPState.RTR

    def to_rts(self, attr: QPAttr) -> None:
        self._require(QPState.RTR)
        peer = self._the_peer()
        self.requester = Requester(
            qpn=self.qpn,
            dest_qpn=self._dest_qpn,
            first_psn=attr.sq_psn,
            mtu=attr.path_mtu,
            mpr=attr.mpr_dest * MPR_UNIT,
            max_wimm=attr.max_wimm_dest,
            timeout=attr.timeout,
            linear_cnt=attr.linear_cnt,
            exp_cnt=attr.exp_cnt,
            evs=peer.ev_set(self._profile, self),
            congestion=self._nic.congestion(attr.cc_profile_id),
            wire=self._nic.wire,
            complete=self._complete,
            fail=self._fail,
        )
        self.state = QPState.RTS

    def _require(self, state: QPState) -> None:
        if self.state is not state:
            raise VerbsError(f"QP {self.qpn} is in {self.state.name}, the step needs {state.name}")

    def _the_peer(self) -> Peer:
        if self.peer is None:
            raise VerbsError(f"QP {self.qpn} has no peer")
        return self.peer

    def _fail(self, status: WCStatus) -> None:
        """To ERROR: every outstanding work request completes, none is lost."""
        if self.state is QPState.ERR:
            return
        self.state = QPState.ERR
        if self.requester is not None:
            self.requester.flush(status)
        while self._receive_queue:
            wr_id = self._receive_queue.popleft().wr_id
            self._init_attr.rcq.add(WC(wr_id, WCStatus.WR_FLUSH_ERR, WCOpcode.RECV_RDMA_WITH_IMM, self.qpn))

    # ---- work ----------------------------------------------------------------------------------------

    def post_send(self, wr: SendWR) -> None:
        if self.state is QPState.ERR:
            self._init_attr.scq.add(WC(wr.wr_id, WCStatus.WR_FLUSH_ERR, WCOpcode.RDMA_WRITE, self.qpn))
            return
        requester = self.requester
        if requester is None:
            raise VerbsError(f"QP {self.qpn} is in {self.state.name}, sending needs RTS")
        if wr.opcode not in (WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM):
            raise VerbsError(f"MRC has no operation {wr.opcode}: it writes, with or without an immediate")
        if requester.outstanding >= self._init_attr.cap.max_send_wr:
            raise VerbsError(f"the send queue of QP {self.qpn} is full: {requester.outstanding} work requests")
        requester.post(wr, self._gather(wr))
        self._nic.enlist(self)

    def _gather(self, wr: SendWR) -> memoryview:
        pieces = []
        for sge in wr.sg:
            piece = self._nic.regions.find(sge.lkey, self._pd, sge.addr, sge.length, Access(0))
            if piece is None:
                raise VerbsError(f"work request {wr.wr_id}: {sge} is not inside a region of this PD")
            pieces.append(piece)
        if sum(map(len, pieces)) > RDMA_MAX_MESSAGE:
            raise VerbsError(f"work request {wr.wr_id} is longer than {RDMA_MAX_MESSAGE} bytes")
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    def post_recv(self, wr: RecvWR) -> None:
        if self.state is QPState.ERR:
            self._init_attr.rcq.add(WC(wr.wr_id, WCStatus.WR_FLUSH_ERR, WCOpcode.RECV_RDMA_WITH_IMM, self.qpn))
            return
        if len(self._receive_queue) >= self._init_attr.cap.max_recv_wr:
            raise VerbsError(f"the receive queue of QP {self.qpn} is full")
        self._receive_queue.append(wr)

    def _complete(self, message: Message, status: WCStatus) -> None:
        self._init_attr.scq.add(WC(message.wr.wr_id, status, WCOpcode.RDMA_WRITE, self.qpn, len(message.payload)))

    # ---- packets -------------------------------------------------------------------------------------

    def receive(self, packet: Packet, port: int, now: int) -> None:
        """A packet from the peer, parsed and with a right ICRC."""
        requester, responder = self.requester, self.responder
        self._arrival_port = port
        if self.state is QPState.ERR or responder is None:
            return
        if packet.opcode in WRITE_OPCODES:
            self._nic.ports[port].payload_bytes += responder.on_data(packet)
        elif packet.opcode == Opcode.RELIABILITY_PROBE:
            responder.on_probe(packet, packet.probe)
        elif requester is None:
            return
        elif packet.opcode == Opcode.SACK:
            requester.on_sack(packet.sack, packet.cc, now)
        elif packet.opcode == Opcode.NACK:
            requester.on_nack(packet.nack, now)
        elif packet.opcode == Opcode.TRANSPORT_ACK:
            requester.on_transport_ack(packet.aeth, now)

    def _answer(self, packet: Packet, opcode: Opcode, psn: int, extension: bytes) -> None:
        """Control packets go back the way that their cause came, or through another port if that one is down."""
        nic, peer = self._nic, self._the_peer()
        plane = self._arrival_port if nic.ports[self._arrival_port].up else nic.first_port_up()
        if plane is None:
            return
        encap = peer.encap(plane, peer.reply_ev(plane, packet.ev))
        frame = build_control(encap, opcode=opcode, dqpn=self._dest_qpn, psn=psn, extension=extension)
        nic.ports[plane].control.append(frame)

    def on_ev_transition(self, now: int, ev: Ev, old: EvState, new: EvState, reason: str) -> None:
        listener = self._nic.ev_listener
        if listener is not None:
            listener(EvEvent(now, self.qpn, ev.plane, ev.value, old, new, reason, ev.losses))
