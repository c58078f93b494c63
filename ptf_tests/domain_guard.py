"""The edge of the SR domain: what a host port may send, and where to (RFC 8402 8.2)."""

from __future__ import annotations

from typing import ClassVar

from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6

from controller.packet_io import PacketIn
from ptf_tests.fabric_test import SwitchTest, cases
from tests.dataplane.counters import Count
from tests.dataplane.entries import (
    BLOCK,
    INGRESS_PORT,
    MARKER_DESTINATION,
    MARKER_SOURCE,
    basic,
    guard,
    host_port,
    punt,
)
from tests.dataplane.frames import forwarded, to_router

HOST_PORT = 5
HOST, OTHER_HOST = "fd00:1::5", "fd00:1::6"
TENANT_ROW, STRANGERS_ROW = "fd00:2::/64", "fd00:3::/64"
TO_OWN_T0, TO_TENANT = (guard(HOST_PORT, HOST, prefix) for prefix in (f"{BLOCK}:1::/48", TENANT_ROW))
ENTRIES = [
    *basic(
        {
            f"{BLOCK}:2::/48": 1,
            TENANT_ROW: 2,
            STRANGERS_ROW: 3,
            "fcbb:cccc::/32": 4,
            f"{HOST}/128": HOST_PORT,
            f"{BLOCK}:e005::/48": HOST_PORT,
        }
    ),
    host_port(HOST_PORT),
    TO_OWN_T0,
    TO_TENANT,
    guard(HOST_PORT, MARKER_SOURCE, f"{MARKER_DESTINATION}/128"),
]


def encapsulated(dst: str, src: str = HOST, inner_src: str = HOST) -> bytes:
    return to_router(IPv6(src=src, dst=dst) / IPv6(src=inner_src, dst="fd00:2::9") / UDP(sport=1, dport=4791))


def plain(dst: str, src: str = HOST) -> bytes:
    return to_router(IPv6(src=src, dst=dst) / UDP(sport=1, dport=4791))


class Allowed(SwitchTest):
    """It passes, and the guard's entry counts it."""

    sent: ClassVar[bytes]
    port: ClassVar[int]
    dst: ClassVar[str | None] = None

    def check(self) -> None:
        self.switch.install(*ENTRIES)
        self.switch.send(self.sent, port=HOST_PORT)
        self.switch.expect(self.port, forwarded(self.sent, self.port, dst=self.dst))
        self.switch.done()
        by = TO_TENANT if self.dst is None else TO_OWN_T0
        self.assertEqual(self.switch.control.direct_counter(by), Count(1, len(self.sent)))


cases(
    globals(),
    Allowed,
    {
        "a host may send over its own T0's uSID": {
            "sent": encapsulated(f"{BLOCK}:1:2::"), "port": 1, "dst": f"{BLOCK}:2::"
        },
        "a host may send to its tenant's NICs": {"sent": plain("fd00:2::9"), "port": 2},
        "a host's probe of itself comes back to its port": {
            "sent": encapsulated(f"{BLOCK}:1:e005::"), "port": HOST_PORT, "dst": f"{BLOCK}:e005::"
        },
    },
)  # fmt: skip


class Forbidden(SwitchTest):
    """Dropped and counted, though there is a route; and as it came, which a punt shows."""

    sent: ClassVar[bytes]

    def check(self) -> None:
        self.switch.install(*ENTRIES, punt("guard"))
        self.switch.send(self.sent, port=HOST_PORT)
        self.switch.expect_packet_in(PacketIn(HOST_PORT, "guard", self.sent))
        self.switch.done(guard=[self.sent])


cases(
    globals(),
    Forbidden,
    {
        f"a host may not {rule}": {"sent": sent}
        for rule, sent in (
            ("use another's outer source", encapsulated(f"{BLOCK}:1:2::", src=OTHER_HOST)),
            ("use another's inner source", encapsulated(f"{BLOCK}:1:2::", inner_src=OTHER_HOST)),
            ("use another's source without a tunnel", plain("fd00:2::9", src=OTHER_HOST)),
            ("enter by a uSID that is not its T0's", encapsulated(f"{BLOCK}:2::")),
            ("enter another tenant's block", encapsulated("fcbb:cccc:1:2::")),
            ("send to another tenant's NIC", plain("fd00:3::1")),
            ("send to a switch's other addresses", plain("fd00:7::1")),
        )
    },
)


class APortThatIsNotAHostsIsNotGuarded(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*ENTRIES)
        sent = plain("fd00:3::1", src=OTHER_HOST)
        self.switch.send(sent, port=INGRESS_PORT)
        self.switch.expect(3, forwarded(sent, 3))
        self.switch.done()


class AGuardIsOfOnePort(SwitchTest):
    """The same host on another guarded port is a stranger there."""

    def runTest(self) -> None:
        self.switch.install(*ENTRIES, host_port(6), guard(6, MARKER_SOURCE, f"{MARKER_DESTINATION}/128"))
        sent = plain("fd00:2::9")
        self.switch.send(sent, port=6)
        self.switch.done(guard=[sent])
        self.switch.send(sent, port=HOST_PORT)
        self.switch.expect(2, forwarded(sent, 2))
        self.switch.done()


class AGuardThatIsRemovedLetsNothingThrough(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*ENTRIES)
        self.switch.remove(TO_TENANT)
        sent = plain("fd00:2::9")
        self.switch.send(sent, port=HOST_PORT)
        self.switch.done(guard=[sent])
