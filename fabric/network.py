"""A fabric in virtual time, built from a topology: embedded P4 switches, MRC NICs and the links between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

from controller.path_files import path_file
from controller.topology import LinkSpec, Topology
from fabric.events import EventList
from fabric.links import Frame, Link, LinkState, Wire
from fabric.nodes import CPU_PORT, NicNode, SwitchNode
from nic_model.congestion import CongestionControl
from nic_model.ev import EvProfile
from nic_model.events import Event
from nic_model.nic import Nic
from switch_model.device import Device

FULL_FRAME = 4262
"""Bytes of a 4096-byte data packet with its SRv6 headers, FCS, preamble and gap."""
CONTROL_FRAME = 178
"""Bytes of a SACK, likewise."""


class UnknownLinkError(LookupError):
    """A link that the fabric does not have. str() is one line."""


class Fabric:
    """`topo` in virtual time. Its switches have no pipeline and no entries until a controller pushes them.

    Every random choice comes from `seed`, by a stream of its own for each switch, NIC and link.
    """

    def __init__(
        self,
        topo: Topology,
        *,
        seed: int,
        ev_profile: EvProfile,
        congestion: Callable[[int], CongestionControl],
        log: Callable[[str, Event], None] | None = None,
        log_windows: bool = False,
    ) -> None:
        self.topo = topo
        self.events = EventList()
        self.switches: dict[str, SwitchNode] = {}
        for switch in topo.switches():
            boot = partial(
                Device,
                switch.control.device_id,
                name=switch.name,
                cpu_port=CPU_PORT,
                seed=_stream(seed, switch.name).getrandbits(64),
            )
            self.switches[switch.name] = SwitchNode(boot, switch.role, switch.plane, self.events)
        self.nics: dict[str, NicNode] = {}
        paths = {
            (tenant.name, row): path_file(topo, row, tenant.name) for tenant in topo.tenants for row in tenant.rows
        }
        for nic in topo.nics():
            core = Nic(
                paths[nic.tenant, nic.row],
                nic.name,
                rng=_stream(seed, nic.name),
                congestion=congestion,
                ev_profiles={0: ev_profile},
                log=partial(log, nic.name) if log else None,
                log_windows=log_windows,
            )
            self.nics[nic.name] = NicNode(core, self.events)
        self.links: dict[frozenset[str], Link] = {}
        for spec in topo.links():
            link = self._join(spec, _stream(seed, f"{spec.a.node} - {spec.b.node}"))
            self.links[frozenset((spec.a.node, spec.b.node))] = link

    def switch(self, name: str) -> SwitchNode:
        """A switch. Raises UnknownNodeError."""
        return self.switches[self.topo.switch(name).name]

    def nic(self, name: str) -> NicNode:
        """A NIC. Raises UnknownNodeError."""
        return self.nics[self.topo.nic(name).name]

    def link(self, one: str, other: str) -> Link:
        """The link between two nodes. Raises UnknownLinkError."""
        link = self.links.get(frozenset((one, other)))
        if link is None:
            raise UnknownLinkError(f"{self.topo.name} has no link between {one} and {other}")
        return link

    def nic_link(self, nic: str, plane: int) -> Link:
        """The link of a NIC's port. Raises UnknownNodeError and UnknownLinkError."""
        links = self.links_of(self.topo.nic(nic).name)
        if plane >= len(links):
            raise UnknownLinkError(f"{nic} has no port {plane}: 0..{len(links) - 1}")
        return links[plane]

    def links_of(self, node: str) -> list[Link]:
        """All links of a switch, or of a NIC in the order of its ports."""
        return [link for link in self.links.values() if node in (link.ends[0][0], link.ends[1][0])]

    def wires(self, plane: int | None = None) -> Iterator[Wire]:
        """Both directions of all links, of one plane or all."""
        return (wire for link in self.links.values() if plane in (None, link.plane) for wire in link.wires)

    def in_flight(self) -> int:
        """Frames on all wires and in the queues of all switches."""
        return sum(wire.counters.in_flight for wire in self.wires()) + self.occupancy()

    def fall_silent(self) -> None:
        """No NIC sends any more: what is in flight drains."""
        for node in self.nics.values():
            node.fall_silent()

    def _join(self, spec: LinkSpec, rng: random.Random) -> Link:
        state = LinkState()
        ends = (spec.a, spec.b)
        wires = tuple(
            Wire(self.events, spec.rate_gbps, spec.delay_ns, state, rng, self._delivery(to.node, to.port))
            for to in (spec.b, spec.a)
        )
        link = Link(((spec.a.node, spec.a.port), (spec.b.node, spec.b.port)), spec.plane, state, wires)
        for end, wire in zip(ends, wires, strict=True):
            if end.node in self.switches:
                self.switches[end.node].connect(end.port, wire)
            else:
                nic = self.nics[end.node]
                nic.connect(end.port, wire)
                link.on_status.append(partial(nic.port_status, end.port))
        return link

    def _delivery(self, node: str, port: int) -> Callable[[Frame], None]:
        if node in self.switches:
            return partial(self.switches[node].arrive, port)
        return partial(self.nics[node].arrive, port)

    def occupancy(self) -> int:
        """Frames that wait in the queues of all switches."""
        return sum(node.device.occupancy() for node in self.switches.values())


def _stream(seed: int, name: str) -> random.Random:
    """An independent stream of random numbers for one part of the fabric."""
    return random.Random(f"{seed}/{name}")


def base_rtt(topo: Topology) -> int:
    """ns from a full packet's first bit to the last bit of its SACK, across T1, with every queue empty."""
    links = topo.model.links
    total = 0.0
    for link in (links.nic, links.fabric, links.fabric, links.nic):
        total += 2 * link.delay_ns + (FULL_FRAME + CONTROL_FRAME) * 8 / link.rate_gbps
    return round(total)


def line_rate(topo: Topology) -> float:
    """Gb/s of a NIC: all its ports together."""
    return topo.planes * topo.model.links.nic.rate_gbps
