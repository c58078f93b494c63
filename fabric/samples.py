"""What happened over time, in intervals of one length."""

from __future__ import annotations

from math import nan
from typing import Any

from fabric import counts
from fabric.network import Fabric

SIGNALS = ("trims", "ECN marks", "frames lost", "CNPs", "retransmissions", "PFC pauses")
"""What is counted in each interval beside the payload, in the whole fabric; retransmissions only of RoCE QPs."""


class Samples:
    """Series with one value for each interval of `interval` ns.

    `payload[plane]` are bytes put into memory, each byte once; `depth[plane, role]` the most packets that waited for
    one port of a T0 or T1; `signals[name]` packets; `rates` the mean and the lowest of what DCQCN allows the QPs that
    have work, Gb/s, NaN where none has.
    """

    def __init__(self, fabric: Fabric, interval: int) -> None:
        planes = range(fabric.topo.planes)
        self.interval = interval
        self.payload: list[list[int]] = [[] for _ in planes]
        self.depth: dict[tuple[int, str], list[int]] = {(plane, role): [] for plane in planes for role in ("t0", "t1")}
        self.signals: dict[str, list[int]] = {name: [] for name in SIGNALS}
        self.rates: list[tuple[float, float]] = []
        self.total_payload = 0
        self._fabric = fabric
        self._payload_before = [0] * fabric.topo.planes
        self._signals_before = dict.fromkeys(SIGNALS, 0)

    def __len__(self) -> int:
        return len(self.payload[0])

    def take(self) -> None:
        """Close an interval."""
        for plane, total in enumerate(self._payload_now()):
            self.payload[plane].append(total - self._payload_before[plane])
            self._payload_before[plane] = total
        self.total_payload = sum(self._payload_before)
        for key, depth in self._depths_now().items():
            self.depth[key].append(depth)
        for name, total in self._signals_now().items():
            self.signals[name].append(total - self._signals_before[name])
            self._signals_before[name] = total
        self.rates.append(self._rates_now())

    def gbps(self, plane: int) -> list[float]:
        """Goodput of one plane in each interval, Gb/s."""
        return [round(payload * 8 / self.interval, 3) for payload in self.payload[plane]]

    def goodput(self) -> dict[str, Any]:
        """Of all planes together, and of each, for summary.json."""
        planes = [self.gbps(plane) for plane in range(len(self.payload))]
        return {
            "interval_us": self.interval / 1000,
            "gbps": [round(sum(values), 3) for values in zip(*planes, strict=True)],
            "gbps_per_plane": planes,
        }

    def _payload_now(self) -> list[int]:
        totals = [0] * len(self.payload)
        for node in self._fabric.nics.values():
            for port in node.nic.ports:
                totals[port.plane] += port.payload_bytes
        return totals

    def _depths_now(self) -> dict[tuple[int, str], int]:
        depths = dict.fromkeys(self.depth, 0)
        for node in self._fabric.switches.values():
            key = (node.plane, node.role)
            depths[key] = max(depths[key], node.peak_depth)
            node.peak_depth = 0
        return depths

    def _signals_now(self) -> dict[str, int]:
        switches = counts.switch_counts(self._fabric)
        queue_pairs = counts.roce_queue_pairs(self._fabric)
        requesters = [qp.requester for qp in queue_pairs if qp.requester is not None]
        return {
            "trims": switches.trims,
            "ECN marks": switches.marks,
            "frames lost": counts.link_losses(self._fabric).total() + switches.drops.total(),
            "CNPs": sum(requester.counters.cnps for requester in requesters),
            "retransmissions": sum(requester.counters.retransmissions for requester in requesters),
            "PFC pauses": counts.pfc_counts(self._fabric).pauses,
        }

    def _rates_now(self) -> tuple[float, float]:
        rates = counts.dcqcn_rates(self._fabric)
        return (sum(rates) / len(rates), min(rates)) if rates else (nan, nan)
