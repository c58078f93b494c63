"""What the NICs are given to do, through their verbs, and whether the bytes came out right."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fabric.nodes import NicNode
from nic_model.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    Access,
    Context,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
)


class Workload(Protocol):
    """Started once; then driven by completions until `done`."""

    total_bytes: int
    """Payload bytes that the fabric has to deliver."""
    errors: list[str]
    """Completions that say that they failed, in the order they came."""
    finished_at: int
    """When the last completion came, ns of virtual time."""

    @property
    def done(self) -> bool:
        """All completions have come, or one says that it failed."""
        ...

    def start(self) -> None:
        """Post the first work requests."""
        ...

    def verify(self) -> list[str]:
        """Compare all memory with what it should be; one line for each difference."""
        ...


class _Host:
    """A NIC with an application: its protection domain and one completion queue for everything."""

    def __init__(self, node: NicNode, on_completion: Callable[[_Host, WC], None]) -> None:
        self.node = node
        self.name = node.nic.name
        self.context = Context(node.nic)
        self.pd = PD(self.context)
        self.cq = CQ(self.context)
        self._on_completion = on_completion
        node.on_attend = self._run

    def _run(self) -> None:
        count, completions = self.cq.poll(64)
        while count:
            for completion in completions:
                self._on_completion(self, completion)
            count, completions = self.cq.poll(64)

    def queue_pair(self) -> QP:
        return QP(self.pd, QPInitAttr(self.cq, self.cq, QPCap()))

    def address(self) -> bytes:
        return self.node.nic.ports[0].address


def connect(a: _Host, b: _Host, attr: QPAttr, rng: random.Random) -> tuple[QP, QP]:
    """A connected pair of QPs. MRC has no connection manager: numbers and PSNs are exchanged out of band."""
    pair = (a.queue_pair(), b.queue_pair())
    psn = (rng.getrandbits(24), rng.getrandbits(24))
    for mine, theirs, host in ((0, 1, b), (1, 0, a)):
        step = QPAttr(
            dest_qp_num=pair[theirs].qp_num,
            dgid=host.address(),
            rq_psn=psn[theirs],
            sq_psn=psn[mine],
            path_mtu=attr.path_mtu,
            timeout=attr.timeout,
        )
        pair[mine].to_init(step)
        pair[mine].to_rtr(step)
        pair[mine].to_rts(step)
    return pair


class RingAllReduceWorkload:
    """Sum a float32 vector over all NICs: N-1 steps of reduce-scatter, N-1 of all-gather.

    In each step every NIC writes one chunk to its right neighbour, the step's number as the immediate; the
    immediate's completion starts the next step. The addends are whole numbers small enough that float32 sums
    are exact, so that the result must equal NumPy's to the bit, in whatever order it was added.
    """

    def __init__(self, nodes: Sequence[NicNode], size: int, attr: QPAttr, rng: random.Random) -> None:
        count = len(nodes)
        if count < 2:
            raise ValueError("an all-reduce needs at least 2 NICs")
        words = size // 4
        self._n = count
        self._bounds = [words * index // count for index in range(count + 1)]
        generator = np.random.default_rng(rng.getrandbits(64))
        inputs = generator.integers(-1000, 1001, size=(count, words)).astype(np.float32)
        self._expected: NDArray[np.float32] = inputs.sum(axis=0)
        self._members = [_RingMember(self, position, node, inputs[position]) for position, node in enumerate(nodes)]
        for member in self._members:
            member.join(self._members[(member.position + 1) % count], attr, rng)
        self.errors: list[str] = []
        self.finished_at = 0
        self._left = 2 * count * 2 * (count - 1)  # send and receive completions
        self.total_bytes = 4 * words * 2 * (count - 1)

    @property
    def done(self) -> bool:
        return self._left == 0 or bool(self.errors)

    def start(self) -> None:
        """Every NIC posts its first step."""
        for member in self._members:
            member.send(0)

    def chunk(self, index: int) -> slice:
        """The words of chunk `index` modulo the number of NICs."""
        index %= self._n
        return slice(self._bounds[index], self._bounds[index + 1])

    def step_received(self, step: int) -> int:
        """Where to go after step `step`: the next one, or -1 after the last."""
        return step + 1 if step + 1 < 2 * (self._n - 1) else -1

    def completed(self, host: _Host, completion: WC) -> bool:
        """Book a completion; False if it failed."""
        self._left -= 1
        self.finished_at = host.node.now
        if completion.status is not WCStatus.SUCCESS:
            self.errors.append(f"{host.name}: QP {completion.qp_num}: {completion.status.name}")
            return False
        return True

    def is_reducing(self, step: int) -> bool:
        """Does this step belong to the reduce-scatter half?"""
        return step < self._n - 1

    def chunk_sent(self, position: int, step: int) -> slice:
        """What the NIC at `position` sends in `step`."""
        return self.chunk(position - step)

    def chunk_received(self, position: int, step: int) -> slice:
        """What its left neighbour sends it."""
        return self.chunk_sent(position - 1, step)

    def verify(self) -> list[str]:
        wrong = []
        for member in self._members:
            differing = int(np.count_nonzero(member.vector != self._expected))
            if differing:
                wrong.append(f"{member.host.name}: {differing} of {len(self._expected)} sums are wrong")
        return wrong


class _RingMember:
    """One NIC of the ring: its vector, and a landing place for every chunk that is still to be added."""

    def __init__(self, ring: RingAllReduceWorkload, position: int, node: NicNode, vector: NDArray[np.float32]) -> None:
        self.ring = ring
        self.position = position
        self.vector = vector
        self.host = _Host(node, self._on_completion)
        access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        self._landing = np.zeros_like(vector)
        self._vector_mr = MR(self.host.pd, vector.nbytes, access, vector.data)
        self._landing_mr = MR(self.host.pd, vector.nbytes, access, self._landing.data)

    def join(self, right: _RingMember, attr: QPAttr, rng: random.Random) -> None:
        """Connect to the right neighbour and give it room for all immediates."""
        self._right = right
        self._to_right, from_left = connect(self.host, right.host, attr, rng)
        step = 0
        while step >= 0:
            from_left.post_recv(RecvWR(step))
            step = self.ring.step_received(step)

    def send(self, step: int) -> None:
        """Write this step's chunk: while reducing beside the neighbour's vector, then right into it."""
        words = self.ring.chunk_sent(self.position, step)
        right = self._right
        target = right._landing_mr if self.ring.is_reducing(step) else right._vector_mr
        length = 4 * (words.stop - words.start)
        source = SGE(self._vector_mr.addr + 4 * words.start, length, self._vector_mr.lkey)
        self._to_right.post_send(
            SendWR(
                wr_id=step,
                opcode=WROpcode.RDMA_WRITE_WITH_IMM,
                sg=[source],
                remote_addr=target.addr + 4 * words.start,
                rkey=target.rkey,
                imm_data=step,
            )
        )

    def _on_completion(self, host: _Host, completion: WC) -> None:
        if not self.ring.completed(host, completion) or completion.opcode is not WCOpcode.RECV_RDMA_WITH_IMM:
            return
        step = completion.imm_data
        if step is None:
            raise AssertionError("a received immediate without its data")
        if self.ring.is_reducing(step):
            words = self.ring.chunk_received(self.position, step)
            self.vector[words] += self._landing[words]
        following = self.ring.step_received(step)
        if following >= 0:
            self.send(following)


class TransfersWorkload:
    """Each pair's first NIC writes random bytes to the second, one message behind the other."""

    def __init__(
        self,
        pairs: Sequence[tuple[NicNode, NicNode]],
        size: int,
        messages: int,
        attr: QPAttr,
        rng: random.Random,
    ) -> None:
        self.errors: list[str] = []
        self.finished_at = 0
        self.total_bytes = size * messages * len(pairs)
        self._left = messages * len(pairs)
        self._hosts: dict[str, _Host] = {}
        self._transfers: list[tuple[_Host, QP, MR, MR, str]] = []
        self._size = size
        self._messages = messages
        for source, target in pairs:
            a, b = self._host(source), self._host(target)
            qp, _ = connect(a, b, attr, rng)
            outgoing = MR(a.pd, size * messages, Access.LOCAL_WRITE, bytearray(rng.randbytes(size * messages)))
            incoming = MR(b.pd, size * messages, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
            self._transfers.append((a, qp, outgoing, incoming, f"{a.name} -> {b.name}"))

    def _host(self, node: NicNode) -> _Host:
        if node.nic.name not in self._hosts:
            self._hosts[node.nic.name] = _Host(node, self._on_completion)
        return self._hosts[node.nic.name]

    @property
    def done(self) -> bool:
        return self._left == 0 or bool(self.errors)

    def start(self) -> None:
        """Post everything."""
        for _, qp, outgoing, incoming, _ in self._transfers:
            for index in range(self._messages):
                offset = index * self._size
                qp.post_send(
                    SendWR(
                        wr_id=index,
                        opcode=WROpcode.RDMA_WRITE,
                        sg=[SGE(outgoing.addr + offset, self._size, outgoing.lkey)],
                        remote_addr=incoming.addr + offset,
                        rkey=incoming.rkey,
                    )
                )

    def _on_completion(self, host: _Host, completion: WC) -> None:
        self._left -= 1
        self.finished_at = host.node.now
        if completion.status is not WCStatus.SUCCESS:
            self.errors.append(f"{host.name}: QP {completion.qp_num}: {completion.status.name}")

    def verify(self) -> list[str]:
        return [
            f"{name}: the target's memory differs from the source's"
            for _, _, outgoing, incoming, name in self._transfers
            if outgoing.buf != incoming.buf
        ]
