"""What a run gave: counted where it happened, checked against itself, printed and written."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from controller.drop_reasons import DROP_REASONS
from fabric.network import Fabric
from nic_model.queue_pair import QueuePair
from nic_model.requester import Requester


@dataclass(slots=True)
class PlaneResult:
    """One plane, in packets; `payload_bytes` were put into memory, each byte once."""

    plane: int
    data_packets: int = 0
    payload_bytes: int = 0
    lost_on_links: int = 0
    dropped_in_switches: int = 0
    retransmissions: int = 0
    ev_replaced: int = 0


@dataclass(slots=True)
class Samples:
    """Payload bytes that arrived in each interval of `interval_ns`, per plane."""

    interval_ns: int
    by_plane: list[list[int]] = field(default_factory=list)
    _before: list[int] = field(default_factory=list)

    def take(self, fabric: Fabric) -> None:
        """Close an interval."""
        totals = [0] * fabric.topo.planes
        for node in fabric.nics.values():
            for port in node.nic.ports:
                totals[port.plane] += port.payload_bytes
        before = self._before or [0] * len(totals)
        self.by_plane.append([total - old for total, old in zip(totals, before, strict=True)])
        self._before = totals

    def gbps(self) -> list[float]:
        """Goodput of all planes together in each interval, Gb/s."""
        return [round(sum(planes) * 8 / self.interval_ns, 3) for planes in self.by_plane]


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
    trims: int
    ev_replaced: int
    payload_bytes: int
    virtual_time_us: float
    goodput_gbps: float
    losses: dict[str, int]
    switch_drops: dict[str, int]
    refused_by_nics: dict[str, int]
    per_plane: list[PlaneResult]
    goodput_over_time: dict[str, Any]
    faults: list[dict[str, Any]]
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
        """Write summary.json. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "summary.json"
        path.write_text(json.dumps(self.summary(), indent=1) + "\n", encoding="utf-8")
        return path


def queue_pairs(fabric: Fabric) -> list[QueuePair]:
    """All QPs of all NICs."""
    return [qp for node in fabric.nics.values() for qp in node.nic.queue_pairs()]


def requesters(fabric: Fabric) -> list[Requester]:
    """The sending halves of all QPs."""
    return [qp.requester for qp in queue_pairs(fabric) if qp.requester is not None]


def trims(fabric: Fabric) -> int:
    """Packets that reached a NIC cut."""
    return sum(qp.responder.counters.trimmed for qp in queue_pairs(fabric) if qp.responder is not None)


def losses(fabric: Fabric) -> dict[str, int]:
    """How often a packet was taken for lost, by reason."""
    total: Counter[str] = Counter()
    for requester in requesters(fabric):
        total.update({reason.name.lower(): count for reason, count in requester.losses.items() if count})
    return dict(sorted(total.items()))


def switch_drops(fabric: Fabric, plane: int | None = None) -> dict[str, int]:
    """Packets that the P4 program dropped, by its reason, in one plane or all."""
    total: Counter[str] = Counter()
    for node in fabric.switches.values():
        if plane is None or node.plane == plane:
            for index, reason in enumerate(DROP_REASONS):
                total[reason] += node.device.read_counter("drop_reasons", index)[0]
            total["unconnected_port"] += node.unconnected
    return {reason: count for reason, count in sorted(total.items()) if count}


def refused_by_nics(fabric: Fabric) -> dict[str, int]:
    """Frames that NICs did not take, by reason."""
    total: Counter[str] = Counter()
    for node in fabric.nics.values():
        total.update(node.nic.counters.refused)
    return dict(sorted(total.items()))


def plane_result(fabric: Fabric, plane: int) -> PlaneResult:
    """The counts of one plane."""
    result = PlaneResult(plane)
    for requester in requesters(fabric):
        result.ev_replaced += requester.evs.replaced[plane]
        for ev in requester.evs:
            if ev.plane == plane:
                result.data_packets += ev.packets
                result.retransmissions += ev.retransmissions
    for node in fabric.nics.values():
        result.payload_bytes += node.nic.ports[plane].payload_bytes
    for link in fabric.links.values():
        if link.plane == plane:
            result.lost_on_links += sum(wire.counters.lost for wire in link.wires)
    result.dropped_in_switches = sum(switch_drops(fabric, plane).values())
    return result


def unaccounted(fabric: Fabric) -> list[str]:
    """At the end of a run nothing may be left over; one line for each thing that is."""
    found = []
    if waiting := fabric.occupancy():
        found.append(f"{waiting} frames are left in switch queues")
    for link in fabric.links.values():
        for wire in link.wires:
            counters = wire.counters
            if counters.sent != counters.delivered + counters.lost:
                counts = f"{counters.sent} frames sent, {counters.delivered} delivered, {counters.lost} lost"
                found.append(f"{link.name}: {counts}")
    sent = sum(port.packets_out for node in fabric.nics.values() for port in node.nic.ports)
    received = sum(port.packets_in for node in fabric.nics.values() for port in node.nic.ports)
    lost = sum(wire.counters.lost for link in fabric.links.values() for wire in link.wires)
    dropped = sum(switch_drops(fabric).values())
    if sent != received + lost + dropped:
        found.append(f"{sent} frames sent, {received} received, {lost} lost on links, {dropped} dropped in switches")
    for requester in requesters(fabric):
        if requester.in_flight:
            found.append(f"a QP counts {requester.in_flight} bytes in flight")
    return found


_BARS = " ▁▂▃▄▅▆▇█"


def show(result: Result, console: Console) -> None:
    """Print a run as a person wants to read it."""
    table = Table(title=f"{result.scenario}: {result.nics} NICs, {result.planes} planes, {result.switches} switches")
    table.add_column("plane", justify="right")
    for heading in ("packets", "lost on links", "switch drops", "retransmissions", "EVs replaced"):
        table.add_column(heading, justify="right")
    for plane in result.per_plane:
        table.add_row(
            str(plane.plane),
            f"{plane.data_packets:,}",
            f"{plane.lost_on_links:,}",
            f"{plane.dropped_in_switches:,}",
            f"{plane.retransmissions:,}",
            f"{plane.ev_replaced:,}",
        )
    console.print(table)
    _show_goodput(result, console)
    for name, counts in (("taken for lost", result.losses), ("dropped by switches", result.switch_drops)):
        if counts:
            console.print(f"{name}: " + ", ".join(f"{reason} {count:,}" for reason, count in counts.items()))
    for error in result.errors:
        console.print(f"error: {error}", style="red", markup=False)
    verdict = "every byte is right" if result.verified else "NOT verified"
    console.print(
        f"{verdict}: {result.payload_bytes:,} bytes in {result.virtual_time_us:,.1f} us of virtual time "
        f"({result.goodput_gbps:,.0f} Gb/s), {result.wall_s:.1f} s of yours",
        style="bold green" if result.verified else "bold red",
    )


def _show_goodput(result: Result, console: Console) -> None:
    gbps: list[float] = result.goodput_over_time["gbps"]
    if not gbps:
        return
    top = max(*gbps, 1e-9)
    bars = "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in gbps)
    interval = result.goodput_over_time["interval_us"]
    console.print(f"goodput, {interval:g} us a column, full height {top:,.0f} Gb/s")
    console.print(bars, markup=False, highlight=False)
    marks = [" "] * len(gbps)
    for fault in result.faults:
        column = int(fault["at_us"] // interval)
        if column < len(marks):
            marks[column] = "x"
    if result.faults:
        console.print("".join(marks), style="red", markup=False)
        for fault in result.faults:
            console.print(f"x {fault['at_us']:g} us: {fault['what']}", markup=False, highlight=False)
