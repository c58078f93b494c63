"""The sending half of an RC QP: segmentation, pacing, go-back-N, completion (InfiniBand 9.7 and 9.9).

PSNs are unwrapped, and known as soon as a work request is posted: una is the oldest unacknowledged one, next the one
to send, end the first that no work request has.

             una            next              sent_end         end
    acked ...|  in flight ...|  to send again ...|  to send ...|
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nic_model.packet import Encap, Frame
from nic_model.retry import RetryTimes
from nic_model.roce.dcqcn import RateLimiter
from nic_model.roce.packet import (
    SYNDROME_TYPE_ACK,
    SYNDROME_TYPE_NAK,
    SYNDROME_TYPE_SHIFT,
    Packet,
    Syndrome,
    build_write,
    write_opcode,
)
from nic_model.sequence import unwrap
from nic_model.verbs import SendWR, WCStatus, WROpcode

WIRE_OVERHEAD = 24
"""FCS 4, preamble and start delimiter 8, gap 12 bytes (IEEE 802.3): a rate is of all that keeps the port busy."""

_NAK_STATUS: dict[int, WCStatus] = {
    Syndrome.NAK_INVALID_REQUEST: WCStatus.REM_INV_REQ_ERR,
    Syndrome.NAK_REMOTE_ACCESS_ERROR: WCStatus.REM_ACCESS_ERR,
    Syndrome.NAK_REMOTE_OPERATIONAL_ERROR: WCStatus.REM_OP_ERR,
}


@dataclass(slots=True, eq=False)
class Message:
    """One work request with its PSNs."""

    wr: SendWR
    payload: memoryview
    first_psn: int
    last_psn: int


@dataclass(slots=True)
class RequesterCounters:
    """Packets and bytes of one QP's sending half; retransmissions count as packets, but not in payload_bytes."""

    packets: int = 0
    payload_bytes: int = 0
    retransmissions: int = 0
    acks: int = 0
    sequence_naks: int = 0
    timeouts: int = 0
    cnps: int = 0
    unexpected: int = 0


class Requester:
    """Turns work requests into packets, in order; `window` packets may be unacknowledged.

    AckReq is set on a message's last packet, on every `ack_interval`th, on one behind which the window is closed, and
    on the first of those that are sent again.
    """

    def __init__(
        self,
        *,
        dest_qpn: int,
        first_psn: int,
        mtu: int,
        window: int,
        ack_interval: int,
        times: RetryTimes,
        limiter: RateLimiter,
        encap: Encap,
        ecn: int,
        complete: Callable[[Message, WCStatus], None],
        fail: Callable[[WCStatus], None],
    ) -> None:
        self.counters = RequesterCounters()
        self.limiter = limiter
        self.deadline: int | None = None
        """When `on_timer` is due, ns."""
        self._dest_qpn = dest_qpn
        self._mtu = mtu
        self._window = window
        self._ack_interval = ack_interval
        self._times = times
        self._encap = encap
        self._ecn = ecn
        self._complete = complete
        self._fail = fail

        self._messages: deque[Message] = deque()  # all that have not completed
        self._sending = 0  # the place among them of the one that next belongs to
        self._una = self._next = self._sent_end = self._end = first_psn
        self._asked = first_psn - 1  # the newest PSN, since going back, that asked for an ACK

    # ---- sending -------------------------------------------------------------------------------------

    def post(self, wr: SendWR, payload: memoryview) -> None:
        """Queue a work request with its gathered payload."""
        first_psn = self._end
        self._end += max(1, -(-len(payload) // self._mtu))
        self._messages.append(Message(wr, payload, first_psn, self._end - 1))

    @property
    def outstanding(self) -> int:
        """Work requests that have not completed."""
        return len(self._messages)

    @property
    def in_flight(self) -> int:
        """Packets sent and not acknowledged."""
        return self._next - self._una

    @property
    def send_at(self) -> int | None:
        """When the next packet may leave, ns; None if there is none or the window is closed."""
        if self._next == self._end or self._next - self._una >= self._window:
            return None
        return self.limiter.send_at

    def transmit(self, now: int) -> Frame:
        """The next packet; only if `send_at` has come."""
        psn = self._next
        message = self._messages[self._sending]
        wr = message.wr
        first, last = psn == message.first_psn, psn == message.last_psn
        again = psn < self._sent_end
        self._next = psn + 1
        ack_req = (
            last
            or psn - self._asked >= self._ack_interval
            or self._next - self._una >= self._window
            or (again and psn == self._una)
        )
        offset = (psn - message.first_psn) * self._mtu
        payload = message.payload[offset : offset + self._mtu]
        frame = build_write(
            self._encap,
            opcode=write_opcode(first, last, wr.opcode is WROpcode.RDMA_WRITE_WITH_IMM),
            dqpn=self._dest_qpn,
            psn=psn & 0xFFFFFF,
            ack_req=ack_req,
            reth=(wr.remote_addr, wr.rkey, len(message.payload)),
            imm=wr.imm_data,
            payload=payload,
            ecn=self._ecn,
        )
        if last:
            self._sending += 1
        if ack_req:
            self._asked = psn
            self._start_timer(now)
        self._count(again, len(payload))
        self.limiter.on_sent(len(frame[0]) + len(frame[1]) + WIRE_OVERHEAD, now)
        return frame

    def _count(self, again: bool, payload: int) -> None:
        self.counters.packets += 1
        if again:
            self.counters.retransmissions += 1
        else:
            self.counters.payload_bytes += payload
            self._sent_end = self._next

    # ---- feedback ------------------------------------------------------------------------------------

    def on_acknowledge(self, packet: Packet, now: int) -> None:
        """An ACK acknowledges everything through its PSN; a NAK refuses its PSN, and acknowledges what is before it."""
        kind = packet.syndrome >> SYNDROME_TYPE_SHIFT
        psn = unwrap(packet.psn, self._una, 24)
        acked_end = psn + 1 if kind == SYNDROME_TYPE_ACK else psn
        if kind not in (SYNDROME_TYPE_ACK, SYNDROME_TYPE_NAK) or psn >= self._sent_end:
            self.counters.unexpected += 1
            return
        if acked_end > self._una:
            self._acknowledge(acked_end)
        if kind == SYNDROME_TYPE_ACK:
            self.counters.acks += 1
            self._start_timer(now)
        elif psn == self._una:  # else it is an old one
            self._on_nak(packet.syndrome, now)

    def _acknowledge(self, end: int) -> None:
        self._una = end
        self._next = max(self._next, end)  # what was to be sent again may have arrived after all
        while self._messages and self._messages[0].last_psn < end:
            self._sending = max(self._sending - 1, 0)
            self._complete(self._messages.popleft(), WCStatus.SUCCESS)
        self._times.restart()
        self.deadline = None

    def _start_timer(self, now: int) -> None:
        """It runs while an ACK that was asked for is missing (InfiniBand 9.7.6.1.3)."""
        if self.deadline is None and self._asked >= self._una:
            self.deadline = now + self._times.next_wait()

    def _on_nak(self, syndrome: int, now: int) -> None:
        if syndrome == Syndrome.NAK_PSN_SEQUENCE_ERROR:
            self.counters.sequence_naks += 1
            self._go_back(now)
        else:
            self._fail(_NAK_STATUS.get(syndrome, WCStatus.REM_INV_REQ_ERR))

    def on_cnp(self, now: int) -> None:
        """The peer says that packets of this QP were marked."""
        self.counters.cnps += 1
        self.limiter.on_cnp(now)

    # ---- going back ----------------------------------------------------------------------------------

    def _go_back(self, now: int) -> None:
        """Send everything from the oldest unacknowledged packet again. The tries are numbered (InfiniBand 9.9.2.1)."""
        if self._times.exhausted:
            self._fail(WCStatus.RETRY_EXC_ERR)
            return
        self.deadline = now + self._times.next_wait()
        self._next = self._una
        self._sending = 0
        self._asked = self._una - 1

    def on_timer(self, now: int) -> None:
        """No ACK came in time."""
        if self.deadline is not None and now >= self.deadline:
            self.counters.timeouts += 1
            self._go_back(now)

    def on_port_down(self, now: int) -> None:
        """Nothing can be sent: the tries are numbered all the same, or the work would wait for ever."""
        if self._messages and self.deadline is None:
            self.deadline = now + self._times.next_wait()

    # ---- end -----------------------------------------------------------------------------------------

    def flush(self, status: WCStatus) -> None:
        """The QP failed: the oldest work request ends with `status`, every other one is flushed."""
        self._una = self._next = self._sent_end = self._end
        self.deadline = None
        while self._messages:
            self._complete(self._messages.popleft(), status)
            status = WCStatus.WR_FLUSH_ERR
