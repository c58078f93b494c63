"""The receiving half of a QP: window, placement in any order, SACK and NACK, completion of messages.

Source: OCP MRC 1.0. Reliability is apart from semantics: a SACK says that packets arrived, a Transport ACK
that messages are complete, and a packet can be SACKed whose message is then refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nic_model.headers import (
    AETH,
    NETH,
    PETH,
    Ecn,
    NackReason,
    Opcode,
    SackMark,
)
from nic_model.packet import Packet, write_sack
from nic_model.sequence import unwrap
from nic_model.verbs import (
    CQ,
    MPR_UNIT,
    PD,
    WC,
    Access,
    RecvWR,
    Regions,
    VerbsError,
    WCOpcode,
    WCStatus,
)

SACK_GEN_THRESHOLD = 16_384
"""Bytes received since the last SACK that trigger the next (uet-htsim's default)."""
SACK_MIN_COUNTED = 1024
"""Each packet counts at least this many bytes towards the threshold (OCP MRC)."""
BITMAP_BITS = 64
PSN_MASK = (1 << 24) - 1
RCVD_BYTES_UNIT = 256
RESTORE_REPEATS = 8
"""SACKs that say restore_cwnd after the last one with a penalty: one may get lost, and they may overtake each other."""
OOO_COUNT_MAX = (1 << 15) - 1

ACK_SYNDROME = 0x1F
"""AETH: an ACK whose credit field is always 0x1F (OCP MRC)."""
NAK_INVALID_REQUEST = 0x61
NAK_REMOTE_ACCESS = 0x62
NAK_REMOTE_OPERATION = 0x63
"""AETH NAK codes 1, 2 and 3 (InfiniBand 9.7.5.2.8)."""

CE = int(Ecn.CE)
NONE, SKIP_ONCE = int(SackMark.NONE), int(SackMark.SKIP_ONCE)
REMOTE_WRITE = int(Access.REMOTE_WRITE)
"""Plain numbers: comparing members costs more than a whole field of a packet may."""

SendControl = Callable[[Opcode, int, bytes], None]
"""Send a control packet to the peer: (opcode, BTH PSN, extension header)."""


@dataclass(slots=True)
class _Message:
    """A message of which packets have arrived, until it is complete and all before it are."""

    length: int
    rqmsn: int
    received: int = 0
    imm: int | None = None
    refused: bool = False
    """A packet of it was outside the memory that it may write; the others are not placed any more."""

    @property
    def complete(self) -> bool:
        # The last packet, which may bring an immediate, is needed to make up the length.
        return self.received == self.length


@dataclass(slots=True)
class ResponderCounters:
    """Packets and bytes of one QP's receiving half."""

    packets: int = 0
    payload_bytes: int = 0
    duplicates: int = 0
    out_of_window: int = 0
    trimmed: int = 0
    marked: int = 0
    sacks: int = 0
    nacks: int = 0
    transport_acks: int = 0
    refused: int = 0


@dataclass(slots=True)
class HostPenalty:
    """Back-pressure of the host behind a NIC: `value` 0..127 goes out in CC_STATE.rcv_cwnd_pen of every SACK."""

    value: int = 0


class Responder:
    """Takes data packets and probes, gives back SACKs, NACKs, Transport ACKs and receive completions."""

    def __init__(
        self,
        *,
        qpn: int,
        dest_qpn: int,
        first_psn: int,
        mpr: int,
        dynamic_mpr: bool,
        max_wimm: int,
        silent_above_window: bool,
        penalty: HostPenalty,
        pd: PD,
        regions: Regions,
        rcq: CQ,
        receive_queue: deque[RecvWR],
        send_control: SendControl,
        fail: Callable[[WCStatus], None],
    ) -> None:
        self.counters = ResponderCounters()
        self._qpn = qpn
        self._dest_qpn = dest_qpn
        self._mpr = mpr
        self._dynamic_mpr = dynamic_mpr
        self._right_edge = first_psn - 1 + mpr  # the highest PSN that was ever allowed
        self._penalty = penalty
        self._restores_left = 0
        self._max_wimm = max_wimm
        self._silent_above_window = silent_above_window
        self._pd = pd
        self._regions = regions
        self._rcq = rcq
        self._receive_queue = receive_queue
        self._send_control = send_control
        self._fail = fail
        self._cack = first_psn - 1
        self._max_psn = first_psn - 1
        self._arrived = 0  # bit i: PSN cack + 1 + i has arrived
        self._messages: dict[int, _Message] = {}
        self._msn = 0  # all messages up to this one are complete
        self._rqmsn = 0  # all WRITEs with immediate up to this one are delivered
        self._since_sack = 0
        self._rcvd_bytes = 0
        self._syndrome = ACK_SYNDROME

    # ---- data ----------------------------------------------------------------------------------------

    def on_data(self, packet: Packet) -> int:
        """A data packet: place it, then acknowledge if one of the five triggers says so.

        Returns how many bytes it put into memory.
        """
        envelope = packet.envelope
        offset = packet.psn - self._cack - 1 & PSN_MASK
        if offset > PSN_MASK >> 1:
            offset -= PSN_MASK + 1  # behind
        psn = self._cack + 1 + offset
        marked = envelope.ecn == CE
        if offset < 0 or self._arrived >> offset & 1:
            # A lost SACK or Transport ACK is made up for.
            self.counters.duplicates += 1
            self._sack(packet, psn, marked)
            self._transport_ack()
            return 0
        if psn > max(self._right_edge, self._cack + self._mpr):
            self.counters.out_of_window += 1
            if not self._silent_above_window:
                self._nack(packet, NackReason.PSN_OOR_WINDOW)
            return 0
        if envelope.cut:
            self.counters.trimmed += 1
            self._nack(packet, NackReason.TRIMMED_LASTHOP if envelope.lasthop else NackReason.TRIMMED)
            return 0
        self.counters.packets += 1
        self._mark_arrived(psn, offset)
        size = envelope.nominal_size
        self._rcvd_bytes += size
        self._since_sack += size if size > SACK_MIN_COUNTED else SACK_MIN_COUNTED
        placed, done = self._place(packet)
        # Five triggers (OCP MRC): bytes since the last one, AckReq, ECN-CE, a retransmission, a probe.
        if packet.ack_req or packet.rtx or marked or self._since_sack > SACK_GEN_THRESHOLD:
            self._sack(packet, psn, marked)
        if done:
            self._complete_messages()
        return placed

    def set_mpr(self, mpr: int) -> None:
        """Dynamic MPR: from the next SACK on, look `mpr` PSNs ahead, a multiple of 128 from 1024 to 32,640.

        What was allowed before stays allowed.
        """
        if mpr % MPR_UNIT or not 8 <= mpr // MPR_UNIT <= 255:
            raise VerbsError(f"an MPR of {mpr} PSNs is not a multiple of 128 from 1024 to 32640")
        self._mpr = mpr

    def _mark_arrived(self, psn: int, offset: int) -> None:
        if psn > self._max_psn:
            self._max_psn = psn
        if not offset and not self._arrived:
            self._cack = psn  # in order
            return
        self._arrived |= 1 << offset
        if offset == 0:
            run = (~self._arrived & (self._arrived + 1)).bit_length() - 1
            self._cack += run
            self._arrived >>= run

    def _place(self, packet: Packet) -> tuple[int, bool]:
        """Write the payload to memory at once, in whatever order it comes: (bytes, is its message complete?)."""
        msn = unwrap(packet.msn, self._msn, 16)
        message = self._messages.get(msn)
        if message is None:
            message = self._messages[msn] = _Message(packet.dma_len, unwrap(packet.rqmsn, self._rqmsn, 16))
        payload = packet.payload
        length = len(payload)
        message.received = received = message.received + length
        if (
            received > message.length
            or msn <= self._msn
            or message.length != packet.dma_len
            or message.rqmsn > self._rqmsn + self._max_wimm
        ):
            self._refuse(NAK_INVALID_REQUEST)
            return 0, False
        if packet.imm is not None:
            message.imm = packet.imm
        if not length or message.refused:
            return 0, message.refused or received == message.length
        # The region's bounds are checked for every packet: each carries its own RETH (OCP MRC).
        memory = self._regions.find(packet.rkey, self._pd, packet.va, length, REMOTE_WRITE)
        if memory is None:
            message.refused = True
            return 0, True
        memory[:] = payload
        self.counters.payload_bytes += length
        return length, received == message.length

    def _complete_messages(self) -> None:
        """Deliver what is complete in send order (RQMSN), and acknowledge it; refuse in that order, too."""
        before = self._msn
        while (message := self._messages.get(self._msn + 1)) is not None and (message.refused or message.complete):
            if message.refused:
                self._refuse(NAK_REMOTE_ACCESS)
                return
            if message.imm is not None and not self._deliver(message, message.imm):
                # MRC has no RNR NAK: receives are posted beforehand, or the QP fails.
                self._refuse(NAK_REMOTE_OPERATION)
                return
            self._msn += 1
            del self._messages[self._msn]
        if self._msn > before:
            self._transport_ack()

    def _deliver(self, message: _Message, imm: int) -> bool:
        if not self._receive_queue or message.rqmsn != self._rqmsn + 1:
            return False
        self._rqmsn += 1
        wr_id = self._receive_queue.popleft().wr_id
        opcode = WCOpcode.RECV_RDMA_WITH_IMM
        self._rcq.add(WC(wr_id, WCStatus.SUCCESS, opcode, self._qpn, message.length, imm))
        return True

    # ---- control -------------------------------------------------------------------------------------

    def on_probe(self, packet: Packet, probe: PETH) -> None:
        """A reliability probe: answer with the whole state, reliability and semantics."""
        self._sack(packet, self._max_psn, False, probe)
        self._transport_ack()

    def repeat_refusal(self) -> None:
        """After the QP's end: a retransmission or a probe shows that the Transport NAK, if that was it, got lost."""
        if self._syndrome != ACK_SYNDROME:
            self._transport_ack()

    def _sack(self, packet: Packet, psn: int, marked: bool, probe: PETH | None = None) -> None:
        base = self._cack + 1
        if self._max_psn - base >= BITMAP_BITS:
            base = self._max_psn - (BITMAP_BITS - 1)
        bitmap = self._arrived >> (base - self._cack - 1) & (1 << BITMAP_BITS) - 1
        if marked:
            self.counters.marked += 1
        penalty = self._penalty.value
        if penalty:
            self._restores_left = RESTORE_REPEATS
        restore = not penalty and self._restores_left > 0
        self._restores_left -= restore
        extension = write_sack(
            SKIP_ONCE if marked else NONE,
            probe is not None,
            _signed16(psn - self._cack) if probe is None else _as_signed16(probe.probe_id),
            packet.envelope.ev,
            self._qpn & 0xFFFF,
            self._dest_qpn & 0xFFFF,
            self._cack & 0xFFFFFF,
            self._mpr // MPR_UNIT if self._dynamic_mpr else 0,
            base - self._cack,
            bitmap,
            packet.tx_timestamp if probe is None else probe.tx_timestamp,
            min(self._arrived.bit_count(), OOO_COUNT_MAX),
            restore,
            penalty,
            -(-self._rcvd_bytes // RCVD_BYTES_UNIT) & 0xFFFFFF,
        )
        self._right_edge = max(self._right_edge, self._cack + self._mpr)
        self._since_sack = 0
        self.counters.sacks += 1
        self._send_control(Opcode.SACK, self._cack & 0xFFFFFF, extension)

    def _nack(self, packet: Packet, reason: NackReason) -> None:
        neth = NETH(
            reason=reason,
            entropy=packet.envelope.ev,
            spdcid=self._qpn & 0xFFFF,
            dpdcid=self._dest_qpn & 0xFFFF,
            nack_psn=packet.psn,
            tx_timestamp=packet.tx_timestamp,
        )
        self.counters.nacks += 1
        self._send_control(Opcode.NACK, packet.psn, neth.pack())

    def _transport_ack(self) -> None:
        self.counters.transport_acks += 1
        aeth = AETH(syndrome=self._syndrome, msn=self._msn & 0xFFFFFF)
        self._send_control(Opcode.TRANSPORT_ACK, self._cack & 0xFFFFFF, aeth.pack())

    def _refuse(self, syndrome: int) -> None:
        """A Transport NAK: the packet arrived, its message can't be done. The QP is in error (InfiniBand 9.9.3).

        No work request of this side is to blame: all are flushed.
        """
        self.counters.refused += 1
        self._syndrome = syndrome
        self._transport_ack()
        self._fail(WCStatus.WR_FLUSH_ERR)


def _signed16(value: int) -> int:
    return max(-(1 << 15), min((1 << 15) - 1, value))


def _as_signed16(value: int) -> int:
    return value - (1 << 16) if value >> 15 else value
