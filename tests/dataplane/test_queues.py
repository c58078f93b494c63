"""Traffic classes, admission, trimming and ECN on both targets (SAI packet trimming; UEC 1.0 4.1; RFC 3168)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.dataplane.harness import (
    CONTROL_DSCP,
    HOST_MAC,
    NO_TRIM,
    ROUTER_MAC,
    TRIMMABLE,
    TRIMMABLE_RETX,
    TRIMMED,
    TRIMMED_LASTHOP,
    Switch,
    basic,
    fabric_role,
    forwarded,
    host_role,
    queue_limits,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "trim.json").read_text())["vectors"]
DST = "fd00::2"
PORT = 3
OTHER_PORT = 4
ROUTES = {f"{DST}/128": PORT, "fd00::4/128": OTHER_PORT, "fcbb:bbbb:2::/48": PORT}
ETHERNET, IP6, UDP_HEADER = 14, 40, 8


def frame(length: int, *, dscp: int = TRIMMABLE, ecn: int = 2, inner: bool = False, dst: str = DST) -> bytes:
    """A frame of `length` bytes, every payload byte of its own, the UDP checksum not to be touched."""
    headers = ETHERNET + IP6 + UDP_HEADER + (IP6 if inner else 0)
    udp = UDP(sport=0xC123, dport=4791, chksum=0xBEEF) / Raw(bytes(n % 251 for n in range(length - headers)))
    below = IPv6(src="fd00::1", dst="fd00::9", hlim=9, tc=dscp << 2 | ecn) / udp if inner else udp
    header = IPv6(src="fd00::1", dst=dst, hlim=64, tc=dscp << 2 | ecn, fl=0xABCDE)
    made = bytes(Ether(dst=ROUTER_MAC, src=HOST_MAC) / header / below)
    assert len(made) == length
    return made


def remarked(sent: bytes, dscp: int) -> bytes:
    """The outer DSCP rewritten; ECN as it was."""
    word = int.from_bytes(sent[14:16], "big") & 0xF03F | dscp << 6
    return sent[:14] + word.to_bytes(2, "big") + sent[16:]


def trimmed(sent: bytes, port: int, dscp: int, size: int = 128, dst: str | None = None) -> bytes:
    """The strict rule: outer DSCP and length, a prefix of everything else."""
    out = remarked(forwarded(sent, port, dst=dst), dscp)
    length = min(int.from_bytes(sent[18:20], "big"), size - ETHERNET - IP6)
    return (out[:18] + length.to_bytes(2, "big") + out[20:])[:size]


def limits(data: int, trim: int = 60, role: Any = fabric_role, size: int = 128) -> list[Any]:
    return [*basic(ROUTES), queue_limits(PORT, data, trim), role(PORT, size)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
@pytest.mark.parametrize("ecn", [0, 1, 2, 3])
async def test_length_vector(switch: Switch, vector: dict[str, Any], ecn: int) -> None:
    await switch.program(limits(0, size=vector["trim_size"]))
    sent = frame(vector["frame_in"], ecn=ecn, inner="inner_payload_len" in vector)
    ((port, out),) = await switch.exchange(sent)
    assert port == PORT and out == trimmed(sent, PORT, TRIMMED, vector["trim_size"])
    assert len(out) == vector["frame_out"]
    if "outer_payload_len_out" in vector:
        assert int.from_bytes(sent[18:20], "big") == vector["outer_payload_len_in"]
        assert int.from_bytes(out[18:20], "big") == vector["outer_payload_len_out"]
    if "udp_len" in vector:
        udp = 94 if "inner_payload_len" in vector else 54
        assert int.from_bytes(out[udp + 4 : udp + 6], "big") == vector["udp_len"]
    assert out[15] >> 4 & 3 == ecn
    assert await switch.packets("port_trims") == {PORT: 1}


async def test_ethernet_padding_is_not_taken_for_payload(switch: Switch) -> None:
    await switch.program(limits(0))
    sent = frame(80)
    sent = sent[:18] + (10).to_bytes(2, "big") + sent[20:]  # an IPv6 packet of 50 bytes in a frame of 80
    assert await switch.exchange(sent) == [(PORT, trimmed(sent, PORT, TRIMMED))]


@pytest.mark.parametrize("dscp", [TRIMMABLE, TRIMMABLE_RETX])
async def test_towards_a_host_it_is_trimmed_lasthop(switch: Switch, dscp: int) -> None:
    await switch.program(limits(0, role=host_role))
    sent = frame(1000, dscp=dscp)
    assert await switch.exchange(sent) == [(PORT, trimmed(sent, PORT, TRIMMED_LASTHOP))]


async def test_un_and_trim(switch: Switch) -> None:
    """The shift happens as usual; only the outer header is rewritten."""
    await switch.program(limits(0))
    sent = frame(4094, inner=True, dst="fcbb:bbbb:1:2:3::")
    assert await switch.exchange(sent) == [(PORT, trimmed(sent, PORT, TRIMMED, dst="fcbb:bbbb:2:3::"))]


async def test_below_the_limit_nothing_is_trimmed(switch: Switch) -> None:
    await switch.program(limits(1000))
    sent = [frame(400 + n) for n in range(20)]
    assert await switch.exchange(*sent) == [(PORT, forwarded(one, PORT)) for one in sent]
    assert await switch.packets("port_trims") == {}


@pytest.mark.parametrize("dscp", [NO_TRIM, 33])
async def test_what_is_not_trimmable_is_dropped_and_counted(switch: Switch, dscp: int) -> None:
    await switch.program(limits(0))
    sent = frame(1000, dscp=dscp)
    assert await switch.exchange(sent) == []
    assert await switch.drops() == {"data_queue_full": (1, 1000)}


async def test_control_has_no_limit_and_is_never_trimmed(switch: Switch) -> None:
    await switch.program(limits(0, trim=0))
    sent = frame(1000, dscp=CONTROL_DSCP, ecn=0)
    assert await switch.exchange(sent) == [(PORT, forwarded(sent, PORT))]


@pytest.mark.parametrize("dscp", [TRIMMED, TRIMMED_LASTHOP])
async def test_a_trimmed_packet_passes_as_it_is_and_is_dropped_when_the_trim_queue_is_full(
    switch: Switch, dscp: int
) -> None:
    await switch.program(limits(0))
    sent = frame(128, dscp=dscp)
    assert await switch.exchange(sent) == [(PORT, forwarded(sent, PORT))]
    await switch.program(limits(0, trim=0))
    assert await switch.exchange(sent) == []
    assert await switch.drops() == {"trim_queue_full": (1, 128)}


async def test_a_trim_that_the_trim_queue_refuses_is_dropped(switch: Switch) -> None:
    await switch.program(limits(0, trim=0))
    assert await switch.exchange(frame(1000)) == []
    assert await switch.drops() == {"trim_queue_full": (1, 1000)}
    assert await switch.packets("port_trims") == {}


async def test_ports_are_congested_one_by_one(switch: Switch) -> None:
    await switch.program([*limits(0), queue_limits(OTHER_PORT, 1000, 1000), fabric_role(OTHER_PORT)])
    here, there = frame(900), frame(901, dst="fd00::4")
    assert sorted(await switch.exchange(here, there)) == [
        (PORT, trimmed(here, PORT, TRIMMED)),
        (OTHER_PORT, forwarded(there, OTHER_PORT)),
    ]


async def test_places_are_given_back(switch: Switch) -> None:
    """Many more packets than the limit, one after the other: the queue is empty each time."""
    await switch.program(limits(2))
    for length in range(300, 320):
        sent = frame(length)
        assert await switch.exchange(sent) == [(PORT, forwarded(sent, PORT))]


async def test_a_port_without_limits_takes_all(switch: Switch) -> None:
    await switch.program([*basic(ROUTES), fabric_role(PORT)])
    sent = frame(1500)
    assert await switch.exchange(sent) == [(PORT, forwarded(sent, PORT))]
