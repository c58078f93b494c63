"""A congestion window that shrinks behind what is in flight: nothing waits for the ACK timer longer than it must."""

from __future__ import annotations

import random

from nic_model.congestion import FixedWindow
from nic_model.headers import Opcode
from nic_model.packet import Frame, nominal_data_size, parse
from nic_model.verbs import WC, QPAttr, QPState, WCStatus
from tests.nic_model.back_to_back import BackToBack

DELAY = 2000
PACKET = nominal_data_size(4096, ts=True, imm=False)
RTO = 1024 << QPAttr().timeout
PACKETS = 20


def is_data(frame: Frame) -> bool:
    return parse(frame).opcode <= Opcode.WRITE_ONLY_IMM


class Shrinking:
    """A wire that narrows the sender's window to one packet after `sent` data packets, and loses some of them."""

    def __init__(self, sent: int, lost: range) -> None:
        self.pair = BackToBack(self._verdict, window=1 << 30)
        self._sent = sent
        self._lost = lost
        self._count = 0

    def _verdict(self, sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        if sender == 1 or not is_data(frame):
            return DELAY
        self._count += 1
        if self._count == self._sent:
            peer = self.pair.sides[0].qp.core.peer
            assert peer is not None
            control = peer.window(0).control
            assert isinstance(control, FixedWindow)
            control.cwnd = PACKET
        return None if self._count in self._lost else DELAY

    def run(self) -> list[WC]:
        source, target = (self.pair.region(side, PACKETS * 4096) for side in (0, 1))
        source.write(random.Random(3).randbytes(PACKETS * 4096))
        self.pair.write(source, target)
        self.pair.run()
        assert source.buf == target.buf
        return self.pair.sides[0].completions()


def test_packets_that_did_not_ask_for_a_sack_are_asked_about() -> None:
    # Packets 1 to 4 make a SACK by their size, 5 and 6 do not, and none had AckReq: the window was open.
    wire = Shrinking(sent=6, lost=range(0))
    (completion,) = wire.run()
    requester = wire.pair.sides[0].qp.core.requester
    assert requester is not None and completion.status is WCStatus.SUCCESS
    assert (requester.counters.probes, requester.counters.timeouts, requester.counters.retransmissions) == (1, 0, 0)


def test_the_timers_retransmission_goes_though_lost_packets_fill_the_window() -> None:
    # Packets 5 to 14 are lost: what they hold of the window comes free only when a SACK tells.
    wire = Shrinking(sent=14, lost=range(5, 15))
    (completion,) = wire.run()
    requester = wire.pair.sides[0].qp.core.requester
    assert requester is not None and completion.status is WCStatus.SUCCESS
    assert requester.counters.retransmissions == 10
    assert requester.counters.timeouts <= 1
    last_data = max(now for now, sender, _, frame in wire.pair.wire_log if sender == 0 and is_data(frame))
    assert last_data < 2 * RTO
    assert wire.pair.sides[0].qp.qp_state is QPState.RTS
