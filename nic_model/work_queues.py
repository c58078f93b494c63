"""The part of a QP that is the same for every transport: its state, its work queues, and how they end."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from nic_model.verbs import (
    PD,
    WC,
    QPInitAttr,
    QPState,
    RecvWR,
    Regions,
    SendWR,
    VerbsError,
    WCOpcode,
    WCStatus,
    WROpcode,
)


class Posted(Protocol):
    """A send work request with its gathered payload."""

    wr: SendWR
    payload: memoryview


class SendQueue(Protocol):
    """The sending half of a QP, as the verbs see it."""

    @property
    def outstanding(self) -> int:
        """Work requests that have not completed."""
        ...

    def post(self, wr: SendWR, payload: memoryview) -> None:
        """Queue a work request with its gathered payload."""
        ...

    def flush(self, status: WCStatus) -> None:
        """The oldest work request ends with `status`, every other one is flushed."""
        ...


class WorkQueues:
    """A QP's state and queues. A transport's own QP sets `requester` and says in `_posted` what follows a post."""

    requester: SendQueue | None = None

    def __init__(self, regions: Regions, qpn: int, pd: PD, init_attr: QPInitAttr) -> None:
        self.qpn = qpn
        self.state = QPState.RESET
        self._pd = pd
        self._init_attr = init_attr
        self._receive_queue: deque[RecvWR] = deque()
        self._regions = regions

    def _require(self, state: QPState) -> None:
        if self.state is not state:
            raise VerbsError(f"QP {self.qpn} is in {self.state.name}, the step needs {state.name}")

    def to_reset(self) -> None:
        """See verbs.QP."""
        self._fail(WCStatus.WR_FLUSH_ERR)
        self._forget()
        self.requester = None
        self._receive_queue = deque()
        self.state = QPState.RESET

    def _forget(self) -> None:
        """Leave the peer; nothing is outstanding."""
        raise NotImplementedError

    def post_send(self, wr: SendWR) -> None:
        """See verbs.QP."""
        if self.state is QPState.ERR:
            self._init_attr.scq.add(WC(wr.wr_id, WCStatus.WR_FLUSH_ERR, WCOpcode.RDMA_WRITE, self.qpn))
            return
        requester = self.requester
        if requester is None:
            raise VerbsError(f"QP {self.qpn} is in {self.state.name}, sending needs RTS")
        if wr.opcode not in (WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM):
            raise VerbsError(f"there is no operation {wr.opcode}: a QP writes, with or without an immediate")
        if requester.outstanding >= self._init_attr.cap.max_send_wr:
            raise VerbsError(f"the send queue of QP {self.qpn} is full: {requester.outstanding} work requests")
        requester.post(wr, self._regions.gather(self._pd, wr))
        self._posted()

    def _posted(self) -> None:
        raise NotImplementedError

    def post_recv(self, wr: RecvWR) -> None:
        """See verbs.QP."""
        if self.state is QPState.ERR:
            self._flush_receive(wr)
            return
        if len(self._receive_queue) >= self._init_attr.cap.max_recv_wr:
            raise VerbsError(f"the receive queue of QP {self.qpn} is full")
        self._receive_queue.append(wr)

    def _complete(self, message: Posted, status: WCStatus) -> None:
        self._init_attr.scq.add(WC(message.wr.wr_id, status, WCOpcode.RDMA_WRITE, self.qpn, len(message.payload)))

    def _fail(self, status: WCStatus) -> None:
        """To ERROR: every outstanding work request completes, none is lost."""
        if self.state is QPState.ERR:
            return
        self.state = QPState.ERR
        if self.requester is not None:
            self.requester.flush(status)
        while self._receive_queue:
            self._flush_receive(self._receive_queue.popleft())

    def _flush_receive(self, wr: RecvWR) -> None:
        self._init_attr.rcq.add(WC(wr.wr_id, WCStatus.WR_FLUSH_ERR, WCOpcode.RECV_RDMA_WITH_IMM, self.qpn))
