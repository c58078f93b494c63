"""Queues that really fill: each test has a switch of its own whose data queues are served slowly.

A queue with a rate of r packets/s lets one go at once and the next after 1/r s (BMv2's set_queue_rate, and the
embedded target's). So after a first packet a burst finds the queue held, and what happens is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ptf.testutils import verify_no_other_packets

from controller.plan import Entry
from ptf_tests.fabric_test import OwnSwitchTest, cases
from tests.dataplane.entries import (
    BLOCK,
    CONTROL_DSCP,
    DATA,
    NO_TRIM,
    TRIM,
    TRIMMED,
    TRIMMED_LASTHOP,
    basic,
    fabric_role,
    host_role,
    queue_limits,
)
from tests.dataplane.frames import ecn_of, forwarded, frame, marked, trimmed

DST, ELSEWHERE = "fd00::2", "fd00::4"
PORT, OTHER_PORT = 3, 4
ROUTES = {f"{DST}/128": PORT, f"{ELSEWHERE}/128": OTHER_PORT, f"{BLOCK}:2::/48": PORT}
LIMIT = 8
A_SECOND_EACH, FOUR_A_SECOND = 1, 4


def burst(count: int, dst: str = DST, **fields: int) -> list[bytes]:
    """Frames that differ in their length."""
    return [frame(500 + n, dst=dst, **fields) for n in range(count)]  # type: ignore[arg-type]


class CongestionTest(OwnSwitchTest):
    """A switch whose data queues send one packet a second."""

    rates: ClassVar[Mapping[int, int]] = {DATA: A_SECOND_EACH}

    def limit(self, data: int = LIMIT, trim: int = 60, role: Entry | None = None) -> None:
        self.switch.install(*basic(ROUTES), queue_limits(PORT, data, trim), role or fabric_role(PORT))

    def hold(self, dst: str = DST, port: int = PORT, dscp: int = NO_TRIM) -> None:
        """The queue has just sent a packet: for a while it will send no other."""
        first = frame(100, dst=dst, dscp=dscp)
        self.switch.send(first)
        self.switch.expect(port, forwarded(first, port))

    def send_all(self, frames: Sequence[bytes], port: int = 7) -> None:
        for one in frames:
            self.switch.send(one, port=port)

    def nothing_more_now(self) -> None:
        """Until the held packets go."""
        self.switch.decide()
        verify_no_other_packets(self.switch, self.switch.device, timeout=0)


class AroundTheLimit(CongestionTest):
    """What fits is held; exactly what is over the limit is trimmed, and overtakes what is held."""

    count: ClassVar[int]

    def check(self) -> None:
        self.limit()
        self.hold()
        frames = burst(self.count)
        self.send_all(frames)
        self.switch.expect(PORT, *(trimmed(one, PORT, TRIMMED) for one in frames[LIMIT:]))
        self.nothing_more_now()
        trims = {port: count.packets for port, count in self.switch.control.counter("port_trims", range(8)).items()}
        over = max(0, self.count - LIMIT)
        self.assertEqual(trims, {PORT: over} if over else {})
        self.assertEqual(self.switch.drops(), {})


cases(
    globals(),
    AroundTheLimit,
    {
        f"a burst of {rule} is trimmed by what is over it": {"count": count}
        for rule, count in (
            ("one less than the limit", LIMIT - 1),
            ("the limit", LIMIT),
            ("one more than the limit", LIMIT + 1),
            ("five times the limit", 5 * LIMIT),
        )
    },
)


class HeldPacketsFollowInOrderAndTheQueueIsEmptyThen(CongestionTest):
    """Trims first, then the held ones whole; the next packet finds an empty queue, and is not trimmed."""

    rates: ClassVar[Mapping[int, int]] = {DATA: FOUR_A_SECOND}

    def runTest(self) -> None:
        self.limit(3)
        self.hold()
        for turn in range(2):
            frames = burst(5)
            self.send_all(frames)
            self.switch.expect(PORT, *(trimmed(one, PORT, TRIMMED) for one in frames[3:]))
            self.switch.expect(PORT, *(forwarded(one, PORT) for one in frames[:3]))
            if turn:
                self.switch.done()


class AShiftedPacketIsTrimmedUnderCongestion(CongestionTest):
    """Destination shifted, hop limit - 1, the outer DSCP and length rewritten, the inner header as it was."""

    def runTest(self) -> None:
        self.limit(1)
        self.hold()
        sent = [frame(4094, dst=f"{BLOCK}:1:2:{n}::", inner=True) for n in (3, 4)]
        self.send_all(sent)
        self.switch.expect(PORT, trimmed(sent[1], PORT, TRIMMED, dst=f"{BLOCK}:2:4::"))
        self.nothing_more_now()


class AFullQueueDropsWhatMayNotBeTrimmed(CongestionTest):
    def runTest(self) -> None:
        self.limit()
        self.hold()
        self.send_all(burst(LIMIT + 2, dscp=NO_TRIM))
        self.nothing_more_now()
        self.assertEqual(self.switch.drops(), {"data_queue_full": 2})


class AFullTrimQueueDropsAndCounts(CongestionTest):
    """Both queues held: eight whole, three cut, and two that neither takes."""

    rates: ClassVar[Mapping[int, int]] = {DATA: A_SECOND_EACH, TRIM: A_SECOND_EACH}

    def runTest(self) -> None:
        self.limit(trim=3)
        self.hold()
        self.hold(dscp=TRIMMED)
        frames = burst(LIMIT + 5)
        self.send_all(frames)
        self.nothing_more_now()
        self.assertEqual(self.switch.drops(), {"trim_queue_full": 2})


class AnAlreadyTrimmedPacketPassesAFullDataQueue(CongestionTest):
    """As it is: never cut again, even if it is longer than the trim size."""

    def runTest(self) -> None:
        self.limit(1)
        self.hold()
        self.send_all(burst(1))
        sent = [frame(length, dscp=dscp, dst=DST) for dscp in (TRIMMED, TRIMMED_LASTHOP) for length in (128, 400)]
        self.send_all(sent)
        self.switch.expect(PORT, *(forwarded(one, PORT) for one in sent))
        self.nothing_more_now()


class ControlOvertakesDataAndTrims(CongestionTest):
    """Strict priority: with data and trims held, control leaves at once."""

    rates: ClassVar[Mapping[int, int]] = {DATA: A_SECOND_EACH, TRIM: A_SECOND_EACH}

    def runTest(self) -> None:
        self.limit()
        self.hold()
        self.hold(dscp=TRIMMED)
        self.send_all(burst(LIMIT + 3))
        control = frame(300, dscp=CONTROL_DSCP, dst=DST)
        self.send_all([control])
        self.switch.expect(PORT, forwarded(control, PORT))
        self.nothing_more_now()
        self.assertEqual(self.switch.drops(), {})


class SenderPortsShareTheLimitOfTheirReceiver(CongestionTest):
    """Incast: N ports send five each to a host, whose port takes eight whole; the rest is TRIMMED_LASTHOP."""

    senders: ClassVar[int]

    def check(self) -> None:
        self.limit(role=host_role(PORT))
        self.hold()
        sent = []
        for sender in range(self.senders):
            frames = [frame(300 + 10 * sender + n, dst=DST) for n in range(5)]
            self.send_all(frames, port=(7, 6, 5, 2)[sender])
            self.switch.decide()
            sent += frames
        self.switch.expect(PORT, *(trimmed(one, PORT, TRIMMED_LASTHOP) for one in sent[LIMIT:]))
        self.nothing_more_now()


cases(
    globals(),
    SenderPortsShareTheLimitOfTheirReceiver,
    {f"an incast of {senders} to 1 is trimmed at the last hop": {"senders": senders} for senders in (2, 4)},
)


class TwoPortsAreCongestedOneByOne(CongestionTest):
    """Each with its own limit: what is over one is no matter for the other."""

    def runTest(self) -> None:
        self.limit()
        self.switch.install(queue_limits(OTHER_PORT, 1, 60), host_role(OTHER_PORT))
        self.hold()
        self.hold(ELSEWHERE, OTHER_PORT)
        here, there = burst(LIMIT + 1), burst(3, ELSEWHERE)
        self.send_all(here)
        self.send_all(there)
        self.switch.expect(PORT, trimmed(here[LIMIT], PORT, TRIMMED))
        self.switch.expect(OTHER_PORT, *(trimmed(one, OTHER_PORT, TRIMMED_LASTHOP) for one in there[1:]))
        self.nothing_more_now()


class ALimitThatIsRaisedTakesMore(CongestionTest):
    """At run time, with packets in the queue: the count goes on, only the limit changes."""

    def runTest(self) -> None:
        self.limit(2)
        self.hold()
        frames = burst(6)
        self.send_all(frames[:3])
        self.switch.expect(PORT, trimmed(frames[2], PORT, TRIMMED))
        self.switch.modify(queue_limits(PORT, 4, 60))
        self.send_all(frames[3:])
        self.switch.expect(PORT, trimmed(frames[5], PORT, TRIMMED))
        self.nothing_more_now()


class APipelineThatIsPushedUnderCongestionStartsEmpty(CongestionTest):
    """All places are free again: as many are held as the limit says."""

    def runTest(self) -> None:
        self.limit(2)
        self.hold()
        self.send_all(burst(3))
        self.switch.decide()
        self.switch.commit()
        self.switch.drain()
        self.limit(2)
        self.send_all(burst(3))
        self.switch.expect(PORT, trimmed(burst(3)[2], PORT, TRIMMED))
        self.nothing_more_now()


# ---- ECN (RFC 3168 5)


class MarkTest(CongestionTest):
    rates: ClassVar[Mapping[int, int]] = {DATA: FOUR_A_SECOND}


class AnEcnCapablePacketIsMarkedIfMoreThanTheThresholdWaitBehindIt(MarkTest):
    """A hard threshold (`span` 1) of 3; 7, 6, ... 0 packets wait behind the first, second, ... eighth."""

    def runTest(self) -> None:
        self.limit(48, role=fabric_role(PORT, mark_from=3, span=1))
        self.hold()
        frames = [frame(500 + n, ecn=n % 4, dst=DST) for n in range(8)]
        self.send_all(frames)
        above, below = frames[:4], frames[4:]
        for sent in above:
            expected = forwarded(sent, PORT)
            self.switch.expect(PORT, marked(expected) if ecn_of(sent) in (1, 2) else expected)
        self.switch.expect(PORT, *(forwarded(sent, PORT) for sent in below))
        self.switch.done()
        marks = {port: count.packets for port, count in self.switch.control.counter("port_marks", range(8)).items()}
        self.assertEqual(marks, {PORT: 2})


class AHostPortMarksNothing(MarkTest):
    """No other path avoids the last hop (arXiv 2605.04333)."""

    def runTest(self) -> None:
        self.limit(48, role=host_role(PORT))
        self.hold()
        frames = burst(4)
        self.send_all(frames)
        self.switch.expect(PORT, *(forwarded(sent, PORT) for sent in frames))
        self.switch.done()


class ATrimIsNotMarked(MarkTest):
    """Its ECN bits tell what happened before (UEC 1.0 4.1), though many packets wait behind it."""

    def runTest(self) -> None:
        self.limit(2, role=fabric_role(PORT, mark_from=0, span=1))
        self.hold()
        frames = [frame(500 + n, ecn=2, dst=DST) for n in range(6)]
        self.send_all(frames)
        self.switch.expect(PORT, *(trimmed(sent, PORT, TRIMMED) for sent in frames[2:]))
        self.switch.expect(PORT, marked(forwarded(frames[0], PORT)), forwarded(frames[1], PORT))
        self.switch.done()
