"""uN: End with NEXT-C-SID (RFC 9800 4.1, RFC 8986 4.1), block 32 bits, uSID 16 bits."""

from __future__ import annotations

import random
from ipaddress import IPv6Address
from typing import Any, ClassVar

from ptf_tests.fabric_test import BURST, SwitchTest, cases
from tests.dataplane.counters import Count
from tests.dataplane.entries import BLOCK, OWN_UN, basic, discard_route, route, shifted, sid
from tests.dataplane.frames import forwarded, frame
from tests.dataplane.vectors import IPV4, ROUTING, UN, un_frame, vector_frame


class Vector(SwitchTest):
    """A vector of tests/vectors/un.json, with its routes to different ports."""

    vector: ClassVar[dict[str, Any]]

    def check(self) -> None:
        vector = self.vector
        self.switch.install(*basic({prefix: 1 + index for index, prefix in enumerate(vector["routes"])}))
        if "own" in vector:
            self.switch.install(sid(vector["own"]))
        sent = vector_frame(vector)
        self.switch.send(sent)
        if vector["result"] == "drop":
            self.switch.done(**{vector["reason"]: [sent]})
            return
        expected = forwarded(sent, 1, dst=vector["out_da"])
        self.assertEqual(expected[21], vector["out_hop_limit"])
        self.switch.expect(1, expected)
        self.switch.done()


cases(globals(), Vector, {f"un: {vector['rule']}": {"vector": vector} for vector in UN["vectors"]})


class RandomContainersAreShiftedAsTheFormulaSays(SwitchTest):
    """10,000 containers against the formula; then the block is constant and the last uSID is 0."""

    def runTest(self) -> None:
        generator = random.Random(9800)
        self.switch.install(*basic({"::/0": 1}))
        template = frame(70, dst="::")
        for _ in range(10_000 // BURST):
            arguments = [generator.getrandbits(80) & -1 << generator.choice((0, 16, 32, 48, 64)) for _ in range(BURST)]
            containers = [
                str(IPv6Address(int(IPv6Address(f"{BLOCK}:1::")) | (argument or 1))) for argument in arguments
            ]
            sent = [template[:38] + IPv6Address(container).packed + template[54:] for container in containers]
            for one in sent:
                self.switch.send(one)
            expected = [forwarded(one, 1, dst=shifted(to)) for one, to in zip(sent, containers, strict=True)]
            for one in expected:
                assert one[38:42] == IPv6Address(f"{BLOCK}::").packed[:4] and one[52:54] == b"\0\0"
            self.switch.expect(1, *expected)
        self.switch.done()


class SixShiftsEmptyTheContainer(SwitchTest):
    """Shifted by the nodes of its six uSIDs one after the other, a container ends with argument 0."""

    def runTest(self) -> None:
        self.switch.install(*basic({"::/0": 1}))
        self.switch.install(*(sid(f"{BLOCK}:{usid}::/48") for usid in range(2, 7)))
        destination = f"{BLOCK}:1:2:3:4:5:6"
        for _ in range(5):
            sent = un_frame(destination)
            destination = shifted(destination)
            self.switch.send(sent)
            self.switch.expect(1, forwarded(sent, 1, dst=destination))
        self.assertEqual(destination, f"{BLOCK}:6::")
        last = un_frame(destination)
        self.switch.send(last)
        self.switch.done(last_usid=[last])


class HopLimit(SwitchTest):
    """The hop-limit matrix: a shift and a plain route treat it alike (RFC 8200 3, RFC 9800 4.1)."""

    destination: ClassVar[str]

    def check(self) -> None:
        self.switch.install(*basic({f"{BLOCK}:2::/48": 1, "fd00:2::/64": 1}))
        out = shifted(self.destination) if self.destination.startswith(BLOCK) else self.destination
        for hop_limit in (255, 64, 2):
            sent = un_frame(self.destination, hop_limit=hop_limit)
            self.switch.send(sent)
            expected = forwarded(sent, 1, dst=out)
            self.assertEqual(expected[21], hop_limit - 1)
            self.switch.expect(1, expected)
        expired = [un_frame(self.destination, hop_limit=hop_limit) for hop_limit in (1, 0)]
        for sent in expired:
            self.switch.send(sent)
        self.switch.done(hop_limit=expired)


cases(
    globals(),
    HopLimit,
    {
        "hop limit 1 and 0 expire before a shift": {"destination": f"{BLOCK}:1:2::"},
        "hop limit 1 and 0 expire before a plain route": {"destination": "fd00:2::9"},
    },
)


class AShiftLeavesTheTrafficClassAlone(SwitchTest):
    """All 64 DSCPs with all four ECN values (RFC 8986 4.1 rewrites the destination and the hop limit only)."""

    def runTest(self) -> None:
        self.switch.install(*basic({f"{BLOCK}:2::/48": 1}))
        for tc in range(256):
            sent = un_frame(f"{BLOCK}:1:2:3::", tc=tc)
            self.switch.send(sent)
            self.switch.expect(1, forwarded(sent, 1, dst=f"{BLOCK}:2:3::"))
        self.switch.done()


class EachSidCountsItsPacketsAndBytes(SwitchTest):
    """Exactly, shifted or last, while its neighbours stay at 0."""

    def runTest(self) -> None:
        self.switch.install(*basic({f"{BLOCK}:2::/48": 1}), sid(f"{BLOCK}:5::/48"))
        self.assertEqual(self.switch.control.direct_counter(sid(OWN_UN)), Count(0, 0))
        sizes = (102, 1000, 4094)
        for size in sizes:
            sent = frame(size, dst=f"{BLOCK}:1:2::", inner=True)
            self.switch.send(sent)
            self.switch.expect(1, forwarded(sent, 1, dst=f"{BLOCK}:2::"))
        last = un_frame(f"{BLOCK}:1::")
        self.switch.send(last)
        self.switch.done(last_usid=[last])
        count = self.switch.control.direct_counter(sid(OWN_UN))
        self.assertEqual(count, Count(len(sizes) + 1, sum(sizes) + len(last)))
        self.assertEqual(self.switch.control.direct_counter(sid(f"{BLOCK}:5::/48")), Count(0, 0))


class HundredAndTwentyEightLocatorsShiftAndCountEachForItself(SwitchTest):
    """`2001:1001:N::/48` as in sonic-mgmt's test_srv6_full_func, each packet without SRH and with one."""

    def runTest(self) -> None:
        sids = [sid(f"2001:1001:{number:x}::/48") for number in range(1, 129)]
        self.switch.install(*basic({"2001:1001:ffff::/48": 1}), *sids)
        srh = {"segments": ["2001:1001:9::"], "segments_left": 1}
        sizes: list[int] = []
        for number in range(1, 129):
            to = f"2001:1001:{number:x}:ffff::"
            for sent in (un_frame(to, IPV4), un_frame(to, ROUTING, srh=srh)):
                self.switch.send(sent)
                self.switch.expect(1, forwarded(sent, 1, dst="2001:1001:ffff::"))
                sizes.append(len(sent))
        self.switch.done()
        for number, entry in enumerate(sids):
            expected = Count(2, sum(sizes[2 * number : 2 * number + 2]))
            self.assertEqual(self.switch.control.direct_counter(entry), expected)


class ASidComesChangesAndGoesWhileTrafficRuns(SwitchTest):
    """Each packet is treated by the entries of its moment; without the SID it is routed as it is."""

    def runTest(self) -> None:
        self.switch.install(*basic({f"{BLOCK}:7::/48": 2, f"{BLOCK}:2::/48": 1}))
        sent = un_frame(f"{BLOCK}:7:2::")
        for _ in range(10):
            self.switch.send(sent, count=5)
            self.switch.expect(2, *[forwarded(sent, 2)] * 5)
            self.switch.install(sid(f"{BLOCK}:7::/48"))
            self.switch.send(sent, count=5)
            self.switch.expect(1, *[forwarded(sent, 1, dst=f"{BLOCK}:2::")] * 5)
            self.assertEqual(self.switch.control.direct_counter(sid(f"{BLOCK}:7::/48")), Count(5, 5 * len(sent)))
            self.switch.modify(sid(f"{BLOCK}:7::/48"))
            self.switch.send(sent)
            self.switch.expect(1, forwarded(sent, 1, dst=f"{BLOCK}:2::"))
            self.switch.remove(sid(f"{BLOCK}:7::/48"))
        self.switch.done()


class MySidComesBeforeTheFib(SwitchTest):
    """Even where the FIB has the longer prefix (RFC 9800 4.1: the SID's behaviour is run, then the FIB is asked)."""

    def runTest(self) -> None:
        self.switch.install(*basic({f"{BLOCK}:2::/48": 1, f"{BLOCK}:1:2::/64": 2, f"{BLOCK}:1:2::/128": 3}))
        sent = un_frame(f"{BLOCK}:1:2::")
        self.switch.send(sent)
        self.switch.expect(1, forwarded(sent, 1, dst=f"{BLOCK}:2::"))
        self.switch.done()


class TheLongestPrefixWinsInTheFib(SwitchTest):
    """/128 before /64 before /48 before /32 before ::/0, whatever the order of writing."""

    def runTest(self) -> None:
        prefixes = {"::/0": 1, f"{BLOCK}:2:3:4::/80": 4, f"{BLOCK}:2::/48": 3, f"{BLOCK}::/32": 2}
        self.switch.install(*basic(prefixes), route(f"{BLOCK}:2:3:4:5:6:7/128", 5))
        for destination, port in (
            ("fd00:7::1", 1),
            (f"{BLOCK}:3::", 2),
            (f"{BLOCK}:2:4::", 3),
            (f"{BLOCK}:2:3:4::9", 4),
            (f"{BLOCK}:2:3:4:5:6:7", 5),
        ):
            sent = un_frame(destination)
            self.switch.send(sent)
            self.switch.expect(port, forwarded(sent, port))
        self.switch.done()


class UnknownUsidsFallIntoTheBlocksBlackhole(SwitchTest):
    """A discard route for the block (sonic-mgmt's test_srv6_no_sid_blackhole): 100 packets, dropped and counted."""

    def runTest(self) -> None:
        self.switch.install(*basic({"::/0": 2, f"{BLOCK}:2::/48": 1}), discard_route(f"{BLOCK}::/32"))
        unknown = [un_frame(f"{BLOCK}:{number:x}:2::") for number in range(0x100, 0x132)]
        shifted_away = [un_frame(f"{BLOCK}:1:{number:x}::") for number in range(0x100, 0x132)]
        for sent in unknown + shifted_away:
            self.switch.send(sent)
        known = un_frame(f"{BLOCK}:1:2::")
        self.switch.send(known)
        self.switch.expect(1, forwarded(known, 1, dst=f"{BLOCK}:2::"))
        self.switch.done(discard_route=unknown + shifted_away)
