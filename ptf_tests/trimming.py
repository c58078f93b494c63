"""Traffic classes and trimming (SAI packet trimming; SONiC packet trimming HLD; UEC 1.0 4.1).

Here a data queue takes nothing (its limit is 0), so that what happens does not depend on when it is served;
`congestion.py` has the same rules with queues that fill.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.packet import Packet, Raw

from controller.plan import Entry
from ptf_tests.fabric_test import SwitchTest, cases
from tests.dataplane.counters import Count
from tests.dataplane.entries import (
    BLOCK,
    CONTROL,
    CONTROL_DSCP,
    DATA,
    INGRESS_PORT,
    NO_TRIM,
    TRIM,
    TRIMMABLE,
    TRIMMABLE_RETX,
    TRIMMED,
    TRIMMED_LASTHOP,
    basic,
    fabric_role,
    host_role,
    queue_limits,
    sid,
    traffic_class,
)
from tests.dataplane.frames import SOURCE, ecn_of, forwarded, frame, remarked, to_router, trimmed
from tests.dataplane.vectors import TRIM as TRIM_VECTORS

DST, ELSEWHERE = "fd00::2", "fd00::4"
PORT, OTHER_PORT = 3, 4
ROUTES = {f"{DST}/128": PORT, f"{ELSEWHERE}/128": OTHER_PORT, f"{BLOCK}:2::/48": PORT}
ALL_OR_NOTHING = 1000
"""A limit that is never reached, in packets."""


class TrimTest(SwitchTest):
    """A switch with limits on PORT."""

    def limit(self, data: int = 0, trim: int = 60, role: Entry | None = None) -> None:
        self.switch.install(*basic(ROUTES), queue_limits(PORT, data, trim), role or fabric_role(PORT))

    def trims(self) -> dict[int, int]:
        """Trimmed packets by port, ever; of bytes BMv2 counts those before the cut."""
        return {port: count.packets for port, count in self.switch.control.counter("port_trims", range(8)).items()}


class LengthVector(TrimTest):
    """A vector of tests/vectors/trim.json with each ECN value."""

    vector: ClassVar[dict[str, Any]]

    def check(self) -> None:
        vector = self.vector
        self.limit(role=fabric_role(PORT, vector["trim_size"]))
        inner = "inner_payload_len" in vector
        udp = 94 if inner else 54
        before = self.trims().get(PORT, 0)
        for ecn in range(4):
            sent = frame(vector["frame_in"], ecn=ecn, inner=inner, dst=DST)
            expected = trimmed(sent, PORT, TRIMMED, vector["trim_size"])
            self.assertEqual(len(expected), vector["frame_out"])
            self.assertEqual(ecn_of(expected), ecn)
            for name, made, place in (
                ("outer_payload_len_in", sent, 18),
                ("outer_payload_len_out", expected, 18),
                ("inner_payload_len", expected, 58),
                ("udp_len", expected, udp + 4),
            ):
                if name in vector:
                    self.assertEqual(int.from_bytes(made[place : place + 2], "big"), vector[name], name)
            self.assertEqual(expected[udp + 6 : udp + 8], b"\xbe\xef", "the UDP checksum is not touched")
            self.switch.send(sent)
            self.switch.expect(PORT, expected)
        self.switch.done()
        self.assertEqual(self.trims()[PORT] - before, 4)


cases(
    globals(),
    LengthVector,
    {f"trim length {vector['id']}": {"vector": vector} for vector in TRIM_VECTORS["vectors"]},
)


class ATrimLeavesExactlyTheTrimSize(TrimTest):
    """T - 1, T and T + 1 bytes around several trim sizes; what is not longer is only remarked (SONiC HLD)."""

    def runTest(self) -> None:
        self.limit()
        for size in (82, 128, 206, 256, 4084):
            self.switch.modify(fabric_role(PORT, size))
            for length in (size - 1, size, size + 1, size + 1000):
                sent = frame(length, dst=DST)
                self.switch.send(sent)
                self.switch.expect(PORT, trimmed(sent, PORT, TRIMMED, size))
        self.switch.done()


class Content(TrimTest):
    """What is inside is cut where it is, and not one byte of it is rewritten."""

    below: ClassVar[Packet]
    dst: ClassVar[str] = DST
    out: ClassVar[str | None] = None

    def check(self) -> None:
        self.limit()
        payload = Raw(bytes(n % 251 for n in range(1200)))
        header = IPv6(src=SOURCE, dst=self.dst, tc=TRIMMABLE << 2 | 2, fl=0xABCDE)
        sent = to_router(header / self.below / payload)
        self.switch.send(sent)
        self.switch.expect(PORT, trimmed(sent, PORT, TRIMMED, dst=self.out))
        self.switch.done()


def inner_ipv6(below: Packet) -> Packet:
    return IPv6(src=SOURCE, dst="fd00::9", hlim=7, tc=0x55, fl=0x12345) / below


A_UDP, A_TCP = UDP(sport=0xC000, dport=4791, chksum=0xBEEF), TCP(sport=1, dport=2, chksum=0xBEEF)
AN_SRH = IPv6ExtHdrSegmentRouting(addresses=[f"{BLOCK}:3::"], segleft=1, nh=41)
CONTAINER = {"dst": f"{BLOCK}:1:2:3::", "out": f"{BLOCK}:2:3::"}

cases(
    globals(),
    Content,
    {
        "UDP is trimmed": {"below": A_UDP},
        "TCP is trimmed": {"below": A_TCP},
        "IPv6 in IPv6 with UDP is trimmed in the outer header only": {"below": inner_ipv6(A_UDP)},
        "IPv6 in IPv6 with TCP is trimmed in the outer header only": {"below": inner_ipv6(A_TCP)},
        "a shifted packet is trimmed too": {"below": inner_ipv6(A_UDP), **CONTAINER},
        "a shifted packet with SRH is trimmed too": {"below": AN_SRH / inner_ipv6(A_UDP), **CONTAINER},
        "a packet with SRH is trimmed with the SRH in place": {"below": AN_SRH / inner_ipv6(A_UDP)},
    },
)


class EthernetPaddingIsNotTakenForPayload(TrimTest):
    """new length = min(old length, T - headers): an IPv6 packet of 50 bytes in a frame of 80 stays one of 50."""

    def runTest(self) -> None:
        self.limit()
        sent = frame(80, dst=DST)
        sent = sent[:18] + (10).to_bytes(2, "big") + sent[20:]
        self.switch.send(sent)
        self.switch.expect(PORT, remarked(forwarded(sent, PORT), TRIMMED))
        self.switch.done()


class TowardsAHostATrimIsTrimmedLasthop(TrimTest):
    """Both classes that may be trimmed; a port's role decides (UEC 1.0 4.1; SAI's asymmetric DSCP)."""

    def runTest(self) -> None:
        self.limit(role=host_role(PORT))
        self.switch.install(queue_limits(OTHER_PORT, 0, 60), fabric_role(OTHER_PORT))
        for dscp in (TRIMMABLE, TRIMMABLE_RETX):
            here, there = frame(1000, dscp=dscp, dst=DST), frame(1001, dscp=dscp, dst=ELSEWHERE)
            self.switch.send(here)
            self.switch.send(there)
            self.switch.expect(PORT, trimmed(here, PORT, TRIMMED_LASTHOP))
            self.switch.expect(OTHER_PORT, trimmed(there, OTHER_PORT, TRIMMED))
        self.switch.done()


class EachPortMayHaveADscpOfItsOwn(TrimTest):
    """SAI's FROM_TC resolution: 10 on one port, 20 on another, both sizes their own; changed five times at run time."""

    def runTest(self) -> None:
        self.limit()
        self.switch.install(queue_limits(OTHER_PORT, 0, 60), fabric_role(OTHER_PORT))
        here, there = frame(1000, dst=DST), frame(1001, dst=ELSEWHERE)
        for turn in range(5):
            dscp, other = (10, 20) if turn % 2 else (48, 11)
            self.switch.modify(fabric_role(PORT, 128 + turn, dscp), host_role(OTHER_PORT, 300, other))
            self.switch.send(here)
            self.switch.send(there)
            self.switch.expect(PORT, trimmed(here, PORT, dscp, 128 + turn))
            self.switch.expect(OTHER_PORT, trimmed(there, OTHER_PORT, other, 300))
        self.switch.done()


class OnlyItsClassMakesAPacketTrimmable(TrimTest):
    """All 64 DSCPs against a full data queue: two are trimmed, three have a queue of their own, the rest is dropped."""

    def runTest(self) -> None:
        self.limit()
        dropped = []
        for dscp in range(64):
            sent = frame(1000, dscp=dscp, dst=DST)
            self.switch.send(sent)
            if dscp in (TRIMMABLE, TRIMMABLE_RETX):
                self.switch.expect(PORT, trimmed(sent, PORT, TRIMMED))
            elif dscp in (TRIMMED, TRIMMED_LASTHOP, CONTROL_DSCP):
                self.switch.expect(PORT, forwarded(sent, PORT))
            else:
                dropped.append(sent)
        self.assertIn(frame(1000, dscp=NO_TRIM, dst=DST), dropped)
        self.switch.done(data_queue_full=dropped)


class UncongestedPacketsKeepTheirDscp(TrimTest):
    """All 64 DSCPs with all ECN values pass as they are while there is room."""

    def runTest(self) -> None:
        self.limit(ALL_OR_NOTHING, ALL_OR_NOTHING)
        before = self.trims()
        for dscp in range(64):
            for ecn in range(4):
                sent = frame(200, dscp=dscp, ecn=ecn, dst=DST)
                self.switch.send(sent)
                self.switch.expect(PORT, forwarded(sent, PORT))
        self.switch.done()
        self.assertEqual(self.trims(), before)


class TheTrimmableClassesAreEntries(TrimTest):
    """None, one or many DSCPs may be trimmable, changed while traffic runs."""

    def runTest(self) -> None:
        self.limit()
        mine = traffic_class(33, DATA, trimmable=True)
        sent = frame(1000, dscp=33, dst=DST)
        self.switch.send(sent)
        self.switch.done(data_queue_full=[sent])
        self.switch.install(mine)
        self.switch.send(sent)
        self.switch.expect(PORT, trimmed(sent, PORT, TRIMMED))
        self.switch.modify(traffic_class(33, DATA))
        self.switch.send(sent)
        self.switch.done(data_queue_full=[sent])
        self.switch.modify(traffic_class(33, CONTROL))
        self.switch.send(sent)
        self.switch.expect(PORT, forwarded(sent, PORT))
        self.switch.modify(traffic_class(33, TRIM))
        self.switch.send(sent)
        self.switch.expect(PORT, forwarded(sent, PORT))
        self.switch.done()


class ControlHasNoLimitAndIsNeverTrimmed(TrimTest):
    def runTest(self) -> None:
        self.limit(0, trim=0)
        sent = frame(1000, dscp=CONTROL_DSCP, ecn=0, dst=DST)
        self.switch.send(sent, count=50)
        self.switch.expect(PORT, *[forwarded(sent, PORT)] * 50)
        self.switch.done()


class ATrimmedPacketIsNeverCutAgain(TrimTest):
    """At the next congested switch it passes as it is, and is dropped where the trim queue is full too."""

    def runTest(self) -> None:
        self.limit()
        for dscp in (TRIMMED, TRIMMED_LASTHOP):
            for length in (100, 128, 1000):
                sent = frame(length, dscp=dscp, dst=DST)
                self.switch.send(sent)
                self.switch.expect(PORT, forwarded(sent, PORT))
        self.switch.done()
        self.switch.modify(queue_limits(PORT, 0, 0))
        full = [frame(128, dscp=dscp, dst=DST) for dscp in (TRIMMED, TRIMMED_LASTHOP)]
        for sent in full:
            self.switch.send(sent)
        self.switch.done(trim_queue_full=full)


class ATrimThatTheTrimQueueRefusesIsDroppedWhole(TrimTest):
    """Counted once, by the trim queue's reason, with the bytes that it had; and not as a trim."""

    def runTest(self) -> None:
        self.limit(0, trim=0)
        before = self.trims()
        sent = frame(1000, dst=DST)
        self.switch.send(sent)
        self.switch.done(trim_queue_full=[sent])
        self.assertEqual(self.trims(), before)


class SwitchedOffAndOnTenTimes(TrimTest):
    """DROP instead of DROP_AND_TRIM (SAI): the same overload is dropped; back on, trimmed. Counters go on counting."""

    def runTest(self) -> None:
        self.limit()
        before = self.trims().get(PORT, 0)
        sent = frame(1000, dst=DST)
        for _ in range(10):
            self.switch.modify(traffic_class(TRIMMABLE, DATA))
            self.switch.send(sent)
            self.switch.done(data_queue_full=[sent])
            self.switch.modify(traffic_class(TRIMMABLE, DATA, trimmable=True))
            self.switch.send(sent)
            self.switch.expect(PORT, trimmed(sent, PORT, TRIMMED))
        self.switch.done()
        self.assertEqual(self.trims()[PORT] - before, 10)


class LimitsSizesAndModesChangeAtRunTime(TrimTest):
    """Each packet meets the values of its moment."""

    def runTest(self) -> None:
        self.limit(ALL_OR_NOTHING)
        sent = frame(1000, dst=DST)
        for entry, expected in (
            (queue_limits(PORT, 0, 60), trimmed(sent, PORT, TRIMMED)),
            (fabric_role(PORT, 256), trimmed(sent, PORT, TRIMMED, 256)),
            (fabric_role(PORT, 256, 48), trimmed(sent, PORT, 48, 256)),
            (host_role(PORT, 300), trimmed(sent, PORT, TRIMMED_LASTHOP, 300)),
            (queue_limits(PORT, ALL_OR_NOTHING, 60), forwarded(sent, PORT)),
        ):
            self.switch.modify(entry)
            self.switch.send(sent)
            self.switch.expect(PORT, expected)
        self.switch.remove(queue_limits(PORT, 0, 0))
        self.switch.send(sent)
        self.switch.expect(PORT, forwarded(sent, PORT))
        self.switch.done()


class PortsAreCongestedOneByOne(TrimTest):
    def runTest(self) -> None:
        self.limit()
        self.switch.install(queue_limits(OTHER_PORT, ALL_OR_NOTHING, 60), fabric_role(OTHER_PORT))
        here, there = frame(900, dst=DST), frame(901, dst=ELSEWHERE)
        for _ in range(10):
            self.switch.send(here)
            self.switch.send(there)
        self.switch.expect(PORT, *[trimmed(here, PORT, TRIMMED)] * 10)
        self.switch.expect(OTHER_PORT, *[forwarded(there, OTHER_PORT)] * 10)
        self.switch.done()


class PlacesAreGivenBack(TrimTest):
    """Forty packets one after the other through a queue for one: it is empty again each time."""

    def runTest(self) -> None:
        self.limit(1)
        for length in range(300, 340):
            sent = frame(length, dst=DST)
            self.switch.send(sent)
            self.switch.expect(PORT, forwarded(sent, PORT))
        self.switch.done()


class APortWithoutLimitsTakesAll(TrimTest):
    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES), fabric_role(PORT))
        sent = frame(1500, dst=DST)
        self.switch.send(sent, count=50)
        self.switch.expect(PORT, *[forwarded(sent, PORT)] * 50)
        self.switch.done()


class CountersOfTrimsAddUp(TrimTest):
    """What came in = what left + what was dropped; what left = whole + trimmed; each on its own port."""

    def runTest(self) -> None:
        self.limit(0, trim=60)
        self.switch.install(queue_limits(OTHER_PORT, ALL_OR_NOTHING, 60), fabric_role(OTHER_PORT))
        control = self.switch.control
        before = [control.counter(name, range(8)) for name in ("port_rx", "port_tx", "port_trims")]
        trim, whole, drop = frame(900, dst=DST), frame(901, dst=ELSEWHERE), frame(902, dscp=NO_TRIM, dst=DST)
        for _ in range(5):
            for sent in (trim, whole, drop):
                self.switch.send(sent)
            self.switch.expect(PORT, trimmed(trim, PORT, TRIMMED))
            self.switch.expect(OTHER_PORT, forwarded(whole, OTHER_PORT))
        self.switch.done(data_queue_full=[drop] * 5)
        rx, tx, trims = [control.counter(name, range(8)) for name in ("port_rx", "port_tx", "port_trims")]

        def packets(after: dict[int, Count], earlier: dict[int, Count], port: int) -> int:
            return after[port].packets - earlier.get(port, Count(0, 0)).packets

        self.assertEqual(packets(rx, before[0], INGRESS_PORT), 15 + 1)  # and done()'s marker
        self.assertEqual(packets(tx, before[1], PORT), 5)
        self.assertEqual(packets(tx, before[1], OTHER_PORT), 5)
        self.assertEqual(packets(trims, before[2], PORT), 5)
        self.assertEqual(trims.get(OTHER_PORT), before[2].get(OTHER_PORT))


class TheOwnUsidOfATrimmedPacketStillCounts(TrimTest):
    """A per-SID counter counts the packet as it came, trimmed or not."""

    def runTest(self) -> None:
        self.limit()
        self.switch.install(sid(f"{BLOCK}:5::/48"))
        sent = frame(1000, inner=True, dst=f"{BLOCK}:5:2::")
        self.switch.send(sent)
        self.switch.expect(PORT, trimmed(sent, PORT, TRIMMED, dst=f"{BLOCK}:2::"))
        self.switch.done()
        self.assertEqual(self.switch.control.direct_counter(sid(f"{BLOCK}:5::/48")), Count(1, 1000))
