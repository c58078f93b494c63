"""Three switches, programmed by the controller from one topology file: a packet's way from hop to hop."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import NamedTuple

from scapy.layers.inet import UDP
from scapy.layers.inet6 import ICMPv6TimeExceeded, IPerror6, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from controller.packet_io import PacketIn, icmp_time_exceeded
from controller.plan import Entry, entries
from controller.topology import SwitchSpec, Topology
from ptf_tests.fabric_test import OwnSwitch, OwnSwitchTest
from tests.dataplane.entries import BLOCK, TRIMMABLE, TRIMMED, TRIMMED_LASTHOP, queue_limits
from tests.dataplane.frames import cut, routed

SENDER, RECEIVER = "nic0", "nic2"
SWITCHES = ("p0t0-0", "p0t1-1", "p0t0-1")


class Hop(NamedTuple):
    """A switch on the way, its ports back to the sender and on to the receiver, and the MAC of what comes next."""

    spec: SwitchSpec
    switch: OwnSwitch
    back: int
    onward: int
    next_mac: str


class PathTest(OwnSwitchTest):
    """Plane 0 of the preset `compose`: from nic0 by its T0, T1 1 and the other T0 to nic2."""

    def setUp(self) -> None:
        super().setUp()
        topo = Topology.preset("compose")
        ports: dict[tuple[str, str], int] = {}
        for link in topo.links():
            if link.plane == 0:
                ports[link.a.node, link.b.node] = link.a.port
                ports[link.b.node, link.a.node] = link.b.port
        self.sender, self.receiver = (topo.nic(name).ports[0] for name in (SENDER, RECEIVER))
        specs = [topo.switch(name) for name in SWITCHES]
        way = (SENDER, *SWITCHES, RECEIVER)
        macs = [*(spec.mac for spec in specs[1:]), self.receiver.mac]
        self.hops = []
        for place, (spec, mac) in enumerate(zip(specs, macs, strict=True)):
            switch = self.start() if place else self.switch
            switch.commit()
            switch.install(*entries(topo, spec))
            back, onward = (ports[spec.name, way[there]] for there in (place, place + 2))
            self.hops.append(Hop(spec, switch, back, onward, mac))
        usids = [f"{usid:x}" for usid in (*(spec.usid for spec in specs), self.receiver.usid)]
        self.containers = [":".join([BLOCK, *usids[place:]]) + "::" for place in range(len(usids))]
        """The destination before each hop, and at the receiver."""

    def packet(self, hop_limit: int = 64) -> bytes:
        inner = IPv6(src=str(self.sender.address), dst=str(self.receiver.address), hlim=64)
        udp = UDP(sport=0xC000, dport=4791, chksum=0xBEEF) / Raw(bytes(n % 251 for n in range(1000)))
        outer = IPv6(src=inner.src, dst=self.containers[0], hlim=hop_limit, tc=TRIMMABLE << 2 | 2, fl=0xABCDE)
        return bytes(Ether(src=self.sender.mac, dst=self.hops[0].spec.mac) / outer / inner / udp)

    def cross(self, place: int, sent: bytes) -> bytes:
        """Through one switch; what must come out."""
        hop = self.hops[place]
        hop.switch.send(sent, port=hop.back)
        return routed(sent, hop.spec.mac, hop.next_mac, self.containers[place + 1])

    def limits(self, place: int, data: int) -> Entry:
        return queue_limits(self.hops[place].onward, data, 60)


class AContainerIsShiftedAtEachHop(PathTest):
    """The destination is the container less one uSID behind each switch; the receiver gets its own uSID alone."""

    def runTest(self) -> None:
        frame = self.packet()
        for place, hop in enumerate(self.hops):
            frame = self.cross(place, frame)
            hop.switch.expect(hop.onward, frame)
        self.assertEqual(Ether(frame)[IPv6].dst, f"{BLOCK}:{self.receiver.usid:x}::")
        self.assertEqual(Ether(frame).hlim, 61)
        self.assertEqual(frame[54:], self.packet()[54:])


class ATracerouteShowsTheDestinationThatEachHopReceived(PathTest):
    """Hop limits 1, 2, 3; each switch's answer travels back through the switches before it, by plain routes."""

    def runTest(self) -> None:
        for last, expired_at in enumerate(self.hops):
            frame = self.packet(hop_limit=last + 1)
            for place in range(last):
                frame = self.cross(place, frame)
                self.hops[place].switch.expect(self.hops[place].onward, frame)
            expired_at.switch.send(frame, port=expired_at.back)
            expired_at.switch.expect_packet_in(PacketIn(expired_at.back, "hop_limit", frame))
            answer = icmp_time_exceeded(expired_at.spec.address, frame)
            assert answer is not None
            expired_at.switch.packet_out(expired_at.back, answer)
            expired_at.switch.expect(expired_at.back, answer)
            for place in range(last - 1, -1, -1):
                hop = self.hops[place]
                hop.switch.send(answer, port=hop.onward)
                answer = routed(answer, hop.spec.mac, self.hops[place - 1].spec.mac if place else self.sender.mac)
                hop.switch.expect(hop.back, answer)
            seen = Ether(answer)
            self.assertEqual((seen.dst, seen[IPv6].dst), (self.sender.mac, str(self.sender.address)))
            self.assertEqual(seen[IPv6].src, str(expired_at.spec.address))
            self.assertEqual(seen[ICMPv6TimeExceeded].code, 0)
            self.assertEqual(IPv6Address(seen[IPerror6].dst), IPv6Address(self.containers[last]))


class CongestionInTheFabricIsTrimmedAndAtTheHostTrimmedLasthop(PathTest):
    """A packet that the fabric trimmed stays TRIMMED to the end, also past a congested last hop."""

    def runTest(self) -> None:
        first, middle, last = self.hops
        whole = self.packet()
        frame = self.cross(0, whole)
        first.switch.expect(first.onward, frame)

        last.switch.modify(self.limits(2, 0))
        untrimmed = self.cross(1, frame)
        middle.switch.expect(middle.onward, untrimmed)
        last.switch.expect(last.onward, cut(self.cross(2, untrimmed), TRIMMED_LASTHOP))

        middle.switch.modify(self.limits(1, 0))
        trimmed = cut(self.cross(1, frame), TRIMMED)
        middle.switch.expect(middle.onward, trimmed)
        last.switch.expect(last.onward, self.cross(2, trimmed))
        self.assertEqual(len(trimmed), 128)
