"""The topology file, the one source of a fabric, and what follows from it: names, addresses, uSIDs, ports.

A fabric is `planes` separate two-tier Clos networks. In each, every T0 (one per row) has a link to every T1; a
NIC has one port per plane, on the T0 of its row. The planes meet in the NICs only (arXiv 2605.04333).

| what           | how it follows from the file                                                          |
|----------------|---------------------------------------------------------------------------------------|
| names          | `p{plane}t0-{row}`, `p{plane}t1-{index}`, `nic{n}` with n = row * nics_per_row + index   |
| uSID           | kind 3 bits (001 T0, 010 T1, 111 NIC), plane 3 bits, index 10 bits (a NIC's: in its row) |
| NIC address    | nic_prefix 48 bits, row 16 bits, plane 16 bits, 0, index in the row 16 bits             |
| switch address | switch_prefix, 0, uSID 16 bits                                                        |
| MACs           | locally administered: 02:00:00:00:uSID for all ports of a switch, 02:01:row:uSID for a NIC port |
| ports          | T0: from 1 to its NICs, then on to its T1s; T1: 1 + row; NIC: the plane's number        |
| device_id      | counts from 1: plane by plane, T0s before T1s                                         |
"""

from __future__ import annotations

import re
import socket
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property, partial
from ipaddress import IPv6Address, summarize_address_range
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from controller import topology_checks
from controller.tenants import Tenant, read_tenants
from controller.topology_file import (
    ControlModel,
    LinkOverride,
    OverridesModel,
    QueuesModel,
    SwitchOverride,
    TopologyModel,
)
from controller.yaml_file import Document
from nic_model.paths import UsidKind, usid

Role = Literal["t0", "t1"]
LinkKind = Literal["nic", "fabric"]

_USID_KIND: dict[Role, UsidKind] = {"t0": UsidKind.T0, "t1": UsidKind.T1}
_SWITCH_NAME = re.compile(r"p(0|[1-9]\d*)(t[01])-(0|[1-9]\d*)")
_NIC_NAME = re.compile(r"nic(0|[1-9]\d*)")
_PRESETS = Path(__file__).with_name("presets")
_NO_SWITCH_OVERRIDE = SwitchOverride()


class Control(NamedTuple):
    """Where a switch serves P4Runtime: HOST:PORT and device_id."""

    address: str
    device_id: int


@dataclass(frozen=True, slots=True)
class SwitchSpec:
    """A switch. `index` is the row of a T0, the number within the plane of a T1."""

    name: str
    role: Role
    plane: int
    index: int
    usid: int
    mac: str
    address: IPv6Address
    control: Control


@dataclass(frozen=True, slots=True)
class NicPort:
    """A NIC's port in one plane; its port number is the plane's."""

    plane: int
    usid: int
    address: IPv6Address
    mac: str


@dataclass(frozen=True, slots=True)
class NicSpec:
    """A NIC. `index` counts within the row; ports[p] is the port in plane p; `tenant` is the owner's name."""

    name: str
    row: int
    index: int
    ports: tuple[NicPort, ...]
    tenant: str


class SwitchPort(NamedTuple):
    """A port of a switch, and who is at the other end. `address` is the text of a NIC port's, else empty."""

    number: int
    peer: str
    peer_role: Literal["nic", "t0", "t1"]
    peer_index: int
    peer_usid: int
    peer_mac: str
    address: str
    queues: QueuesModel


class End(NamedTuple):
    """One end of a link: the node's name and its port's number."""

    node: str
    port: int


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A link; `a` is the lower end (NIC below T0 below T1)."""

    a: End
    b: End
    kind: LinkKind
    plane: int
    rate_gbps: float
    delay_ns: int


class UnknownNodeError(LookupError):
    """No node of this name is in the fabric. str() is one line that says which there are."""


class Topology:
    """A fabric, read-only. Everything is derived when it is asked for: what is kept is of the size of one switch."""

    def __init__(self, document: Document) -> None:
        """Check a file and take it. Raises FileError, one line with the place in the file."""
        self.document = document
        self.model = model = document.validate(TopologyModel)
        self.name = model.name
        self.planes = model.planes
        self.rows = model.rows
        self.t1_per_plane = model.t1_per_plane
        self.nics_per_row = model.nics_per_row
        self.mode = model.mode
        self._fabric_ports: dict[tuple[Role, int], list[SwitchPort]] = {}
        self._nic_prefix = int(model.nic_prefix.network_address)
        self.tenants = read_tenants(document, model)
        owners = {nics.start: tenant for tenant in self.tenants for nics in tenant.nics}
        self._first_owned = sorted(owners)
        self._owners = [owners[first] for first in self._first_owned]
        topology_checks.check_names(self)
        self._links = {_lower_end_first(*link.between): link for link in model.overrides.links}
        self._ports = {
            (name, _other(link, name)): number for link in model.overrides.links for name, number in link.ports.items()
        }
        topology_checks.check_addresses(self)
        topology_checks.check_control(self)
        topology_checks.check_ports(self)
        topology_checks.check_queues(self)
        topology_checks.check_dscp(self)

    @classmethod
    def load(cls, path: Path) -> Topology:
        """Read a topology file. Raises FileError."""
        return cls(Document.read(path))

    @classmethod
    def preset(cls, name: str) -> Topology:
        """A topology that comes with the controller. Raises KeyError."""
        return cls(Document.parse(preset_text(name), f"preset {name}"))

    def served_at(self, address: str) -> Topology:
        """The same fabric with all switches at one P4Runtime address, by the device_ids that count from 1."""
        links = self.model.overrides.links
        other = copy(self)
        other.model = self.model.model_copy(
            update={"control": ControlModel(address=address), "overrides": OverridesModel(links=links)}
        )
        return other

    # Nodes and links

    @property
    def switch_count(self) -> int:
        """The number of switches."""
        return self.planes * (self.rows + self.t1_per_plane)

    @property
    def nic_count(self) -> int:
        """The number of NICs."""
        return self.rows * self.nics_per_row

    def switches(self) -> Iterator[SwitchSpec]:
        """All switches in the order of their device_ids: plane by plane, T0s before T1s."""
        for plane in range(self.planes):
            for row in range(self.rows):
                yield self._switch("t0", plane, row)
            for index in range(self.t1_per_plane):
                yield self._switch("t1", plane, index)

    def nics(self) -> Iterator[NicSpec]:
        """All NICs, row by row."""
        for row in range(self.rows):
            yield from self.row(row)

    def row(self, row: int) -> Iterator[NicSpec]:
        """The NICs of one row."""
        for index in range(self.nics_per_row):
            yield self._nic(row, index)

    def links(self) -> Iterator[LinkSpec]:
        """All links: plane by plane, T0 by T0, first those to NICs, then those to T1s."""
        for plane in range(self.planes):
            for row in range(self.rows):
                t0 = self._switch("t0", plane, row)
                for port in self.ports(t0):
                    yield self._link(t0, port)

    def ports(self, switch: SwitchSpec) -> Iterator[SwitchPort]:
        """The ports of a switch: those to NICs by index, then those to switches by index."""
        usual = self._ports_to_switches(switch.role, switch.plane)
        if switch.role == "t0":
            usual = chain(self._ports_to_nics(switch), usual)
        return map(partial(self._overridden, switch.name), usual) if self._links else iter(usual)

    # Look-ups by name

    def switch(self, name: str) -> SwitchSpec:
        """A switch by its name. Raises UnknownNodeError."""
        role, plane, index = self.parse_switch(name)
        return self._switch(role, plane, index)

    def nic(self, name: str) -> NicSpec:
        """A NIC by its name. Raises UnknownNodeError."""
        return self._nic(*self.parse_nic(name))

    def row_prefix(self, row: int) -> str:
        """The /64 of a row's NIC ports."""
        return self._row_prefixes[row]

    @cached_property
    def _row_prefixes(self) -> list[str]:
        return [f"{address_text(self._nic_address(0, row, 0))}/64" for row in range(self.rows)]

    def row_network(self, row: int) -> bytes:
        """The same as the 8 leading bytes of an address."""
        return self._nic_address(0, row, 0).to_bytes(16, "big")[:8]

    def tenant(self, name: str) -> Tenant:
        """A tenant by its name. Raises UnknownNodeError."""
        for tenant in self.tenants:
            if tenant.name == name:
                return tenant
        raise UnknownNodeError(f"no tenant {name!r} in {self.name}: {', '.join(each.name for each in self.tenants)}")

    def tenant_of(self, row: int, index: int) -> Tenant:
        """The tenant that owns a NIC."""
        return self._owners[bisect_right(self._first_owned, row * self.nics_per_row + index) - 1]

    def nic_prefixes(self, tenant: Tenant, plane: int) -> Iterator[str]:
        """The fewest prefixes with the addresses of all the tenant's NICs in a plane, and of no other's.

        They hold rows that are the tenant's alone, whole, and of other rows this plane's addresses only.
        """
        per_row = self.nics_per_row
        for nics in tenant.nics:
            first_row, end_row = -(-nics.start // per_row), nics.stop // per_row  # the whole rows
            yield from self._part_of_row(plane, range(nics.start, min(nics.stop, first_row * per_row)))
            if first_row < end_row:
                yield from _cover(self._nic_address(0, first_row, 0), self._nic_address(0, end_row, 0) - 1)
            yield from self._part_of_row(plane, range(max(first_row, end_row) * per_row, nics.stop))

    def queues(self, one: str, other: str) -> QueuesModel:
        """The queue thresholds of the ports at both ends of a link, by its nodes' names."""
        override = self._links.get(_lower_end_first(one, other))
        usual = self.model.queues
        return usual.model_copy(update=override.queues.model_dump(exclude_unset=True)) if override else usual

    def parse_switch(self, name: str) -> tuple[Role, int, int]:
        """The (role, plane, index) of a switch's name. Raises UnknownNodeError."""
        match = _SWITCH_NAME.fullmatch(name)
        if match:
            role: Role = "t0" if match[2] == "t0" else "t1"
            plane, index = int(match[1]), int(match[3])
            if plane < self.planes and index < (self.rows if role == "t0" else self.t1_per_plane):
                return role, plane, index
        raise UnknownNodeError(
            f"no switch {name!r} in {self.name}: p0..{self.planes - 1}, t0-0..{self.rows - 1}, "
            f"t1-0..{self.t1_per_plane - 1}"
        )

    def parse_nic(self, name: str) -> tuple[int, int]:
        """The (row, index in the row) of a NIC's name. Raises UnknownNodeError."""
        match = _NIC_NAME.fullmatch(name)
        if match and int(match[1]) < self.nic_count:
            return divmod(int(match[1]), self.nics_per_row)
        raise UnknownNodeError(f"no NIC {name!r} in {self.name}: nic0..{self.nic_count - 1}")

    def linked(self, one: str, other: str) -> bool:
        """Whether there is a link between two nodes, by their names. Raises UnknownNodeError."""
        (lower, lower_plane, lower_row), (upper, upper_plane, upper_row) = sorted(map(self._place, (one, other)))
        if (lower, upper) == ("nic", "t0"):
            return lower_row == upper_row
        return (lower, upper) == ("t0", "t1") and lower_plane == upper_plane

    def _ports_to_nics(self, t0: SwitchSpec) -> Iterator[SwitchPort]:
        plane, row, queues = t0.plane, t0.index, self.model.queues
        for index in range(self.nics_per_row):
            peer_usid = usid(UsidKind.NIC, plane, index)
            mac, address = _nic_mac(row, peer_usid), address_text(self._nic_address(plane, row, index))
            name = f"nic{row * self.nics_per_row + index}"
            yield SwitchPort(1 + index, name, "nic", index, peer_usid, mac, address, queues)

    def _ports_to_switches(self, role: Role, plane: int) -> Iterable[SwitchPort]:
        """They are the same for all switches of a role in a plane."""
        if (role, plane) not in self._fabric_ports:
            peer_role: Role = "t1" if role == "t0" else "t0"
            first, count = (1 + self.nics_per_row, self.t1_per_plane) if role == "t0" else (1, self.rows)
            usids = [usid(_USID_KIND[peer_role], plane, index) for index in range(count)]
            self._fabric_ports[role, plane] = [
                SwitchPort(
                    first + index,
                    _switch_name(peer_role, plane, index),
                    peer_role,
                    index,
                    peer_usid,
                    _switch_mac(peer_usid),
                    "",
                    self.model.queues,
                )
                for index, peer_usid in enumerate(usids)
            ]
        return self._fabric_ports[role, plane]

    def _overridden(self, switch: str, port: SwitchPort) -> SwitchPort:
        number = self._port(switch, port.peer, port.number)
        return port._replace(number=number, queues=self.queues(switch, port.peer))

    def _place(self, name: str) -> tuple[str, int, int]:
        """(role, plane, row or index); sorts NICs below T0s and T0s below T1s."""
        if name.startswith("nic"):
            row, _ = self.parse_nic(name)
            return "nic", 0, row
        return self.parse_switch(name)

    # One node

    def _switch(self, role: Role, plane: int, index: int) -> SwitchSpec:
        name = _switch_name(role, plane, index)
        own_usid = usid(_USID_KIND[role], plane, index)
        address = IPv6Address(int(self.model.switch_prefix.network_address) | own_usid)
        return SwitchSpec(
            name, role, plane, index, own_usid, _switch_mac(own_usid), address, self._control(name, role, plane, index)
        )

    def _control(self, name: str, role: Role, plane: int, index: int) -> Control:
        override = self.model.overrides.switches.get(name, _NO_SWITCH_OVERRIDE)
        place = index if role == "t0" else self.rows + index
        device_id = 1 + plane * (self.rows + self.t1_per_plane) + place
        address = override.address or self.model.control.address
        return Control(address.replace("{name}", name), override.device_id or device_id)

    def _nic(self, row: int, index: int) -> NicSpec:
        ports = tuple(self._nic_port(plane, row, index) for plane in range(self.planes))
        tenant = self.tenant_of(row, index).name
        return NicSpec(f"nic{row * self.nics_per_row + index}", row, index, ports, tenant)

    def _nic_port(self, plane: int, row: int, index: int) -> NicPort:
        own_usid = usid(UsidKind.NIC, plane, index)
        return NicPort(plane, own_usid, IPv6Address(self._nic_address(plane, row, index)), _nic_mac(row, own_usid))

    def _nic_address(self, plane: int, row: int, index: int) -> int:
        return self._nic_prefix | row << 64 | plane << 48 | index

    def _part_of_row(self, plane: int, nics: range) -> Iterator[str]:
        if nics:
            row, index = divmod(nics.start, self.nics_per_row)
            first = self._nic_address(plane, row, index)
            yield from _cover(first, first + len(nics) - 1)

    def _link(self, t0: SwitchSpec, port: SwitchPort) -> LinkSpec:
        t0_end = End(t0.name, port.number)
        if port.peer_role == "nic":
            kind: LinkKind = "nic"
            usual = self.model.links.nic
            a, b = End(port.peer, t0.plane), t0_end
        else:
            kind = "fabric"
            usual = self.model.links.fabric
            a, b = t0_end, End(port.peer, self._port(port.peer, t0.name, 1 + t0.index))
        override = self._links.get((a.node, b.node))
        rate, delay = (override.rate_gbps, override.delay_ns) if override else (None, None)
        return LinkSpec(
            a,
            b,
            kind,
            t0.plane,
            usual.rate_gbps if rate is None else rate,
            usual.delay_ns if delay is None else delay,
        )

    def _port(self, switch: str, peer: str, usual: int) -> int:
        return self._ports.get((switch, peer), usual)


def address_text(address: int) -> str:
    """The text of an IPv6 address, given as a number; a big plan has too many for the slow str(IPv6Address)."""
    return socket.inet_ntop(socket.AF_INET6, address.to_bytes(16, "big"))


def preset_names() -> list[str]:
    """The topologies that come with the controller."""
    return sorted(path.stem for path in _PRESETS.glob("*.yaml"))


def preset_text(name: str) -> str:
    """The topology file of a preset. Raises KeyError."""
    if name not in preset_names():
        raise KeyError(name)
    return (_PRESETS / f"{name}.yaml").read_text(encoding="utf-8")


def _cover(first: int, last: int) -> Iterator[str]:
    return map(str, summarize_address_range(IPv6Address(first), IPv6Address(last)))


def _switch_name(role: Role, plane: int, index: int) -> str:
    return f"p{plane}{role}-{index}"


def _nic_mac(row: int, own_usid: int) -> str:
    return f"02:01:{_mac_tail(row)}:{_mac_tail(own_usid)}"


def _switch_mac(own_usid: int) -> str:
    return f"02:00:00:00:{_mac_tail(own_usid)}"


@cache
def _mac_tail(value: int) -> str:
    return f"{value >> 8:02x}:{value & 0xFF:02x}"


def _lower_end_first(one: str, other: str) -> tuple[str, str]:
    return (one, other) if _tier(one) < _tier(other) else (other, one)


def _tier(name: str) -> int:
    return 0 if name.startswith("nic") else 1 if "t0-" in name else 2


def _other(link: LinkOverride, name: str) -> str:
    one, other = link.between
    return other if name == one else one
