"""What the NICs are given to do, through their verbs, and whether the bytes came out right."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fabric.host import Host, connect
from nic_model.verbs import MR, SGE, WC, Access, QPAttr, RecvWR, SendWR, WCOpcode, WCStatus, WROpcode


@dataclass(frozen=True, slots=True)
class Transfer:
    """Messages from one NIC's memory to another's, of `size` bytes each. `is_victim`: of the incast beside it."""

    source: str
    target: str
    size: int
    messages: int = 1
    is_victim: bool = False

    @property
    def bytes(self) -> int:
        """In all messages."""
        return self.size * self.messages


class Workload(ABC):
    """Started once, then driven by completions until `done`."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        """Payload bytes that the fabric has to deliver."""
        self.errors: list[str] = []
        """Completions that say that they failed, in the order they came."""
        self.started_at = 0
        self.finished_at = 0
        """When the first work was posted and when the newest completion came, ns of virtual time."""
        self._left = 0
        self._on_done: Callable[[], None] = lambda: None

    @property
    def done(self) -> bool:
        """All completions have come, or one says that it failed."""
        return self._left == 0 or bool(self.errors)

    def start(self, now: int, on_done: Callable[[], None]) -> None:
        """Connect and post the first work requests; `on_done` is called once, when the work is done."""
        self.started_at = now
        self._on_done = on_done
        self._left = self._post()

    @abstractmethod
    def _post(self) -> int:
        """Begin; returns how many completions there will be."""

    @abstractmethod
    def verify(self) -> list[str]:
        """Compare all memory with what it should be; one line for each difference."""

    def flows(self) -> list[tuple[Transfer, int]]:
        """The separate transfers, with the time at which each was done, ns."""
        return []

    def _completed(self, host: Host, completion: WC) -> bool:
        """Book a completion; False if it failed."""
        was_done = self.done
        self._left -= 1
        self.finished_at = host.now
        failed = completion.status is not WCStatus.SUCCESS
        if failed:
            self.errors.append(f"{host.name}: QP {completion.qp_num}: {completion.status.name}")
        if self.done and not was_done:
            self._on_done()
        return not failed


class RingAllReduceWorkload(Workload):
    """Sum a float32 vector over all NICs: N-1 steps of reduce-scatter, N-1 of all-gather.

    In each step every NIC writes one chunk to its right neighbour, the step's number as the immediate; the
    immediate's completion starts the next step. The addends are whole numbers small enough that float32 sums
    are exact, so that the result must equal NumPy's to the bit, in whatever order it was added.
    """

    def __init__(self, hosts: Sequence[Host], size: int, attr: QPAttr, rng: random.Random) -> None:
        count = len(hosts)
        if count < 2:
            raise ValueError("an all-reduce needs at least 2 NICs")
        words = size // 4
        super().__init__(4 * words * 2 * (count - 1))
        self._n = count
        self._attr = attr
        self._rng = rng
        self._bounds = [words * index // count for index in range(count + 1)]
        generator = np.random.default_rng(rng.getrandbits(64))
        inputs = generator.integers(-1000, 1001, size=(count, words)).astype(np.float32)
        self._expected: NDArray[np.float32] = inputs.sum(axis=0)
        self.members = [_RingMember(self, position, host, inputs[position]) for position, host in enumerate(hosts)]

    def _post(self) -> int:
        for member in self.members:
            member.join(self.members[(member.position + 1) % self._n], self._attr, self._rng)
        for member in self.members:
            member.send(0)
        return 2 * self._n * 2 * (self._n - 1)  # send and receive completions

    def step_received(self, step: int) -> int:
        """Where to go after step `step`: the next one, or -1 after the last."""
        return step + 1 if step + 1 < 2 * (self._n - 1) else -1

    def is_reducing(self, step: int) -> bool:
        """Does this step belong to the reduce-scatter half?"""
        return step < self._n - 1

    def chunk_sent(self, position: int, step: int) -> slice:
        """The words that the NIC at `position` sends in `step`."""
        index = (position - step) % self._n
        return slice(self._bounds[index], self._bounds[index + 1])

    def chunk_received(self, position: int, step: int) -> slice:
        """What its left neighbour sends it."""
        return self.chunk_sent(position - 1, step)

    def verify(self) -> list[str]:
        wrong = []
        for member in self.members:
            differing = int(np.count_nonzero(member.vector != self._expected))
            if differing:
                wrong.append(f"{member.host.name}: {differing} of {len(self._expected)} sums are wrong")
        return wrong

    def completed(self, host: Host, completion: WC) -> bool:
        """Book a member's completion; False if it failed."""
        return self._completed(host, completion)


class _RingMember:
    """One NIC of the ring: its vector, and a landing place for every chunk that is still to be added."""

    def __init__(self, ring: RingAllReduceWorkload, position: int, host: Host, vector: NDArray[np.float32]) -> None:
        self.ring = ring
        self.position = position
        self.host = host
        self.vector = vector
        access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        self._landing = np.zeros_like(vector)
        self._vector_mr = MR(host.pd, vector.nbytes, access, vector.data)
        self._landing_mr = MR(host.pd, vector.nbytes, access, self._landing.data)

    def join(self, right: _RingMember, attr: QPAttr, rng: random.Random) -> None:
        """Connect to the right neighbour and give it room for all immediates."""
        self._right = right
        self._to_right, from_left = connect(self.host, right.host, attr, rng, self._on_completion, right._on_completion)
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

    def _on_completion(self, completion: WC) -> None:
        if not self.ring.completed(self.host, completion) or completion.opcode is not WCOpcode.RECV_RDMA_WITH_IMM:
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


class TransfersWorkload(Workload):
    """Transfers of random bytes, all at once; in each, one message behind the other."""

    def __init__(self, hosts: dict[str, Host], transfers: Sequence[Transfer], attr: QPAttr, rng: random.Random) -> None:
        super().__init__(sum(transfer.bytes for transfer in transfers))
        self._attr = attr
        self._rng = rng
        self._flows = [_Flow(hosts[transfer.source], hosts[transfer.target], transfer, rng) for transfer in transfers]

    def _post(self) -> int:
        for flow in self._flows:
            flow.post(self._attr, self._rng, partial(self._on_completion, flow))
        return sum(flow.transfer.messages for flow in self._flows)

    def _on_completion(self, flow: _Flow, completion: WC) -> None:
        flow.finished_at = flow.source.now
        self._completed(flow.source, completion)

    def verify(self) -> list[str]:
        return [
            f"{flow.transfer.source} -> {flow.transfer.target}: the target's memory differs from the source's"
            for flow in self._flows
            if flow.outgoing.buf != flow.incoming.buf
        ]

    def flows(self) -> list[tuple[Transfer, int]]:
        return [(flow.transfer, flow.finished_at) for flow in self._flows]


class _Flow:
    """One transfer under way: the memory at its two ends."""

    def __init__(self, source: Host, target: Host, transfer: Transfer, rng: random.Random) -> None:
        self.source = source
        self.target = target
        self.transfer = transfer
        self.finished_at = 0
        self.outgoing = MR(source.pd, transfer.bytes, Access.LOCAL_WRITE, bytearray(rng.randbytes(transfer.bytes)))
        self.incoming = MR(target.pd, transfer.bytes, Access.LOCAL_WRITE | Access.REMOTE_WRITE)

    def post(self, attr: QPAttr, rng: random.Random, on_completion: Callable[[WC], None]) -> None:
        """Connect and post all messages. The target gets no completions: it has posted nothing."""
        qp, _ = connect(self.source, self.target, attr, rng, on_completion, on_completion)
        for index in range(self.transfer.messages):
            offset = index * self.transfer.size
            qp.post_send(
                SendWR(
                    wr_id=index,
                    opcode=WROpcode.RDMA_WRITE,
                    sg=[SGE(self.outgoing.addr + offset, self.transfer.size, self.outgoing.lkey)],
                    remote_addr=self.incoming.addr + offset,
                    rkey=self.incoming.rkey,
                )
            )
