"""The edge of the SR domain on both targets: what a host port may send, and where to (RFC 8402 8.2)."""

from __future__ import annotations

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from controller.plan import Entry
from tests.dataplane.harness import HOST_MAC, INGRESS_PORT, ROUTER_MAC, Switch, basic, forwarded, station

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST_PORT = 5
HOST = "fd00:1::5"
OTHER = "fd00:1::6"
TENANT_ROW = "fd00:2::/64"
STRANGER = "fd00:3::1"


def guard(dst: str, src: str = HOST, port: int = HOST_PORT) -> Entry:
    match = (("ingress_port", port), ("src_addr", src), ("dst_addr", dst))
    return Entry("guard", match, "pass_guard", ())


ENTRIES = [
    *basic(
        {
            "fcbb:bbbb:2::/48": 1,
            TENANT_ROW: 2,
            "fd00:3::/64": 3,
            f"{HOST}/128": HOST_PORT,
            "fcbb:bbbb:e005::/48": HOST_PORT,
        }
    ),
    station(HOST_PORT),
    Entry("host_port", (("ingress_port", HOST_PORT),), "guard_this_port", ()),
    guard("fcbb:bbbb:1::/48"),
    guard(TENANT_ROW),
]


def encapsulated(dst: str, src: str = HOST, inner_src: str = HOST) -> bytes:
    inner = IPv6(src=inner_src, dst="fd00:2::9") / UDP(sport=1, dport=4791)
    return bytes(Ether(dst=ROUTER_MAC, src=HOST_MAC) / IPv6(src=src, dst=dst) / inner)


def plain(dst: str, src: str = HOST) -> bytes:
    return bytes(Ether(dst=ROUTER_MAC, src=HOST_MAC) / IPv6(src=src, dst=dst) / UDP(sport=1, dport=4791))


@pytest.mark.parametrize(
    ("sent", "port", "dst"),
    [
        (encapsulated("fcbb:bbbb:1:2::"), 1, "fcbb:bbbb:2::"),
        (plain("fd00:2::9"), 2, None),
        (encapsulated("fcbb:bbbb:1:e005::"), HOST_PORT, "fcbb:bbbb:e005::"),  # a self-probe goes back to its port
    ],
    ids=["srv6", "ecmp", "self-probe"],
)
async def test_what_is_allowed_passes(switch: Switch, sent: bytes, port: int, dst: str | None) -> None:
    await switch.program(ENTRIES)
    assert await switch.exchange(sent, port=HOST_PORT) == [(port, forwarded(sent, port, dst=dst))]


@pytest.mark.parametrize(
    "sent",
    [
        encapsulated("fcbb:bbbb:1:2::", src=OTHER),
        encapsulated("fcbb:bbbb:1:2::", inner_src=OTHER),
        encapsulated("fcbb:bbbb:2::"),  # not over its own T0's uSID
        encapsulated("fcbb:cccc:1:2::"),  # another tenant's block
        plain("fd00:2::9", src=OTHER),
        plain("fd00:3::1"),  # another tenant's NIC
    ],
    ids=["outer source", "inner source", "foreign uSID first", "foreign block", "source", "foreign destination"],
)
async def test_what_is_not_allowed_is_dropped(switch: Switch, sent: bytes) -> None:
    await switch.program(ENTRIES)
    assert await switch.exchange(sent, port=HOST_PORT) == []
    assert await switch.drops() == {"guard": (1, len(sent))}


async def test_a_port_that_is_not_a_hosts_is_not_guarded(switch: Switch) -> None:
    await switch.program(ENTRIES)
    sent = plain("fd00:3::1", src=OTHER)
    assert await switch.exchange(sent, port=INGRESS_PORT) == [(3, forwarded(sent, 3))]
