"""Two NICs back to back, without switches: every plane is a wire whose behaviour a test decides per packet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from nic_model.congestion import FixedWindow
from nic_model.ev import EvProfile
from nic_model.events import Event, EvEvent
from nic_model.nic import Nic
from nic_model.packet import Frame, Wire
from nic_model.paths import LocalNic, LocalPort, Mode, PathFile, Template, UsidKind, usid
from nic_model.verbs import CQ, MR, PD, QP, SGE, WC, Access, Context, QPAttr, QPInitAttr, RecvWR, SendWR, WROpcode

PLANES = 4
UPLINKS = 8
BLOCK = bytes.fromhex("fcbbbbbb")
SERIALISE = 341
"""ns between two packets on one port: 4262 bytes at 100 Gb/s."""

Verdict = Callable[[int, int, Frame, int], "int | tuple[int, Frame] | None"]
"""(sender 0 or 1, plane, frame, now) -> delay in ns, with another frame if it changes; None: it is lost."""


def constant_delay(ns: int) -> Verdict:
    def verdict(_sender: int, _plane: int, _frame: Frame, _now: int) -> int:
        return ns

    return verdict


def _prefix(row: int) -> bytes:
    return bytes.fromhex("fd006d726300") + row.to_bytes(2, "big")


def path_file(row: int, mode: Mode = "srv6") -> PathFile:
    """Row `row` of a fabric of two rows with one NIC each."""
    t0 = [usid(UsidKind.T0, 0, index) for index in (0, 1)]
    nic = usid(UsidKind.NIC, 0, 0)
    ports = tuple(
        LocalPort(
            plane,
            _prefix(row) + plane.to_bytes(2, "big") + bytes(6),
            bytes([2, 1, 0, row, plane, 0]),
            bytes([2, 0, 0, row, plane, 0]),
            usid(UsidKind.NIC, plane, 0),
        )
        for plane in range(PLANES)
    )
    templates = tuple(
        Template(to, _prefix(to), BLOCK, (t0[row], nic), PLANES, 0)
        if to == row
        else Template(to, _prefix(to), BLOCK, (t0[row], usid(UsidKind.T1, 0, 0), t0[to], nic), PLANES, UPLINKS)
        for to in (0, 1)
    )
    return PathFile(row, BLOCK, PLANES, UPLINKS, (LocalNic(f"nic{row}", 0, ports),), templates, mode)


class Side:
    """One NIC with an application that only collects completions."""

    def __init__(
        self, row: int, seed: int, window: int, profile: EvProfile, mode: Mode, wire: Wire | None, remap_delay: int
    ) -> None:
        self.log: list[Event] = []
        self.nic = Nic(
            path_file(row, mode),
            f"nic{row}",
            rng=random.Random(seed + row),
            congestion=lambda _: FixedWindow(window),
            ev_profiles={0: profile},
            log=self.log.append,
            log_windows=True,
            wire=wire,
            remap_delay=remap_delay,
        )
        self.context = Context(self.nic)
        self.pd = PD(self.context)
        self.cq = CQ(self.context)
        self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq))

    @property
    def events(self) -> list[EvEvent]:
        """The transitions of EVs."""
        return [event for event in self.log if isinstance(event, EvEvent)]

    def completions(self) -> list[WC]:
        return self.cq.poll(1 << 30)[1]


class BackToBack:
    """The two of them, connected, and the virtual time between them."""

    def __init__(
        self,
        verdict: Verdict,
        *,
        seed: int = 1,
        window: int = 400_000,
        profile: EvProfile | None = None,
        sq_psn: int = 0xFFFFF0,  # wraps soon
        mode: Mode = "srv6",
        wire: Wire | None = None,
        remap_delay: int = 0,
        **attr: Any,
    ) -> None:
        profile = EvProfile(16, 8) if profile is None else profile
        self.now = 0
        self.verdict = verdict
        self.wire_log: list[tuple[int, int, int, Frame]] = []
        """(now, sender, plane, frame) of everything that was sent."""
        settings = (seed, window, profile, mode, wire, remap_delay)
        self.sides = (Side(0, *settings), Side(1, *settings))
        self._heap: list[tuple[int, int, int, int, Frame | None]] = []
        self._count = 0
        self._waking = [[0] * PLANES, [0] * PLANES]
        self._timers: list[int | None] = [None, None]
        self._free_at = [[0] * PLANES, [0] * PLANES]
        for mine, other in (self.sides, self.sides[::-1]):
            step = QPAttr(
                dest_qp_num=other.qp.qp_num,
                dgid=other.nic.ports[0].address,
                rq_psn=sq_psn,
                sq_psn=sq_psn,
                **attr,
            )
            mine.qp.to_init(step)
            mine.qp.to_rtr(step)
            mine.qp.to_rts(step)

    def region(self, side: int, length: int, access: Access = Access.LOCAL_WRITE | Access.REMOTE_WRITE) -> MR:
        return MR(self.sides[side].pd, length, access)

    def write(
        self,
        source: MR,
        target: MR,
        *,
        wr_id: int = 0,
        side: int = 0,
        offset: int = 0,
        length: int | None = None,
        imm: int | None = None,
        shift: int = 0,
    ) -> None:
        """Post a WRITE; `shift` moves it off the place in the target that the source's offset says."""
        length = source.length if length is None else length
        opcode = WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM
        sge = SGE(source.addr + offset, length, source.lkey)
        self.sides[side].qp.post_send(SendWR(wr_id, opcode, [sge], target.addr + offset + shift, target.rkey, imm or 0))

    def post_receives(self, side: int, count: int) -> None:
        for wr_id in range(count):
            self.sides[side].qp.post_recv(RecvWR(wr_id))

    def run(self, until: int = 1_000_000_000) -> None:
        """Until nothing happens any more, or `until` ns."""
        self._attend()
        while self._heap and self._heap[0][0] <= until:
            self.now, _, side, plane, frame = heappop(self._heap)
            nic = self.sides[side].nic
            if frame is None:
                nic.poll(self.now)
            elif nic.ports[plane].up:
                nic.receive(plane, _route(frame, nic.ports[plane].mac), self.now)
            self._attend()

    def arrive(self, delay: int, sender: int, plane: int, frame: Frame) -> None:
        """A frame of `sender` comes out of the wire `delay` ns from now, besides what the verdict says: a copy."""
        self._at(self.now + delay, 1 - sender, plane, frame)

    def _attend(self) -> None:
        for sender, side in enumerate(self.sides):
            for plane, frame in self._pull(side.nic, sender):
                self.wire_log.append((self.now, sender, plane, frame))
                outcome = self.verdict(sender, plane, frame, self.now)
                if outcome is not None:
                    delay, arriving = outcome if isinstance(outcome, tuple) else (outcome, frame)
                    self._at(self._free_at[sender][plane] + delay, 1 - sender, plane, arriving)
            deadline = side.nic.next_deadline()
            if deadline is not None and deadline != self._timers[sender]:
                self._timers[sender] = deadline
                self._at(deadline, sender, 0, None)

    def _pull(self, nic: Nic, sender: int) -> Iterator[tuple[int, Frame]]:
        sending = True
        while sending:
            sending = False
            for plane in range(PLANES):
                free_at = self._free_at[sender]
                if not nic.ready >> plane & 1:
                    continue
                if free_at[plane] > self.now:
                    if self._waking[sender][plane] != free_at[plane]:
                        self._waking[sender][plane] = free_at[plane]
                        self._at(free_at[plane], sender, plane, None)
                elif (frame := nic.pull(plane, self.now)) is not None:
                    free_at[plane] = self.now + SERIALISE
                    sending = True
                    yield plane, frame

    def _at(self, time: int, side: int, plane: int, frame: Frame | None) -> None:
        self._count += 1
        heappush(self._heap, (time, self._count, side, plane, frame))


def _route(frame: Frame, mac: bytes) -> Frame:
    """What the last switch would do: the frame is now for the NIC's own MAC."""
    return mac + frame[0][6:], frame[1]
