"""One switch: a pipeline bound to its own tables, counters and registers, and a traffic manager."""

from collections.abc import Callable
from random import Random
from typing import Any

from switch_model.bmv2_json import DROP_PORT
from switch_model.codegen import Compiled, Frame, State
from switch_model.hashes import ALGORITHMS
from switch_model.profiles import Profile
from switch_model.tables import Table
from switch_model.traffic import DROPPED, TrafficManager


class Counter:
    """An indirect counter: packets and bytes by index."""

    __slots__ = ("bytes", "packets")

    def __init__(self, size: int) -> None:
        self.packets = [0] * size
        self.bytes = [0] * size


class Pipeline:
    """A compiled program with the state of one device."""

    def __init__(self, compiled: Compiled, traffic: TrafficManager, seed: int) -> None:
        program = compiled.program
        self.compiled = compiled
        self.tables = {name: Table(spec) for name, spec in program.tables.items()}
        self.counters = {name: Counter(spec.size) for name, spec in program.counters.items()}
        self.registers = {name: [0] * spec.size for name, spec in program.registers.items()}
        self.profiles = {name: Profile(spec) for name, spec in program.profiles.items()}
        self._random = Random(seed)
        self.enqueue: Callable[[int, int, State], int] = traffic.enqueue
        self.depth: Callable[[int, int], int] = traffic.depth
        self.ingress, self.egress = compiled.bind(self)

    # What the generated code binds to (codegen.Machine)

    def find(self, table: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        return self.tables[table].find, self.tables[table].miss

    def default_entry(self, table: str) -> Any:
        return self.tables[table].default

    def counter(self, name: str) -> tuple[list[int], list[int]]:
        return self.counters[name].packets, self.counters[name].bytes

    def register(self, name: str) -> list[int]:
        return self.registers[name]

    def uniform(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def hash(self, algorithm: str) -> Callable[[bytes], int]:
        return ALGORITHMS[algorithm]


class Device:
    """A switch that forwards frames by a v1model program; without one it drops everything.

    `device_id` is its P4Runtime id, `priority_queues` the queues per port (BMv2's --priority-queues), `cpu_port` the
    port of the controller's frames (--cpu-port; 1..510), `seed` starts the random numbers that the program draws.
    Ports are 0..510. Nothing here reads a clock: `now` is in ns and never goes back.

    Raises ValueError for a CPU port that can't be one.
    """

    def __init__(
        self, device_id: int, *, name: str = "", priority_queues: int = 8, cpu_port: int | None = None, seed: int = 0
    ) -> None:
        self.device_id = device_id
        self.name = name or f"device {device_id}"
        if cpu_port is not None and not 0 < cpu_port < DROP_PORT:
            raise ValueError(f"{self.name}: CPU port {cpu_port} is not in 1..{DROP_PORT - 1}")
        self.cpu_port = cpu_port
        self.pipeline: Pipeline | None = None
        self._traffic = TrafficManager(priority_queues)
        self._seed = seed

    def new_pipeline(self, compiled: Compiled) -> Pipeline:
        """A pipeline for this device with fresh state; it forwards nothing before it is committed."""
        return Pipeline(compiled, self._traffic, self._seed)

    def commit(self, pipeline: Pipeline) -> None:
        """Puts `pipeline` in place of the old one. The queues are emptied: what they hold belongs to the old one."""
        self._traffic.clear()
        self.pipeline = pipeline

    def load(self, compiled: Compiled) -> Pipeline:
        """A new pipeline, committed: tables, counters and registers start anew, as on BMv2."""
        pipeline = self.new_pipeline(compiled)
        self.commit(pipeline)
        return pipeline

    def ingress(self, port: int, frame: Frame, now: int) -> int:
        """Runs parser and ingress on a frame that arrived on `port` and queues it; the egress port, or DROPPED."""
        pipeline = self.pipeline
        return DROPPED if pipeline is None else pipeline.ingress(port, frame, now)

    def packet_out(self, frame: Frame, now: int) -> int:
        """A frame of the controller, its packet-out header in front: it arrives on the CPU port.

        Frames for the controller leave like all others, by `dequeue` of the CPU port. Raises ValueError if there is
        no such port.
        """
        if self.cpu_port is None:
            raise ValueError(f"{self.name} has no CPU port")
        return self.ingress(self.cpu_port, frame, now)

    def dequeue(self, port: int, now: int, closed: int = 0) -> Frame | None:
        """The next frame to send on `port`: of the highest priority, run through egress and deparser. Packets that
        egress drops are skipped; None when nothing is left. `closed` has a bit for each priority that may not send
        now."""
        pipeline = self.pipeline
        if pipeline is None:
            return None
        next_packet, egress = self._traffic.dequeue, pipeline.egress
        while (state := next_packet(port, closed)) is not None:
            frame = egress(port, state, now)
            if frame is not None:
                return frame
        return None

    def depth(self, port: int, priority: int | None = None) -> int:
        """Packets queued for `port`, in one queue or in all."""
        return self._traffic.depth(port, priority)

    def occupancy(self) -> int:
        """Packets queued for all ports."""
        return self._traffic.occupancy()

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """(packets, bytes) of an indirect counter's cell; `name` is the counter's full name or the end of it
        ("port_rx" for "FabricIngress.port_rx").

        Raises KeyError for a name that fits none or several, IndexError for an index beyond the counter's size.
        """
        counter = self._counter(name)
        if not 0 <= index < len(counter.packets):
            raise IndexError(f"counter '{name}' has {len(counter.packets)} cells, no index {index}")
        return counter.packets[index], counter.bytes[index]

    def _counter(self, name: str) -> Counter:
        counters = self.pipeline.counters if self.pipeline else {}
        found = [full for full in counters if full == name or full.endswith(f".{name}")]
        if len(found) != 1:
            raise KeyError(f"{self.name}: {'several counters are' if found else 'no counter is'} called '{name}'")
        return counters[found[0]]
