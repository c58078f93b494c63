"""What an endpoint decides, and why: one record a decision, for an event log or a test.

Times are in ns, sizes in bytes (nominal, as congestion control counts them), PSNs as on the wire (24 bits). `qpn` is
the number of the QP that decides. A path is (plane, value), its EV's 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum


class EvState(Enum):
    """What a QP thinks of a path. Only a GOOD EV carries data."""

    GOOD = "good"
    SKIP = "skip"
    ASSUMED_BAD = "assumed_bad"
    DENIED = "denied"


class LossReason(Enum):
    """Why a packet was taken for lost."""

    OVERTAKEN = "overtaken on its own path"
    LATE = "later than its path can be"
    TIMER = "ACK timer"
    PROBE = "missing when a probe was answered"
    TRIMMED = "trimmed"
    REFUSED = "refused by the responder for want of resources"


class ProbeReason(StrEnum):
    """Why a reliability probe was sent."""

    TAIL = "no feedback for two round trips"
    WINDOW = "the window is full and no SACK was asked for"
    TRANSPORT_ACK = "all has arrived and no Transport ACK came"


@dataclass(frozen=True, slots=True)
class EvEvent:
    """An EV went from one state to another. `losses` is how many packets it has lost so far."""

    time: int
    qpn: int
    plane: int
    value: int
    old: EvState
    new: EvState
    reason: str
    losses: int


@dataclass(frozen=True, slots=True)
class LossEvent:
    """A packet is taken for lost: it will be sent again. `blamed`: its path is held to be broken."""

    time: int
    qpn: int
    psn: int
    plane: int
    value: int
    sent_at: int
    transmissions: int
    reason: LossReason
    blamed: bool


@dataclass(frozen=True, slots=True)
class RetransmissionEvent:
    """A lost packet is sent again, on this path."""

    time: int
    qpn: int
    psn: int
    plane: int
    value: int
    transmissions: int


@dataclass(frozen=True, slots=True)
class ProbeEvent:
    """A reliability probe asks the responder for all that it knows."""

    time: int
    qpn: int
    probe_id: int
    plane: int
    value: int
    reason: ProbeReason


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """The ACK timer ran out, for the `silent`th time in a row. `deadline` is its next one."""

    time: int
    qpn: int
    silent: int
    deadline: int


@dataclass(frozen=True, slots=True)
class WindowEvent:
    """What congestion control did. `rtt` is None without an unambiguous sample; `newly` was acknowledged."""

    time: int
    qpn: int
    decision: str
    rtt: int | None
    marked: bool
    newly: int
    cwnd: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class QpEvent:
    """A QP went to another state; in ERR, `status` is that of its oldest work request."""

    time: int
    qpn: int
    state: str
    status: str | None


@dataclass(frozen=True, slots=True)
class PortEvent:
    """A port went down or came up: the NIC's own, or (with its address) one that a peer told of."""

    time: int
    plane: int
    up: bool
    peer: str | None


Event = (
    EvEvent | LossEvent | RetransmissionEvent | ProbeEvent | TimerEvent | WindowEvent | QpEvent | PortEvent
)  # fmt: skip
EVENT_NAMES: dict[type[Event], str] = {
    EvEvent: "ev",
    LossEvent: "loss",
    RetransmissionEvent: "retransmission",
    ProbeEvent: "probe",
    TimerEvent: "timer",
    WindowEvent: "window",
    QpEvent: "qp",
    PortEvent: "port",
}
"""What each is called in an event log."""

Log = Callable[[Event], None]
