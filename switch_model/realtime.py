"""A device in real time: frames from packet sockets, the monotonic clock, one asyncio loop.

A queue may have a rate in packets/s, as BMv2's `set_queue_rate` gives it: each packet of it leaves 1/rate after the
one before it, or at once if the queue has been idle for so long. Queues without one are never held up.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from switch_model.codegen import Frame
from switch_model.device import Device

_SECOND = 1_000_000_000


def event_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are exact to microseconds, where epoll's are to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class Port(Protocol):
    """What is asked of a port; `packet_port.PacketPort` is one."""

    @property
    def number(self) -> int: ...
    def fileno(self) -> int: ...
    def receive(self) -> list[Frame]: ...
    def send(self, frame: Frame) -> None: ...


class _ShapedQueue:
    """When the queue of one priority may send."""

    __slots__ = ("bit", "due", "gap", "idle", "priority")

    def __init__(self, priority: int, rate: int) -> None:
        self.priority = priority
        self.bit = 1 << priority
        self.gap = _SECOND // rate
        self.due = 0
        self.idle = True


class RealTimeDriver:
    """Runs a device's `ports` in the running loop, as a context manager.

    `rates` in packets/s by priority are those of each port's queues. Frames that leave through the CPU port go to
    `to_controller`.
    """

    def __init__(
        self,
        device: Device,
        ports: Sequence[Port],
        rates: Mapping[int, int],
        to_controller: Callable[[bytes], object],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`clock` in ns, the running loop's own."""
        self._device = device
        self._ports = {port.number: port for port in ports}
        self._queues = {
            port.number: [_ShapedQueue(priority, rate) for priority, rate in rates.items()] for port in ports
        }
        self._shaped = sum(1 << priority for priority in rates)
        self._to_controller = to_controller
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def __enter__(self) -> "RealTimeDriver":
        for port in self._ports.values():
            self._loop.add_reader(port.fileno(), self._on_readable, port)
        return self

    def __exit__(self, *_: object) -> None:
        for port in self._ports.values():
            self._loop.remove_reader(port.fileno())
        for timer in self._timers.values():
            timer.cancel()

    def packet_out(self, frame: bytes) -> None:
        """A frame of the controller, its packet-out header in front."""
        now = self._clock()
        self._drain(self._device.packet_out((frame, b""), now), now)

    def _on_readable(self, port: Port) -> None:
        ingress, clock, number = self._device.ingress, self._clock, port.number
        for frame in port.receive():
            now = clock()
            self._drain(ingress(number, frame, now), now)

    def _drain(self, number: int, now: int) -> None:
        """Send what port `number` may send now; DROPPED is the number of no port."""
        port = self._ports.get(number)
        if port is None:
            self._drain_elsewhere(number, now)
            return
        dequeue = self._device.dequeue
        while (frame := dequeue(number, now, self._shaped)) is not None:
            port.send(frame)
        for queue in self._queues[number]:
            self._drain_shaped(port, queue, now)
        self._set_timer(number)

    def _drain_shaped(self, port: Port, queue: _ShapedQueue, now: int) -> None:
        device, number, priority = self._device, port.number, queue.priority
        if queue.idle:
            queue.due = max(queue.due, now)
        while waiting := device.depth(number, priority):
            if queue.due > now:
                break
            frame = device.dequeue(number, now, ~queue.bit)
            if frame is not None:
                port.send(frame)
                queue.due += queue.gap
        queue.idle = not waiting

    def _set_timer(self, number: int) -> None:
        due = min((queue.due for queue in self._queues[number] if not queue.idle), default=None)
        if due is None:
            return
        timer = self._timers.get(number)
        if timer is None or due / _SECOND < timer.when():
            if timer is not None:
                timer.cancel()
            self._timers[number] = self._loop.call_at(due / _SECOND, self._on_timer, number)

    def _on_timer(self, number: int) -> None:
        del self._timers[number]
        self._drain(number, self._clock())

    def _drain_elsewhere(self, number: int, now: int) -> None:
        """The CPU port, or a port without an interface: what is sent there is lost, as in BMv2."""
        while number >= 0 and (frame := self._device.dequeue(number, now)) is not None:
            if number == self._device.cpu_port:
                self._to_controller(b"".join(frame))
