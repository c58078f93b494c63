"""Several QPs to one peer that look like one: each message is cut into stripes, one for each QP.

Collective libraries do this to get past one path per QP (NCCL: NCCL_IB_QPS_PER_CONNECTION with split data). A WRITE
with immediate is one on every QP; it is received when all of them are.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nic_model.verbs import (
    CQ,
    PD,
    QP,
    SGE,
    WC,
    Context,
    QPAttr,
    QPInitAttr,
    RecvWR,
    SendWR,
    VerbsError,
    WCStatus,
    WROpcode,
)

STRIPE_ALIGN = 128
"""Bytes: a stripe is a multiple of this, but the last (as in NCCL)."""


@dataclass(slots=True)
class _Work:
    """A work request whose stripes are under way."""

    wr_id: int
    stripes: int
    status: WCStatus = WCStatus.SUCCESS
    byte_len: int = 0

    def add(self, completion: WC) -> None:
        """One stripe is done; the first failure is the whole's."""
        self.stripes -= 1
        self.byte_len += completion.byte_len
        if self.status is WCStatus.SUCCESS:
            self.status = completion.status


class _WorkQueue:
    """Work requests in the order of posting. Stripes complete to `cq`, with a request's number as their wr_id."""

    def __init__(self, context: Context, qp_num: Callable[[], int], whole: CQ) -> None:
        self.cq = CQ(context, channel=self._on_stripe)
        self._qp_num = qp_num
        self._whole = whole
        self._work: deque[_Work] = deque()
        self._done = 0

    def __len__(self) -> int:
        return len(self._work)

    def add(self, wr_id: int, stripes: int) -> int:
        """A request that is about to be posted in so many stripes; returns its number."""
        self._work.append(_Work(wr_id, stripes))
        return self._done + len(self._work) - 1

    def _on_stripe(self, cq: CQ) -> None:
        _, (completion,) = cq.poll()
        self._work[completion.wr_id - self._done].add(completion)
        while self._work and not self._work[0].stripes:
            work = self._work.popleft()
            self._done += 1
            self._whole.add(
                replace(completion, wr_id=work.wr_id, status=work.status, qp_num=self._qp_num(), byte_len=work.byte_len)
            )


class StripedQP:
    """`count` QPs used as one `verbs.QP`. Its completions come in the order of posting and name the first QP's number.

    `connect_striped` takes it from RESET to RTS.
    """

    def __init__(self, pd: PD, init_attr: QPInitAttr, count: int) -> None:
        if count < 1:
            raise VerbsError(f"a striped QP needs at least 1 QP, not {count}")
        self.pd = pd
        self._cap = init_attr.cap
        self._sends = _WorkQueue(pd.context, lambda: self.qp_num, init_attr.scq)
        self._receives = _WorkQueue(pd.context, lambda: self.qp_num, init_attr.rcq)
        stripe = QPInitAttr(self._sends.cq, self._receives.cq, init_attr.cap)
        self.stripes = [QP(pd, stripe) for _ in range(count)]

    @property
    def qp_num(self) -> int:
        """The first QP's."""
        return self.stripes[0].qp_num

    def post_send(self, wr: SendWR) -> None:
        """See verbs.QP."""
        if len(self._sends) >= self._cap.max_send_wr:
            raise VerbsError(f"the send queue of QP {self.qp_num} is full: {len(self._sends)} work requests")
        self.pd.context.nic.regions.pieces(self.pd, wr)  # refused here, before a part of it is posted
        stripes = self._cut(wr)
        number = self._sends.add(wr.wr_id, len(stripes))
        for qp, stripe in zip(self.stripes, stripes, strict=False):
            qp.post_send(replace(stripe, wr_id=number))

    def _cut(self, wr: SendWR) -> list[SendWR]:
        """Equal stripes, as many as there are bytes for; an immediate is on every QP."""
        total = sum(sge.length for sge in wr.sg)
        size = -(-total // len(self.stripes))
        size += -size % STRIPE_ALIGN
        starts = [min(index * size, total) for index in range(len(self.stripes))]
        if wr.opcode is not WROpcode.RDMA_WRITE_WITH_IMM:
            starts = [start for start in starts if start < total] or [0]
        return [
            replace(wr, sg=_slice(wr.sg, start, start + size), remote_addr=wr.remote_addr + start) for start in starts
        ]

    def post_recv(self, wr: RecvWR) -> None:
        """See verbs.QP."""
        if len(self._receives) >= self._cap.max_recv_wr:
            raise VerbsError(f"the receive queue of QP {self.qp_num} is full")
        number = self._receives.add(wr.wr_id, len(self.stripes))
        for qp in self.stripes:
            qp.post_recv(RecvWR(number))


def _slice(sg: Sequence[SGE], start: int, stop: int) -> list[SGE]:
    """The bytes [start, stop) of a gather list, as far as there are any."""
    pieces = []
    at = 0
    for sge in sg:
        low, high = max(start, at), min(stop, at + sge.length)
        if low < high:
            pieces.append(SGE(sge.addr + low - at, high - low, sge.lkey))
        at += sge.length
    return pieces


def connect_striped(one: StripedQP, other: StripedQP, attr: QPAttr, rng: random.Random) -> None:
    """Bring all QPs of both to RTS: the i-th of one with the i-th of the other, by their ports in plane i mod planes.

    PSNs are drawn from `rng`; everything that no connection has of its own is as in `attr`.
    """
    for index, pair in enumerate(zip(one.stripes, other.stripes, strict=True)):
        psns = rng.getrandbits(24), rng.getrandbits(24)
        for mine, theirs, peer in ((0, 1, other), (1, 0, one)):
            ports = peer.pd.context.nic.ports
            step = replace(
                attr,
                dest_qp_num=pair[theirs].qp_num,
                dgid=ports[index % len(ports)].address,
                rq_psn=psns[theirs],
                sq_psn=psns[mine],
            )
            pair[mine].to_init(step)
            pair[mine].to_rtr(step)
            pair[mine].to_rts(step)
