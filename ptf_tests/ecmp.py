"""ECMP groups: all members, one per flow, by the fields that count and no others, seeded per switch."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw

from ptf_tests.fabric_test import BURST, SwitchTest, cases
from tests.dataplane.entries import (
    BLOCK,
    TRIMMABLE,
    TRIMMED,
    basic,
    fabric_role,
    group,
    group_route,
    queue_limits,
)
from tests.dataplane.frames import forwarded, to_router, trimmed

GROUP = 1
MEMBERS = (1, 2, 3, 4)
SEED = 0x1234ABCD
ROW = "fd00:9::/64"
LABEL, UDP_PORT = 15, 54
"""Where a flow's number is: the low bits of flow label and UDP source port, as an EV is spread."""


@cache
def template(
    src: str = "fd00::1",
    dst: str = "fd00:9::2",
    label: int = 0x40000,
    sport: int = 0x1000,
    dport: int = 4791,
    hop_limit: int = 64,
    tc: int = 0,
    payload: int = 20,
    inside: bool = False,
    next_header: int | None = None,
) -> bytes:
    udp: Packet = UDP(sport=sport, dport=dport, chksum=1) / Raw(bytes(payload))
    below = IPv6(src=src, dst="fd00:9::7") / udp if inside else udp
    header = IPv6(src=src, dst=dst, fl=label, hlim=hop_limit, tc=tc)
    if next_header is not None:
        header.nh = next_header
    return to_router(header / below)


def flow(number: int, **fields: Any) -> bytes:
    """A packet of this flow, with other values in these fields."""
    made = bytearray(template(**fields))
    for place, size in ((16, 2), (94 if fields.get("inside") else UDP_PORT, 2)):
        made[place : place + size] = (int.from_bytes(made[place : place + size], "big") ^ number).to_bytes(size, "big")
    return bytes(made)


def flows(count: int, **fields: Any) -> list[bytes]:
    return [flow(number, **fields) for number in range(count)]


class EcmpTest(SwitchTest):
    """A switch whose route to ROW is a group."""

    def spread(self, *, ports: tuple[int, ...] = MEMBERS, weights: tuple[int, ...] = (), seed: int = SEED) -> None:
        self.switch.install(*basic({}), group(GROUP, ports, weights), group_route(ROW, GROUP, seed))

    def ports_of(self, frames: Iterable[bytes], dst: str | None = None) -> list[int]:
        """The port that each of these different frames leaves through, and all else of it as it must be."""
        sent = list(frames)
        chosen: dict[bytes, int] = {}
        for start in range(0, len(sent), BURST):
            burst = sent[start : start + BURST]
            for one in burst:
                self.switch.send(one)
            chosen.update((frame, port) for port, frame in self.switch.receive(len(burst)))
        ports = []
        for one in sent:
            (port,) = (port for port in MEMBERS if chosen.get(forwarded(one, port, dst=dst)) == port)
            ports.append(port)
        self.switch.done()
        return ports


class AllMembersAreUsedAboutEqually(EcmpTest):
    """1,000 flows over four members: each has 200 to 300 of them."""

    def runTest(self) -> None:
        self.spread()
        uses = Counter(self.ports_of(flows(1000)))
        self.assertEqual(set(uses), set(MEMBERS))
        self.assertTrue(all(200 <= count <= 300 for count in uses.values()), uses)


class EachFlowTakesTheMemberThatTheHashNames(EcmpTest):
    """Computed here anew: CRC-32 over the fields, seeded and mixed as p4src/route.p4 says, modulo the members."""

    def member(self, frame: bytes) -> int:
        label = int.from_bytes(frame[15:18], "big") & 0xFFFFF
        ports = int.from_bytes(frame[54:58], "big")
        addresses = int.from_bytes(frame[22:54], "big")
        bits = ((addresses << 20 | label) << 8 | frame[20]) << 32 | ports
        h = zlib.crc32((bits << 4).to_bytes(40, "big"))  # 316 bits, filled up with zeros
        h = (h + SEED) * 0x9E3779B1 % 2**32
        h = (h ^ h >> 15) * 0x85EBCA77 % 2**32
        return MEMBERS[(h >> 16) % len(MEMBERS)]

    def runTest(self) -> None:
        self.spread()
        frames = flows(200)
        self.assertEqual(self.ports_of(frames), [self.member(frame) for frame in frames])


class AFlowKeepsItsMember(EcmpTest):
    """A hundred repetitions of ten flows."""

    def runTest(self) -> None:
        self.spread()
        first = self.ports_of(flows(10))
        frames = dict(zip(first, flows(10), strict=True))
        for port, sent in frames.items():
            for _ in range(2):
                self.switch.send(sent, count=BURST)
                self.switch.expect(port, *[forwarded(sent, port)] * BURST)
        self.switch.done()


class FieldThatCounts(EcmpTest):
    """Another value in it: about three flows in four change the member."""

    field: ClassVar[dict[str, Any]]

    def check(self) -> None:
        self.spread()
        before, after = self.ports_of(flows(100)), self.ports_of(flows(100, **self.field))
        changed = sum(a != b for a, b in zip(before, after, strict=True))
        self.assertTrue(60 <= changed <= 90, changed)


cases(
    globals(),
    FieldThatCounts,
    {
        f"the {name} counts for the choice": {"field": field}
        for name, field in (
            ("source address", {"src": "fd00::77"}),
            ("destination address", {"dst": "fd00:9::77"}),
            ("flow label", {"label": 0x80000}),
            ("source port", {"sport": 0xF000}),
            ("destination port", {"dport": 4792}),
            ("next header", {"next_header": 59}),
            ("packet in the tunnel", {"inside": True}),
        )
    },
)


class FieldThatDoesNotCount(EcmpTest):
    """Another value in it: every flow keeps its member."""

    field: ClassVar[dict[str, Any]]

    def check(self) -> None:
        self.spread()
        self.assertEqual(self.ports_of(flows(100, **self.field)), self.ports_of(flows(100)))


cases(
    globals(),
    FieldThatDoesNotCount,
    {
        f"the {name} does not count for the choice": {"field": field}
        for name, field in (
            ("hop limit", {"hop_limit": 9}),
            ("DSCP", {"tc": 0xB8}),
            ("ECN", {"tc": 2}),
            ("payload and its length", {"payload": 900}),
        )
    },
)


class AnotherSeedSpreadsFlowsThatWereTogether(EcmpTest):
    """No polarisation: the flows of one member at one switch use all members at the next."""

    def runTest(self) -> None:
        self.spread(seed=1)
        first = self.ports_of(flows(400))
        together = [flow(number) for number, port in enumerate(first) if port == first[0]]
        self.switch.modify(group_route(ROW, GROUP, 2))
        spread = Counter(self.ports_of(together))
        self.assertEqual(set(spread), set(MEMBERS))
        self.assertLess(max(spread.values()), 0.45 * len(together))


class Weights(EcmpTest):
    """800 flows; the share of the first port is within 6 points of its weight's."""

    weights: ClassVar[tuple[int, int]]

    def check(self) -> None:
        self.spread(ports=(1, 2), weights=self.weights)
        share = Counter(self.ports_of(flows(800)))[1] / 800
        self.assertAlmostEqual(share, self.weights[0] / sum(self.weights), delta=0.06)


cases(
    globals(),
    Weights,
    {f"weights {one} to {other} are kept": {"weights": (one, other)} for one, other in ((3, 1), (1, 1), (1, 7))},
)


class OneMemberGetsAll(EcmpTest):
    def runTest(self) -> None:
        self.spread(ports=(3,))
        self.assertEqual(set(self.ports_of(flows(50))), {3})


class AMemberThatIsAddedGetsItsShareAndOneThatIsRemovedNothing(EcmpTest):
    def runTest(self) -> None:
        self.spread(ports=(1, 2))
        self.assertEqual(set(self.ports_of(flows(100))), {1, 2})
        self.switch.modify(group(GROUP, (1, 2, 3)))
        uses = Counter(self.ports_of(flows(300)))
        self.assertTrue(all(70 <= uses[port] <= 130 for port in (1, 2, 3)), uses)
        self.switch.modify(group(GROUP, (2, 3)))
        self.assertEqual(set(self.ports_of(flows(300))), {2, 3})
        self.switch.modify(group(GROUP, MEMBERS))
        self.assertEqual(set(self.ports_of(flows(300))), set(MEMBERS))


class AGroupIsModifiedWithoutLoss(EcmpTest):
    """Packets that are under way while the group changes all arrive, by an old or a new member."""

    def runTest(self) -> None:
        self.spread(ports=(1, 2))
        for ports in ((3, 4), (1,), (1, 2, 3, 4), (1, 2)):
            for one in flows(BURST):
                self.switch.send(one)
            self.switch.modify(group(GROUP, ports))
            expected = {forwarded(one, port) for one in flows(BURST) for port in MEMBERS}
            self.assertLessEqual({frame for _, frame in self.switch.receive(BURST)}, expected)
            self.switch.done()


class AGroupThatIsNotThereIsACountedDrop(EcmpTest):
    def runTest(self) -> None:
        self.switch.install(*basic({}), group_route(ROW, 9, SEED))
        self.switch.send(flow(1))
        self.switch.done(no_next_hop=[flow(1)])


class TheLastMemberGoesWithItsGroupAndIsACountedDrop(EcmpTest):
    """The way to take out the last member on either target: delete the group's entry, not its members."""

    def runTest(self) -> None:
        self.spread(ports=(3,))
        self.assertEqual(self.ports_of([flow(1)]), [3])
        self.switch.remove(group(GROUP, (3,)))
        self.switch.send(flow(1))
        self.switch.done(no_next_hop=[flow(1)])
        self.switch.install(group(GROUP, (3,)))
        self.assertEqual(self.ports_of([flow(1)]), [3])


class AMemberWhoseNextHopIsGoneIsACountedDrop(EcmpTest):
    def runTest(self) -> None:
        self.switch.install(*basic({}), group(GROUP, (200,)), group_route(ROW, GROUP, SEED))
        self.switch.send(flow(1))
        self.switch.done(no_next_hop=[flow(1)])


class AUnPathMayEndInAGroupByItsShiftedAddress(EcmpTest):
    """The hash sees the destination after the shift, so a flow has one member whatever was in front of it."""

    def runTest(self) -> None:
        self.switch.install(*basic({}), group(GROUP, MEMBERS), group_route(f"{BLOCK}:2::/48", GROUP, SEED))
        direct = self.ports_of(flows(100, dst=f"{BLOCK}:2::"))
        shifted = self.ports_of(flows(100, dst=f"{BLOCK}:1:2::"), dst=f"{BLOCK}:2::")
        self.assertEqual(shifted, direct)
        self.assertEqual(set(direct), set(MEMBERS))


class ATrimmedPacketTakesItsTwinsMember(EcmpTest):
    """The member is chosen before the packet is cut, on fields that survive."""

    def runTest(self) -> None:
        self.spread()
        frames = flows(100, tc=TRIMMABLE << 2 | 2, payload=900)
        whole = self.ports_of(frames)
        self.switch.install(*(entry for port in MEMBERS for entry in (queue_limits(port, 0, 60), fabric_role(port))))
        for sent, port in zip(frames, whole, strict=True):
            self.switch.send(sent)
            self.switch.expect(port, trimmed(sent, port, TRIMMED))
        self.switch.done()
