"""Packets to and from the controller: hop limits that ran out, other drops on request, packet-outs."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import ClassVar

from scapy.layers.inet6 import ICMPv6TimeExceeded, IPerror6
from scapy.layers.l2 import Ether

from controller.drop_reasons import DROP_REASONS
from controller.packet_io import PacketIn, icmp_time_exceeded
from ptf_tests.fabric_test import SwitchTest, cases
from tests.dataplane.counters import Count
from tests.dataplane.entries import (
    BLOCK,
    CPU_PORT,
    HOST_MAC,
    INGRESS_PORT,
    MARKER_DESTINATION,
    MARKER_SOURCE,
    NO_TRIM,
    PORTS,
    basic,
    discard_route,
    fabric_role,
    guard,
    host_port,
    punt,
    queue_limits,
    route,
)
from tests.dataplane.frames import forwarded, frame, marker
from tests.dataplane.vectors import un_frame

ROUTES = {f"{BLOCK}:2::/48": 1, "fd00::2/128": 3}


class AHopLimitThatRanOutGoesToTheController(SwitchTest):
    """As it was received, with the port that it came through: the destination is the one before the shift."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), punt("hop_limit"))
        expired = [
            un_frame(destination, hop_limit=hop_limit)
            for destination in (f"{BLOCK}:1:2::", f"{BLOCK}:2::", f"{BLOCK}:9::", f"{BLOCK}:1::")
            for hop_limit in (1, 0)
        ]
        for sent in expired:
            self.switch.send(sent)
            self.switch.expect_packet_in(PacketIn(INGRESS_PORT, "hop_limit", sent))
        self.switch.done(hop_limit=expired)


class WithoutAPuntEntryTheControllerIsNotAsked(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        sent = un_frame(f"{BLOCK}:1:2::", hop_limit=1)
        before = self.switch.control.counter("port_tx", [CPU_PORT])
        self.switch.send(sent)
        self.switch.done(hop_limit=[sent])
        self.assertEqual(self.switch.control.counter("port_tx", [CPU_PORT]), before)


GOOD = un_frame(f"{BLOCK}:1:2::")
DROPS = {
    "parser_error": GOOD[:50],
    "not_my_station": b"\2\0\0\0\0\1" + GOOD[6:],
    "not_ipv6": GOOD[:12] + b"\x88\xb5" + GOOD[14:],
    "hop_limit": un_frame(f"{BLOCK}:1:2::", hop_limit=1),
    "no_route": un_frame(f"{BLOCK}:1:9::"),
    "last_usid": un_frame(f"{BLOCK}:1::"),
    "discard_route": un_frame(f"{BLOCK}:1:d::"),
    "no_next_hop": un_frame(f"{BLOCK}:1:e::"),
    "martian": un_frame("ff02::1"),
    "guard": un_frame(f"{BLOCK}:1:2::"),
    "data_queue_full": frame(200, dscp=NO_TRIM, dst="fd00::2"),
    "trim_queue_full": frame(300, dst="fd00::2"),
}
assert set(DROPS) == set(DROP_REASONS) - {"none"}


class Punted(SwitchTest):
    """The packet as it was received: no MAC, hop limit, destination or DSCP is half-way to the next hop."""

    reason: ClassVar[str]

    def check(self) -> None:
        port = 5 if self.reason == "guard" else INGRESS_PORT
        self.switch.install(
            *basic(ROUTES),
            discard_route(f"{BLOCK}:d::/48"),
            route(f"{BLOCK}:e::/48", 99),
            host_port(5),
            guard(5, MARKER_SOURCE, f"{MARKER_DESTINATION}/128"),
            queue_limits(3, 0, 0),
            fabric_role(3),
            punt(self.reason),
        )
        sent = DROPS[self.reason]
        self.switch.send(sent, port=port)
        self.switch.expect_packet_in(PacketIn(port, self.reason, sent))
        self.switch.done(**{self.reason: [sent]})


cases(
    globals(),
    Punted,
    {f"a packet that is dropped as {reason} can be punted as it came": {"reason": reason} for reason in DROPS},
)


class ThePortOfAPacketInIsTheOneItCameThrough(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), punt("no_route"))
        sent = un_frame(f"{BLOCK}:1:9::")
        for port in PORTS:
            self.switch.send(sent, port=port)
            self.switch.expect_packet_in(PacketIn(port, "no_route", sent))
        self.switch.done(no_route=[sent] * len(PORTS))


class APacketOutLeavesItsPortPastAllTables(SwitchTest):
    """Whatever it is: not routed, not counted as dropped, not changed; the switch may have no entry at all."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        for port in PORTS:
            for packet in (GOOD, un_frame("ff02::1", hop_limit=0), b"\xff" * 60, frame(9000, dst="fd00::2")):
                self.switch.packet_out(port, packet)
                self.switch.expect(port, packet)
        self.switch.done()


class APacketOutPassesAFullQueue(SwitchTest):
    """It is a control packet, and no limit holds it up."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), queue_limits(3, 0, 0), fabric_role(3))
        packet = frame(1000, dst="fd00::2")
        self.switch.packet_out(3, packet)
        self.switch.expect(3, packet)
        self.switch.done()


class APacketInIsAnsweredAndTheAnswerLeaves(SwitchTest):
    """The round trip of a traceroute: ICMPv6 Time Exceeded quotes the packet as it was received (RFC 4443 3.3)."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), punt("hop_limit"))
        sent = un_frame(f"{BLOCK}:1:2::", hop_limit=1)
        self.switch.send(sent)
        self.switch.expect_packet_in(PacketIn(INGRESS_PORT, "hop_limit", sent))
        answer = icmp_time_exceeded(IPv6Address("fd00::5"), sent)
        assert answer is not None
        self.switch.packet_out(INGRESS_PORT, answer)
        self.switch.expect(INGRESS_PORT, answer)
        packet = Ether(answer)
        self.assertEqual(packet.dst, HOST_MAC)
        self.assertEqual((packet[ICMPv6TimeExceeded].code, packet[IPerror6].dst), (0, f"{BLOCK}:1:2::"))
        self.switch.done(hop_limit=[sent])


class PortsCountWhatGoesInAndOut(SwitchTest):
    """Frames and bytes by port, dropped ones on the way in only; to and from the controller on the CPU port."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), punt("hop_limit"))
        control, ports = self.switch.control, (1, INGRESS_PORT, CPU_PORT)
        expired, dropped = un_frame(f"{BLOCK}:1:2::", hop_limit=1), un_frame(f"{BLOCK}:1:9::")
        rx, tx = control.counter("port_rx", ports), control.counter("port_tx", ports)
        for sent in (GOOD, GOOD, dropped, expired):
            self.switch.send(sent)
        self.switch.expect(1, *[forwarded(GOOD, 1, dst=f"{BLOCK}:2::")] * 2)
        self.switch.expect_packet_in(PacketIn(INGRESS_PORT, "hop_limit", expired))
        self.switch.done(no_route=[dropped], hop_limit=[expired])

        def added(after: dict[int, Count], before: dict[int, Count], port: int) -> Count:
            old = before.get(port, Count(0, 0))
            new = after.get(port, Count(0, 0))
            return Count(new.packets - old.packets, new.bytes - old.bytes)

        now_rx, now_tx = control.counter("port_rx", ports), control.counter("port_tx", ports)
        received = [GOOD, GOOD, dropped, expired, marker()]  # done() sends the marker
        self.assertEqual(added(now_rx, rx, INGRESS_PORT), Count(5, sum(map(len, received))))
        self.assertEqual(added(now_tx, tx, 1), Count(2, 2 * len(GOOD)))
        self.assertEqual(added(now_tx, tx, CPU_PORT), Count(1, len(expired)))
