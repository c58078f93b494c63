"""A trace over one path of a fabric in virtual time: real probes, real switches, answers from the controller."""

from __future__ import annotations

from functools import partial
from ipaddress import IPv6Address
from typing import NamedTuple

from controller.topology import Topology
from fabric.control import ControlPlane
from fabric.links import Frame
from fabric.network import Fabric
from fabric.transports import MrcTransport
from nic_model.congestion import FixedWindow
from nic_model.ev import EV_PLANE_SHIFT, EvProfile
from nic_model.headers import Ethernet, IPv6
from nic_model.nic import Nic
from nic_model.trace import PathTrace

CONTROL_LATENCY = 1_000_000
"""ns from a packet's punt to the controller's answer."""
_TIMEOUT = 10 * CONTROL_LATENCY


class Hop(NamedTuple):
    """Where a probe's hop limit ended it: the node and its address, None and "" if nobody answered.

    `destination` is the outermost destination as the node received it, "" if unknown; `rtt_us` to its answer.
    """

    hop_limit: int
    node: str | None
    address: str
    destination: str
    rtt_us: float | None


def trace(topo: Topology, source: str, target: str, ev: int) -> list[Hop]:
    """Trace the path that `ev` is between two NICs of a healthy fabric.

    Raises UnknownNodeError, ControlError, and ValueError for an EV that is no path or NICs without one.
    """
    fabric = Fabric(topo, MrcTransport(EvProfile(), congestion=lambda _: FixedWindow(1)), seed=1)
    a, b = fabric.nic(source), fabric.nic(target)
    sender = a.nic
    assert isinstance(sender, Nic)  # what MrcTransport makes
    plane = ev >> EV_PLANE_SHIFT
    peer = sender.peer(topo.nic(target).ports[0].address.packed)
    if peer is None or a is b:
        raise ValueError(f"there is no path from {source} to {target}")
    if plane >= topo.planes:
        raise ValueError(f"EV {ev:#010x} is no path: {topo.name} has {topo.planes} planes")
    peer.encap(plane, ev)
    at_target: list[str] = []
    b.tap = partial(_note_destination, at_target)
    with ControlPlane(topo, fabric) as control:
        control.program()
        control.answer_packets(CONTROL_LATENCY)
        running = PathTrace(sender, peer, plane, ev, _TIMEOUT, fabric.events.now)
        a.attend()
        while not running.done:
            fabric.events.run(fabric.events.now + _TIMEOUT)
    names = {switch.address.packed: switch.name for switch in topo.switches()}
    names |= dict.fromkeys(peer.addresses, target)
    hops = []
    for answer in running.answers:
        received = None if answer.destination is None else str(IPv6Address(answer.destination))
        if answer.arrived:
            received = at_target[0]
        by = answer.by
        hops.append(
            Hop(
                answer.hop_limit,
                None if by is None else names.get(by),
                "" if by is None else str(IPv6Address(by)),
                received or "",
                None if answer.rtt is None else answer.rtt / 1000,
            )
        )
    return hops


def _note_destination(seen: list[str], _plane: int, leaving: bool, frame: Frame) -> None:
    """The peer does not tell with which destination a probe reached it, but its wire does."""
    if not leaving:
        seen.append(str(IPv6Address(IPv6.unpack(b"".join(frame), Ethernet.SIZE).dst)))
