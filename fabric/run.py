"""One run of a scenario: fabric up, routes pushed by the controller over P4Runtime, work, faults, result."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from controller.p4runtime import Pipeline
from controller.push import push, verify
from controller.topology import Topology, preset_names
from controller.yaml_file import Document
from fabric import faults, results
from fabric.network import Fabric, UnknownLinkError, base_rtt, line_rate
from fabric.nodes import NicNode
from fabric.results import Result, Samples
from fabric.scenario import Fault, LinkDown, RingAllReduce, Scenario
from fabric.workloads import RingAllReduceWorkload, TransfersWorkload, Workload
from nic_model.congestion import FixedWindow
from nic_model.ev import EvProfile
from nic_model.verbs import QPAttr
from switch_model.server import P4RuntimeServer

LOOPBACK = "127.0.0.1"
WINDOW_BDPS = 1.5
"""The fixed window, in bandwidth-delay products."""

Progress = Callable[[int, int], None]
"""Called with payload bytes that have arrived, and how many there are to be."""


class RunError(Exception):
    """The fabric did not come up. str() is one line."""


class Run:
    """A scenario file, read and checked; `execute` runs it."""

    def __init__(self, path: Path, seed: int | None = None) -> None:
        """`seed` replaces the scenario's. Raises FileError."""
        document = Document.read(path)
        scenario = document.validate(Scenario)
        self.scenario = scenario if seed is None else scenario.model_copy(update={"seed": seed})
        self.topo = self._topology(document, path.parent)
        # All switches are served at one address of this process, whatever the file says of theirs.
        self.fabric = self._build(self.topo.served_at(f"{LOOPBACK}:1"))
        self.workload = self._workload(document)
        self._schedule_faults(document)
        self.entries = 0

    def _topology(self, document: Document, directory: Path) -> Topology:
        name = self.scenario.topology
        if name in preset_names():
            return Topology.preset(name)
        path = directory / name
        if not path.is_file():
            presets = ", ".join(preset_names())
            reason = f"{name!r} is neither a file beside the scenario nor a preset ({presets})"
            raise document.error(("topology",), reason)
        return Topology.load(path)

    def _build(self, topo: Topology) -> Fabric:
        settings = self.scenario.qp
        window = settings.window_bytes or round(WINDOW_BDPS * line_rate(topo) * base_rtt(topo) / 8)
        return Fabric(
            topo,
            seed=self.scenario.seed,
            ev_profile=EvProfile(settings.active_evs, settings.backup_evs),
            congestion=lambda _: FixedWindow(window),
        )

    def _workload(self, document: Document) -> Workload:
        work, settings = self.scenario.workload, self.scenario.qp
        attr = QPAttr(path_mtu=settings.path_mtu, timeout=settings.timeout)
        rng = random.Random(f"{self.scenario.seed}/workload")
        if isinstance(work, RingAllReduce):
            if len(self.fabric.nics) < 2:
                raise document.error(("workload", "kind"), "an all-reduce needs at least 2 NICs")
            return RingAllReduceWorkload(ring(self.fabric), work.bytes, attr, rng)
        pairs = []
        for index, names in enumerate(work.pairs):
            for name in names:
                if name not in self.fabric.nics:
                    raise document.error(("workload", "pairs", index), f"no NIC {name!r} in {self.topo.name}")
            pairs.append((self.fabric.nics[names[0]], self.fabric.nics[names[1]]))
        return TransfersWorkload(pairs, work.bytes, work.messages, attr, rng)

    def _schedule_faults(self, document: Document) -> None:
        for index, fault in enumerate(self.scenario.faults):
            try:
                faults.schedule(self.fabric, [fault])
            except UnknownLinkError as error:
                raise document.error(("faults", index, "link"), str(error)) from None

    def execute(self, progress: Progress | None = None) -> Result:
        """Push, work, wait until all is quiet. Raises RunError if the switches could not be programmed."""
        started = time.monotonic()
        asyncio.run(self.program())
        errors, finished_at, samples = self._simulate(progress)
        errors += self.workload.verify()
        if not errors:
            errors += results.unaccounted(self.fabric)
        result = self._result(errors, finished_at, samples)
        result.wall_s = round(time.monotonic() - started, 3)
        return result

    async def program(self) -> None:
        """The controller writes and reads back all tables over gRPC; virtual time stands still meanwhile."""
        server = P4RuntimeServer(self.fabric.devices())
        topo = self.topo.served_at(await server.start(f"{LOOPBACK}:0"))
        try:
            pipeline = Pipeline()
            for pushed in await push(topo, pipeline):
                if pushed.errors:
                    raise RunError(f"{pushed.switch}: {pushed.errors[0]}")
                self.entries += pushed.inserted
            for verified in await verify(topo, pipeline):
                if not verified.ok:
                    reason = verified.error or "reads back other entries than were pushed"
                    raise RunError(f"{verified.switch}: {reason}")
        finally:
            await server.stop()

    def _simulate(self, progress: Progress | None) -> tuple[list[str], int, Samples]:
        events, workload = self.fabric.events, self.workload
        interval = round(self.scenario.sample_us * 1000)
        limit = round(self.scenario.time_limit_us * 1000)
        samples = Samples(interval)
        self.workload.start()
        for node in self.fabric.nics.values():
            node.attend()
        finished_at = 0
        quiet = False
        while not quiet and events.now < limit:
            quiet = events.run(min(events.now + interval, limit))
            if not finished_at:
                samples.take(self.fabric)
                if progress is not None:
                    progress(sum(map(sum, samples.by_plane)), workload.total_bytes)
                if workload.done:
                    finished_at = workload.finished_at
        errors = list(workload.errors)
        if not workload.done:
            errors.append(f"not done after {events.now / 1000:,.1f} us of virtual time")
        return errors, finished_at or events.now, samples

    def _result(self, errors: list[str], finished_at: int, samples: Samples) -> Result:
        fabric = self.fabric
        per_plane = [results.plane_result(fabric, plane) for plane in range(self.topo.planes)]
        payload = sum(plane.payload_bytes for plane in per_plane)
        return Result(
            scenario=self.scenario.name,
            topology=self.topo.name,
            seed=self.scenario.seed,
            nics=len(fabric.nics),
            planes=self.topo.planes,
            switches=len(fabric.switches),
            entries=self.entries,
            data_packets=sum(plane.data_packets for plane in per_plane),
            retransmissions=sum(plane.retransmissions for plane in per_plane),
            trims=results.trims(fabric),
            ev_replaced=sum(plane.ev_replaced for plane in per_plane),
            payload_bytes=payload,
            virtual_time_us=finished_at / 1000,
            goodput_gbps=round(payload * 8 / finished_at, 3) if finished_at else 0.0,
            losses=results.losses(fabric),
            switch_drops=results.switch_drops(fabric),
            refused_by_nics=results.refused_by_nics(fabric),
            per_plane=per_plane,
            goodput_over_time={"interval_us": self.scenario.sample_us, "gbps": samples.gbps()},
            faults=[{"at_us": fault.at_us, "what": _describe(fault)} for fault in self.scenario.faults],
            errors=errors,
        )


def ring(fabric: Fabric) -> list[NicNode]:
    """All NICs in an order in which neighbours are in different rows, if there are two rows or more."""
    names = sorted((nic.index, nic.row, nic.name) for nic in fabric.topo.nics())
    return [fabric.nics[name] for _, _, name in names]


def _describe(fault: Fault) -> str:
    until = "" if fault.until_us is None else f" until {fault.until_us:g} us"
    what = "down" if isinstance(fault, LinkDown) else f"loses {fault.rate:.2%}"
    return f"link {fault.link[0]} - {fault.link[1]} {what}{until}"
