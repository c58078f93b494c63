"""Sums over the fabric, of what is counted where it happens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fabric.network import Fabric
from fabric.nodes import SwitchCounts
from fabric.pfc import LosslessNicNode, LosslessSwitchNode, PfcCounts
from nic_model import qp_counters
from nic_model.ev import Ev
from nic_model.queue_pair import QueuePair
from nic_model.requester import Requester
from nic_model.roce import Dcqcn, RoceQueuePair


@dataclass(slots=True)
class DataCounts:
    """Data packets that left through one plane, of all QPs; retransmissions are among the packets. `replaced`: EVs."""

    packets: int = 0
    retransmissions: int = 0
    replaced: int = 0


@dataclass(slots=True)
class RoceCounts:
    """What RoCE QPs heard: Congestion Notification Packets, NAKs for a PSN sequence error, and nothing (timeouts)."""

    cnps: int = 0
    sequence_naks: int = 0
    timeouts: int = 0


def requesters(fabric: Fabric) -> list[Requester]:
    """The sending halves of all MRC QPs."""
    return [requester for _, _, requester in _requesters(fabric)]


def evs(fabric: Fabric) -> Iterator[tuple[str, int, Ev]]:
    """The EVs of all MRC QPs, each with its NIC and its QP's number."""
    return ((name, qpn, ev) for name, qpn, requester in _requesters(fabric) for ev in requester.evs)


def _requesters(fabric: Fabric) -> Iterator[tuple[str, int, Requester]]:
    for name, node in fabric.nics.items():
        for qp in node.nic.queue_pairs():
            if isinstance(qp, QueuePair) and qp.requester is not None:
                yield name, qp.qpn, qp.requester


def roce_queue_pairs(fabric: Fabric, plane: int | None = None) -> list[RoceQueuePair]:
    """All RoCE QPs, or those that use one plane."""
    pairs = (qp for node in fabric.nics.values() for qp in node.nic.queue_pairs())
    return [qp for qp in pairs if isinstance(qp, RoceQueuePair) and plane in (None, qp.plane)]


def data_counts(fabric: Fabric, plane: int) -> DataCounts:
    """What a plane carried, by the NICs that sent it."""
    counts = DataCounts()
    for requester in requesters(fabric):
        counts.replaced += requester.evs.replaced[plane]
        for ev in requester.evs:
            if ev.plane == plane:
                counts.packets += ev.packets
                counts.retransmissions += ev.retransmissions
    for qp in roce_queue_pairs(fabric, plane):
        if qp.requester is not None:
            counts.packets += qp.requester.counters.packets
            counts.retransmissions += qp.requester.counters.retransmissions
    return counts


def roce_counts(fabric: Fabric, plane: int | None = None) -> RoceCounts:
    """What the RoCE QPs of one plane heard, or of all."""
    total = RoceCounts()
    for qp in roce_queue_pairs(fabric, plane):
        if qp.requester is not None:
            total.cnps += qp.requester.counters.cnps
            total.sequence_naks += qp.requester.counters.sequence_naks
            total.timeouts += qp.requester.counters.timeouts
    return total


def dcqcn_rates(fabric: Fabric) -> list[float]:
    """Gb/s that DCQCN allows each QP that has work, as of its last packet."""
    requesters = (qp.requester for qp in roce_queue_pairs(fabric))
    return [
        requester.limiter.rate
        for requester in requesters
        if requester is not None and requester.outstanding and isinstance(requester.limiter, Dcqcn)
    ]


def pfc_counts(fabric: Fabric, plane: int | None = None) -> PfcCounts:
    """PFC in one plane, or all: frames that the switches sent, frames that they and the NICs took."""
    total = PfcCounts()
    for switch in fabric.switches.values():
        if isinstance(switch, LosslessSwitchNode) and plane in (None, switch.plane):
            total.add(switch.pfc_counts())
    for nic in fabric.nics.values():
        if isinstance(nic, LosslessNicNode):
            for port in range(fabric.topo.planes) if plane is None else (plane,):
                total.frames_taken += nic.frames_taken[port]
                total.stopped += nic.stopped(port)
    return total


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
    """Write the counters of every QP, and of an MRC QP's paths, a line each."""
    with path.open("w", encoding="utf-8") as file:
        for name, node in fabric.nics.items():
            for qp in node.nic.queue_pairs():
                if isinstance(qp, QueuePair):
                    file.write(json.dumps(qp_counters.record(name, qp)) + "\n")
                elif isinstance(qp, RoceQueuePair):
                    file.write(json.dumps(qp.record(name)) + "\n")
    return path
