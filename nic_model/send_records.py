"""What a requester remembers of its work: messages, the packets that are outstanding, round trips.

PSNs are unwrapped: they grow without end. Times are in ns.
"""

from __future__ import annotations

from dataclasses import dataclass

from nic_model.ev import Ev
from nic_model.verbs import SendWR

NOT_OUTSTANDING = -1


@dataclass(slots=True, eq=False)
class Message:
    """One work request on its way. PSNs are unwrapped; they are known once it has begun."""

    wr: SendWR
    payload: memoryview
    msn: int
    rqmsn: int
    with_imm: bool
    packets: int
    first_psn: int = -1
    last_psn: int = -1
    sent: int = 0

    @property
    def begun(self) -> bool:
        return self.first_psn >= 0


@dataclass(slots=True, eq=False)
class Sent:
    """The send record of one PSN: what its newest transmission was."""

    psn: int
    message: Message
    offset: int
    size: int
    ev: Ev
    order: int
    """Which of the QP's transmissions it was; NOT_OUTSTANDING when it was acknowledged or is taken for lost."""
    sent_at: int
    transmissions: int = 1
    ack_req: bool = False
    lost: bool = False


@dataclass(slots=True)
class RequesterCounters:
    """Packets and bytes of one QP's sending half. `losses` is by LossReason."""

    packets: int = 0
    payload_bytes: int = 0
    retransmissions: int = 0
    sacks: int = 0
    nacks: int = 0
    marks: int = 0
    probes: int = 0
    timeouts: int = 0
    unexpected: int = 0


class RttRange:
    """The smallest and the largest round-trip time of late, in ns, over all paths.

    The minimum is kept; the maximum sinks by 1/64 of its distance to each smaller sample. 0 before any sample.
    """

    def __init__(self) -> None:
        self.smallest = 0
        self.largest = 0

    def add(self, rtt: int) -> None:
        """One unambiguous sample."""
        if rtt < self.smallest or not self.smallest:
            self.smallest = rtt
        self.largest = rtt if rtt > self.largest else self.largest - (self.largest - rtt) // 64
