"""What each switch's tables must hold: the static routes of both modes, and how its ports treat packets.

Routes (fib; my_sid has the switch's own uN in each of the same blocks):

|                        | T0                                               | T1                                   |
|------------------------|--------------------------------------------------|--------------------------------------|
| blocks                 | of the tenants that have NICs in its row         | of all tenants                       |
| uSIDs (/48) in each    | each T1 -> uplink, the tenant's NICs -> downlink | T0s of the tenant's rows -> downlink |
| own NICs' ports (/128) | -> downlink                                      | none                                 |
| rows (/64)             | other rows -> group of all uplinks               | each row -> downlink                 |

There is one next hop per port and its id is the port's number, so that 0, what the pipeline starts from, is none.
A uN path has one next hop per uSID; the group is for plain IPv6, in ECMP mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.drop_reasons import DROP_REASONS
from controller.tenants import Tenant
from controller.topology import SwitchPort, SwitchSpec, Topology

TABLES = (
    "next_hop",
    "ecmp_group",
    "fib",
    "my_sid",
    "traffic_class",
    "queue_limits",
    "port_role",
    "punt",
    "guard",
    "host_port",
    "my_station",
)
"""In the order of writing: what is named before what names it, last what admits traffic. Deleting goes backwards."""

UPLINKS_GROUP = 1
"""The id of a T0's group of all uplinks; 0 is what the pipeline starts from."""

DATA_QUEUE, TRIM_QUEUE, CONTROL_QUEUE = range(3)
"""As p4src/headers.p4 has them; a higher number is served first."""

_TRAFFIC_CLASSES = (
    ("no_trim", DATA_QUEUE, False),
    ("trimmable", DATA_QUEUE, True),
    ("trimmable_retx", DATA_QUEUE, True),
    ("trimmed", TRIM_QUEUE, False),
    ("trimmed_lasthop", TRIM_QUEUE, False),
    ("control", CONTROL_QUEUE, False),
)
"""(role of the DSCP, queue, trimmable)."""

Value = int | str
"""A number, or the text of an IPv6 address, an IPv6 prefix or a MAC address in its canonical form."""

Fields = tuple[tuple[str, Value], ...]


class Member(NamedTuple):
    """One action of an action set. It gets `weight` of the flows, out of the sum over the set."""

    action: str
    params: Fields
    weight: int = 1

    def __str__(self) -> str:
        text = _call(self.action, self.params)
        return text if self.weight == 1 else f"{self.weight} x {text}"


class Entry(NamedTuple):
    """A table entry, by the names of P4Info. `match` and `params` are in P4Info's order.

    In a table with an action selector `members` is its one-shot action set, and `action` is empty.
    """

    table: str
    match: Fields
    action: str
    params: Fields
    members: tuple[Member, ...] = ()

    @property
    def key(self) -> tuple[str, Fields]:
        """What a switch holds at most one entry for."""
        return self.table, self.match

    @property
    def action_text(self) -> str:
        """The action with its parameters: `route_to(next_hop_id=3)`, or the action set in braces."""
        if self.members:
            return "{" + ", ".join(map(str, self.members)) + "}"
        return _call(self.action, self.params)

    def __str__(self) -> str:
        match = " ".join(f"{name}={value}" for name, value in self.match)
        return f"{self.table} {match} -> {self.action_text}"

    def as_json(self) -> dict[str, Any]:
        """The entry as JSON data."""
        data: dict[str, Any] = {"table": self.table, "match": dict(self.match)}
        if self.members:
            data["members"] = [
                {"action": member.action, "params": dict(member.params), "weight": member.weight}
                for member in self.members
            ]
        else:
            data |= {"action": self.action, "params": dict(self.params)}
        return data


def action_set(table: str, match: Fields, members: Iterable[Member]) -> Entry:
    """An entry with an action set in its normal form: sorted, each action once with its whole weight."""
    weights: Counter[tuple[str, Fields]] = Counter()
    for member in members:
        weights[member.action, member.params] += member.weight
    return Entry(table, match, "", (), tuple(Member(*call, weights[call]) for call in sorted(weights)))


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


class Series(NamedTuple):
    """Entries of one table with one action, as rows of values: those of `match`, then those of `params`."""

    table: str
    match: tuple[str, ...]
    action: str
    params: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]

    def entries(self) -> Iterator[Entry]:
        """The entries, row by row."""
        keys = len(self.match)
        for row in self.rows:
            match, params = tuple(zip(self.match, row, strict=False)), tuple(zip(self.params, row[keys:], strict=True))
            yield Entry(self.table, match, self.action, params)


def entries(topo: Topology, switch: SwitchSpec) -> Iterator[Entry]:
    """The entries of one switch: by table in the order of TABLES, then by tenant and port, uSIDs before addresses."""
    for part in plan(topo, switch):
        if isinstance(part, Entry):
            yield part
        else:
            yield from part.entries()


def plan(topo: Topology, switch: SwitchSpec) -> Iterator[Series | Entry]:
    """What `entries` gives, in series: a big plan has too many entries to make an object of each. A series may be
    empty; an entry with an action set stands alone."""
    ports = list(topo.ports(switch))
    tenants = [tenant for tenant in topo.tenants if switch.role == "t1" or switch.index in tenant.rows]
    yield from _next_hops(switch, ports)
    yield from _usid_routes(topo, switch, ports, tenants)
    yield from _address_routes(topo, switch, ports)
    yield Series("my_sid", ("dst_addr",), "end_un", (), [(tenant.usid_prefix(switch.usid),) for tenant in tenants])
    yield from _queueing(topo, ports)
    yield Series("punt", ("drop_reason",), "punt_to_controller", (), [(DROP_REASONS.index("hop_limit"),)])
    if topo.model.guard and switch.role == "t0":
        yield from _guard(topo, switch, ports, tenants)
    stations = [(port.number, switch.mac) for port in ports]
    yield Series("my_station", ("ingress_port", "dst_mac"), "admit_frame", (), stations)


def ecmp_seed(switch: SwitchSpec) -> int:
    """What sets a switch's choice of ECMP members apart from any other's, 32 bits: its uSID times an odd number.

    No two switches have the same seed. The program mixes it into the hash of a flow (p4src/route.p4), because
    members that depend on one hash alone would leave part of the links behind a switch without traffic.
    """
    return switch.usid * 0x9E37_79B1 & 0xFFFF_FFFF


def _next_hops(switch: SwitchSpec, ports: list[SwitchPort]) -> Iterator[Series | Entry]:
    hops = [(port.number, port.number, switch.mac, port.peer_mac) for port in ports]
    yield Series("next_hop", ("next_hop_id",), "forward", ("port", "src_mac", "dst_mac"), hops)
    if switch.role == "t0":
        uplinks = (Member("set_next_hop", (("next_hop_id", port.number),)) for port in ports if port.peer_role == "t1")
        yield action_set("ecmp_group", (("group_id", UPLINKS_GROUP),), uplinks)


def _usid_routes(
    topo: Topology, switch: SwitchSpec, ports: list[SwitchPort], tenants: list[Tenant]
) -> Iterator[Series]:
    for tenant in tenants:
        own = [port for port in ports if _leads_to(topo, switch, port, tenant)]
        yield _routes([(tenant.usid_prefix(port.peer_usid), port.number) for port in own])


def _leads_to(topo: Topology, switch: SwitchSpec, port: SwitchPort, tenant: Tenant) -> bool:
    """Whether a port is on a way to the tenant's NICs."""
    if port.peer_role == "nic":
        return topo.tenant_of(switch.index, port.peer_index) == tenant
    return port.peer_role == "t1" or port.peer_index in tenant.rows


def _address_routes(topo: Topology, switch: SwitchSpec, ports: list[SwitchPort]) -> Iterator[Series]:
    if switch.role == "t1":
        yield _routes([(topo.row_prefix(port.peer_index), port.number) for port in ports])
        return
    yield _routes([(f"{port.address}/128", port.number) for port in ports if port.address])
    seed = ecmp_seed(switch)
    remote = [(topo.row_prefix(row), UPLINKS_GROUP, seed) for row in range(topo.rows) if row != switch.index]
    yield Series("fib", ("dst_addr",), "route_to_group", ("group_id", "seed"), remote)


def _queueing(topo: Topology, ports: list[SwitchPort]) -> Iterator[Series]:
    """Traffic classes, and the thresholds and the role of each port."""
    dscp: dict[str, int] = topo.model.dscp.model_dump()
    classes = [(dscp[role], queue, int(trimmable)) for role, queue, trimmable in _TRAFFIC_CLASSES]
    yield Series("traffic_class", ("dscp",), "classify", ("queue", "trimmable"), classes)
    limits = [(port.number, port.queues.data_packets, port.queues.trim_packets) for port in ports]
    yield Series("queue_limits", ("egress_port",), "set_limits", ("data_packets", "trim_packets"), limits)
    size = topo.model.trim_size
    host = [(port.number, dscp["trimmed_lasthop"], size) for port in ports if port.peer_role == "nic"]
    yield Series("port_role", ("egress_port",), "host_role", ("dscp", "size"), host)
    fabric = [
        # The program draws below `span`: marking from one packet to the next takes a span of 1.
        (port.number, dscp["trimmed"], size, queues.mark_from, max(1, queues.mark_to - queues.mark_from))
        for port in ports
        if port.peer_role != "nic"
        for queues in [port.queues]
    ]
    yield Series("port_role", ("egress_port",), "fabric_role", ("dscp", "size", "from", "span"), fabric)


def _guard(topo: Topology, switch: SwitchSpec, ports: list[SwitchPort], tenants: list[Tenant]) -> Iterator[Series]:
    """What a NIC may send: from its port's address to the tenant's block behind this T0's uSID, or to its NICs."""
    reach = {
        tenant.name: [tenant.usid_prefix(switch.usid), *topo.nic_prefixes(tenant, switch.plane)] for tenant in tenants
    }
    hosts = [port for port in ports if port.address]
    passed = [
        (port.number, port.address, prefix)
        for port in hosts
        for prefix in reach[topo.tenant_of(switch.index, port.peer_index).name]
    ]
    yield Series("guard", ("ingress_port", "src_addr", "dst_addr"), "pass_guard", (), passed)
    yield Series("host_port", ("ingress_port",), "guard_this_port", (), [(port.number,) for port in hosts])


def _routes(rows: list[tuple[Value, ...]]) -> Series:
    return Series("fib", ("dst_addr",), "route_to", ("next_hop_id",), rows)


def _call(action: str, params: Fields) -> str:
    return f"{action}({', '.join(f'{name}={value}' for name, value in params)})"
