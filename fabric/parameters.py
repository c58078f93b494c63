"""What a RoCE run was tuned to: every parameter with its unit, its meaning and where its value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from controller.topology import Topology
from fabric.pfc import PfcLimits
from nic_model.roce import RoceSettings

_TOPOLOGY = "the topology file"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of them; `name` begins with the part that it belongs to."""

    name: str
    value: float
    unit: str
    meaning: str
    source: str


def roce_parameters(settings: RoceSettings, topo: Topology) -> Iterator[Parameter]:
    """Of the NICs, and of switches and links as far as they play a part."""
    yield Parameter(
        "rc.max_outstanding",
        settings.max_outstanding,
        "bytes",
        "unacknowledged, of one QP",
        "1.5 x port rate x base RTT",
    )
    yield Parameter(
        "rc.ack_interval", settings.ack_interval, "packets", "between two that ask for an ACK", "our choice"
    )
    if settings.dcqcn is not None:
        for row in settings.dcqcn.rows():
            yield Parameter(f"dcqcn.{row[0]}", *row[1:])
        queues = topo.model.queues
        yield Parameter("ecn.mark_from", queues.mark_from, "packets", "queue from which packets are marked", _TOPOLOGY)
        yield Parameter("ecn.mark_to", queues.mark_to, "packets", "queue at which every packet is marked", _TOPOLOGY)
        yield Parameter("ecn.mark_last_hop", queues.mark_last_hop, "", "1: marked towards NICs too", _TOPOLOGY)
    pfc = topo.model.links.pfc
    if pfc is not None:
        yield Parameter("pfc.xoff_bytes", pfc.xoff_bytes, "bytes", "held of a port when it is stopped", _TOPOLOGY)
        yield Parameter("pfc.xon_bytes", pfc.xon_bytes, "bytes", "held of a port when it may go on", _TOPOLOGY)
        yield Parameter("pfc.pause_quanta", pfc.pause_quanta, "512 bits", "that one PFC frame stops", _TOPOLOGY)
        for kind, link in (("nic", topo.model.links.nic), ("fabric", topo.model.links.fabric)):
            limits = PfcLimits.of(pfc, link.rate_gbps, link.delay_ns)
            source = "the link's rate and delay, IEEE 802.1Qbb annex O" if pfc.headroom_bytes is None else _TOPOLOGY
            room = limits.capacity - limits.xoff
            yield Parameter(f"pfc.headroom_bytes.{kind}", room, "bytes", f"above xoff_bytes, at {kind} links", source)
