"""Table entries of the switch under test, and the names that tests call its parts by."""

from __future__ import annotations

from ipaddress import IPv6Address

from controller.drop_reasons import DROP_REASONS
from controller.plan import CONTROL_QUEUE, DATA_QUEUE, TRIM_QUEUE, Entry, Member

PORTS = range(8)
"""The ports that frames under test go in and out of."""
INGRESS_PORT = 7
MARKER_PORT = 8
"""Nothing but markers leaves here (`frames.marker`)."""
CPU_PORT = 510
QUEUES_PER_PORT = 8

ROUTER_MAC = "02:00:00:00:20:01"
HOST_MAC = "02:01:00:00:e0:00"
BLOCK = "fcbb:bbbb"
OWN_UN = f"{BLOCK}:1::/48"
MARKER_SOURCE = "fd00:ffff::1"
MARKER_DESTINATION = "fd00:ffff::2"

NO_TRIM, TRIMMABLE, TRIMMABLE_RETX, TRIMMED, TRIMMED_LASTHOP, CONTROL_DSCP = 0, 4, 8, 12, 16, 46
"""DSCPs, as the controller's presets have them."""
DATA, TRIM, CONTROL = DATA_QUEUE, TRIM_QUEUE, CONTROL_QUEUE
"""Queues."""
NO_MARKS = 10_000
"""Packets: a threshold that no queue reaches."""


def neighbour_mac(port: int) -> str:
    """The MAC address at the other end of a port's link."""
    return f"02:00:00:00:99:{port:02x}"


def next_hop(port: int) -> Entry:
    """The next hop behind a port; its id is the port's number plus 1, as 0 is none."""
    params = (("port", port), ("src_mac", ROUTER_MAC), ("dst_mac", neighbour_mac(port)))
    return Entry("next_hop", (("next_hop_id", port + 1),), "forward", params)


def route(prefix: str, port: int) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to", (("next_hop_id", port + 1),))


def discard_route(prefix: str) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "discard", ())


def group_route(prefix: str, group: int, seed: int) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to_group", (("group_id", group), ("seed", seed)))


def group(group_id: int, ports: tuple[int, ...], weights: tuple[int, ...] = ()) -> Entry:
    """A one-shot action set of next hops, all of weight 1 unless `weights` says otherwise."""
    members = tuple(
        Member("set_next_hop", (("next_hop_id", port + 1),), weight)
        for port, weight in zip(ports, weights or (1,) * len(ports), strict=True)
    )
    return Entry("ecmp_group", (("group_id", group_id),), "", (), members)


def sid(prefix: str) -> Entry:
    return Entry("my_sid", (("dst_addr", prefix),), "end_un", ())


def station(port: int, mac: str = ROUTER_MAC) -> Entry:
    return Entry("my_station", (("ingress_port", port), ("dst_mac", mac)), "admit_frame", ())


def host_port(port: int) -> Entry:
    return Entry("host_port", (("ingress_port", port),), "guard_this_port", ())


def guard(port: int, src: str, dst: str) -> Entry:
    match = (("ingress_port", port), ("src_addr", src), ("dst_addr", dst))
    return Entry("guard", match, "pass_guard", ())


def punt(reason: str) -> Entry:
    return Entry("punt", (("drop_reason", DROP_REASONS.index(reason)),), "punt_to_controller", ())


def traffic_class(dscp: int, queue: int, trimmable: bool = False) -> Entry:
    return Entry("traffic_class", (("dscp", dscp),), "classify", (("queue", queue), ("trimmable", int(trimmable))))


def queue_limits(port: int, data: int, trim: int) -> Entry:
    """Limits in packets."""
    params = (("data_packets", data), ("trim_packets", trim))
    return Entry("queue_limits", (("egress_port", port),), "set_limits", params)


def host_role(port: int, size: int = 128, dscp: int = TRIMMED_LASTHOP) -> Entry:
    """`size` is the trim size in bytes of frame."""
    return Entry("port_role", (("egress_port", port),), "host_role", (("dscp", dscp), ("size", size)))


def fabric_role(port: int, size: int = 128, dscp: int = TRIMMED, mark_from: int = NO_MARKS, span: int = 1) -> Entry:
    params = (("dscp", dscp), ("size", size), ("from", mark_from), ("span", span))
    return Entry("port_role", (("egress_port", port),), "fabric_role", params)


def basic(routes: dict[str, int]) -> list[Entry]:
    """A switch with its own uN, these routes to ports, the traffic classes, and a way for markers."""
    return [
        *(next_hop(port) for port in PORTS),
        *marker_way(),
        *(route(prefix, port) for prefix, port in routes.items()),
        sid(OWN_UN),
        traffic_class(TRIMMABLE, DATA, trimmable=True),
        traffic_class(TRIMMABLE_RETX, DATA, trimmable=True),
        traffic_class(TRIMMED, TRIM),
        traffic_class(TRIMMED_LASTHOP, TRIM),
        traffic_class(CONTROL_DSCP, CONTROL),
    ]


def marker_way() -> list[Entry]:
    """What brings markers from every port to MARKER_PORT, but for the class of CONTROL_DSCP."""
    return [
        next_hop(MARKER_PORT),
        route(f"{MARKER_DESTINATION}/128", MARKER_PORT),
        *(station(port) for port in PORTS),
    ]


def shifted(address: str) -> str:
    """What a uN makes of a destination (RFC 9800 4.1): the block stays, the argument moves up by one uSID."""
    number = int(IPv6Address(address))
    return str(IPv6Address(number >> 96 << 96 | (number << 16) % (1 << 96)))
