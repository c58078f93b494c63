"""What must hold at the end of every run; each check gives one line for each thing that does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fabric import counts
from fabric.ev_health import EvHealth
from fabric.network import Fabric
from fabric.pfc import LosslessSwitchNode

EVEN_SHARE = 0.05
"""How much more or less than the mean a plane may carry where all have equal shares."""


def unaccounted(fabric: Fabric, health: EvHealth, payload_bytes: int, *, even: bool) -> list[str]:
    """All checks. `payload_bytes` is what the work has to deliver; `even` says if planes must have equal shares."""
    found = [*_queues(fabric), *_frames(fabric), *_requesters(fabric), *health.violations()]
    placed = sum(port.payload_bytes for node in fabric.nics.values() for port in node.nic.ports)
    if placed != payload_bytes:
        found.append(f"{placed} bytes of payload were put into memory, the work has {payload_bytes}")
    if even:
        found += _shares(fabric)
    return found


def _queues(fabric: Fabric) -> Iterator[str]:
    if waiting := fabric.occupancy():
        yield f"{waiting} frames are left in switch queues"
    for name, node in fabric.switches.items():
        pipeline = node.device.pipeline
        if pipeline is not None and any(pipeline.registers.get("occupancy", ())):
            yield f"{name}: its program still counts {sum(pipeline.registers['occupancy'])} packets in its queues"
        if isinstance(node, LosslessSwitchNode) and node.held():
            yield f"{name}: its PFC buffers still hold {node.held()} bytes"


def _frames(fabric: Fabric) -> Iterator[str]:
    """Frames that NICs sent = received + lost on links + dropped in switches + in flight, in each plane.

    PFC frames go from MAC to MAC beside that, and are lost on links as others are.
    """
    for plane in range(fabric.topo.planes):
        ports = [node.nic.ports[plane] for node in fabric.nics.values()]
        pfc = counts.pfc_counts(fabric, plane)
        sent = sum(port.packets_out for port in ports) + pfc.frames_sent
        fates = Counter(received=sum(port.packets_in for port in ports), pfc=pfc.frames_taken)
        fates += counts.link_losses(fabric, plane)
        fates += counts.switch_counts(fabric, plane).drops
        if in_flight := sum(wire.counters.in_flight for wire in fabric.wires(plane)):
            yield f"plane {plane}: {in_flight} frames are left on links"
        if sent != fates.total():
            listed = ", ".join(f"{count} {fate}" for fate, count in fates.items())
            yield f"plane {plane}: {sent} frames sent, {listed}"


def _requesters(fabric: Fabric) -> Iterator[str]:
    for requester in counts.requesters(fabric):
        if requester.in_flight:
            yield f"a QP counts {requester.in_flight} bytes in flight"
    for qp in counts.roce_queue_pairs(fabric):
        if qp.requester is not None and qp.requester.in_flight:
            yield f"a QP counts {qp.requester.in_flight} packets in flight"


def _shares(fabric: Fabric) -> Iterator[str]:
    """A QP may be one packet further in one plane than in another; beside that the planes' shares are equal."""
    packets = [counts.data_counts(fabric, plane).packets for plane in range(fabric.topo.planes)]
    mean = sum(packets) / len(packets)
    slack = EVEN_SHARE * mean + len(counts.requesters(fabric))
    for plane, count in enumerate(packets):
        if abs(count - mean) > slack:
            yield f"plane {plane} carried {count} data packets, the planes' mean is {mean:.0f}"
