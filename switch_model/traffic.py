"""The traffic manager: priority queues in front of every egress port.

Strict priority, the higher number first, as BMv2's QueueingLogicPriRL. Unlike BMv2 it has no capacity: only the P4
program drops. Rates are the business of who calls `dequeue`.
"""

from collections import deque
from typing import Any

DROPPED = -1
"""In place of a port: the packet is not queued."""


class _Port:
    __slots__ = ("depth", "filled", "queues")

    def __init__(self, priorities: int) -> None:
        self.queues: list[deque[tuple[Any, ...]]] = [deque() for _ in range(priorities)]
        self.filled = 0  # one bit per queue that holds packets
        self.depth = 0


class TrafficManager:
    """Queues of packets by port and priority; a packet here is an opaque tuple."""

    def __init__(self, priorities: int) -> None:
        self._priorities = priorities
        self._ports: dict[int, _Port] = {}

    def enqueue(self, port: int, priority: int, packet: tuple[Any, ...]) -> int:
        """Queues the packet and returns `port`, or DROPPED for a priority without a queue (BMv2 drops it too)."""
        line = self._ports.get(port) or self._ports.setdefault(port, _Port(self._priorities))
        try:
            line.queues[priority].append(packet)
        except IndexError:
            return DROPPED
        line.filled |= 1 << priority
        line.depth += 1
        return port

    def dequeue(self, port: int, closed: int = 0) -> tuple[Any, ...] | None:
        """The next packet of the highest priority that has one, or None. `closed` has a bit for each priority that
        may not send now."""
        line = self._ports.get(port)
        if line is None:
            return None
        filled = line.filled & ~closed
        if not filled:
            return None
        priority = filled.bit_length() - 1
        queue = line.queues[priority]
        packet = queue.popleft()
        line.depth -= 1
        if not queue:
            line.filled ^= 1 << priority
        return packet

    def depth(self, port: int, priority: int | None = None) -> int:
        """Packets queued for the port, in one queue or in all."""
        line = self._ports.get(port)
        if line is None:
            return 0
        if priority is None:
            return line.depth
        return len(line.queues[priority]) if priority < self._priorities else 0

    def occupancy(self) -> int:
        """Packets queued for all ports."""
        return sum(line.depth for line in self._ports.values())

    def clear(self) -> None:
        """Drops every packet."""
        self._ports.clear()
