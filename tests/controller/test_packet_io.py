"""Packet-in and packet-out, against a fake server and both targets; ICMPv6 Time Exceeded, against scapy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import IPv6Address

import pytest
from finsy.p4schema import P4UpdateType
from finsy.proto import U128, p4r, rpc_code, rpc_status
from scapy.layers.inet import UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6TimeExceeded, ICMPv6Unknown, IPerror6, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from controller.drop_reasons import DROP_REASONS
from controller.p4runtime import Pipeline, SwitchClient, SwitchError
from controller.packet_io import PacketIn, PacketIo, TimeExceededAnswers, icmp_time_exceeded
from controller.plan import entries
from controller.topology import Control, Topology
from nic_model.icmp import read_time_exceeded
from switch_model.device import Device
from switch_model.server import P4RuntimeServer
from tests.controller.fake_p4runtime import FakeDevice, FakeP4Runtime
from tests.dataplane import targets

PIPELINE = Pipeline()
SWITCH = IPv6Address("fd00:6d72:6301::4000")
SOURCE, DESTINATION = "fd00:6d72:6300::1", "fd00:6d72:6300:1::2"
NIC_MAC, SWITCH_MAC = "02:01:00:00:e0:01", "02:00:00:00:20:00"


def test_the_drop_reasons_are_those_of_the_program() -> None:
    members = PIPELINE.schema.p4info.type_info.serializable_enums["DropReason"].members
    assert tuple(member.name.lower() for member in members) == DROP_REASONS
    assert [int.from_bytes(member.value, "big") for member in members] == list(range(len(DROP_REASONS)))


# ---- packets over P4Runtime -------------------------------------------------------------------------------


def packet_in(port: int, reason: int, payload: bytes) -> p4r.StreamMessageResponse:
    metadata = [
        p4r.PacketMetadata(metadata_id=1, value=bytes([port])),
        p4r.PacketMetadata(metadata_id=2, value=b"\0"),
        p4r.PacketMetadata(metadata_id=3, value=bytes([reason])),
    ]
    return p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=payload, metadata=metadata))


@pytest.fixture
async def fake() -> AsyncIterator[FakeP4Runtime]:
    async with FakeP4Runtime({1: FakeDevice()}) as server:
        yield server


async def test_a_packet_in_and_a_packet_out(fake: FakeP4Runtime) -> None:
    sent: list[p4r.PacketOut] = []

    def answer(packet: p4r.PacketOut) -> list[p4r.StreamMessageResponse]:
        sent.append(packet)
        digest = p4r.StreamMessageResponse(digest=p4r.DigestList(digest_id=1))
        return [digest, packet_in(7, 4, b"expired"), packet_in(8, 10, b"spoofed")]

    fake.devices[1].on_packet_out = answer
    async with SwitchClient(Control(fake.address, 1), PIPELINE, 10.0) as client:
        await client.become_primary(1)
        packet_io = PacketIo(client, PIPELINE)
        await packet_io.send(300, b"frame")
        assert await packet_io.receive() == PacketIn(7, "hop_limit", b"expired")
        assert await packet_io.receive() == PacketIn(8, "guard", b"spoofed")
    assert sent[0].payload == b"frame"
    assert [(field.metadata_id, field.value) for field in sent[0].metadata] == [(1, b"\x01\x2c"), (2, b"\0")]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (
            p4r.StreamMessageResponse(
                error=p4r.StreamError(canonical_code=rpc_code.INVALID_ARGUMENT, message="no such port")
            ),
            "packet-out: INVALID_ARGUMENT: no such port",
        ),
        (
            p4r.StreamMessageResponse(
                arbitration=p4r.MasterArbitrationUpdate(
                    election_id=U128.encode(77), status=rpc_status.Status(code=rpc_code.ALREADY_EXISTS)
                )
            ),
            "not primary any more: a controller with election id 77 is",
        ),
    ],
)
async def test_why_there_is_no_packet(fake: FakeP4Runtime, message: p4r.StreamMessageResponse, error: str) -> None:
    fake.devices[1].on_packet_out = lambda _: [message]
    async with SwitchClient(Control(fake.address, 1), PIPELINE, 10.0) as client:
        await client.become_primary(1)
        packet_io = PacketIo(client, PIPELINE)
        await packet_io.send(1, b"frame")
        with pytest.raises(SwitchError) as caught:
            await packet_io.receive()
    assert str(caught.value) == error


class EmbeddedWithController(targets.Embedded):
    """The embedded target, its CPU port joined to the P4Runtime server."""

    def __init__(self) -> None:
        device = Device(targets.DEVICE_ID, cpu_port=targets.CPU_PORT)
        super().__init__(device, "")
        self.server = P4RuntimeServer([device], on_packet_out=lambda _, frame: self.let_in(targets.CPU_PORT, frame))

    async def send(self, port: int, frame: bytes) -> None:
        self.let_in(port, frame)

    def let_in(self, port: int, frame: bytes) -> None:
        out = self.device.ingress(port, (frame, b""), 0)
        left = self.device.dequeue(out, 0)
        assert left is not None
        if out == targets.CPU_PORT:
            assert self.server.deliver_packet_in(targets.DEVICE_ID, b"".join(left))
        else:
            self._out.put_nowait((out, b"".join(left)))


@asynccontextmanager
async def embedded() -> AsyncIterator[targets.Target]:
    target = EmbeddedWithController()
    target.control = Control(await target.server.start("127.0.0.1:0"), targets.DEVICE_ID)
    try:
        yield target
    finally:
        await target.server.stop()


@pytest.mark.parametrize(
    "start",
    [
        embedded,
        pytest.param(
            targets.bmv2,
            marks=pytest.mark.skipif(targets.BMV2 is None, reason="simple_switch_grpc (BMv2) is not installed"),
        ),
    ],
)
async def test_a_hop_limit_that_ran_out(start: Callable[[], AbstractAsyncContextManager[targets.Target]]) -> None:
    """A packet expires at T0-0 behind a uSID; its source is told, with the packet as it was received."""
    topo = Topology.preset("compose")
    switch, nic = topo.switch("p0t0-0"), topo.nic("nic0").ports[0]
    path = IPv6(src=str(nic.address), dst="fcbb:bbbb:2000:4000:2001:e000::", hlim=1, tc=16, nh=41)
    frame = bytes(Ether(src=nic.mac, dst=switch.mac) / path / udp_packet(4000))
    async with start() as target, SwitchClient(target.control, PIPELINE, 10.0) as client:
        await client.become_primary(1)
        await client.commit_pipeline()
        for entry in entries(topo, switch):
            assert await client.write(P4UpdateType.INSERT, [entry]) == []
        packet_io = PacketIo(client, PIPELINE)
        await target.send(1, frame)
        packet = await asyncio.wait_for(packet_io.receive(), targets.TIMEOUT)
        assert packet == PacketIn(1, "hop_limit", frame)

        answer = icmp_time_exceeded(switch.address, packet.frame)
        assert answer is not None
        await packet_io.send(packet.ingress_port, answer)
        assert await target.receive() == (1, answer)


# ---- ICMPv6 -----------------------------------------------------------------------------------------------


def udp_packet(size: int, tc: int = 0, fl: int = 0) -> Packet:
    return IPv6(src=SOURCE, dst=DESTINATION, hlim=1, tc=tc, fl=fl) / UDP(sport=7, dport=4791) / Raw(bytes(size))


def received(packet: Packet) -> bytes:
    return bytes(Ether(src=NIC_MAC, dst=SWITCH_MAC) / packet)


@pytest.mark.parametrize(("payload", "quoted"), [(0, 48), (1, 49), (1183, 1231), (1184, 1232), (4000, 1232)])
def test_time_exceeded_is_what_scapy_builds(payload: int, quoted: int) -> None:
    packet = udp_packet(payload, tc=0x12, fl=0x5678)
    answer = icmp_time_exceeded(SWITCH, received(packet))
    assert answer is not None
    head = Ether(src=SWITCH_MAC, dst=NIC_MAC) / IPv6(src=str(SWITCH), dst=SOURCE, hlim=64)
    assert answer == bytes(head / ICMPv6TimeExceeded(code=0) / Raw(bytes(packet)[:quoted]))
    assert len(answer) == 14 + 40 + 8 + quoted <= 14 + 1280
    assert Ether(answer)[IPerror6].dst == DESTINATION


def test_the_padding_of_a_short_frame_is_not_quoted() -> None:
    packet = IPv6(src=SOURCE, dst=DESTINATION, hlim=1, nh=59)
    answer = icmp_time_exceeded(SWITCH, received(packet) + bytes(6))
    assert answer is not None
    assert answer[14 + 40 + 8 :] == bytes(packet)


def test_a_checksum_of_zero() -> None:
    """Of 65,536 different packets one has it; ones' complement has two zeros, RFC 1071 gives 0x0000."""
    zeros = []
    for port in range(1 << 16):
        frame = bytearray(FRAME)
        frame[14 + 40 : 14 + 42] = port.to_bytes(2, "big")
        answer = icmp_time_exceeded(SWITCH, bytes(frame))
        assert answer is not None
        zeros += [answer] if answer[14 + 42 : 14 + 44] in (b"\0\0", b"\xff\xff") else []
    assert {answer[14 + 42 : 14 + 44] for answer in zeros} == {b"\0\0"}


FRAME = received(udp_packet(0))


@pytest.mark.parametrize(
    ("packet", "answered"),
    [
        (IPv6(src=SOURCE, dst=DESTINATION) / ICMPv6EchoRequest(), True),
        (IPv6(src=SOURCE, dst=DESTINATION) / ICMPv6TimeExceeded() / Raw(b"error"), False),
        (IPv6(src=SOURCE, dst=DESTINATION) / ICMPv6Unknown(type=127), False),
        (IPv6(src=SOURCE, dst=DESTINATION) / ICMPv6Unknown(type=137), False),
        (IPv6(src=SOURCE, dst=DESTINATION, nh=58), False),
        (IPv6(src="::", dst=DESTINATION) / UDP(), False),
        (IPv6(src="ff02::1", dst=DESTINATION) / UDP(), False),
    ],
)
def test_what_may_be_answered(packet: Packet, answered: bool) -> None:
    assert (icmp_time_exceeded(SWITCH, received(packet)) is not None) is answered


def test_a_nic_reads_what_the_controller_answers_and_nothing_that_is_damaged() -> None:
    packet = IPv6(src=SOURCE, dst="fcbb:bbbb:4000:2001:e000::", nh=41) / udp_packet(0)
    answer = icmp_time_exceeded(SWITCH, received(packet))
    assert answer is not None
    message = read_time_exceeded(answer)
    assert message is not None
    assert [str(IPv6Address(part)) for part in message[:3]] == [str(SWITCH), SOURCE, "fcbb:bbbb:4000:2001:e000::"]
    for at in range(14 + 40, len(answer)):
        damaged = bytearray(answer)
        damaged[at] ^= 0x10
        assert read_time_exceeded(bytes(damaged)) is None


def test_answers_are_limited_by_a_token_bucket() -> None:
    answers = TimeExceededAnswers(SWITCH, rate=100, burst=3)
    packet = PacketIn(1, "hop_limit", FRAME)
    second = 1_000_000_000
    assert [answers.answer(packet, second) is not None for _ in range(5)] == [True, True, True, False, False]
    assert [answers.answer(packet, second + ms * 1_000_000) is not None for ms in (9, 10, 11, 20)] == [
        False, True, False, True,
    ]  # fmt: skip
    assert answers.suppressed == 4
    assert [answers.answer(packet, 9 * second) is not None for _ in range(4)] == [True, True, True, False]
    assert answers.answer(PacketIn(1, "guard", FRAME), 99 * second) is None
