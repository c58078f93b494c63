"""What is outside this program (docs/targets.md): dropped whole, counted by its reason, never half-changed."""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

from controller.packet_io import PacketIn
from ptf_tests.fabric_test import SwitchTest, cases
from tests.dataplane.entries import BLOCK, INGRESS_PORT, TRIMMABLE, TRIMMED, basic, fabric_role, punt, queue_limits, sid
from tests.dataplane.frames import SOURCE, forwarded, to_router, trimmed
from tests.dataplane.vectors import IPV4, NO_NEXT_HEADER, ROUTING, UDP_HEADER, un_frame

ROUTES = {f"{BLOCK}:{usid}::/48": port for port, usid in enumerate(("2", "3", "4", "f1"), start=1)}
PAYLOAD = Raw(bytes(range(200)))


def srh(segments_left: int, *segments: str) -> dict[str, Any]:
    return {"segments": list(segments), "segments_left": segments_left}


def end(next_header: int, routing: dict[str, Any] | None = None) -> bytes:
    """A packet whose last uSID is the switch's own."""
    return un_frame(f"{BLOCK}:1::", next_header, srh=routing)


class Outside(SwitchTest):
    """Dropped for `reason`. Punted, it shows that not a byte was changed on the way to the drop."""

    sent: ClassVar[bytes]
    reason: ClassVar[str]

    def check(self) -> None:
        self.switch.install(*basic(ROUTES), punt(self.reason))
        self.switch.send(self.sent)
        self.switch.expect_packet_in(PacketIn(INGRESS_PORT, self.reason, self.sent))
        self.switch.done(**{self.reason: [self.sent]})


SEGMENT, OTHER = f"{BLOCK}:3:4::", f"{BLOCK}:2::"

cases(
    globals(),
    Outside,
    {
        name: {"sent": sent, "reason": reason}
        for name, reason, sent in (
            ("end with SRH segments left 1", "last_usid", end(ROUTING, srh(1, SEGMENT))),
            ("end with SRH segments left 0", "last_usid", end(ROUTING, srh(0, SEGMENT))),
            ("end with SRH segments left 2 of 2 reduced", "last_usid", end(ROUTING, srh(2, SEGMENT, OTHER))),
            ("end with SRH segments left beyond last entry", "last_usid", end(ROUTING, srh(3, SEGMENT, OTHER))),
            ("decapsulation of IPv6 USD", "last_usid", end(41)),
            ("decapsulation of IPv4 USD", "last_usid", end(IPV4)),
            ("upper layer UDP at the last uSID", "last_usid", end(UDP_HEADER)),
            ("no next header at the last uSID", "last_usid", end(NO_NEXT_HEADER)),
            ("uA in its LIB form", "no_route", un_frame(f"{BLOCK}:fe24:2::")),
            ("uA behind the own uSID", "no_route", un_frame(f"{BLOCK}:1:fe24:2::")),
            ("uDT6 of the own uSID without a route for it", "no_route", un_frame(f"{BLOCK}:1:d46::")),
        )
    },
)


class Ipv4(SwitchTest):
    """IPv4 is dropped as it came: no TTL, checksum or length is touched, whatever is inside."""

    inside: ClassVar[Packet]

    def check(self) -> None:
        self.switch.install(*basic(ROUTES))
        sent = [
            to_router(IP(src="10.0.0.1", dst="10.0.0.2", ttl=ttl, tos=TRIMMABLE << 2) / self.inside) for ttl in (64, 1)
        ]
        for one in sent:
            self.switch.send(one)
        self.switch.done(not_ipv6=sent)


cases(
    globals(),
    Ipv4,
    {
        "IPv4 with UDP is not IPv6": {"inside": UDP(sport=1, dport=4791) / PAYLOAD},
        "IPv4 with TCP is not IPv6": {"inside": TCP(sport=1, dport=2) / PAYLOAD},
        "IPv4 with ICMP is not IPv6": {"inside": ICMP() / PAYLOAD},
        "IPv4 with IPv6 inside is not IPv6": {"inside": IPv6(src=SOURCE, dst=f"{BLOCK}:1:2::") / PAYLOAD},
    },
)


class TcpIsPayload(SwitchTest):
    """TCP is not parsed: forwarded, shifted and trimmed with every byte of it as it was, checksum included."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), queue_limits(1, 0, 60), fabric_role(1))
        tcp = TCP(sport=40000, dport=443, seq=7, flags="PA", chksum=0xBEEF) / PAYLOAD
        for destination, dscp in ((f"{BLOCK}:3::", 0), (f"{BLOCK}:1:3::", 0), (f"{BLOCK}:1:2::", TRIMMABLE)):
            sent = to_router(IPv6(src=SOURCE, dst=destination, tc=dscp << 2 | 2) / tcp)
            self.switch.send(sent)
            if dscp:
                self.switch.expect(1, trimmed(sent, 1, TRIMMED, dst=f"{BLOCK}:2::"))
            else:
                self.switch.expect(2, forwarded(sent, 2, dst=f"{BLOCK}:3::"))
        self.switch.done()


class UdtAndUaPrefixesCannotBeInstalledAsSuch(SwitchTest):
    """my_sid knows one behaviour, uN: a /64 entry shifts by one uSID and never decapsulates."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), sid(f"{BLOCK}:1:f1::/64"))
        sent = un_frame(f"{BLOCK}:1:f1::")
        self.switch.send(sent)
        self.switch.expect(4, forwarded(sent, 4, dst=f"{BLOCK}:f1::"))
        self.switch.done()
