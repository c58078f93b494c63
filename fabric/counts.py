"""Sums over the fabric, of what is counted where it happens."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fabric.network import Fabric
from fabric.nodes import SwitchCounts
from nic_model import qp_counters
from nic_model.queue_pair import QueuePair
from nic_model.requester import Requester


@dataclass(slots=True)
class EvCounts:
    """Data packets of one plane's EVs, of all QPs; retransmissions are among the packets."""

    packets: int = 0
    retransmissions: int = 0
    replaced: int = 0


def queue_pairs(fabric: Fabric) -> list[QueuePair]:
    """All QPs of all NICs."""
    return [qp for node in fabric.nics.values() for qp in node.nic.queue_pairs()]


def requesters(fabric: Fabric) -> list[Requester]:
    """The sending halves of all QPs."""
    return [qp.requester for qp in queue_pairs(fabric) if qp.requester is not None]


def ev_counts(fabric: Fabric, plane: int) -> EvCounts:
    """What the EVs of a plane carried."""
    counts = EvCounts()
    for requester in requesters(fabric):
        counts.replaced += requester.evs.replaced[plane]
        for ev in requester.evs:
            if ev.plane == plane:
                counts.packets += ev.packets
                counts.retransmissions += ev.retransmissions
    return counts


def losses(fabric: Fabric) -> Counter[str]:
    """How often a packet was taken for lost, by LossReason."""
    total: Counter[str] = Counter()
    for requester in requesters(fabric):
        total += Counter({reason.name.lower(): count for reason, count in requester.losses.items()})
    return total


def switch_counts(fabric: Fabric, plane: int | None = None) -> SwitchCounts:
    """What the switches dropped, trimmed and marked, in one plane or all."""
    total = SwitchCounts()
    for node in fabric.switches.values():
        if plane in (None, node.plane):
            total.add(node.counts())
    return total


def link_losses(fabric: Fabric, plane: int | None = None) -> Counter[str]:
    """Frames lost on links, by LinkLoss, in one plane or all."""
    total: Counter[str] = Counter()
    for wire in fabric.wires(plane):
        total += wire.counters.lost
    return total


def refused(fabric: Fabric) -> Counter[str]:
    """Frames that NICs did not take, by reason."""
    total: Counter[str] = Counter()
    for node in fabric.nics.values():
        total += node.nic.counters.refused
    return total


def save_queue_pairs(fabric: Fabric, path: Path) -> Path:
    """Write the counters of every QP and of its paths, a line each."""
    with path.open("w", encoding="utf-8") as file:
        for name, node in fabric.nics.items():
            for qp in node.nic.queue_pairs():
                file.write(json.dumps(qp_counters.record(name, qp)) + "\n")
    return path
