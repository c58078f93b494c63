"""Which packets are late: between paths of unequal delay only time tells that one is lost.

Late is what should have come by now, if what was sent after it has come (as RACK has it, RFC 8985). Times are in ns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from nic_model.send_records import RttRange, Sent

QUEUE_GROWTH = 7
"""A queue grows by at most this much delay per time: eight senders on one link fill it so fast."""
KNOWN_PATH_RTTS = 2
"""No path that has brought something takes longer than this many of the largest round trips."""
UNKNOWN_PATH_RTTS = 4
"""Nor one that has brought nothing yet than this many."""


class Lateness:
    """The transmissions of one QP by the time at which they are late, if nothing is heard of them before.

    What is less than `slack` late is never taken for lost: software switches, and hosts under load, stand still now
    and then.
    """

    def __init__(self, slack: int) -> None:
        self.rtt = RttRange()
        self.newest_acked = 0
        """When the newest acknowledged transmission was sent."""
        self.young: deque[tuple[int, Sent]] = deque()
        """(order, record) of what was sent; most are acknowledged before they can be late."""
        self._slack = slack
        self._due: list[tuple[int, int, Sent]] = []  # heap of (when to look again, order, record)

    def forget(self) -> None:
        """Nothing is outstanding."""
        self.young.clear()
        self._due.clear()

    def late(self, now: int) -> Iterator[Sent]:
        """Those that are late now and not taken for lost yet."""
        due, young, rtt = self._due, self.young, self.rtt
        tolerance = max(rtt.smallest // 4, self._slack)
        expected_by = now - rtt.smallest - tolerance
        while young:
            order, record = young[0]
            if record.order == order:
                if record.sent_at > expected_by:
                    break
                heappush(due, (record.sent_at + (record.ev.rtt or rtt.largest), order, record))
            young.popleft()
        while due and due[0][0] <= now:
            _, order, record = heappop(due)
            if record.order != order:
                continue  # it was acknowledged, or sent again
            if now > self._expected(record) + tolerance and record.sent_at < self.newest_acked:
                yield record
            else:  # all of the fabric, or the peer, may have become slow
                heappush(due, (now + tolerance + 1, order, record))

    def _expected(self, record: Sent) -> int:
        """By when the packet should have been reported.

        Its path's newest round trip says how long it takes, plus what the queues on the way can have grown since that
        packet was sent.
        """
        ev, largest = record.ev, self.rtt.largest
        if ev.rtt is None:
            return record.sent_at + UNKNOWN_PATH_RTTS * largest
        grown = QUEUE_GROWTH * max(0, record.sent_at - ev.rtt_sent_at)
        return record.sent_at + min(ev.rtt + grown, KNOWN_PATH_RTTS * largest)
