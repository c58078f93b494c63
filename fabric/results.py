"""What a run gave: the numbers of summary.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fabric import counts
from fabric.network import Fabric
from fabric.scenario import Fault, Work
from fabric.workloads import Workload

SUMMARY = "summary.json"


@dataclass(slots=True)
class PlaneResult:
    """One plane, in packets; `payload_bytes` were put into memory, each byte once.

    Data packets are counted by the NICs that sent them, trims and marks by the switches, and losses where they
    happened: on links by LinkLoss, in switches by drop reason.
    """

    plane: int
    data_packets: int
    payload_bytes: int
    marks: int
    trims: int
    lost_on_links: int
    link_losses: dict[str, int]
    dropped_in_switches: int
    switch_drops: dict[str, int]
    retransmissions: int
    ev_replaced: int

    @classmethod
    def of(cls, fabric: Fabric, plane: int) -> PlaneResult:
        """Count one plane."""
        evs = counts.ev_counts(fabric, plane)
        switches = counts.switch_counts(fabric, plane)
        links = counts.link_losses(fabric, plane)
        return cls(
            plane=plane,
            data_packets=evs.packets,
            payload_bytes=sum(node.nic.ports[plane].payload_bytes for node in fabric.nics.values()),
            marks=switches.marks,
            trims=switches.trims,
            lost_on_links=links.total(),
            link_losses=_sorted(links),
            dropped_in_switches=switches.drops.total(),
            switch_drops=_sorted(switches.drops),
            retransmissions=evs.retransmissions,
            ev_replaced=evs.replaced,
        )


@dataclass(slots=True)
class FlowResult:
    """One transfer of a phase, from the phase's start to its own end."""

    source: str
    target: str
    payload_bytes: int
    goodput_gbps: float
    is_victim: bool


@dataclass(slots=True)
class PhaseResult:
    """One workload: from its first work request to its last completion. Its victim's goodput stands alone too."""

    kind: str
    start_us: float
    end_us: float
    payload_bytes: int
    goodput_gbps: float
    victim_goodput_gbps: float | None = None
    flows: list[FlowResult] = field(default_factory=list)

    @classmethod
    def of(cls, work: Work, workload: Workload) -> PhaseResult:
        """Of a workload that was started."""
        start = workload.started_at
        flows = [
            FlowResult(flow.source, flow.target, flow.bytes, _gbps(flow.bytes, finished_at - start), flow.is_victim)
            for flow, finished_at in workload.flows()
        ]
        return cls(
            kind=work.kind,
            start_us=start / 1000,
            end_us=workload.finished_at / 1000,
            payload_bytes=workload.total_bytes,
            goodput_gbps=_gbps(workload.total_bytes, workload.finished_at - start),
            victim_goodput_gbps=next((flow.goodput_gbps for flow in flows if flow.is_victim), None),
            flows=flows,
        )


@dataclass(slots=True)
class FaultResult:
    """A fault of the scenario, its plane, and from when to when it was there, each time; None is to the end."""

    kind: str
    plane: int
    at_us: float
    what: str
    spans: list[tuple[float, float | None]]

    @classmethod
    def of(cls, fault: Fault, plane: int) -> FaultResult:
        """As the scenario has it."""
        spans = [(start / 1000, None if end is None else end / 1000) for start, end in fault.spans()]
        return cls(fault.kind, plane, fault.at_us, str(fault), spans)


@dataclass(slots=True)
class ProgrammedResult:
    """A switch that came back empty and had its entries again at `at_us`."""

    at_us: float
    switch: str
    entries: int


@dataclass(slots=True)
class Result:
    """One run. `errors` is empty if and only if every byte is right and all counts agree."""

    scenario: str
    topology: str
    seed: int
    nics: int
    planes: int
    switches: int
    entries: int
    data_packets: int
    retransmissions: int
    marks: int
    trims: int
    ev_replaced: int
    payload_bytes: int
    virtual_time_us: float
    goodput_gbps: float
    losses: dict[str, int]
    link_losses: dict[str, int]
    switch_drops: dict[str, int]
    refused_by_nics: dict[str, int]
    per_plane: list[PlaneResult]
    phases: list[PhaseResult]
    faults: list[FaultResult]
    """In the order in which they begin."""
    reprogrammed: list[ProgrammedResult]
    goodput_over_time: dict[str, Any]
    errors: list[str]
    wall_s: float = 0.0

    @property
    def verified(self) -> bool:
        """Every byte is right, and nothing is unaccounted for."""
        return not self.errors

    def summary(self) -> dict[str, Any]:
        """What summary.json holds; all but wall_s is the same for the same scenario and seed."""
        return {"verified": self.verified, **asdict(self)}

    def save(self, directory: Path) -> Path:
        """Write summary.json into a directory that is there. Raises OSError."""
        path = directory / SUMMARY
        path.write_text(json.dumps(self.summary(), indent=1) + "\n", encoding="utf-8")
        return path


def _gbps(payload: int, duration: int) -> float:
    return round(payload * 8 / duration, 3) if duration > 0 else 0.0


def _sorted(counts_by_name: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts_by_name.items()))
