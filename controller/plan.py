"""What each switch's tables must hold: the static routes of both modes, SRv6 and ECMP.

|    | my_sid     | fib, uSIDs (/48)                          | fib, addresses                            |
|----|------------|-------------------------------------------|-------------------------------------------|
| T0 | its own uN | each T1 -> its uplink, each NIC -> its downlink | each of its NICs' ports (/128) -> its downlink |
| T1 | its own uN | each T0 -> its downlink                      | each row (/64) -> its downlink               |

There is one next hop per port and its id is the port's number, so that 0, what the pipeline starts from, is none.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.topology import SwitchPort, SwitchSpec, Topology

TABLES = ("next_hop", "fib", "my_sid", "my_station")
"""In the order of writing: what is named first, and last what admits traffic. Deleting goes the other way."""

Value = int | str
"""A number, or the text of an IPv6 address, an IPv6 prefix or a MAC address in its canonical form."""

Fields = tuple[tuple[str, Value], ...]


class Entry(NamedTuple):
    """A table entry, by the names of P4Info. `match` and `params` are in P4Info's order."""

    table: str
    match: Fields
    action: str
    params: Fields

    @property
    def key(self) -> tuple[str, Fields]:
        """What a switch holds at most one entry for."""
        return self.table, self.match

    @property
    def action_text(self) -> str:
        """The action with its parameters: `route_to(next_hop_id=3)`."""
        params = ", ".join(f"{name}={value}" for name, value in self.params)
        return f"{self.action}({params})"

    def __str__(self) -> str:
        match = " ".join(f"{name}={value}" for name, value in self.match)
        return f"{self.table} {match} -> {self.action_text}"

    def as_json(self) -> dict[str, Any]:
        """The entry as JSON data."""
        return {
            "table": self.table,
            "match": dict(self.match),
            "action": self.action,
            "params": dict(self.params),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """How what a switch holds differs from the plan. Each list is in the order of the plan, or of the switch."""

    missing: list[Entry]
    extra: list[Entry]
    changed: list[tuple[Entry, Entry]]
    """(planned, present) for the same match."""
    unchanged: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)


def entries(topo: Topology, switch: SwitchSpec) -> Iterator[Entry]:
    """The entries of one switch: by table in the order of TABLES, then by port, uSIDs before addresses."""
    ports = list(topo.ports(switch))
    for port in ports:
        hop = (("port", port.number), ("src_mac", switch.mac), ("dst_mac", port.peer_mac))
        yield Entry("next_hop", (("next_hop_id", port.number),), "forward", hop)
    for port in ports:
        yield _route(topo.usid_prefix(port.peer_usid), port)
    for port in ports:
        if port.address is not None:
            yield _route(f"{address_text(port.address.packed)}/128", port)
        elif port.peer_role == "t0":
            yield _route(topo.row_prefix(port.peer_index), port)
    yield Entry("my_sid", (("dst_addr", topo.usid_prefix(switch.usid)),), "end_un", ())
    for port in ports:
        yield Entry("my_station", (("ingress_port", port.number), ("dst_mac", switch.mac)), "admit_frame", ())


def compare(planned: Iterable[Entry], present: Iterable[Entry]) -> Difference:
    """What separates a switch's entries from the plan."""
    found = {entry.key: entry for entry in present}
    missing: list[Entry] = []
    changed: list[tuple[Entry, Entry]] = []
    unchanged = 0
    for entry in planned:
        other = found.pop(entry.key, None)
        if other is None:
            missing.append(entry)
        elif other != entry:
            changed.append((entry, other))
        else:
            unchanged += 1
    return Difference(missing, list(found.values()), changed, unchanged)


def address_text(packed: bytes) -> str:
    """An IPv6 address as entries have it; a big plan has too many for the slow str(IPv6Address)."""
    return socket.inet_ntop(socket.AF_INET6, packed)


def _route(prefix: str, port: SwitchPort) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to", (("next_hop_id", port.number),))
