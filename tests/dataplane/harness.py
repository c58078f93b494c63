"""What the data-plane tests say: a switch with entries, frames into it, all that comes out."""

from __future__ import annotations

from ipaddress import IPv6Address

from finsy import P4Client
from finsy.p4schema import P4UpdateType
from finsy.proto import p4r
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from controller.drop_reasons import DROP_REASONS
from controller.p4runtime import Pipeline, SwitchClient
from controller.plan import Entry
from tests.dataplane.targets import DEVICE_ID, PORTS, Target

INGRESS_PORT = 7
ROUTER_MAC = "02:00:00:00:20:01"
HOST_MAC = "02:01:00:00:e0:00"
BLOCK = "fcbb:bbbb"
OWN_UN = f"{BLOCK}:1::/48"
MARKER_PREFIX = "fd00:ffff::"
DATA, TRIM, CONTROL = 0, 1, 2
"""Queues."""
NO_TRIM, TRIMMABLE, TRIMMABLE_RETX, TRIMMED, TRIMMED_LASTHOP, CONTROL_DSCP = 0, 4, 8, 12, 16, 46


def neighbour_mac(port: int) -> str:
    return f"02:00:00:00:99:{port:02x}"


def next_hop(port: int) -> Entry:
    params = (("port", port), ("src_mac", ROUTER_MAC), ("dst_mac", neighbour_mac(port)))
    return Entry("next_hop", (("next_hop_id", port + 1),), "forward", params)


def route(prefix: str, port: int) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to", (("next_hop_id", port + 1),))


def station(port: int) -> Entry:
    return Entry("my_station", (("ingress_port", port), ("dst_mac", ROUTER_MAC)), "admit_frame", ())


def traffic_class(dscp: int, queue: int, trimmable: bool = False) -> Entry:
    return Entry("traffic_class", (("dscp", dscp),), "classify", (("queue", queue), ("trimmable", int(trimmable))))


def queue_limits(port: int, data: int, trim: int) -> Entry:
    params = (("data_packets", data), ("trim_packets", trim))
    return Entry("queue_limits", (("egress_port", port),), "set_limits", params)


def host_role(port: int, size: int = 128) -> Entry:
    return Entry("port_role", (("egress_port", port),), "host_role", (("dscp", TRIMMED_LASTHOP), ("size", size)))


def fabric_role(port: int, size: int = 128, mark_from: int = 10_000, span: int = 1) -> Entry:
    params = (("dscp", TRIMMED), ("size", size), ("from", mark_from), ("span", span))
    return Entry("port_role", (("egress_port", port),), "fabric_role", params)


def basic(routes: dict[str, int]) -> list[Entry]:
    """A switch with its own uN, these routes to ports, the traffic classes, and a way out of every port for markers."""
    return [
        *(next_hop(port) for port in PORTS),
        *(route(f"{MARKER_PREFIX}{port:x}/128", port) for port in PORTS),
        *(route(prefix, port) for prefix, port in routes.items()),
        Entry("my_sid", (("dst_addr", OWN_UN),), "end_un", ()),
        traffic_class(TRIMMABLE, DATA, trimmable=True),
        traffic_class(TRIMMABLE_RETX, DATA, trimmable=True),
        traffic_class(TRIMMED, TRIM),
        traffic_class(TRIMMED_LASTHOP, TRIM),
        traffic_class(CONTROL_DSCP, CONTROL),
        station(INGRESS_PORT),
    ]


def marker(port: int) -> bytes:
    header = IPv6(src="fd00::1", dst=f"{MARKER_PREFIX}{port:x}", tc=CONTROL_DSCP << 2)
    return bytes(Ether(dst=ROUTER_MAC, src=HOST_MAC) / header / UDP())


def forwarded(sent: bytes, port: int, *, dst: str | None = None) -> bytes:
    """What a router makes of a frame: MACs, hop limit, and `dst` in place of the destination; all else is the same."""
    macs = bytes.fromhex((neighbour_mac(port) + ROUTER_MAC).replace(":", ""))
    destination = sent[38:54] if dst is None else IPv6Address(dst).packed
    return macs + sent[12:21] + bytes([sent[21] - 1]) + sent[22:38] + destination + sent[54:]


class Switch:
    """A target under test with its program."""

    def __init__(self, target: Target, pipeline: Pipeline) -> None:
        self.target = target
        self.pipeline = pipeline
        self._election_id = 0

    async def program(self, entries: list[Entry]) -> None:
        """A fresh pipeline with these entries and no others; all counters are 0."""
        self._election_id += 1  # a switch may not have noticed yet that the last connection is gone
        async with SwitchClient(self.target.control, self.pipeline, 10) as client:
            await client.become_primary(self._election_id)
            await client.commit_pipeline()
            assert await client.write(P4UpdateType.INSERT, entries) == []

    async def counter(self, name: str) -> dict[int, tuple[int, int]]:
        """(packets, bytes) of an indirect counter's cells that are not 0, by index."""
        entry = p4r.CounterEntry(counter_id=self.pipeline.schema.counters[name].id)
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=[p4r.Entity(counter_entry=entry)])
        client = P4Client(self.target.control.address)
        await client.open()
        try:
            replies = [reply async for reply in client.request_iter(request)]
        finally:
            await client.close()
        cells = [entity.counter_entry for reply in replies for entity in reply.entities]
        return {
            cell.index.index: (cell.data.packet_count, cell.data.byte_count) for cell in cells if cell.data.packet_count
        }

    async def packets(self, name: str) -> dict[int, int]:
        """Of a counter of packets: its bytes mean nothing, and BMv2 counts them all the same."""
        return {index: packets for index, (packets, _) in (await self.counter(name)).items()}

    async def drops(self) -> dict[str, tuple[int, int]]:
        """(packets, bytes) by reason."""
        return {DROP_REASONS[index]: count for index, count in (await self.counter("drop_reasons")).items()}

    async def exchange(self, *frames: bytes, port: int = INGRESS_PORT) -> list[tuple[int, bytes]]:
        """Send frames; all that comes out, as (port, frame), markers aside. Nothing is waited for by time.

        A control-class marker follows out of every port. When the last one is out the ingress has decided on every
        frame, so the counted drops say how many more are to come; in the end the egress must have sent just those.
        """
        dropped_before, sent_before = await self._dropped(), await self._sent()
        for frame in frames:
            await self.target.send(port, frame)
        for out in PORTS:
            await self.target.send(INGRESS_PORT, marker(out))
        received: list[tuple[int, bytes]] = []
        markers = 0
        expected: int | None = None
        while expected is None or len(received) < expected:
            out, frame = await self.target.receive()
            if frame[38:54] == IPv6Address(f"{MARKER_PREFIX}{out:x}").packed:
                markers += 1
            else:
                received.append((out, frame))
            if expected is None and markers == len(PORTS):
                expected = len(frames) - (await self._dropped() - dropped_before)
        assert await self._sent() - sent_before == len(received) + markers
        return received

    async def _dropped(self) -> int:
        return sum(packets for packets, _ in (await self.counter("drop_reasons")).values())

    async def _sent(self) -> int:
        return sum(packets for packets, _ in (await self.counter("port_tx")).values())
