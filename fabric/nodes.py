"""Switches and NICs at their places in the fabric: what moves frames between them and their wires."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fabric.events import EventList
from fabric.links import Frame, Wire
from nic_model.nic import Nic
from switch_model.device import Device


class SwitchNode:
    """An embedded P4 device with its wires, by port number."""

    def __init__(self, device: Device, plane: int, events: EventList) -> None:
        self.device = device
        self.plane = plane
        self.unconnected = 0
        """Frames that the program sent out of a port without a link."""
        self._events = events
        self._wires: dict[int, Wire] = {}
        self._drains: dict[int, Callable[[], None]] = {}

    def connect(self, port: int, wire: Wire) -> None:
        """The wire that leaves through `port`."""
        self._wires[port] = wire
        self._drains[port] = partial(self._drain, port, wire)

    def arrive(self, port: int, frame: Frame) -> None:
        """A frame came in through `port`."""
        out = self.device.ingress(port, frame, self._events.now)
        if out < 0:
            return
        wire = self._wires.get(out)
        if wire is None:
            self.device.dequeue(out, self._events.now)
            self.unconnected += 1
        else:
            self._drain(out, wire)

    def _drain(self, port: int, wire: Wire) -> None:
        now = self._events.now
        if wire.free_at <= now:
            frame = self.device.dequeue(port, now)
            if frame is not None:
                wire.send(frame)
        if self.device.depth(port):
            wire.when_free(self._drains[port])


class NicNode:
    """A NIC with one wire per port. `attend` moves what can move after anything has happened to it."""

    def __init__(self, nic: Nic, events: EventList) -> None:
        self.nic = nic
        self._wires: dict[int, Wire] = {}
        self.on_attend: Callable[[], None] = lambda: None
        """The application: called first, so that what it posts can leave at once."""
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
        self.nic.receive(plane, frame, self._events.now)
        self.attend()

    def port_status(self, plane: int, up: bool) -> None:
        """The NIC sees its link go down or come up."""
        self.nic.port_status(plane, up, self._events.now)
        self.attend()

    def attend(self) -> None:
        """Let the application run, fill the free wires, set the timer."""
        self.on_attend()
        nic, now = self.nic, self._events.now
        sending = True
        while sending:  # what one port sends can make the next packet ready for another
            sending = False
            ready = nic.ready
            for plane, wire in self._wires.items():
                if not ready >> plane & 1:
                    continue
                if wire.free_at > now:
                    wire.when_free(self.attend)
                elif (frame := nic.pull(plane, now)) is not None:
                    wire.send(frame)
                    sending = True
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
        self.nic.poll(self._events.now)
        self.attend()
