"""Switches and NICs at their places in the fabric: what moves frames between them and their wires."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from controller.drop_reasons import DROP_REASONS
from controller.topology import Role
from fabric.events import EventList
from fabric.links import Frame, Wire
from nic_model.device import Device as NicDevice
from switch_model.device import Device

CPU_PORT = 510
"""As p4src/headers.p4 has it."""

BLACK_HOLE = "black_hole"
POWERED_OFF = "powered_off"
NO_PIPELINE = "no_pipeline"
UNCONNECTED_PORT = "unconnected_port"
"""Why a frame is lost in a switch, beside the reasons of its program."""


@dataclass(slots=True)
class SwitchCounts:
    """Packets of a switch: dropped, by reason, trimmed, and marked CE."""

    drops: Counter[str] = field(default_factory=Counter)
    trims: int = 0
    marks: int = 0

    def add(self, other: SwitchCounts) -> None:
        """Count what another switch, or another life of this one, has counted."""
        self.drops += other.drops
        self.trims += other.trims
        self.marks += other.marks


class SwitchNode:
    """An embedded P4 device with its wires, by port number. `boot` makes the device, without pipeline and state."""

    def __init__(self, boot: Callable[[], Device], role: Role, plane: int, events: EventList) -> None:
        self.device = boot()
        self.role = role
        self.plane = plane
        self.peak_depth = 0
        """The most packets that waited for one port since somebody set this to 0."""
        self.on_packet_in: Callable[[bytes], None] | None = None
        """Called with what the program gives to the controller, its header in front. Without it that is a drop, whose
        reason the program has counted."""
        self._boot = boot
        self._events = events
        self._black_holes = 0  # faults of this kind that are there now
        self._outages = 0
        self._wires: dict[int, Wire] = {}
        self._drains: dict[int, Callable[[], None]] = {}
        self._earlier = SwitchCounts()  # what no counter of the device's present life holds

    def connect(self, port: int, wire: Wire) -> None:
        """The wire that leaves through `port`."""
        self._wires[port] = wire
        self._drains[port] = partial(self._drain, port, wire)

    def port_status(self, port: int, up: bool) -> None:
        """A link went down or came up. Routes are static and the program does not care."""

    def arrive(self, port: int, frame: Frame) -> None:
        """A frame came in through `port`."""
        if self._black_holes:
            self._earlier.drops[BLACK_HOLE] += 1
            return
        self._let_out(self.device.ingress(port, frame, self._events.now))

    def packet_out(self, frame: bytes) -> None:
        """A frame of the controller, its packet-out header in front."""
        self._let_out(self.device.packet_out((frame, b""), self._events.now))

    def _let_out(self, port: int) -> None:
        if port >= 0:
            wire = self._wires.get(port)
            if wire is not None:
                self._drain(port, wire)
            else:
                self._leave_unconnected(port)
        elif self.device.pipeline is None:
            self._earlier.drops[NO_PIPELINE] += 1

    def _leave_unconnected(self, port: int) -> None:
        frame = self.device.dequeue(port, self._events.now)
        if port != CPU_PORT:
            self._earlier.drops[UNCONNECTED_PORT] += 1
        elif frame is not None and self.on_packet_in is not None:
            self.on_packet_in(b"".join(frame))

    def _drain(self, port: int, wire: Wire) -> None:
        device, now = self.device, self._events.now
        if wire.free_at <= now:
            frame = device.dequeue(port, now)
            if frame is not None:
                wire.send(frame)
        depth = device.depth(port)
        if depth:
            if depth > self.peak_depth:
                self.peak_depth = depth
            wire.when_free(self._drains[port])

    def open_black_hole(self) -> None:
        """Swallow everything that enters, while the links stay up."""
        self._black_holes += 1

    def close_black_hole(self) -> None:
        """One cause less to swallow."""
        self._black_holes -= 1

    @property
    def powered(self) -> bool:
        """Can a controller reach it?"""
        return not self._outages

    def power_off(self) -> None:
        """Lose the queues, the pipeline and everything that was in it."""
        self._earlier.add(self._present())
        self._earlier.drops[POWERED_OFF] += self.device.occupancy()
        self.device = self._boot()
        self._outages += 1

    def power_on(self) -> None:
        """Come back empty: forwards nothing before a controller has given it a pipeline and entries."""
        self._outages -= 1

    def counts(self) -> SwitchCounts:
        """Everything since the run began."""
        total = self._present()
        total.add(self._earlier)
        return total

    def _present(self) -> SwitchCounts:
        if self.device.pipeline is None:
            return SwitchCounts()
        read = self.device.read_counter
        drops = {reason: read("drop_reasons", index)[0] for index, reason in enumerate(DROP_REASONS)}
        return SwitchCounts(
            Counter({reason: count for reason, count in drops.items() if count}),
            trims=self._sum("port_trims"),
            marks=self._sum("port_marks"),
        )

    def _sum(self, counter: str) -> int:
        return sum(self.device.read_counter(counter, port)[0] for port in self._wires)


class NicNode:
    """A NIC with one wire per port. `attend` moves what can move after anything has happened to it."""

    def __init__(self, nic: NicDevice, events: EventList) -> None:
        self.nic = nic
        self.on_attend: Callable[[], None] = lambda: None
        """The application: called first, so that what it posts can leave at once."""
        self.tap: Callable[[int, bool, Frame], None] | None = None
        """Called with (plane, is it leaving, frame) for every frame that comes in or goes out."""
        self._silent = False
        self._wires: dict[int, Wire] = {}
        self._events = events
        self._timer_at: int | None = None

    @property
    def now(self) -> int:
        """Virtual time, ns."""
        return self._events.now

    def connect(self, plane: int, wire: Wire) -> None:
        """The wire that leaves through port `plane`."""
        self._wires[plane] = wire

    def arrive(self, plane: int, frame: Frame) -> None:
        """A frame came in through port `plane`."""
        if self.tap is not None:
            self.tap(plane, False, frame)
        self.nic.receive(plane, frame, self._events.now)
        self.attend()

    def port_status(self, plane: int, up: bool) -> None:
        """The NIC sees its link go down or come up."""
        self.nic.port_status(plane, up, self._events.now)
        self.attend()

    def fall_silent(self) -> None:
        """Take what comes, send nothing more: the run is at its end."""
        self._silent = True

    def attend(self) -> None:
        """Let the application run, fill the free wires, set the timer."""
        if self._silent:
            return
        self.on_attend()
        nic, now = self.nic, self._events.now
        while ready := nic.ready:  # what one port sends can make the next packet ready for another
            sent = False
            for plane, wire in self._wires.items():
                if not ready >> plane & 1:
                    continue
                if wire.free_at > now:
                    wire.when_free(self.attend)
                elif (frame := nic.pull(plane, now)) is not None:
                    if self.tap is not None:
                        self.tap(plane, True, frame)
                    wire.send(frame)
                    sent = True
            if not sent:
                break
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self.nic.next_deadline()
        if deadline is not None and (self._timer_at is None or deadline < self._timer_at):
            self._timer_at = deadline
            self._events.at(deadline, self._on_timer, deadline)

    def _on_timer(self, set_for: int) -> None:
        if set_for != self._timer_at:
            return  # an earlier one was set since
        self._timer_at = None
        if not self._silent:
            self.nic.poll(self._events.now)
            self.attend()
