"""What a run gave: the numbers of summary.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fabric import counts
from fabric.counts import RoceCounts
from fabric.network import Fabric
from fabric.parameters import Parameter
from fabric.pfc import PfcCounts
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
    roce: RoceCounts | None
    """Of a RoCE run; trims and replaced EVs are MRC's."""
    pfc: PfcCounts | None
    """Of a run with PFC."""

    @classmethod
    def of(cls, fabric: Fabric, plane: int) -> PlaneResult:
        """Count one plane."""
        data = counts.data_counts(fabric, plane)
        switches = counts.switch_counts(fabric, plane)
        links = counts.link_losses(fabric, plane)
        return cls(
            plane=plane,
            data_packets=data.packets,
            payload_bytes=sum(node.nic.ports[plane].payload_bytes for node in fabric.nics.values()),
            marks=switches.marks,
            trims=switches.trims,
            lost_on_links=links.total(),
            link_losses=_sorted(links),
            dropped_in_switches=switches.drops.total(),
            switch_drops=_sorted(switches.drops),
            retransmissions=data.retransmissions,
            ev_replaced=data.replaced,
            roce=counts.roce_counts(fabric, plane) if counts.roce_queue_pairs(fabric) else None,
            pfc=None if fabric.topo.model.links.pfc is None else counts.pfc_counts(fabric, plane),
        )


@dataclass(slots=True)
class FlowResult:
    """One transfer of a phase, from the phase's start to its own end."""

    source: str
    target: str
    payload_bytes: int
    goodput_gbps: float
    is_victim: bool

    @property
    def completion_us(self) -> float:
        """How long it took."""
        return self.payload_bytes * 8 / self.goodput_gbps / 1000


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
    transport: str
    congestion: str
    qps_per_peer: int
    nics: int
    planes: int
    switches: int
    entries: int
    data_packets: int
    retransmissions: int
    marks: int
    trims: int
    ev_replaced: int
    roce: RoceCounts | None
    pfc: PfcCounts | None
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
    parameters: list[Parameter]
    """What a RoCE run was tuned to."""
    errors: list[str]
    wall_s: float = 0.0

    @property
    def verified(self) -> bool:
        """Every byte is right, and nothing is unaccounted for."""
        return not self.errors

    @property
    def size(self) -> str:
        """Of the fabric, in words."""
        planes = "1 plane" if self.planes == 1 else f"{self.planes} planes"
        return f"{self.nics} NICs, {planes}, {self.switches} switches"

    @property
    def speaks(self) -> str:
        """The transport and how it is used, in words."""
        congestion = {"nscc": "NSCC", "fixed": "fixed window", "dcqcn": "DCQCN", "none": "no rate control"}
        name = "MRC" if self.roce is None else "RoCE"
        number = "1 QP" if self.qps_per_peer == 1 else f"{self.qps_per_peer} QPs"
        flow_control = "" if self.pfc is None else ", PFC"
        return f"{name}, {number} per peer, {congestion[self.congestion]}{flow_control}"

    def summary(self) -> dict[str, Any]:
        """What summary.json holds; all but wall_s is the same for the same scenario and seed."""
        return {"verified": self.verified, **asdict(self)}

    def save(self, directory: Path) -> Path:
        """Write summary.json into a directory that is there. Raises OSError."""
        path = directory / SUMMARY
        path.write_text(json.dumps(self.summary(), indent=1) + "\n", encoding="utf-8")
        return path


@dataclass(frozen=True, slots=True)
class Column:
    """A number that each plane has; `heading` has two lines if need be."""

    heading: str
    of: Callable[[PlaneResult], float]


def columns(result: Result) -> list[Column]:
    """What there is to say of each plane, for the transport that the run had."""
    found = [Column("packets", lambda plane: plane.data_packets), Column("marks", lambda plane: plane.marks)]
    if result.roce is None:
        found.append(Column("trims", lambda plane: plane.trims))
    found += [
        Column("lost on\nlinks", lambda plane: plane.lost_on_links),
        Column("switch\ndrops", lambda plane: plane.dropped_in_switches),
        Column("retrans-\nmissions", lambda plane: plane.retransmissions),
    ]
    if result.roce is None:
        found.append(Column("EVs\nreplaced", lambda plane: plane.ev_replaced))
    else:
        found += [_roce("CNPs", "cnps"), _roce("NAKs", "sequence_naks"), _roce("timeouts", "timeouts")]
    if result.pfc is not None:
        found.append(Column("PFC\npauses", lambda plane: plane.pfc.pauses if plane.pfc else 0))
        found.append(Column("stopped,\nus", lambda plane: plane.pfc.stopped / 1000 if plane.pfc else 0))
    return found


def _roce(heading: str, name: str) -> Column:
    return Column(heading, lambda plane: getattr(plane.roce, name))


def _gbps(payload: int, duration: int) -> float:
    return round(payload * 8 / duration, 3) if duration > 0 else 0.0


def _sorted(counts_by_name: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts_by_name.items()))
