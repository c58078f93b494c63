"""An application's side of a NIC: protection domain, completion queue, connected QPs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from fabric.nodes import NicNode
from nic_model.roce import StripedQP, connect_striped
from nic_model.verbs import CQ, PD, QP, WC, Context, QPAttr, QPCap, QPInitAttr

_POLL_BATCH = 64


class Host:
    """A NIC with an application: one completion queue, whose entries go to their QP's handler.

    It has `qps_per_peer` QPs to each peer; several are used as one, each message cut into stripes.
    """

    def __init__(self, node: NicNode, qps_per_peer: int = 1) -> None:
        self.name = node.nic.name
        self.pd = PD(Context(node.nic))
        self._node = node
        self._qps_per_peer = qps_per_peer
        self._cq = CQ(self.pd.context, channel=self._on_event)
        self._has_completions = False
        self._handlers: dict[int, Callable[[WC], None]] = {}
        node.on_attend = self._run

    @property
    def now(self) -> int:
        """Virtual time, ns."""
        return self._node.now

    @property
    def address(self) -> bytes:
        """By which peers know the NIC."""
        return self._node.nic.ports[0].address

    def queue_pair(self, handler: Callable[[WC], None]) -> QP | StripedQP:
        """A QP in RESET, whose completions `handler` gets."""
        init_attr = QPInitAttr(self._cq, self._cq, QPCap())
        striped = self._qps_per_peer > 1
        qp = StripedQP(self.pd, init_attr, self._qps_per_peer) if striped else QP(self.pd, init_attr)
        self._handlers[qp.qp_num] = handler
        return qp

    def _on_event(self, _cq: CQ) -> None:
        self._has_completions = True

    def _run(self) -> None:
        while self._has_completions:
            self._has_completions = False
            count, completions = self._cq.poll(_POLL_BATCH)
            self._has_completions |= count == _POLL_BATCH
            for completion in completions:
                self._handlers[completion.qp_num](completion)


def connect(
    a: Host, b: Host, attr: QPAttr, rng: random.Random, on_a: Callable[[WC], None], on_b: Callable[[WC], None]
) -> tuple[QP | StripedQP, QP | StripedQP]:
    """A connected pair of QPs. MRC has no connection manager: numbers and PSNs are exchanged out of band."""
    one, other = a.queue_pair(on_a), b.queue_pair(on_b)
    if isinstance(one, StripedQP) and isinstance(other, StripedQP):
        connect_striped(one, other, attr, rng)
    elif isinstance(one, QP) and isinstance(other, QP):
        _connect((one, other), (a, b), attr, rng)
    else:
        raise ValueError(f"{a.name} and {b.name} have different numbers of QPs for each other")
    return one, other


def _connect(pair: tuple[QP, QP], hosts: tuple[Host, Host], attr: QPAttr, rng: random.Random) -> None:
    psn = (rng.getrandbits(24), rng.getrandbits(24))
    for mine, theirs in ((0, 1), (1, 0)):
        step = replace(
            attr,
            dest_qp_num=pair[theirs].qp_num,
            dgid=hosts[theirs].address,
            rq_psn=psn[theirs],
            sq_psn=psn[mine],
        )
        pair[mine].to_init(step)
        pair[mine].to_rtr(step)
        pair[mine].to_rts(step)
