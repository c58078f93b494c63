"""A NIC as its driver and its verbs see it, whatever transport it speaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from nic_model.packet import Frame
from nic_model.verbs import PD, QPAttr, QPInitAttr, QPState, RecvWR, Regions, SendWR, VerbsError

CONTROL_QUEUE = 1024
"""Control packets that wait for one port at most: a flood that asks for answers may not fill memory."""


@dataclass(slots=True)
class Port:
    """One port, in one plane: its addresses, what it counts, and the control packets that wait to leave through it."""

    plane: int
    address: bytes
    mac: bytes
    gateway: bytes
    up: bool = True
    control: deque[Frame] = field(default_factory=deque)
    control_dropped: int = 0
    """Control packets that found CONTROL_QUEUE others waiting."""
    packets_in: int = 0
    packets_out: int = 0
    payload_bytes: int = 0
    """Put into memory by packets that came in here, each byte once."""

    def send_control(self, frame: Frame) -> None:
        """Queue a control packet; it is lost if the port is down or too many wait."""
        if len(self.control) >= CONTROL_QUEUE:
            self.control_dropped += 1
        elif self.up:
            self.control.append(frame)


@dataclass(slots=True)
class NicCounters:
    """`refused` counts frames that were not taken, by reason."""

    refused: Counter[str] = field(default_factory=Counter)


FIRST_QPN = 16
"""QP numbers below are reserved; 0x2 is the endpoint itself (OCP MRC)."""

P = TypeVar("P", bound=Port)
Q = TypeVar("Q", bound="VerbsQueuePair")


class NicBase(ABC, Generic[P, Q]):
    """What a NIC does alike for both transports: QP numbers, and control packets before data."""

    ports: list[P]

    def __init__(self, first_qpn: int = FIRST_QPN) -> None:
        self.regions = Regions()
        self.counters = NicCounters()
        self._queue_pairs: dict[int, Q] = {}
        self._next_qpn = first_qpn
        self._now = 0  # the newest time that the driver has told

    def create_queue_pair(self, pd: PD, init_attr: QPInitAttr) -> Q:
        """A QP in RESET with the next number; none is used twice."""
        qpn = self._next_qpn
        if qpn > 0xFFFFFF:
            raise VerbsError("there are no QP numbers left")
        self._next_qpn += 1
        queue_pair = self._queue_pairs[qpn] = self._new_queue_pair(qpn, pd, init_attr)
        return queue_pair

    @abstractmethod
    def _new_queue_pair(self, qpn: int, pd: PD, init_attr: QPInitAttr) -> Q: ...

    def queue_pairs(self) -> list[Q]:
        """All of them, by number."""
        return list(self._queue_pairs.values())

    def pull(self, plane: int, now: int) -> Frame | None:
        """The next frame for a free port: control first, then the QPs in turn. None if there is none."""
        self._now = now
        port = self.ports[plane]
        if not port.up:
            return None
        frame = port.control.popleft() if port.control else self._pull_data(port, now)
        if frame is not None:
            port.packets_out += 1
        return frame

    @abstractmethod
    def _pull_data(self, port: P, now: int) -> Frame | None: ...


class VerbsQueuePair(Protocol):
    """An endpoint's side of a `verbs.QP`, which documents the methods."""

    @property
    def qpn(self) -> int: ...
    @property
    def state(self) -> QPState: ...
    def to_reset(self) -> None: ...
    def to_init(self, attr: QPAttr) -> None: ...
    def to_rtr(self, attr: QPAttr) -> None: ...
    def to_rts(self, attr: QPAttr) -> None: ...
    def post_send(self, wr: SendWR) -> None: ...
    def post_recv(self, wr: RecvWR) -> None: ...
    def close(self) -> None: ...


class Device(Protocol):
    """What `nic_model.nic.Nic` (MRC) and `nic_model.roce.RoceNic` have in common. Times are in ns."""

    name: str
    regions: Regions
    counters: NicCounters

    @property
    def ports(self) -> Sequence[Port]:
        """By plane."""
        ...

    def create_queue_pair(self, pd: PD, init_attr: QPInitAttr) -> VerbsQueuePair:
        """For the verbs: a QP in RESET. Raises VerbsError if there are no numbers left."""
        ...

    def queue_pairs(self) -> Sequence[VerbsQueuePair]:
        """All of them, by number."""
        ...

    @property
    def ready(self) -> int:
        """Bit p is set if `pull(p, now)` may have a frame."""
        ...

    def pull(self, plane: int, now: int) -> Frame | None:
        """The next frame for a free port, None if there is none."""
        ...

    def receive(self, plane: int, frame: Frame, now: int) -> None:
        """A frame from the wire. Never raises: a bad one is counted in `counters.refused`."""
        ...

    def next_deadline(self) -> int | None:
        """When `poll` is due next, None if nothing waits for time to pass."""
        ...

    def poll(self, now: int) -> None:
        """Run what is due."""
        ...

    def port_status(self, plane: int, up: bool, now: int) -> None:
        """A port's link went down or came up."""
        ...
