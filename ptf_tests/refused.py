"""What a switch does not route: other stations, other protocols, martians, frames that end too early."""

from __future__ import annotations

from typing import ClassVar

from scapy.layers.inet import UDP
from scapy.layers.inet6 import (
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from ptf_tests.fabric_test import SwitchTest, cases
from tests.dataplane.entries import BLOCK, HOST_MAC, INGRESS_PORT, ROUTER_MAC, basic, station
from tests.dataplane.frames import SOURCE, forwarded, frame, to_router
from tests.dataplane.vectors import IPV6, NO_NEXT_HEADER, UDP_HEADER, un_frame

ROUTES = {f"{BLOCK}:2::/48": 1, "::/0": 2}
GOOD = un_frame(f"{BLOCK}:1:2::")
UDP_PACKET = UDP(sport=1, dport=4791, chksum=0xBEEF) / Raw(bytes(range(100)))


def altered(change: dict[int, int]) -> bytes:
    """GOOD with other bytes at these places."""
    return bytes(change.get(place, value) for place, value in enumerate(GOOD))


class Refused(SwitchTest):
    """A frame that is dropped for `reason`, though there is a route for every address; nothing leaves any port."""

    sent: ClassVar[bytes]
    reason: ClassVar[str]

    def check(self) -> None:
        self.switch.install(*basic(ROUTES))
        self.switch.send(self.sent)
        self.switch.send(GOOD)
        self.switch.expect(1, forwarded(GOOD, 1, dst=f"{BLOCK}:2::"))
        self.switch.done(**{self.reason: [self.sent]})


def ipv6(dst: str, src: str = SOURCE) -> Packet:
    return IPv6(src=src, dst=dst) / UDP_PACKET


def to(mac: str, packet: Packet) -> bytes:
    return bytes(Ether(src=HOST_MAC, dst=mac) / packet)


cases(
    globals(),
    Refused,
    {
        name: {"sent": sent, "reason": reason}
        for name, reason, sent in (
            ("a frame for another MAC is not routed", "not_my_station", altered({5: 0x77})),
            ("a broadcast frame is not routed", "not_my_station", to("ff:ff:ff:ff:ff:ff", ipv6("fd00:2::1"))),
            ("a multicast frame is not routed", "not_my_station", to("33:33:00:00:00:01", ipv6("ff02::1"))),
            ("a neighbour solicitation is not routed", "not_my_station",
             to("33:33:ff:00:00:01", IPv6(src="fe80::1", dst="ff02::1:ff00:1") / ICMPv6ND_NS(tgt="fe80::2"))),
            ("a router advertisement is not routed", "not_my_station",
             to("33:33:00:00:00:01", IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_RA())),
            ("a neighbour solicitation to the router's own MAC is a martian", "martian",
             to(ROUTER_MAC, IPv6(src="fe80::1", dst="fe80::2") / ICMPv6ND_NS(tgt="fe80::2"))),
            ("ARP to everyone is not routed", "not_my_station", to("ff:ff:ff:ff:ff:ff", ARP())),
            ("ARP to the router is not IPv6", "not_ipv6", to(ROUTER_MAC, ARP())),
            ("an unknown Ethertype is not IPv6", "not_ipv6", altered({12: 0x88, 13: 0xB5})),
            ("version 4 behind IPv6's Ethertype is not IPv6", "not_ipv6", altered({14: 0x40})),
            ("version 0 behind IPv6's Ethertype is not IPv6", "not_ipv6", altered({14: 0x00})),
            ("a multicast source is a martian", "martian", to_router(ipv6("fd00:2::1", "ff02::1"))),
            ("a multicast destination is a martian", "martian", to_router(ipv6("ff0e::1"))),
            ("a link-local destination is a martian", "martian", to_router(ipv6("fe80::1"))),
            ("the last link-local address is a martian", "martian",
             to_router(ipv6("febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))),
            ("a multicast destination never reaches the SIDs", "martian", to_router(ipv6("ff02::1:2"))),
        )
    },
)  # fmt: skip


class TheAddressAfterTheLinkLocalOnesIsRouted(SwitchTest):
    """fe80::/10 ends at febf (RFC 4291 2.4)."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        for address in ("fec0::1", "fe7f:ffff::1"):
            sent = to_router(ipv6(address))
            self.switch.send(sent)
            self.switch.expect(2, forwarded(sent, 2))
        self.switch.done()


class EachPortIsAStationOfItsOwn(SwitchTest):
    """The router's MAC of one port is nobody on another; an entry makes it somebody."""

    def runTest(self) -> None:
        other = "02:00:00:00:20:02"
        self.switch.install(*basic(ROUTES), station(6, other))
        sent = to(other, ipv6("fd00:2::1"))
        self.switch.send(sent, port=6)
        self.switch.expect(2, forwarded(sent, 2))
        self.switch.send(sent, port=INGRESS_PORT)
        self.switch.done(not_my_station=[sent])


class AVlanTagIsNotIpv6(SwitchTest):
    """VLANs are outside this program: a tagged frame is dropped whole, never routed by what the tag hides."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        tagged = [
            bytes(Ether(dst=ROUTER_MAC, src=HOST_MAC) / Dot1Q(vlan=vlan, prio=priority) / ipv6(f"{BLOCK}:1:2::"))
            for vlan, priority in ((1, 0), (0, 7), (4094, 3))
        ]
        for sent in tagged:
            self.switch.send(sent)
        self.switch.done(not_ipv6=tagged)


class CutShort(SwitchTest):
    """Frames of every length that end inside a header that they announce: dropped whole, counted, nothing crashes."""

    next_header: ClassVar[int]
    headers: ClassVar[int]

    def check(self) -> None:
        self.switch.install(*basic(ROUTES))
        whole = un_frame(f"{BLOCK}:1:2::", self.next_header)
        cut = [whole[:length] for length in range(1, self.headers)]
        for start in range(0, len(cut), 40):
            for sent in cut[start : start + 40]:
                self.switch.send(sent)
            self.switch.decide()
        least = whole[: self.headers]
        self.switch.send(least)
        self.switch.expect(1, forwarded(least, 1, dst=f"{BLOCK}:2::"))
        self.switch.done(parser_error=cut)


cases(
    globals(),
    CutShort,
    {
        "a frame that ends inside UDP is a parser error": {"next_header": UDP_HEADER, "headers": 14 + 40 + 8},
        "a frame that ends inside the inner headers is a parser error": {"next_header": IPV6, "headers": 14 + 80 + 8},
        "a frame that ends inside IPv6 is a parser error": {"next_header": NO_NEXT_HEADER, "headers": 14 + 40},
    },
)


class ExtensionHeadersAreCarriedUntouched(SwitchTest):
    """Hop-by-hop, destination options and fragment headers (RFC 8200 4) behind a container: shifted, else unchanged."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        for extension in (
            IPv6ExtHdrHopByHop(),
            IPv6ExtHdrDestOpt(),
            IPv6ExtHdrFragment(offset=0, m=1, id=77),
            IPv6ExtHdrFragment(offset=100, m=0, id=77),
            IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrFragment(),
        ):
            sent = to_router(IPv6(src=SOURCE, dst=f"{BLOCK}:1:2::", fl=0xABCDE) / extension / UDP_PACKET)
            self.switch.send(sent)
            self.switch.expect(1, forwarded(sent, 1, dst=f"{BLOCK}:2::"))
        self.switch.done()


class MinimumAndJumboFramesPass(SwitchTest):
    """60 bytes, where Ethernet pads, to 9,216: byte by byte."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        padded = to_router(IPv6(src=SOURCE, dst=f"{BLOCK}:1:2::", nh=NO_NEXT_HEADER)) + bytes(range(1, 7))
        assert len(padded) == 60
        for sent in (padded, *(frame(length, dst=f"{BLOCK}:1:2::") for length in (62, 64, 1514, 4094, 9018, 9216))):
            self.switch.send(sent)
            self.switch.expect(1, forwarded(sent, 1, dst=f"{BLOCK}:2::"))
        self.switch.done()


class NothingIsRoutedByAnEmptySwitch(SwitchTest):
    """Without entries every frame is dropped: there is no way out by default, port 0 included."""

    def runTest(self) -> None:
        marker_way = [entry for entry in basic({}) if entry.table != "my_sid"]
        self.switch.install(*marker_way)
        sent = [un_frame(f"{BLOCK}:1:2::"), frame(100, dst="fd00::2"), frame(100, dst="::")]
        for one in sent:
            self.switch.send(one)
        self.switch.done(no_route=sent)
