"""The two targets that run the switch program, behind one interface: frames in, frames out, P4Runtime."""

from __future__ import annotations

import asyncio
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from controller.topology import Control
from switch_model.device import Device
from switch_model.server import P4RuntimeServer

DEVICE_ID = 1
PORTS = range(8)
CPU_PORT = 510
TIMEOUT = 20.0
"""Seconds after which a switch that does not answer fails the test."""
BMV2 = shutil.which("simple_switch_grpc")


class Target(ABC):
    """A switch under test, without a pipeline at first."""

    control: Control

    @abstractmethod
    async def send(self, port: int, frame: bytes) -> None:
        """Put a frame into a port."""

    @abstractmethod
    async def receive(self) -> tuple[int, bytes]:
        """The next frame that came out, and of which port."""


class Embedded(Target):
    """switch_model, in this process."""

    def __init__(self, device: Device, address: str) -> None:
        self.control = Control(address, DEVICE_ID)
        self.device = device
        self._out: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def send(self, port: int, frame: bytes) -> None:
        out = self.device.ingress(port, (frame, b""), 0)
        while out >= 0 and (left := self.device.dequeue(out, 0)) is not None:
            self._out.put_nowait((out, b"".join(left)))

    async def receive(self) -> tuple[int, bytes]:
        return await asyncio.wait_for(self._out.get(), TIMEOUT)


class Bmv2(Target):
    """A simple_switch_grpc process, reached over its data-plane gRPC service: no interfaces, no root."""

    def __init__(self, control: Control, stub: Any, messages: Any) -> None:
        self.control = control
        self._stub = stub
        self._messages = messages
        self._stream: Any = None

    async def send(self, port: int, frame: bytes) -> None:
        if self._stream is None:  # before the first pipeline BMv2 refuses it
            self._stream = self._stub.PacketStream()
        await self._stream.write(self._messages.Packet(device_id=DEVICE_ID, port=port, packet=frame))

    async def receive(self) -> tuple[int, bytes]:
        message = await asyncio.wait_for(self._stream.read(), TIMEOUT)
        return message.port, message.packet

    def close(self) -> None:
        """End the stream of frames."""
        if self._stream is not None:
            self._stream.cancel()


@asynccontextmanager
async def embedded() -> AsyncIterator[Target]:
    """A device of switch_model behind a P4Runtime server on a free port."""
    device = Device(DEVICE_ID)
    server = P4RuntimeServer([device])
    try:
        yield Embedded(device, await server.start("127.0.0.1:0"))
    finally:
        await server.stop()


@asynccontextmanager
async def bmv2() -> AsyncIterator[Target]:
    """A BMv2 process of this test's own, stopped by its id."""
    with_services = grpc.protos_and_services
    messages, services = with_services(str(Path(__file__).with_name("dataplane.proto").relative_to(Path.cwd())))
    p4runtime, dataplane, thrift = free_ports(3)
    process = await asyncio.create_subprocess_exec(
        str(BMV2),
        *("--no-p4", "--device-id", str(DEVICE_ID), "--thrift-port", str(thrift), "--"),
        *("--grpc-server-addr", f"127.0.0.1:{p4runtime}", "--dp-grpc-server-addr", f"127.0.0.1:{dataplane}"),
        *("--priority-queues", "8", "--cpu-port", str(CPU_PORT)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{dataplane}") as channel:
            await asyncio.wait_for(channel.channel_ready(), TIMEOUT)
            stub = services.DataplaneInterfaceStub(channel)
            target = Bmv2(Control(f"127.0.0.1:{p4runtime}", DEVICE_ID), stub, messages)
            yield target
            target.close()
    finally:
        process.kill()
        await process.wait()


def free_ports(count: int) -> list[int]:
    """TCP ports that were free just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return numbers
