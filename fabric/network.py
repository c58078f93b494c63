"""A fabric in virtual time, built from a topology: embedded P4 switches, NICs and the links between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

from controller.path_files import path_file
from controller.topology import LinkSpec, SwitchSpec, Topology
from fabric.events import EventList
from fabric.links import Frame, Link, LinkState, Wire
from fabric.nodes import CPU_PORT, NicNode, SwitchNode
from fabric.pfc import LosslessDevice, LosslessNicNode, LosslessSwitchNode
from fabric.transports import Transport
from nic_model.device import Device as NicDevice
from nic_model.roce import RoceNic
from switch_model.device import Device


class UnknownLinkError(LookupError):
    """A link that the fabric does not have. str() is one line."""


class Fabric:
    """`topo` in virtual time. Its switches have no pipeline and no entries until a controller pushes them.

    Every random choice comes from `seed`, by a stream of its own for each switch, NIC and link.
    """

    def __init__(self, topo: Topology, transport: Transport, *, seed: int) -> None:
        """Raises ValueError if the links have PFC and the NICs do not obey it."""
        self.topo = topo
        self.events = EventList()
        self.switches = {switch.name: self._switch(switch, seed) for switch in topo.switches()}
        paths = {
            (tenant.name, row): path_file(topo, row, tenant.name) for tenant in topo.tenants for row in tenant.rows
        }
        self.nics: dict[str, NicNode] = {}
        for nic in topo.nics():
            device = transport.nic(paths[nic.tenant, nic.row], nic.name, _stream(seed, nic.name))
            self.nics[nic.name] = self._nic(device)
        self.links: dict[frozenset[str], Link] = {}
        for spec in topo.links():
            link = self._join(spec, _stream(seed, f"{spec.a.node} - {spec.b.node}"))
            self.links[frozenset((spec.a.node, spec.b.node))] = link

    def _switch(self, switch: SwitchSpec, seed: int) -> SwitchNode:
        model, events = self.topo.model, self.events
        device_id, device_seed = switch.control.device_id, _stream(seed, switch.name).getrandbits(64)
        if model.links.pfc is None:
            boot = partial(Device, device_id, name=switch.name, cpu_port=CPU_PORT, seed=device_seed)
            return SwitchNode(boot, switch.role, switch.plane, events)
        lossless = partial(LosslessDevice, device_id, name=switch.name, cpu_port=CPU_PORT, seed=device_seed)
        mac = bytes.fromhex(switch.mac.replace(":", ""))
        other_dscps = frozenset((model.dscp.trimmed, model.dscp.trimmed_lasthop, model.dscp.control))
        return LosslessSwitchNode(lossless, switch.role, switch.plane, events, model.links.pfc, mac, other_dscps)

    def _nic(self, device: NicDevice) -> NicNode:
        if self.topo.model.links.pfc is None:
            return NicNode(device, self.events)
        if not isinstance(device, RoceNic):
            raise ValueError(f"the links of {self.topo.name} have PFC, which {device.name} does not obey")
        return LosslessNicNode(device, self.events)

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
            node = self.switches.get(end.node) or self.nics[end.node]
            node.connect(end.port, wire)
            link.on_status.append(partial(node.port_status, end.port))
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
