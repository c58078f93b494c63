"""One run of a scenario: fabric up, routes pushed by the controller over P4Runtime, work, faults, result."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from controller.topology import Topology, UnknownNodeError, preset_names
from controller.yaml_file import Document, KeyPath
from fabric import accounting, counts, faults, phases
from fabric.capture import Capture
from fabric.control import ControlPlane
from fabric.ev_health import EvHealth
from fabric.host import Host
from fabric.network import Fabric, UnknownLinkError
from fabric.parameters import Parameter, roce_parameters
from fabric.results import FaultResult, PhaseResult, PlaneResult, ProgrammedResult, Result
from fabric.samples import Samples
from fabric.scenario import MrcQp, RoceQp, Scenario, ns
from fabric.transports import RoceTransport, Transport, mrc_transport, roce_settings
from fabric.workloads import Workload
from nic_model.ev import SprayPolicy
from nic_model.event_log import EventLog
from nic_model.events import Event, EvEvent
from nic_model.verbs import QPAttr

Progress = Callable[[int, int], None]
"""Called with payload bytes that have arrived, and how many there are to be."""


class Run:
    """A scenario file, read and checked; `execute` runs it, once.

    `samples` and `health` hold what happened over time.
    """

    def __init__(
        self, path: Path, seed: int | None = None, log: EventLog | None = None, variant: str | None = None
    ) -> None:
        """`seed` replaces the scenario's; `log` is told of every decision of every MRC NIC; `variant` names one of the
        scenario's. Raises FileError."""
        document = Document.read(path)
        scenario = _chosen(document, document.validate(Scenario), variant)
        self.scenario = scenario if seed is None else scenario.model_copy(update={"seed": seed})
        key: KeyPath = ("topology",) if variant is None else ("variants", variant, "topology")
        self.topo = _topology(document, key, self.scenario.topology, path.parent)
        self.health = EvHealth()
        self._log = log
        self._check_transport(document, key)
        self.fabric = self._build()
        self.samples = Samples(self.fabric, ns(self.scenario.sample_us))
        self.workloads = self._workloads(document)
        self._begun = 0  # workloads that were started
        self._control = ControlPlane(self.topo, self.fabric)
        self._schedule_faults(document)
        self._check_capture(document)

    @property
    def total_bytes(self) -> int:
        """Payload bytes of all workloads."""
        return sum(workload.total_bytes for workload in self.workloads)

    # ---- from the scenario ---------------------------------------------------------------------------

    def _check_transport(self, document: Document, key: KeyPath) -> None:
        """Does the topology suit it? `key` is where the topology is named."""
        roce = isinstance(self.scenario.qp, RoceQp)
        if roce and self.topo.mode != "ecmp":
            reason = f"{self.topo.name} has mode: {self.topo.mode}, but RoCE packets are plain IPv6: mode: ecmp"
            raise document.error(key, reason)
        if not roce and self.topo.model.links.pfc is not None:
            raise document.error(key, f"the links of {self.topo.name} have PFC, which MRC NICs do not obey")

    def _build(self) -> Fabric:
        qp = self.scenario.qp
        transport: Transport
        if isinstance(qp, RoceQp):
            transport = RoceTransport(roce_settings(qp, self.topo))
        else:
            transport = mrc_transport(qp, self.topo, self._on_event, log_windows=self._log is not None)
        return Fabric(self.topo, transport, seed=self.scenario.seed)

    def _on_event(self, nic: str, event: Event) -> None:
        if isinstance(event, EvEvent):
            self.health.on_event(nic, event)
        if self._log is not None:
            self._log.add(nic, event)

    def _workloads(self, document: Document) -> list[Workload]:
        settings = self.scenario.qp
        attr = QPAttr(path_mtu=settings.path_mtu, timeout=settings.timeout)
        hosts = {name: Host(node, settings.qps_per_peer) for name, node in self.fabric.nics.items()}
        workloads = []
        for index, work in enumerate(self.scenario.workloads):
            rng = random.Random(f"{self.scenario.seed}/workload {index}")
            try:
                workloads.append(phases.workload(work, self.topo, hosts, attr, rng))
            except phases.PhaseError as error:
                raise document.error(("workloads", index, *error.key), str(error)) from None
        return workloads

    def _schedule_faults(self, document: Document) -> None:
        for index, fault in enumerate(self.scenario.faults):
            key: KeyPath = ("faults", index, fault.place_key)
            try:
                faults.schedule(self.fabric, fault, self._on_return)
            except (UnknownNodeError, UnknownLinkError) as error:
                raise document.error(key, str(error)) from None

    def _check_capture(self, document: Document) -> None:
        if self.scenario.capture is not None:
            try:
                self.topo.nic(self.scenario.capture)
            except UnknownNodeError as error:
                raise document.error(("capture",), str(error)) from None

    # ---- in virtual time -----------------------------------------------------------------------------

    def execute(self, progress: Progress | None = None, out: Path | None = None) -> Result:
        """Push, work, wait until nothing is in flight; what the scenario captures goes into a file in `out`.

        Raises ControlError if switches could not be programmed, OSError if the capture could not be written.
        """
        started = time.monotonic()
        with self._control, self._capture(out):
            entries = self._control.program()
            errors = self._simulate(progress)
        errors += [error for workload in self.workloads for error in workload.verify()]
        if not errors:
            errors += accounting.unaccounted(self.fabric, self.health, self.total_bytes, even=self._even_planes())
        result = self._result(entries, errors)
        result.wall_s = round(time.monotonic() - started, 3)
        return result

    def _even_planes(self) -> bool:
        """Do planes have equal shares? They do unless one fails, if the policy lets them take turns."""
        qp = self.scenario.qp
        takes_turns = isinstance(qp, MrcQp) and qp.spray in (SprayPolicy.MRC, SprayPolicy.ROUND_ROBIN)
        return takes_turns and not self.scenario.faults

    def _simulate(self, progress: Progress | None) -> list[str]:
        events, samples = self.fabric.events, self.samples
        limit = ns(self.scenario.time_limit_us)
        self._begin_next()
        while not self._over() and events.now < limit:
            events.run(min(events.now + samples.interval, limit))
            samples.take()
            if progress is not None:
                progress(samples.total_payload, self.total_bytes)
        errors = [error for workload in self.workloads for error in workload.errors]
        if not errors and not self._done():
            errors.append(f"not done after {events.now / 1000:,.1f} us of virtual time")
        return errors

    def _done(self) -> bool:
        return self._begun == len(self.workloads) and self.workloads[-1].done

    def _over(self) -> bool:
        failed = self.workloads[self._begun - 1].errors
        return bool(failed or self._done()) and not self.fabric.in_flight()

    def _begin_next(self) -> None:
        """The next workload; after the last one, or one that failed, the NICs fall silent."""
        self.health.end(self.fabric.events.now)
        if self._begun == len(self.workloads) or (self._begun and self.workloads[self._begun - 1].errors):
            self.fabric.fall_silent()
            return
        self.workloads[self._begun].start(self.fabric.events.now, self._on_done)
        self._begun += 1
        self.health.begin(counts.evs(self.fabric), self.fabric.events.now)
        for node in self.fabric.nics.values():
            node.attend()

    def _on_done(self) -> None:
        self.fabric.events.at(self.fabric.events.now, self._begin_next)

    def _on_return(self, switch: str) -> None:
        latency = ns(self.scenario.control_latency_us)
        self.fabric.events.at(self.fabric.events.now + latency, self._control.reprogram, switch)

    def _capture(self, out: Path | None) -> AbstractContextManager[object]:
        name = self.scenario.capture
        if out is None or name is None:
            return nullcontext()
        return Capture(out / f"{name}.pcapng", self.fabric.nic(name), self.topo)

    # ---- result --------------------------------------------------------------------------------------

    def _result(self, entries: int, errors: list[str]) -> Result:
        fabric, scenario = self.fabric, self.scenario
        per_plane = [PlaneResult.of(fabric, plane) for plane in range(self.topo.planes)]
        begun = list(zip(scenario.workloads, self.workloads, strict=True))[: self._begun]
        finished_at = self.workloads[self._begun - 1].finished_at if self._done() else fabric.events.now
        payload = sum(plane.payload_bytes for plane in per_plane)
        return Result(
            scenario=scenario.name,
            topology=self.topo.name,
            seed=scenario.seed,
            transport=scenario.qp.transport,
            congestion=scenario.qp.congestion,
            qps_per_peer=scenario.qp.qps_per_peer,
            nics=len(fabric.nics),
            planes=self.topo.planes,
            switches=len(fabric.switches),
            entries=entries,
            data_packets=sum(plane.data_packets for plane in per_plane),
            retransmissions=sum(plane.retransmissions for plane in per_plane),
            marks=sum(plane.marks for plane in per_plane),
            trims=sum(plane.trims for plane in per_plane),
            ev_replaced=sum(plane.ev_replaced for plane in per_plane),
            roce=counts.roce_counts(fabric) if isinstance(scenario.qp, RoceQp) else None,
            pfc=None if self.topo.model.links.pfc is None else counts.pfc_counts(fabric),
            payload_bytes=payload,
            virtual_time_us=finished_at / 1000,
            goodput_gbps=round(payload * 8 / finished_at, 3) if finished_at else 0.0,
            losses=dict(sorted(counts.losses(fabric).items())),
            link_losses=dict(sorted(counts.link_losses(fabric).items())),
            switch_drops=dict(sorted(counts.switch_counts(fabric).drops.items())),
            refused_by_nics=dict(sorted(counts.refused(fabric).items())),
            per_plane=per_plane,
            phases=[PhaseResult.of(work, workload) for work, workload in begun],
            faults=[
                FaultResult.of(fault, faults.plane(fabric, fault))
                for fault in sorted(scenario.faults, key=lambda fault: fault.at_us)
            ],
            reprogrammed=[ProgrammedResult(done.at / 1000, done.switch, done.entries) for done in self._control.again],
            goodput_over_time=self.samples.goodput(),
            parameters=self._parameters(),
            errors=errors,
        )

    def _parameters(self) -> list[Parameter]:
        qp = self.scenario.qp
        return list(roce_parameters(roce_settings(qp, self.topo), self.topo)) if isinstance(qp, RoceQp) else []


def _chosen(document: Document, scenario: Scenario, variant: str | None) -> Scenario:
    """The scenario, or the variant of it that was asked for. Raises FileError."""
    if variant is None and not scenario.variants:
        return scenario
    if variant not in scenario.variants:
        names = ", ".join(scenario.variants) or "none"
        asked = "one of them must be chosen" if variant is None else f"there is no {variant!r}"
        raise document.error(("variants",), f"{asked}: {names}")
    return scenario.choose(variant)


def _topology(document: Document, key: KeyPath, name: str, directory: Path) -> Topology:
    """The topology that a scenario in `directory` names at `key`. Raises FileError."""
    if name in preset_names():
        return Topology.preset(name)
    path = directory / name
    if not path.is_file():
        presets = ", ".join(preset_names())
        raise document.error(key, f"{name!r} is neither a file beside the scenario nor a preset ({presets})")
    return Topology.load(path)
