"""The receiving half of an RC QP: in order only, ACK and NAK, CNP (InfiniBand 9.7.4 and 9.9.3, annex A17)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nic_model.headers import Ecn
from nic_model.packet import Encap, Frame
from nic_model.roce.packet import (
    FIRST_OPCODES,
    IMM_OPCODES,
    LAST_OPCODES,
    Packet,
    Syndrome,
    build_ack,
    build_cnp,
)
from nic_model.sequence import unwrap
from nic_model.verbs import CQ, PD, WC, Access, RecvWR, Regions, WCOpcode, WCStatus


@dataclass(slots=True)
class ResponderCounters:
    """Packets and bytes of one QP's receiving half."""

    packets: int = 0
    payload_bytes: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    marked: int = 0
    acks: int = 0
    sequence_naks: int = 0
    cnps: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Message:
    """The WRITE that is under way: where the next byte goes and how many are still to come."""

    va: int
    rkey: int
    length: int
    missing: int


class Responder:
    """Takes data packets, gives back ACKs, NAKs, CNPs and receive completions.

    `cnp_interval` in ns; None: no CNPs.
    """

    def __init__(
        self,
        *,
        qpn: int,
        dest_qpn: int,
        first_psn: int,
        mtu: int,
        cnp_interval: int | None,
        encap: Encap,
        pd: PD,
        regions: Regions,
        rcq: CQ,
        receive_queue: deque[RecvWR],
        send_control: Callable[[Frame], None],
        fail: Callable[[WCStatus], None],
    ) -> None:
        self.counters = ResponderCounters()
        self._qpn = qpn
        self._dest_qpn = dest_qpn
        self._expected_psn = first_psn
        self._mtu = mtu
        self._cnp_interval = cnp_interval
        self._encap = encap
        self._pd = pd
        self._regions = regions
        self._rcq = rcq
        self._receive_queue = receive_queue
        self._send_control = send_control
        self._fail = fail
        self._msn = 0
        self._message: _Message | None = None
        self._sequence_nak_sent = False
        self._cnp_at = 0  # not before

    def on_data(self, packet: Packet, now: int) -> int:
        """A packet of a WRITE. Returns how many bytes it put into memory."""
        if packet.ecn == Ecn.CE:
            self._notify(now)
        psn = unwrap(packet.psn, self._expected_psn, 24)
        if psn < self._expected_psn:
            self.counters.duplicates += 1
            if packet.ack_req:
                self._ack()
            return 0
        if psn > self._expected_psn:
            self.counters.out_of_order += 1
            if not self._sequence_nak_sent:  # one, until the expected packet is there (InfiniBand 9.7.5.2.8)
                self._sequence_nak_sent = True
                self.counters.sequence_naks += 1
                self._answer(self._expected_psn, Syndrome.NAK_PSN_SEQUENCE_ERROR)
            return 0
        self._sequence_nak_sent = False
        refusal = self._place(packet)
        if refusal is None and packet.opcode in LAST_OPCODES:
            refusal = self._finish(packet)
        if refusal is not None:
            self._refuse(refusal)
            return 0
        self._expected_psn += 1
        self.counters.packets += 1
        self.counters.payload_bytes += len(packet.payload)
        if packet.ack_req:
            self._ack()
        return len(packet.payload)

    # ---- memory --------------------------------------------------------------------------------------

    def _place(self, packet: Packet) -> Syndrome | None:
        """Write the payload to its place; if that can't be, the NAK says why."""
        if (packet.opcode in FIRST_OPCODES) is not (self._message is None):
            return Syndrome.NAK_INVALID_REQUEST
        message = self._message or _Message(packet.va, packet.rkey, packet.dma_len, packet.dma_len)
        length = len(packet.payload)
        # All packets are full but a message's last (InfiniBand 9.7.4.1.7).
        full = length == self._mtu and message.missing > length
        ends = length == message.missing and length <= self._mtu
        if not (ends if packet.opcode in LAST_OPCODES else full):
            return Syndrome.NAK_INVALID_REQUEST
        if packet.opcode in FIRST_OPCODES and not self._allows(message.rkey, message.va, message.length):
            return Syndrome.NAK_REMOTE_ACCESS_ERROR
        if length:
            memory = self._regions.find(message.rkey, self._pd, message.va, length, Access.REMOTE_WRITE)
            if memory is None:  # deregistered since the first packet
                return Syndrome.NAK_REMOTE_ACCESS_ERROR
            memory[:] = packet.payload
        message.va += length
        message.missing -= length
        self._message = message
        return None

    def _allows(self, rkey: int, va: int, length: int) -> bool:
        """Is the whole message inside a region? A message without bytes needs none (InfiniBand 9.7.4.1.6)."""
        return not length or self._regions.find(rkey, self._pd, va, length, Access.REMOTE_WRITE) is not None

    def _finish(self, packet: Packet) -> Syndrome | None:
        message, self._message = self._message, None
        if packet.opcode in IMM_OPCODES and message is not None:
            if not self._receive_queue:  # receives are posted beforehand: there is no RNR NAK, as in MRC
                return Syndrome.NAK_REMOTE_OPERATIONAL_ERROR
            wr_id = self._receive_queue.popleft().wr_id
            opcode = WCOpcode.RECV_RDMA_WITH_IMM
            self._rcq.add(WC(wr_id, WCStatus.SUCCESS, opcode, self._qpn, message.length, packet.imm))
        self._msn += 1
        return None

    # ---- answers -------------------------------------------------------------------------------------

    def _ack(self) -> None:
        self.counters.acks += 1
        self._answer(self._expected_psn - 1, Syndrome.ACK)

    def _refuse(self, syndrome: Syndrome) -> None:
        """The request can't be done: the QP is in error (InfiniBand 9.9.3)."""
        self.counters.refused += 1
        self._answer(self._expected_psn, syndrome)
        self._fail(WCStatus.WR_FLUSH_ERR)

    def _answer(self, psn: int, syndrome: Syndrome) -> None:
        msn = self._msn & 0xFFFFFF
        self._send_control(build_ack(self._encap, dqpn=self._dest_qpn, psn=psn & 0xFFFFFF, syndrome=syndrome, msn=msn))

    def _notify(self, now: int) -> None:
        """The notification point of DCQCN (Zhu et al. 2015): one CNP in each interval with marked packets."""
        self.counters.marked += 1
        if self._cnp_interval is not None and now >= self._cnp_at:
            self._cnp_at = now + self._cnp_interval
            self.counters.cnps += 1
            self._send_control(build_cnp(self._encap, dqpn=self._dest_qpn))
