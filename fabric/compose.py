"""A topology as a compose file: a container for each switch and NIC, a network for each link, and a controller.

Every link is a bridge network of its own with a small subnet, and a node finds the interface of a port by the link's
subnet, because engines promise no order of interfaces. The subnets are the engine's business only: the fabric's
packets have the addresses of the topology, which no kernel carries.

Link networks are IPv6 networks, or the engine's firewall would drop the fabric's packets on their way through the
bridge where br_netfilter is loaded: Docker 27 and newer drop forwarded IPv6, but for bridges of IPv6 networks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from controller.topology import End, Topology
from controller.topology_checks import check_pushable

DEFAULT_SUBNET = IPv4Network("10.213.0.0/16")
"""For all networks; it lies outside the pools that Docker takes from by itself."""
LINK_PREFIX = 29
"""Room for the bridge and the two ends of a link."""
IPV6_SUBNETS = IPv6Network("fd6d:7263:6c6b::/48")
"""For the link networks, a /64 each."""
MTU = 9000
"""Bytes of an IP packet on the links; a WRITE with a path MTU of 4096 needs 4224."""
NIC_CONTROL_PORT = 4790
BMV2_IMAGE = "p4lang/behavioral-model"
"""Where `simple_switch_grpc` comes from, unless the environment names another image."""
QUEUE_RATE = 1000
"""Packets/s of a switch's data queue."""
PACE = 1000
"""Packets/s of a NIC's port."""
_SPARE_HOSTS = 8
"""Addresses on the control network for the bridge, the controller and what `docker compose run` starts."""
PROJECT = Path(__file__).parents[1]
_TEMPLATE = Path(__file__).with_name("compose-template.yaml")
_PLACEHOLDER = re.compile(r"@([a-z0-9_]+)@")


@dataclass(frozen=True, slots=True)
class LinkNetwork:
    """The network of one link, and its subnets."""

    name: str
    ipv4: IPv4Network
    ipv6: IPv6Network


class Networks:
    """The networks of a fabric. Raises ValueError if they don't fit into `subnet`."""

    def __init__(self, topo: Topology, subnet: IPv4Network) -> None:
        link_count = sum(1 for _ in topo.links())
        hosts = topo.switch_count + topo.nic_count + _SPARE_HOSTS
        self.links: list[LinkNetwork] = []
        self.ports: dict[str, dict[int, LinkNetwork]] = defaultdict(dict)
        """The network of each port, by node and number."""
        control_prefix = 32 - hosts.bit_length()
        pools = list(subnet.subnets(new_prefix=control_prefix)) if control_prefix > subnet.prefixlen else []
        needed = link_count << (32 - LINK_PREFIX)
        if not pools or needed > subnet.num_addresses - pools[-1].num_addresses:
            raise ValueError(f"{subnet} is too small for {link_count} links and {hosts} hosts")
        self.control = pools[-1]
        subnets = zip(subnet.subnets(new_prefix=LINK_PREFIX), IPV6_SUBNETS.subnets(new_prefix=64), strict=False)
        for link, (ipv4, ipv6) in zip(topo.links(), subnets, strict=False):
            network = LinkNetwork(f"{link.a.node}.{link.b.node}", ipv4, ipv6)
            self.links.append(network)
            for end in (link.a, link.b):
                self._add(end, network)

    def _add(self, end: End, network: LinkNetwork) -> None:
        self.ports[end.node][end.port] = network


def check_control(topo: Topology) -> None:
    """Every switch is a host of its own name. Raises FileError."""
    check_pushable(topo)
    for switch in topo.switches():
        host, _, _ = switch.control.address.rpartition(":")
        if host != switch.name:
            key = ("control", "address")
            reason = f"{switch.name} would be at {host}; in containers it is '{{name}}:PORT', a host of its own name"
            raise topo.document.error(key, reason)


def compose_file(topo: Topology, topology: Path, root: Path, subnet: IPv4Network = DEFAULT_SUBNET) -> str:
    """The compose file of a topology. `topology` is its file and `root` this project's folder, both as seen from the
    compose file.

    Raises FileError for a topology that containers can't have, ValueError for a subnet that is too small.
    """
    check_control(topo)
    networks = Networks(topo, subnet)
    values = {
        "source": topology,
        "bmv2_image": BMV2_IMAGE,
        "queue_rate": QUEUE_RATE,
        "pace": PACE,
        "nic_port": NIC_CONTROL_PORT,
        "nic_port_hex": f"{NIC_CONTROL_PORT:04X}",
        "mtu": MTU,
        "root": root,
        "depends": _lines(f"      {switch.name}: {{condition: service_healthy}}" for switch in topo.switches()),
        "switches": _lines(_switches(topo, networks)),
        "nics": _lines(_nics(topo, networks)),
        "control": networks.control,
        "links": _lines(_link(link) for link in networks.links),
        "switch": _relative(root / "docker" / "switch.py"),
        "topology": _relative(topology),
    }
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), _TEMPLATE.read_text(encoding="utf-8"))


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _relative(path: Path) -> str:
    """So that compose takes it for a file's name, and no volume's."""
    return str(path) if path.is_absolute() else f"./{path}"


def _switches(topo: Topology, networks: Networks) -> Iterator[str]:
    for switch in topo.switches():
        ports = networks.ports[switch.name]
        _, _, grpc_port = switch.control.address.rpartition(":")
        words = [f"--device-id={switch.control.device_id}", f"--grpc=0.0.0.0:{grpc_port}"]
        words += [f'"{number}@{network.ipv4}"' for number, network in ports.items()]
        yield f"  {switch.name}:"
        yield "    <<: *switch"
        yield f"    command: [{', '.join(words)}]"
        yield f"    networks: [{_names(ports)}]"


def _nics(topo: Topology, networks: Networks) -> Iterator[str]:
    for nic in topo.nics():
        ports = networks.ports[nic.name]
        planes = " ".join(f"{plane}={network.ipv4}" for plane, network in ports.items())
        yield f"  {nic.name}:"
        yield "    <<: *nic"
        yield "    environment:"
        yield "      <<: *nic-environment"
        yield f"      MRCFAB_NIC: {nic.name}"
        yield f"      MRCFAB_PATHS: /paths/{nic.tenant}/row-{nic.row}.jsonl"
        yield f"      MRCFAB_PORTS: {planes}"
        yield f"    networks: [{_names(ports)}]"


def _names(ports: Mapping[int, LinkNetwork]) -> str:
    return ", ".join(["control", *(network.name for network in ports.values())])


def _link(link: LinkNetwork) -> str:
    return f"  {link.name}: {{<<: *link, ipam: {{config: [{{subnet: {link.ipv4}}}, {{subnet: '{link.ipv6}'}}]}}}}"
