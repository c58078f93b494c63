"""The fabric's program on the embedded target: every uN vector, with entries over gRPC by finsy."""

import json
from collections.abc import AsyncIterator
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import finsy as fy
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from switch_model.device import Device
from switch_model.server import P4RuntimeServer
from switch_model.traffic import DROPPED
from tests.switch_model.support import FABRIC, forward, read_entries

_UN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "un.json").read_text())
_VECTORS: list[dict[str, Any]] = _UN["vectors"]

_IN_PORT, _OUT_PORT = 3, 17
_HOST_MAC, _ROUTER_MAC, _NEXT_MAC = "02:00:00:00:00:0a", "02:00:00:00:01:03", "02:00:00:00:02:01"


def _frame(vector: dict[str, Any]) -> bytes:
    """The vector's packet as scapy builds it: inner IPv6, UDP or a segment routing header behind the IPv6 header."""
    inner = IPv6(src="fc00::1", dst="fc00::2", tc=0x28) / UDP(sport=49152, dport=4791, chksum=0x1234) / b"payload"
    outer = IPv6(
        src="fcbb:bbbb:a::1",
        dst=vector["in_da"],
        hlim=vector["hop_limit"],
        nh=vector["next_header"],
        tc=0x2A,
        fl=0xBEEF,
    )
    payload: Packet
    match vector["next_header"]:
        case 41:
            payload = inner
        case 4:
            payload = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=4791) / b"payload"
        case 17:
            payload = UDP(sport=1, dport=4791, chksum=0xABCD) / b"payload"
        case 43:
            srh = vector["srh"]
            payload = IPv6ExtHdrSegmentRouting(addresses=srh["segments"], segleft=srh["segments_left"], nh=41) / inner
    return bytes(Ether(src=_HOST_MAC, dst=_ROUTER_MAC) / outer / payload)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _forwarded(vector: dict[str, Any], frame: bytes) -> bytes:
    """Everything but MACs, hop limit and destination stays as it is."""
    return b"".join(
        (
            _mac(_NEXT_MAC),
            _mac(_ROUTER_MAC),
            frame[12:21],
            bytes([vector["out_hop_limit"]]),
            frame[22:38],
            IPv6Address(vector["out_da"]).packed,
            frame[54:],
        )
    )


@pytest.fixture
async def switch() -> AsyncIterator[tuple[Device, fy.Switch]]:
    device = Device(1)
    server = P4RuntimeServer([device])
    options = fy.SwitchOptions(
        p4info=FABRIC.with_suffix(".p4info.txtpb"), p4blob=FABRIC.with_suffix(".json"), device_id=1
    )
    async with fy.Switch("t0", await server.start("127.0.0.1:0"), options) as client:
        await client.write(
            [
                +fy.P4TableEntry(
                    "my_station",
                    match=fy.Match(ingress_port=_IN_PORT, dst_mac=_ROUTER_MAC),
                    action=fy.Action("admit_frame"),
                ),
                *(
                    +fy.P4TableEntry("my_sid", match=fy.Match(dst_addr=own), action=fy.Action("end_un"))
                    for own in sorted({_UN["own"], *(vector.get("own", _UN["own"]) for vector in _VECTORS)})
                ),
                +fy.P4TableEntry(
                    "next_hop",
                    match=fy.Match(next_hop_id=7),
                    action=fy.Action("forward", port=_OUT_PORT, src_mac=_ROUTER_MAC, dst_mac=_NEXT_MAC),
                ),
            ]
        )
        yield device, client
    await server.stop()


async def _route(client: fy.Switch, *prefixes: str) -> None:
    await client.write(
        +fy.P4TableEntry("fib", match=fy.Match(dst_addr=prefix), action=fy.Action("route_to", next_hop_id=7))
        for prefix in prefixes
    )


@pytest.mark.parametrize("vector", _VECTORS, ids=lambda vector: vector["id"])
async def test_vector(switch: tuple[Device, fy.Switch], vector: dict[str, Any]) -> None:
    device, client = switch
    await _route(client, *vector["routes"])
    frame = _frame(vector)
    expected = _forwarded(vector, frame) if vector["result"] == "forward" else None
    for split in (0, 13, 14, 40, 54, 64, len(frame)):
        assert forward(device, frame, port=_IN_PORT, head=split) == expected, f"split at {split}"
    if expected is None:
        assert device.ingress(_IN_PORT, (frame, b""), 0) == DROPPED
    else:
        assert device.ingress(_IN_PORT, (frame, b""), 0) == _OUT_PORT


async def test_counters_of_a_forwarded_and_of_a_dropped_packet(switch: tuple[Device, fy.Switch]) -> None:
    device, client = switch
    await _route(client, "fcbb:bbbb:2::/48")
    frame = _frame(_VECTORS[0])
    forward(device, frame, port=_IN_PORT)
    forward(device, frame, port=_IN_PORT + 1)  # not its station there
    assert device.read_counter("port_rx", _IN_PORT) == (1, len(frame))
    assert device.read_counter("port_tx", _OUT_PORT) == (1, len(frame))
    not_my_station = 2
    assert device.read_counter("drop_reasons", not_my_station) == (1, len(frame))
    selector = fy.P4TableEntry("my_sid", counter_data=fy.P4CounterData())
    counted = [entry.counter_data for entry in await read_entries(client, selector)]
    assert [count for count in counted if count != fy.P4CounterData()] == [
        fy.P4CounterData(packet_count=1, byte_count=len(frame))
    ]
