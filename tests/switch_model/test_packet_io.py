"""Packet-in and packet-out: the CPU port of a device, and the stream of its primary client."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from finsy.proto import U128, p4r, p4r_grpc, rpc_code

from switch_model.device import Device
from switch_model.server import MAX_WAITING, P4RuntimeServer
from switch_model.traffic import DROPPED
from tests.switch_model.support import PROGRAMS, load, pipeline_config

CPU_PORT = 64
_SetConfig = p4r.SetForwardingPipelineConfigRequest


def test_the_cpu_port_is_a_port_like_any_other() -> None:
    device = Device(1, cpu_port=CPU_PORT)
    device.load(load("packet_io")[1].pipeline.compiled)
    assert device.ingress(3, (b"\x12\x34", b"payload"), 0) == CPU_PORT
    out = device.dequeue(CPU_PORT, 0)
    # ingress_port 3 (9 bits), reason 5 (4 bits), cookie (35 bits)
    header = (3 << 39 | 5 << 35 | 0x712345678).to_bytes(6)
    assert out == (header + b"\x12\x34", b"payload")
    # flags 1 (3 bits), egress_port 300 (9 bits), padding
    assert device.packet_out(((1 << 13 | 300 << 4).to_bytes(2), b"\x00\x05payload"), 0) == 300
    assert device.dequeue(300, 0) == (b"\x00\x06payload", b"")
    assert device.packet_out(((511 << 4).to_bytes(2) + b"\0\0", b""), 0) == DROPPED
    assert device.occupancy() == 0


@pytest.mark.parametrize("port", [-1, 0, 511])
def test_what_can_t_be_the_cpu_port(port: int) -> None:
    with pytest.raises(ValueError, match=rf"leaf: CPU port {port} is not in 1\.\.510"):
        Device(1, name="leaf", cpu_port=port)


def test_without_a_cpu_port_there_is_no_packet_out() -> None:
    with pytest.raises(ValueError, match="device 1 has no CPU port"):
        Device(1).packet_out((b"", b""), 0)


@dataclass
class _Fabric:
    """A device with a CPU port and one without, and what came as packet-out."""

    server: P4RuntimeServer
    stub: Any
    received: list[tuple[int, bytes]] = field(default_factory=list)

    async def push(self, program: str = "packet_io", election_id: int | None = None) -> None:
        request = _SetConfig(
            device_id=1,
            election_id=None if election_id is None else U128.encode(election_id),
            action=_SetConfig.VERIFY_AND_COMMIT,
            config=pipeline_config(PROGRAMS / program),
        )
        await self.stub.SetForwardingPipelineConfig(request)


class _Client:
    """A StreamChannel of device 1, or another one."""

    def __init__(self, fabric: _Fabric) -> None:
        self._stream = fabric.stub.StreamChannel()

    async def arbitrate(self, election_id: int, device_id: int = 1) -> int:
        update = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=U128.encode(election_id))
        await self._stream.write(p4r.StreamMessageRequest(arbitration=update))
        code: int = (await self.next()).arbitration.status.code
        return code

    async def send(self, payload: bytes, *metadata: tuple[int, bytes]) -> None:
        items = [p4r.PacketMetadata(metadata_id=number, value=value) for number, value in metadata]
        await self._stream.write(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=payload, metadata=items)))

    async def refused(self, payload: bytes = b"", *metadata: tuple[int, bytes]) -> tuple[int, str]:
        """The code and message of the error that a packet-out is answered with; it says which packet it was."""
        await self.send(payload, *metadata)
        error = (await self.next()).error
        assert error.packet_out.packet_out.payload == payload
        return error.canonical_code, error.message

    async def next(self) -> p4r.StreamMessageResponse:
        response = await self._stream.read()
        assert isinstance(response, p4r.StreamMessageResponse), await self._stream.code()
        return response


@pytest.fixture
async def fabric() -> AsyncIterator[_Fabric]:
    received: list[tuple[int, bytes]] = []
    server = P4RuntimeServer(
        [Device(1, cpu_port=CPU_PORT), Device(2)],
        on_packet_out=lambda device, frame: received.append((device.device_id, frame)),
    )
    address = await server.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(address) as channel:
        yield _Fabric(server, p4r_grpc.P4RuntimeStub(channel), received)
    await server.stop()


async def _sent(fabric: _Fabric, client: _Client, payload: bytes, *metadata: tuple[int, bytes]) -> bytes:
    """The frame that a packet-out becomes."""
    await client.send(payload, *metadata)
    await client.arbitrate(10)  # its answer comes behind what the stream did before
    ((device_id, frame),) = fabric.received
    fabric.received.clear()
    assert device_id == 1
    return frame


async def test_a_packet_in_goes_to_the_primary_with_its_metadata(fabric: _Fabric) -> None:
    await fabric.push()
    primary, backup = _Client(fabric), _Client(fabric)
    await primary.arbitrate(10)
    await backup.arbitrate(9)
    frame = (300 << 39 | 5 << 35 | 0x712345678).to_bytes(6) + b"payload"
    assert fabric.server.deliver_packet_in(1, frame)
    packet = (await primary.next()).packet
    assert packet.payload == b"payload"
    assert [(item.metadata_id, item.value) for item in packet.metadata] == [
        (1, b"\x01\x2c"),
        (2, b"\x05"),
        (3, b"\x07\x12\x34\x56\x78"),
    ]
    assert await backup.arbitrate(9) == rpc_code.ALREADY_EXISTS  # and nothing before it


async def test_a_packet_in_without_metadata_is_the_frame(fabric: _Fabric) -> None:
    await fabric.push("stateful")
    client = _Client(fabric)
    await client.arbitrate(1)
    assert fabric.server.deliver_packet_in(1, b"frame")
    assert await client.next() == p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=b"frame"))


async def test_packet_ins_that_nobody_takes(fabric: _Fabric) -> None:
    frame = bytes(20)
    client = _Client(fabric)
    await client.arbitrate(10)
    assert not fabric.server.deliver_packet_in(1, frame), "no pipeline"
    await fabric.push(election_id=10)
    assert not fabric.server.deliver_packet_in(1, bytes(5)), "shorter than the header"
    assert not fabric.server.deliver_packet_in(2, frame), "no primary"
    with pytest.raises(KeyError):
        fabric.server.deliver_packet_in(3, frame)
    # Nothing awaits here, so that what is sent waits.
    taken = [fabric.server.deliver_packet_in(1, frame) for _ in range(MAX_WAITING + 10)]
    assert taken == [True] * MAX_WAITING + [False] * 10
    for _ in range(MAX_WAITING):
        assert (await client.next()).HasField("packet")
    assert fabric.server.deliver_packet_in(1, frame)


async def test_a_packet_out_becomes_a_frame_with_its_header(fabric: _Fabric) -> None:
    await fabric.push()
    client = _Client(fabric)
    await client.arbitrate(10)
    metadata = ((2, b"\x01\x2c"), (1, b"\x05"), (3, b"\x00"))
    assert await _sent(fabric, client, b"payload", *metadata) == (5 << 13 | 300 << 4).to_bytes(2) + b"payload"
    # PI takes 0 for what is missing, and bytestrings that are longer than they must be.
    assert await _sent(fabric, client, b"", (2, b"\x00\x00\x01\x2c")) == (300 << 4).to_bytes(2)


async def test_a_packet_out_of_a_program_without_metadata_is_the_frame(fabric: _Fabric) -> None:
    await fabric.push("stateful")
    client = _Client(fabric)
    await client.arbitrate(10)
    assert await _sent(fabric, client, b"frame") == b"frame"
    expected = (rpc_code.INVALID_ARGUMENT, "the program's packet-out has no metadata with id 1")
    assert await client.refused(b"frame", (1, b"\x01")) == expected


async def test_refused_packet_outs(fabric: _Fabric) -> None:
    primary, backup, other = _Client(fabric), _Client(fabric), _Client(fabric)
    early = (rpc_code.FAILED_PRECONDITION, "the stream belongs to no device yet: arbitration comes first")
    assert await primary.refused(b"early") == early
    await primary.arbitrate(10)
    no_config = (rpc_code.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
    assert await primary.refused() == no_config
    await fabric.push(election_id=10)
    await backup.arbitrate(9)
    assert await backup.refused() == (rpc_code.PERMISSION_DENIED, "not primary of device 1")
    invalid = rpc_code.INVALID_ARGUMENT
    unknown = (invalid, "the program's packet-out has no metadata with id 4")
    assert await primary.refused(b"x", (2, b"\x01"), (4, b"\x01")) == unknown
    too_wide = (invalid, "packet-out metadata 'egress_port': value 0x200 does not fit 9 bits")
    assert await primary.refused(b"x", (2, b"\x02\x00")) == too_wide
    empty = (invalid, "packet-out metadata 'egress_port': value is empty")
    assert await primary.refused(b"x", (2, b"")) == empty
    await other.arbitrate(1, device_id=2)
    assert await other.refused() == (rpc_code.FAILED_PRECONDITION, "device 2 has no CPU port")
    assert fabric.received == []


async def test_a_server_through_which_no_frames_flow_says_so() -> None:
    server = P4RuntimeServer([Device(1, cpu_port=CPU_PORT)])
    async with grpc.aio.insecure_channel(await server.start("127.0.0.1:0")) as channel:
        fabric = _Fabric(server, p4r_grpc.P4RuntimeStub(channel))
        await fabric.push()
        client = _Client(fabric)
        await client.arbitrate(1)
        expected = (rpc_code.UNIMPLEMENTED, "no frames flow through the devices of this server")
        assert await client.refused(b"x") == expected
    await server.stop()
