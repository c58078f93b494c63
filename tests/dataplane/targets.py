"""The two targets that run the switch program, behind one interface: frames in, frames out, P4Runtime."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from controller.topology import Control
from switch_model.device import Device
from switch_model.server import P4RuntimeServer
from tests.dataplane.entries import CPU_PORT
from tests.dataplane.processes import BMV2, DEVICE_ID, TIMEOUT, dataplane_protocol, running

__all__ = ["BMV2", "CPU_PORT", "DEVICE_ID", "TIMEOUT", "Bmv2", "Embedded", "Target", "bmv2", "embedded"]


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
        await self._stream.write(self._messages.PacketStreamRequest(device_id=DEVICE_ID, port=port, packet=frame))

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
    messages, services = dataplane_protocol()
    with running("bmv2") as switch:
        where = switch.addresses
        async with grpc.aio.insecure_channel(where.dataplane) as channel:
            stub = services.DataplaneInterfaceStub(channel)
            target = Bmv2(Control(where.p4runtime, where.device_id), stub, messages)
            yield target
            target.close()
