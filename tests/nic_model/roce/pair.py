"""Two RoCE NICs back to back: every plane is a wire of RATE whose behaviour a test decides per packet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

from nic_model.packet import Frame
from nic_model.paths import PathFile
from nic_model.roce import RoceNic, RoceQueuePair, RoceSettings
from nic_model.roce.packet import Packet, parse
from nic_model.verbs import CQ, MR, PD, QP, SGE, WC, Access, Context, QPAttr, QPInitAttr, RecvWR, SendWR, WROpcode
from tests.nic_model.back_to_back import Verdict, path_file

RATE = 100
"""Gb/s of each plane."""
DELAY = 2000
"""ns from the last bit sent to the last bit received."""
WINDOW = 32 * 4096
"""Bytes outstanding."""

NO_RATE_CONTROL = RoceSettings(dcqcn=None, max_outstanding=WINDOW)


def planes_of(row: int, planes: int) -> PathFile:
    """The path file of `back_to_back` with so many planes."""
    paths = path_file(row)
    (nic,) = paths.nics
    templates = tuple(replace(template, planes=planes) for template in paths.templates)
    return replace(paths, planes=planes, nics=(replace(nic, ports=nic.ports[:planes]),), templates=templates)


class Side:
    """One NIC with an application that only collects completions."""

    def __init__(self, row: int, seed: int, planes: int, settings: RoceSettings) -> None:
        self.nic = RoceNic(planes_of(row, planes), f"nic{row}", rng=random.Random(seed + row), settings=settings)
        self.pd = PD(Context(self.nic))
        self.cq = CQ(self.pd.context)

    def queue_pair(self) -> QP:
        return QP(self.pd, QPInitAttr(self.cq, self.cq))

    @property
    def core(self) -> RoceQueuePair:
        """The first QP."""
        return self.nic.queue_pairs()[0]

    def completions(self) -> list[WC]:
        return self.cq.poll(1 << 30)[1]

    def region(self, length: int, access: Access = Access.LOCAL_WRITE | Access.REMOTE_WRITE) -> MR:
        return MR(self.pd, length, access)


class Wires:
    """The two NICs and the virtual time between them, without QPs."""

    def __init__(
        self, verdict: Verdict, *, seed: int = 1, planes: int = 1, settings: RoceSettings = NO_RATE_CONTROL
    ) -> None:
        self.now = 0
        self.verdict = verdict
        self.log: list[tuple[int, int, int, Packet]] = []
        """(now, sender, plane, packet) of everything that was sent."""
        self.sides = (Side(0, seed, planes, settings), Side(1, seed, planes, settings))
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._free_at = {(side, plane): 0 for side in (0, 1) for plane in range(planes)}

    def sent(self, sender: int = 0) -> list[Packet]:
        return [packet for _, side, _, packet in self.log if side == sender]

    def at(self, time: int, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, action))

    def run(self, until: int = 1_000_000_000) -> None:
        """Until nothing happens any more, or `until` ns."""
        self._attend()
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heappop(self._events)
            action()
            self._attend()

    def _attend(self) -> None:
        for sender, side in enumerate(self.sides):
            for plane, frame in self._pull(side.nic, sender):
                self._send(sender, plane, frame)
            deadline = side.nic.next_deadline()
            if deadline is not None:
                nic = side.nic
                self.at(max(deadline, self.now), lambda nic=nic: nic.poll(self.now))  # type: ignore[misc]

    def _pull(self, nic: RoceNic, sender: int) -> Iterator[tuple[int, Frame]]:
        for plane in range(len(nic.ports)):
            while nic.ready >> plane & 1 and self._free_at[sender, plane] <= self.now:
                frame = nic.pull(plane, self.now)
                if frame is None:
                    break
                yield plane, frame

    def _send(self, sender: int, plane: int, frame: Frame) -> None:
        self.log.append((self.now, sender, plane, parse(frame)))
        free_at = self.now + round((len(frame[0]) + len(frame[1]) + 24) * 8 / RATE)
        self._free_at[sender, plane] = free_at
        self.at(free_at, lambda: None)
        outcome = self.verdict(sender, plane, frame, self.now)
        if outcome is None:
            return
        delay, arriving = outcome if isinstance(outcome, tuple) else (outcome, frame)
        nic = self.sides[1 - sender].nic
        last_hop = nic.ports[plane].mac + arriving[0][6:], arriving[1]
        self.at(free_at + delay, lambda: nic.receive(plane, last_hop, self.now))


class Pair(Wires):
    """One QP at each side, connected in plane 0."""

    def __init__(
        self,
        verdict: Verdict,
        *,
        seed: int = 1,
        planes: int = 1,
        settings: RoceSettings = NO_RATE_CONTROL,
        sq_psn: int = 0xFFFFF0,  # wraps soon
        **attr: Any,
    ) -> None:
        super().__init__(verdict, seed=seed, planes=planes, settings=settings)
        self.qps = tuple(side.queue_pair() for side in self.sides)
        for mine, theirs in ((0, 1), (1, 0)):
            step = QPAttr(
                dest_qp_num=self.qps[theirs].qp_num,
                dgid=self.sides[theirs].nic.ports[0].address,
                rq_psn=sq_psn,
                sq_psn=sq_psn,
                **attr,
            )
            self.qps[mine].to_init(step)
            self.qps[mine].to_rtr(step)
            self.qps[mine].to_rts(step)

    def regions(self, length: int, seed: int = 7) -> tuple[MR, MR]:
        """A source with random bytes at side 0, and a target at side 1."""
        source, target = self.sides[0].region(length), self.sides[1].region(length)
        source.write(random.Random(seed).randbytes(length))
        return source, target

    def write(
        self,
        source: MR,
        target: MR,
        *,
        wr_id: int = 0,
        offset: int = 0,
        length: int | None = None,
        imm: int | None = None,
        shift: int = 0,
    ) -> None:
        """Post a WRITE; `shift` moves it off the place in the target that the source's offset says."""
        self.qps[0].post_send(write_wr(source, target, wr_id=wr_id, offset=offset, length=length, imm=imm, shift=shift))

    def post_receives(self, count: int) -> None:
        for wr_id in range(count):
            self.qps[1].post_recv(RecvWR(wr_id))


def write_wr(
    source: MR,
    target: MR,
    *,
    wr_id: int = 0,
    offset: int = 0,
    length: int | None = None,
    imm: int | None = None,
    shift: int = 0,
) -> SendWR:
    length = source.length if length is None else length
    opcode = WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM
    sge = SGE(source.addr + offset, length, source.lkey)
    return SendWR(wr_id, opcode, [sge], target.addr + offset + shift, target.rkey, imm or 0)


def deliver(_sender: int, _plane: int, _frame: Frame, _now: int) -> int:
    """Nothing goes wrong."""
    return DELAY


class Lose:
    """Loses what `which(sender, packet, now)` says; everything else takes DELAY."""

    def __init__(self, which: Callable[[int, Packet, int], bool]) -> None:
        self.which = which

    def __call__(self, sender: int, _plane: int, frame: Frame, now: int) -> int | None:
        return None if self.which(sender, parse(frame), now) else DELAY


def marked(frame: Frame) -> Frame:
    """The frame as a congested switch passes it on: ECN-CE."""
    head = bytearray(frame[0])
    head[15] |= 0x30
    return bytes(head), frame[1]
