"""Priority-based flow control of the data class (IEEE 802.1Qbb): its frames, its thresholds, and who obeys them.

A switch books every data frame to the port that it came in through, from its arrival until it leaves. When a port's
share passes XOFF the neighbour there is stopped by a PFC frame, and when it has fallen to XON another one lets it go
on; between the two the headroom takes what was under way. The frames are real: they take their time on the wire, are
lost with it, and are in the capture. Every other class has a higher priority and is never stopped.

What stands for hardware here: a MAC obeys a PFC frame as soon as it has arrived, and sends one as soon as the frame
that it is sending has left. Buffers are the ports' own, not shared; thresholds do not move.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from controller.plan import DATA_QUEUE
from controller.topology import Role
from controller.topology_file import PfcModel
from fabric.events import EventList
from fabric.links import FULL_FRAME, MIN_FRAME, WIRE_OVERHEAD, Frame, Wire
from fabric.nodes import NicNode, SwitchNode
from nic_model.roce import RoceNic
from switch_model.device import Device, Pipeline

PFC_ADDRESS = bytes.fromhex("0180c2000001")
"""Where MAC control frames go (IEEE 802.3 31B): to the MAC at the other end, no further."""
_MAC_CONTROL = bytes.fromhex("8808")
_PFC_OPCODE = bytes.fromhex("0101")
_ENABLE_VECTOR_END = 18  # Ethernet 14, opcode 2, priority_enable_vector 2 bytes; then eight times of 2
_PRIORITY = DATA_QUEUE
QUANTUM = 512
"""Bits in one quantum of pause time."""

HEADROOM_FULL = "headroom_full"
"""Why a switch drops a data frame that comes in though its port's buffer is full: the headroom is too small."""

_TRAFFIC_CLASS_AT = 14  # behind the Ethernet header: version 4 bits, traffic class 8 bits (its first 6 are the DSCP)


def pfc_frame(source: bytes, quanta: int) -> Frame:
    """A PFC frame that stops the data class for so many quanta, 0..65535; 0 lets it go on."""
    times = b"".join((quanta if priority == _PRIORITY else 0).to_bytes(2, "big") for priority in range(8))
    enabled = (1 << _PRIORITY).to_bytes(2, "big")
    frame = PFC_ADDRESS + source + _MAC_CONTROL + _PFC_OPCODE + enabled + times
    return frame.ljust(MIN_FRAME, b"\0"), b""


def quanta_of(frame: Frame) -> int | None:
    """For how many quanta a frame stops the data class; None if it says nothing of it."""
    head = frame[0]
    if head[12:16] != _MAC_CONTROL + _PFC_OPCODE or not head[_ENABLE_VECTOR_END - 1] >> _PRIORITY & 1:
        return None
    at = _ENABLE_VECTOR_END + 2 * _PRIORITY
    return int.from_bytes(head[at : at + 2], "big")


def pause_time(quanta: int, rate: float) -> int:
    """ns that so many quanta take at `rate` Gb/s."""
    return round(quanta * QUANTUM / rate)


def headroom(rate: float, delay: int) -> int:
    """Bytes that may still come in over a link after its port has passed XOFF.

    The port first ends the frame that it is sending, the PFC frame follows and travels to the neighbour, which ends a
    frame too, and all that was on the way arrives (IEEE 802.1Qbb, annex O, without the delays of interfaces).
    """
    return ceil(2 * FULL_FRAME + MIN_FRAME + WIRE_OVERHEAD + 2 * delay * rate / 8)


@dataclass(frozen=True, slots=True)
class PfcLimits:
    """Of one port: bytes, the quanta that one PFC frame stops the neighbour for, and the rate of its link in Gb/s."""

    xoff: int
    xon: int
    capacity: int
    quanta: int
    rate: float

    @classmethod
    def of(cls, pfc: PfcModel, rate: float, delay: int) -> PfcLimits:
        """At a link of `rate` Gb/s and `delay` ns."""
        room = headroom(rate, delay) if pfc.headroom_bytes is None else pfc.headroom_bytes
        return cls(pfc.xoff_bytes, pfc.xon_bytes, pfc.xoff_bytes + room, pfc.pause_quanta, rate)


class PauseTimer:
    """Until when a port may send no data, and for how long it was stopped so far, ns."""

    __slots__ = ("_since", "_total", "until")

    def __init__(self) -> None:
        self.until = 0
        self._since = 0
        self._total = 0

    def set(self, until: int, now: int) -> None:
        """A PFC frame says so, in place of what the one before said."""
        self._total = self.stopped(now)
        self._since = now
        self.until = until

    def stopped(self, now: int) -> int:
        """How long it was stopped, all in all."""
        return self._total + max(0, min(self.until, now) - self._since)


@dataclass(slots=True)
class IngressBuffer:
    """What a switch holds of one port's data, in bytes, and the most that it ever held.

    `on_threshold` is told that it is too much (True), or no longer.
    """

    limits: PfcLimits
    on_threshold: Callable[[bool], None]
    held: int = 0
    peak: int = 0
    stopping: bool = False

    def has_room(self, size: int) -> bool:
        """Is there room for a frame of `size` bytes?"""
        return self.held + size <= self.limits.capacity

    def take(self, size: int) -> None:
        """A frame came in."""
        self.held += size
        self.peak = max(self.peak, self.held)
        if not self.stopping and self.held > self.limits.xoff:
            self.stopping = True
            self.on_threshold(True)

    def give(self, size: int) -> None:
        """A frame leaves."""
        self.held -= size
        if self.stopping and self.held <= self.limits.xon:
            self.stopping = False
            self.on_threshold(False)


class LosslessDevice(Device):
    """An embedded switch whose traffic manager knows which port each data frame came in through, and does not serve the
    data queue of a port that is stopped. `buffers` and `timers` are by port."""

    def __init__(self, device_id: int, *, name: str, cpu_port: int, seed: int) -> None:
        super().__init__(device_id, name=name, cpu_port=cpu_port, seed=seed)
        self.buffers: dict[int, IngressBuffer] = {}
        self.timers: defaultdict[int, PauseTimer] = defaultdict(PauseTimer)
        self._booked: defaultdict[int, deque[tuple[IngressBuffer, int]]] = defaultdict(deque)  # by egress port

    def commit(self, pipeline: Pipeline) -> None:
        """See Device: the queues are emptied."""
        for booked in self._booked.values():
            while booked:
                self._give(booked)
        super().commit(pipeline)

    def ingress(self, port: int, frame: Frame, now: int) -> int:
        """See Device."""
        out = super().ingress(port, frame, now)
        if out >= 0 and port in self.buffers:
            booked = self._booked[out]
            if self._traffic.depth(out, DATA_QUEUE) > len(booked):  # this is where the program has put the frame
                size = len(frame[0]) + len(frame[1])
                booked.append((self.buffers[port], size))
                self.buffers[port].take(size)
        return out

    def dequeue(self, port: int, now: int, closed: int = 0) -> Frame | None:
        """See Device; None as well when all that waits is data, and data may not leave."""
        booked = self._booked[port]
        if len(booked) < self.depth(port):
            return super().dequeue(port, now, closed)  # of a higher priority
        if not booked or self.timers[port].until > now:
            return None
        frame = super().dequeue(port, now, closed)
        self._give(booked)
        return frame

    def holds_back(self, port: int, now: int) -> bool:
        """Does data wait for the port, which is stopped, and nothing else?"""
        return self.timers[port].until > now and 0 < len(self._booked[port]) == self.depth(port)

    @staticmethod
    def _give(booked: deque[tuple[IngressBuffer, int]]) -> None:
        buffer, size = booked.popleft()
        buffer.give(size)


@dataclass(slots=True)
class PfcCounts:
    """PFC of a switch: how often it stopped a neighbour, the PFC frames that it sent and that arrived here, how long
    its own ports were stopped, ns, all together, and the most bytes that it held of one port."""

    pauses: int = 0
    frames_sent: int = 0
    frames_taken: int = 0
    stopped: int = 0
    peak_bytes: int = 0

    def add(self, other: PfcCounts) -> None:
        """Count what another switch has counted."""
        self.pauses += other.pauses
        self.frames_sent += other.frames_sent
        self.frames_taken += other.frames_taken
        self.stopped += other.stopped
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)


@dataclass(slots=True)
class _Line:
    """One port: its limits, what its MAC has to send, and how often it has changed its mind about the neighbour."""

    limits: PfcLimits
    due: Frame | None = None
    pause_number: int = 0


class LosslessSwitchNode(SwitchNode):
    """A switch with PFC at all its ports. `mac` is its address, `other_dscps` those that are not of the data class."""

    device: LosslessDevice

    def __init__(
        self,
        boot: Callable[[], LosslessDevice],
        role: Role,
        plane: int,
        events: EventList,
        pfc: PfcModel,
        mac: bytes,
        other_dscps: frozenset[int],
    ) -> None:
        super().__init__(boot, role, plane, events)
        self._pfc = pfc
        self._mac = mac
        self._other_dscps = other_dscps
        self._lines: dict[int, _Line] = {}
        self._counts = PfcCounts()

    def connect(self, port: int, wire: Wire) -> None:
        """See SwitchNode."""
        super().connect(port, wire)
        self._lines[port] = _Line(PfcLimits.of(self._pfc, wire.rate, wire.delay))
        self._fit(port)

    def _fit(self, port: int) -> None:
        limits = self._lines[port].limits
        self.device.buffers[port] = IngressBuffer(limits, lambda stop: self._on_threshold(port, stop))

    # ---- being stopped -------------------------------------------------------------------------------

    def arrive(self, port: int, frame: Frame) -> None:
        """See SwitchNode. A PFC frame is for the MAC."""
        quanta = quanta_of(frame)
        if quanta is not None:
            self._counts.frames_taken += 1
            self._obey(port, quanta)
        elif self._has_room(port, frame):
            super().arrive(port, frame)
        else:
            self._earlier.drops[HEADROOM_FULL] += 1

    def _has_room(self, port: int, frame: Frame) -> bool:
        head = frame[0]
        dscp = (head[_TRAFFIC_CLASS_AT] << 2 | head[_TRAFFIC_CLASS_AT + 1] >> 6) & 0x3F
        return dscp in self._other_dscps or self.device.buffers[port].has_room(len(head) + len(frame[1]))

    def _obey(self, port: int, quanta: int) -> None:
        now = self._events.now
        until = now + pause_time(quanta, self._lines[port].limits.rate)
        self.device.timers[port].set(until, now)
        self._events.at(until, self._drains[port])

    def _drain(self, port: int, wire: Wire) -> None:
        line, now = self._lines[port], self._events.now
        if line.due is not None:
            if wire.free_at <= now:
                wire.send(line.due)
                line.due = None
                self._counts.frames_sent += 1
            else:
                wire.when_free(self._drains[port])
        if self.device.holds_back(port, now):
            self.peak_depth = max(self.peak_depth, self.device.depth(port))
        else:
            super()._drain(port, wire)

    def port_status(self, port: int, up: bool) -> None:
        """A link went down: both its MACs begin anew. Or it came up, and the neighbour may have to be stopped again."""
        line = self._lines[port]
        if not up:
            line.due = None
            line.pause_number += 1
            self._obey(port, 0)
        elif self.device.buffers[port].stopping:
            self._stop(port)

    # ---- stopping others -----------------------------------------------------------------------------

    def _on_threshold(self, port: int, stop: bool) -> None:
        if stop:
            self._counts.pauses += 1
            self._stop(port)
        else:
            self._lines[port].pause_number += 1
            self._send(port, 0)

    def _stop(self, port: int) -> None:
        line = self._lines[port]
        line.pause_number += 1
        self._repeat(port, line.pause_number)

    def _repeat(self, port: int, pause_number: int) -> None:
        """Stop the neighbour; once more before its pause ends, unless it was let go on meanwhile."""
        line = self._lines[port]
        if pause_number == line.pause_number:
            self._send(port, line.limits.quanta)
            half = max(1, pause_time(line.limits.quanta, line.limits.rate) // 2)
            self._events.at(self._events.now + half, self._repeat, port, pause_number)

    def _send(self, port: int, quanta: int) -> None:
        self._lines[port].due = pfc_frame(self._mac, quanta)
        self._events.at(self._events.now, self._drains[port])

    # ---- the rest ------------------------------------------------------------------------------------

    def power_off(self) -> None:
        """See SwitchNode."""
        self._counts = self.pfc_counts()
        super().power_off()
        for port in self._lines:
            self._fit(port)

    def pfc_counts(self) -> PfcCounts:
        """Everything since the run began."""
        now, earlier = self._events.now, self._counts
        stopped = sum(timer.stopped(now) for timer in self.device.timers.values())
        peak = max((buffer.peak for buffer in self.device.buffers.values()), default=0)
        return replace(earlier, stopped=earlier.stopped + stopped, peak_bytes=max(earlier.peak_bytes, peak))

    def held(self) -> int:
        """Bytes of data in all buffers."""
        return sum(buffer.held for buffer in self.device.buffers.values())


class LosslessNicNode(NicNode):
    """A NIC whose ports obey PFC frames."""

    def __init__(self, nic: RoceNic, events: EventList) -> None:
        super().__init__(nic, events)
        self.frames_taken = [0 for _ in nic.ports]
        """PFC frames that arrived, by port."""
        self._roce = nic
        self._timers = [PauseTimer() for _ in nic.ports]

    def arrive(self, plane: int, frame: Frame) -> None:
        """See NicNode. A PFC frame is for the MAC."""
        quanta = quanta_of(frame)
        if quanta is None:
            super().arrive(plane, frame)
            return
        if self.tap is not None:
            self.tap(plane, False, frame)
        self.frames_taken[plane] += 1
        self._pause(plane, self.now + pause_time(quanta, self._wires[plane].rate))
        self.attend()

    def port_status(self, plane: int, up: bool) -> None:
        """See NicNode. A MAC whose link goes down begins anew."""
        if not up:
            self._pause(plane, self.now)
        super().port_status(plane, up)

    def _pause(self, plane: int, until: int) -> None:
        self._timers[plane].set(until, self.now)
        self._roce.pause(plane, until, self.now)

    def stopped(self, plane: int) -> int:
        """How long a port was stopped, ns."""
        return self._timers[plane].stopped(self.now)
