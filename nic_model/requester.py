"""The sending half of a QP: segmentation, spraying, SACK and NACK, loss inference, retransmission, completion.

Source: OCP MRC 1.0; arXiv 2605.04333. A PSN's own send record decides everything that feedback on it means.
Never go-back-N: only what is lost is sent again, oldest first, always on another EV.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain

from nic_model.congestion import Window
from nic_model.ev import Ev
from nic_model.events import (
    EvState,
    Log,
    LossEvent,
    LossReason,
    ProbeEvent,
    ProbeReason,
    RetransmissionEvent,
    TimerEvent,
    WindowEvent,
)
from nic_model.headers import (
    AETH,
    NETH,
    PETH,
    SETH,
    CCState,
    Ecn,
    NackReason,
    Opcode,
    SackMark,
)
from nic_model.lateness import Lateness
from nic_model.packet import Frame, Wire, build_control, build_data, nominal_data_size
from nic_model.retry import TIMEOUT_UNIT, RetryTimes
from nic_model.send_records import NOT_OUTSTANDING, Message, RequesterCounters, Sent
from nic_model.sequence import unwrap
from nic_model.spray import Spray
from nic_model.verbs import MPR_UNIT, SendWR, WCStatus, WROpcode

SILENT_WAITS = 2
"""More ACK timers in a row than this many, and every path is asked whether it works."""
BITMAP_BITS = 64
"""Of a SACK (OCP MRC)."""

ECT0 = int(Ecn.ECT0)
SKIP_ONCE, ALWAYS_SKIP = int(SackMark.SKIP_ONCE), int(SackMark.ALWAYS_SKIP)
_WRITE_OPCODES = ((Opcode.WRITE_MIDDLE, Opcode.WRITE_FIRST), (Opcode.WRITE_LAST, Opcode.WRITE_ONLY))
_IMM_OPCODES = (_WRITE_OPCODES[0], (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM))
_OPCODES = (_WRITE_OPCODES, _IMM_OPCODES)
"""By: does the message bring an immediate, is the packet its last, is it its first?"""

NAK_STATUS = {1: WCStatus.REM_INV_REQ_ERR, 2: WCStatus.REM_ACCESS_ERR, 3: WCStatus.REM_OP_ERR}


class Requester:
    """Turns work requests into packets, feedback into retransmissions and completions.

    `upcoming` says on which path the next packet leaves; `transmit` makes it when that path's port is free.
    """

    # An object of more than 30 attributes is slow without slots.
    __slots__ = (
        "_ask_paths", "_bitmap", "_bitmap_base", "_cack", "_complete", "_dest_qpn", "_dscp", "_fail", "_full_packet",
        "_lateness", "_log", "_log_window", "_lost", "_max_wimm", "_may_follow", "_mpr", "_msn", "_mtu", "_next_psn",
        "_order", "_overdue", "_port_down_at", "_probe", "_probe_id", "_probed_at", "_probing", "_proven", "_qpn",
        "_records", "_rqmsn", "_times", "_unfinished", "_unsent", "_wimm_begun", "_wimm_finished", "_window", "_wire",
        "counters", "deadline", "evs", "in_flight", "losses",
    )  # fmt: skip

    def __init__(
        self,
        *,
        qpn: int,
        dest_qpn: int,
        first_psn: int,
        mtu: int,
        mpr: int,
        max_wimm: int,
        timeout: int,
        linear_cnt: int,
        exp_cnt: int,
        late_tolerance: int,
        evs: Spray,
        window: Window,
        wire: Wire,
        complete: Callable[[Message, WCStatus], None],
        fail: Callable[[WCStatus], None],
        ask_paths: Callable[[int], None],
        log: Log | None,
        log_windows: bool,
        no_trim: bool,
    ) -> None:
        self.counters = RequesterCounters()
        self.losses = dict.fromkeys(LossReason, 0)
        self.evs = evs
        self.deadline: int | None = None
        """When `on_timer` is due, ns."""
        self.in_flight = 0
        """Nominal bytes sent and neither acknowledged nor taken for lost."""
        self._qpn = qpn
        self._dest_qpn = dest_qpn
        self._mtu = mtu
        self._full_packet = nominal_data_size(mtu, ts=True, imm=False)
        self._mpr = mpr
        self._max_wimm = max_wimm
        self._times = RetryTimes(TIMEOUT_UNIT << timeout, linear_cnt, exp_cnt)
        self._lateness = Lateness(late_tolerance)
        self._window = window
        self._wire = wire
        self._complete = complete
        self._fail = fail
        self._ask_paths = ask_paths
        self._log = log
        self._log_window = log if log_windows else None
        dscp = wire.dscp
        self._dscp = (dscp.no_trim, dscp.no_trim) if no_trim else (dscp.trimmable, dscp.trimmable_retx)

        self._unsent: deque[Message] = deque()  # the first may be half sent
        self._unfinished: deque[Message] = deque()  # begun, no Transport ACK yet
        self._next_psn = first_psn
        self._cack = first_psn - 1
        self._msn = 0
        self._rqmsn = 0
        self._wimm_begun = 0
        self._wimm_finished = 0

        self._records: dict[int, Sent] = {}  # by PSN, in PSN order: everything that is not acknowledged
        self._lost: list[int] = []  # heap of PSNs to send again
        self._order = 0
        self._bitmap_base = self._bitmap = 0  # of the newest SACK
        self._probe_id = 0
        self._probing = False  # a probe has not been answered yet
        self._may_follow = False  # may another packet follow the one that was sent last?
        self._overdue = False  # the timer wants a retransmission, whatever the window says
        self._proven: Ev | None = None  # the path that it takes: amid silence, this one was heard to work
        self._probe: tuple[Ev, PETH] | None = None  # to be sent next
        self._probed_at = 0  # when the newest probe was made
        self._port_down_at: dict[int, int] = {}

    # ---- sending -------------------------------------------------------------------------------------

    def post(self, wr: SendWR, payload: memoryview) -> None:
        """Queue a work request with its gathered payload."""
        with_imm = wr.opcode is WROpcode.RDMA_WRITE_WITH_IMM
        self._msn += 1
        self._rqmsn += with_imm
        packets = max(1, -(-len(payload) // self._mtu))
        self._unsent.append(Message(wr, payload, self._msn, self._rqmsn, with_imm, packets))

    @property
    def outstanding(self) -> int:
        """Work requests that have not completed."""
        return len(self._unfinished) + len(self._unsent) - (bool(self._unsent) and self._unsent[0].begun)

    def upcoming(self, planes_up: int, now: int) -> Ev | None:
        """The path of the next packet, None if there is nothing to send or it may not go now.

        `planes_up` has bit p set if port p can send.
        """
        if self._probe is not None:
            if planes_up >> self._probe[0].plane & 1:
                return self._probe[0]
            self._probe = None  # the timer sends another
            self._probing = False
        return self._path(planes_up, now) if self._may_send() else None

    def following(self, planes_up: int, now: int) -> Ev | None:
        """`upcoming` just after `transmit` has given a packet: it knows already whether another one may go."""
        return self._path(planes_up, now) if self._may_follow else None

    def _path(self, planes_up: int, now: int) -> Ev | None:
        proven = self._proven
        if proven is not None and self._lost and planes_up >> proven.plane & 1 and proven.state is EvState.GOOD:
            return proven
        avoid = self._records[self._lost[0]].ev if self._lost else None
        ev = self.evs.upcoming(planes_up, now, avoid)
        if ev is None and self.deadline is None:  # without a path, too, a QP's work ends in bounded time
            self.deadline = now + self._times.next_wait()
        return ev

    def _may_send(self) -> bool:
        while self._lost:
            if self._is_lost(self._lost[0]):
                return self._overdue or self._window.admits(self._full_packet)
            heappop(self._lost)  # acknowledged after all
        # A new packet: PSN <= cack + MPR, immediates in flight <= max_wimm.
        window = self._window
        if (
            not self._unsent
            or self._next_psn > self._cack + self._mpr
            or (window.in_flight and window.in_flight + self._full_packet > window.control.cwnd)
        ):
            return False
        message = self._unsent[0]
        return not message.with_imm or message.begun or self._wimm_begun - self._wimm_finished < self._max_wimm

    def _is_lost(self, psn: int) -> bool:
        record = self._records.get(psn)
        return record is not None and record.lost

    def transmit(self, plane: int, planes_up: int, now: int) -> Frame | None:
        """The next packet, if `plane` is its port still: since `upcoming` said so, it may have become needless."""
        ev = self.upcoming(planes_up, now)
        if ev is None or ev.plane != plane:
            return None
        if self._probe is not None:
            _, probe = self._probe
            self._probe = None
            self._may_follow = self._may_send()
            return build_control(
                ev.encap, opcode=Opcode.RELIABILITY_PROBE, dqpn=self._dest_qpn, psn=0, extension=probe.pack()
            )
        record = self._again(ev, now) if self._lost else self._first(ev, now)
        self._track(record)
        return self._build(record, now)

    def _first(self, ev: Ev, now: int) -> Sent:
        message = self._unsent[0]
        if not message.begun:
            message.first_psn = self._next_psn
            message.last_psn = self._next_psn + message.packets - 1
            self._unfinished.append(message)
            self._wimm_begun += message.with_imm
        offset = message.sent * self._mtu
        payload = len(message.payload) - offset
        size = self._full_packet
        message.sent += 1
        if message.sent < message.packets:
            payload = self._mtu
        else:
            size = nominal_data_size(payload, ts=True, imm=message.with_imm)
            self._unsent.popleft()
        self.counters.payload_bytes += payload
        record = self._records[self._next_psn] = Sent(self._next_psn, message, offset, size, ev, self._order, now)
        self._next_psn += 1
        return record

    def _again(self, ev: Ev, now: int) -> Sent:
        record = self._records[heappop(self._lost)]
        self._overdue = False
        self._proven = None
        record.ev = ev
        record.order = self._order
        record.sent_at = now
        record.transmissions += 1
        record.lost = False
        ev.retransmissions += 1
        self.counters.retransmissions += 1
        if self._log is not None:
            psn = record.psn & 0xFFFFFF
            self._log(RetransmissionEvent(now, self._qpn, psn, ev.plane, ev.value, record.transmissions))
        return record

    def _track(self, record: Sent) -> None:
        """The record's newest transmission leaves now."""
        ev, order = record.ev, self._order
        self.evs.take(ev)
        self._order = order + 1
        self.in_flight += record.size
        self._window.in_flight += record.size
        transmission = (order, record)
        path = ev.sent
        while path and path[0][1].order != path[0][0]:
            path.popleft()  # nothing on this path may ever be acknowledged and do that
        path.append(transmission)
        self._lateness.young.append(transmission)
        self.counters.packets += 1
        if self.deadline is None:
            self._restart_timer(record.sent_at)

    def _build(self, record: Sent, now: int) -> Frame:
        message, wire = record.message, self._wire
        wr = message.wr
        last = record.psn == message.last_psn
        retransmission = record.transmissions > 1
        # AckReq on the message's last packet and when the next packet may not go.
        self._may_follow = self._may_send()
        record.ack_req = last or not self._may_follow
        return build_data(
            record.ev.encap,
            _OPCODES[message.with_imm][last][record.psn == message.first_psn],
            self._dest_qpn,
            record.psn & 0xFFFFFF,
            record.ack_req,
            retransmission,
            message.msn & 0xFFFF,
            message.rqmsn & 0xFFFF,
            wr.remote_addr + record.offset,
            wr.rkey,
            len(message.payload),
            message.payload[record.offset : record.offset + self._mtu],
            (now // wire.tick & 0xFFFF, wire.tsr),
            wr.imm_data if last and message.with_imm else None,
            self._dscp[retransmission],
            ECT0,
        )

    # ---- feedback ------------------------------------------------------------------------------------

    def on_sack(self, sack: SETH, state: CCState, planes_up: int, now: int) -> Ev | None:
        """What arrived, what is missing, and how the path fared that the SACK's trigger took.

        Returns the EV that the SACK shows to work, if it does.
        """
        cack = unwrap(sack.cack_psn, self._cack, 24)
        if cack >= self._next_psn:
            self.counters.unexpected += 1
            return None
        self.counters.sacks += 1
        trigger = None if sack.pr else self._records.get(cack + sack.ack_psn_offset)
        rtt = self._sample_rtt(trigger, state, now)
        base = cack + sack.sack_offset
        news = chain(range(self._cack + 1, cack + 1), self._new_in_bitmap(base, sack.sack_bitmap))
        newly, arrived = self._acknowledge(news if trigger is None else chain((trigger.psn,), news), now)
        self._cack = max(self._cack, cack)
        if sack.pr:
            self._probing = False
            self._find_missing(cack, base, now)
        works = self._path_feedback(sack, trigger, now)
        self._feed_congestion_control(newly, rtt, sack, state, now)
        if sack.mpr and cack == self._cack:  # Dynamic MPR: how far the responder looks ahead now; an old SACK is wrong
            self._mpr = sack.mpr * MPR_UNIT
        if newly:
            self._restart_timer(now)
            self._find_overtaken(arrived, cack, base, now)
        self._find_late(cack, base, now)
        self._probe_if_stuck(planes_up, now)
        return works

    def _sample_rtt(self, trigger: Sent | None, state: CCState, now: int) -> int | None:
        """The full RTT is from the send record; the echoed 16-bit time only tells which transmission it was."""
        if trigger is None or state.tx_timestamp != self._wire.timestamp(trigger.sent_at):
            return None
        rtt = now - trigger.sent_at
        self._lateness.rtt.add(rtt)
        self._lateness.newest_acked = max(self._lateness.newest_acked, trigger.sent_at)
        return rtt

    def _feed_congestion_control(self, newly: int, rtt: int | None, sack: SETH, state: CCState, now: int) -> None:
        control, in_flight = self._window.control, self._window.in_flight
        marked = sack.m == SKIP_ONCE
        decision = control.on_sack(newly, rtt, marked, in_flight, now)
        if state.rcv_cwnd_pen:
            control.on_penalty(state.rcv_cwnd_pen, newly, in_flight)
            decision += f", penalty {state.rcv_cwnd_pen}"
        if state.restore_cwnd:
            control.on_restore()
            decision += ", penalty over"
        if self._log_window is not None:
            self._log_window(WindowEvent(now, self._qpn, decision, rtt, marked, newly, control.cwnd, in_flight))

    def _path_feedback(self, sack: SETH, trigger: Sent | None, now: int) -> Ev | None:
        if sack.pr:
            return None
        ev = self.evs.find(sack.entropy)
        # The send record says which EV the packet took, unless it went out more than once.
        if ev is None or (trigger is not None and trigger.transmissions == 1 and trigger.ev is not ev):
            self.counters.unexpected += 1
            return None
        marked = sack.m == SKIP_ONCE
        self.evs.on_ack(ev, marked, now)
        if marked:
            self.counters.marks += 1
            self.evs.skip_once(ev, "ECN", now)
        elif sack.m == ALWAYS_SKIP:
            self.counters.marks += 1
            self.evs.assume_bad(ev, "ALWAYS_SKIP", now)
        else:
            return ev
        return None

    def _new_in_bitmap(self, base: int, bitmap: int) -> Iterator[int]:
        """The PSNs that a SACK's bitmap names, but for those that the one before it named, too."""
        ahead = base - self._bitmap_base
        new = bitmap & ~(self._bitmap >> ahead if ahead >= 0 else self._bitmap << min(-ahead, BITMAP_BITS))
        self._bitmap_base, self._bitmap = base, bitmap
        while new:
            bit = new & -new
            new ^= bit
            yield base + bit.bit_length() - 1

    def _acknowledge(self, psns: Iterable[int], now: int) -> tuple[int, list[tuple[int, Ev]]]:
        """These have arrived. Returns how many bytes of that are news, and (order, path) of the transmissions that
        brought them, where it is known which one did."""
        records = self._records
        newest = self._lateness.newest_acked
        newly = left_flight = 0
        arrived = []
        for psn in psns:
            record = records.pop(psn, None)
            if record is None:
                continue
            newly += record.size
            if not record.lost:
                left_flight += record.size
            if record.transmissions == 1:
                ev, sent_at = record.ev, record.sent_at
                arrived.append((record.order, ev))
                if sent_at > newest:
                    newest = sent_at
                if sent_at >= ev.rtt_sent_at:
                    ev.rtt_sent_at = sent_at
                    ev.rtt = now - sent_at
            record.order = NOT_OUTSTANDING
        self._lateness.newest_acked = newest
        self._left_flight(left_flight)
        return newly, arrived

    def _left_flight(self, size: int) -> None:
        self.in_flight -= size
        self._window.in_flight -= size

    def on_nack(self, nack: NETH, planes_up: int, now: int) -> None:
        """A packet came without its payload, or could not be taken: send it again at once."""
        psn = unwrap(nack.nack_psn, self._cack, 24)
        record = self._records.get(psn)
        self.counters.nacks += 1
        if nack.reason == NackReason.UNEXP_EVENT:
            self._fail(WCStatus.FATAL_ERR)
            return
        # One NACK, one retransmission: it speaks of the newest transmission or of none.
        if record is None or record.lost or record.ev.value != nack.entropy:
            return
        trimmed = nack.reason in (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)
        if trimmed:  # the peer is there; but one that refuses for ever has an end
            self._restart_timer(now)
        # The last hop and the peer's resources say nothing about the path.
        if nack.reason == NackReason.TRIMMED:
            self.evs.skip_once(record.ev, "trimmed", now)
        self._declare_lost(record, LossReason.TRIMMED if trimmed else LossReason.REFUSED, now)
        self._probe_if_stuck(planes_up, now)

    def _probe_if_stuck(self, planes_up: int, now: int) -> None:
        """Packets may have arrived of which no SACK tells, because what asked for one was trimmed, or because the
        window shrank behind them (OCP MRC: a probe instead of waiting). If they fill it, ask, once a round trip."""
        if self.in_flight and not self._window.admits(self._full_packet) and not self._probing:
            # A retransmission asks for a SACK as well.
            newest_first = reversed(self._records.values())
            if not any((sent.ack_req or sent.transmissions > 1) and not sent.lost for sent in newest_first):
                self._send_probe(planes_up, ProbeReason.WINDOW, now)

    def on_transport_ack(self, aeth: AETH, now: int) -> None:
        """Messages are complete, or one was refused. A complete message's packets have all arrived."""
        # A NAK names the last message that is complete; it is the next one that was refused.
        msn = unwrap(aeth.msn, self._unfinished[0].msn if self._unfinished else self._msn, 24)
        finished = 0
        while self._unfinished and self._unfinished[0].msn <= msn and self._all_sent(self._unfinished[0]):
            message = self._unfinished.popleft()
            self._wimm_finished += message.with_imm
            self._acknowledge(range(self._cack + 1, message.last_psn + 1), now)
            self._cack = max(self._cack, message.last_psn)
            self._complete(message, WCStatus.SUCCESS)
            finished += 1
        if finished:
            self._restart_timer(now)
        if aeth.syndrome >> 5 == 0b011:
            self._fail(NAK_STATUS.get(aeth.syndrome & 0x1F, WCStatus.REM_INV_REQ_ERR))

    @staticmethod
    def _all_sent(message: Message) -> bool:
        return message.sent == message.packets

    # ---- loss ----------------------------------------------------------------------------------------

    def _find_overtaken(self, arrived: list[tuple[int, Ev]], cack: int, base: int, now: int) -> None:
        """A path keeps the order of its packets: what a later one on the same EV overtook is lost."""
        for newest, ev in arrived:
            path = ev.sent
            while path and path[0][0] <= newest:
                order, earlier = path.popleft()
                if earlier.order == order and self._known_missing(earlier.psn, cack, base):
                    self._declare_lost(earlier, LossReason.OVERTAKEN, now)

    def _find_late(self, cack: int, base: int, now: int) -> None:
        for record in self._lateness.late(now):
            blame = self._known_missing(record.psn, cack, base)
            self._declare_lost(record, LossReason.LATE, now, blame=blame)

    def _find_missing(self, cack: int, base: int, now: int) -> None:
        """A probe was answered: what is missing, and was sent long before the probe, is lost. A probe may overtake what
        waits in a queue, so that a moment is not enough."""
        sent_by = self._probed_at - self._times.timeout // 2
        for record in list(self._records.values()):
            if not record.lost and record.sent_at <= sent_by and self._known_missing(record.psn, cack, base):
                self._declare_lost(record, LossReason.PROBE, now)

    @staticmethod
    def _known_missing(psn: int, cack: int, base: int) -> bool:
        """Does the newest SACK itself say that this PSN is missing? Below its bitmap it says nothing."""
        return psn == cack + 1 or psn >= base

    def _declare_lost(self, record: Sent, reason: LossReason, now: int, blame: bool = True) -> None:
        record.lost = True
        record.order = NOT_OUTSTANDING
        self._left_flight(record.size)
        heappush(self._lost, record.psn)
        self.losses[reason] += 1
        ev = record.ev
        # An untrimmed loss is a failed path, not congestion (arXiv 2605.04333), unless the NIC's own port was
        # down meanwhile.
        blame = (
            blame
            and reason not in (LossReason.TRIMMED, LossReason.REFUSED)
            and record.sent_at > self._port_down_at.get(ev.plane, -1)
        )
        decision = self._window.control.on_loss(record.size, self._window.in_flight, now)
        if self._log is not None:
            psn, sent_at, times = record.psn & 0xFFFFFF, record.sent_at, record.transmissions
            self._log(LossEvent(now, self._qpn, psn, ev.plane, ev.value, sent_at, times, reason, blame))
        if self._log_window is not None:
            window = self._window
            self._log_window(
                WindowEvent(now, self._qpn, decision, None, False, 0, window.control.cwnd, window.in_flight)
            )
        if blame:
            ev.losses += 1
            self.evs.assume_bad(ev, reason.value, now)

    def on_port_down(self, plane: int, now: int) -> None:
        """The NIC's own port went down: what it lost blames no path."""
        self._port_down_at[plane] = now

    @property
    def wait(self) -> int:
        """How long the ACK timer waits now, ns."""
        return self._times.wait

    # ---- timer ---------------------------------------------------------------------------------------

    def _restart_timer(self, now: int) -> None:
        self._times.restart()
        if self._unfinished:
            self.deadline = now + self._times.next_wait()
        else:
            self.deadline = None
            self._lateness.forget()

    def on_timer(self, planes_up: int, now: int) -> None:
        """The backstop: send the oldest missing packet again, or ask with a probe if none is missing.

        `linear_cnt` waits of one timeout are followed by `exp_cnt` doubling ones, then the QP fails.
        """
        if self.deadline is None or now < self.deadline:
            return
        if not self._unfinished and not self._may_send():
            self.deadline = None  # there was no path, but now it is others who fill the window
            return
        self.counters.timeouts += 1
        self.evs.on_timeout(now)
        if self._times.exhausted:
            self._fail(WCStatus.RETRY_EXC_ERR)
            return
        self.deadline = now + self._times.next_wait()
        self._probing = False
        if self._log is not None:
            self._log(TimerEvent(now, self._qpn, self._times.waits - 1, self.deadline))
        if self._times.waits > SILENT_WAITS:
            self._ask_paths(now)
        # What was sent a moment ago has not timed out.
        sent_by = now - self._times.timeout // 2
        oldest = next((sent for sent in self._records.values() if not sent.lost and sent.sent_at <= sent_by), None)
        if oldest is not None:
            # It goes even if what is in flight fills the window: that may be lost too (as RFC 9002 7.5 has it).
            self._overdue = True
            self._declare_lost(oldest, LossReason.TIMER, now)
            self._send_probe(planes_up, ProbeReason.TAIL, now)
        elif not self._records:
            self._send_probe(planes_up, ProbeReason.TRANSPORT_ACK, now)

    def on_path_works(self, ev: Ev, now: int) -> None:
        """Amid silence a probe was answered on this path: the oldest missing packet goes there, at once."""
        if self._times.waits <= SILENT_WAITS or self._proven is not None or not self._records:
            return
        self.evs.restore(ev, "answered amid silence", now)
        self._proven = ev
        self._overdue = True
        if not self._lost:
            oldest = next(iter(self._records.values()))
            self._declare_lost(oldest, LossReason.TIMER, now, blame=oldest.ev is not ev)

    def _send_probe(self, planes_up: int, reason: ProbeReason, now: int) -> None:
        """Ask the responder for all that it knows (OCP MRC, reliability probe)."""
        ev = self.evs.upcoming(planes_up, now)
        if ev is None:
            return
        if not self._lost:
            self.evs.pass_turn()  # the next probe tries another path; this one goes with a retransmission
        self._probe_id = self._probe_id + 1 & 0xFFFF
        self.counters.probes += 1
        probe = PETH(
            probe_id=self._probe_id,
            spdcid=self._qpn & 0xFFFF,
            dpdcid=self._dest_qpn & 0xFFFF,
            tx_timestamp=self._wire.timestamp(now),
            tsr=self._wire.tsr,
        )
        self._probe = (ev, probe)
        self._probing = True
        self._probed_at = now
        if self._log is not None:
            self._log(ProbeEvent(now, self._qpn, self._probe_id, ev.plane, ev.value, reason))

    # ---- end -----------------------------------------------------------------------------------------

    def flush(self, status: WCStatus) -> None:
        """The QP failed: the oldest work request ends with `status`, every other one is flushed."""
        messages = list(self._unfinished)
        messages += [message for message in self._unsent if not message.begun]
        self._unfinished.clear()
        self._unsent.clear()
        self._records.clear()
        self._lateness.forget()
        for ev in self.evs:
            ev.sent.clear()
        self._lost.clear()
        self._window.in_flight -= self.in_flight
        self.in_flight = 0
        self._probe = None
        self.deadline = None
        for message in messages:
            self._complete(message, status)
            status = WCStatus.WR_FLUSH_ERR
