"""The controller's way to the fabric's switches: P4Runtime over gRPC, while virtual time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from controller.p4runtime import Pipeline, SwitchClient, SwitchError
from controller.packet_io import PacketIo, TimeExceededAnswers
from controller.push import push, verify
from controller.topology import Control, Topology
from fabric.network import Fabric
from fabric.nodes import SwitchNode
from switch_model.device import Device
from switch_model.server import P4RuntimeServer

LOOPBACK = "127.0.0.1"
_ELECTION_ID = 1
_ANSWER_TIMEOUT = 10.0  # seconds of the reader's clock


class ControlError(Exception):
    """A switch could not be programmed. str() is one line."""


@dataclass(frozen=True, slots=True)
class Programmed:
    """A switch that had come back empty was given its entries again, at virtual time `at` (ns)."""

    at: int
    switch: str
    entries: int


class ControlPlane:
    """Serves the embedded switches at one address of this process and lets the controller program them.

    A context manager: it owns the loop that the server and the controller's clients run in.
    """

    def __init__(self, topo: Topology, fabric: Fabric) -> None:
        self._topo = topo
        self._fabric = fabric
        self._runner = asyncio.Runner()
        self._pipeline = Pipeline()
        self._servers: dict[str, P4RuntimeServer] = {}  # of each switch, with the pipeline that it was given
        self._packet_left = asyncio.Event()
        self.again: list[Programmed] = []
        """What was programmed after the beginning."""

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in set(self._servers.values()):
            self._runner.run(server.stop())
        self._runner.__exit__(kind, error, trace)

    def program(self) -> int:
        """Write and read back the tables of all switches; returns how many entries. Raises ControlError."""
        return sum(self._runner.run(self._program(self._fabric.switches)).values())

    def reprogram(self, switch: str) -> None:
        """Bring a switch that has come back empty to its plan, unless it is off again. Raises ControlError."""
        if self._fabric.switch(switch).powered:
            entries = self._runner.run(self._program([switch]))[switch]
            self.again.append(Programmed(self._fabric.events.now, switch, entries))

    def answer_packets(self, latency: int) -> None:
        """From now on, answer the packets that switches punt, `latency` ns later."""
        for switch in self._topo.switches():
            node = self._fabric.switches[switch.name]
            answers = TimeExceededAnswers(switch.address)
            node.on_packet_in = partial(self._on_packet_in, node, answers, latency)

    def _on_packet_in(self, node: SwitchNode, answers: TimeExceededAnswers, latency: int, frame: bytes) -> None:
        events = self._fabric.events
        events.at(events.now + latency, lambda: self._runner.run(self._answer(node, answers, frame)))

    async def _answer(self, node: SwitchNode, answers: TimeExceededAnswers, frame: bytes) -> None:
        """Take a packet-in and send what it gets as packet-out, over P4Runtime. Raises ControlError."""
        server, device = self._servers[node.device.name], node.device
        try:
            async with (
                asyncio.timeout(_ANSWER_TIMEOUT),
                SwitchClient(Control(server.address, device.device_id), self._pipeline, _ANSWER_TIMEOUT) as client,
            ):
                await client.become_primary(_ELECTION_ID)
                if not server.deliver_packet_in(device.device_id, frame):
                    return  # it has lost its pipeline
                packet_io = PacketIo(client, self._pipeline)
                packet = await packet_io.receive()
                answer = answers.answer(packet, self._fabric.events.now)
                if answer is not None:
                    self._packet_left.clear()
                    await packet_io.send(packet.ingress_port, answer)
                    await self._packet_left.wait()
        except (SwitchError, TimeoutError) as error:
            raise ControlError(f"{device.name}: {error or 'no packet-out came'}") from None

    def _on_packet_out(self, device: Device, frame: bytes) -> None:
        self._fabric.switches[device.name].packet_out(frame)
        self._packet_left.set()

    async def _program(self, switches: Collection[str]) -> dict[str, int]:
        """Entries written to each. The others have what they need, and the controller cannot reach them meanwhile."""
        devices = (self._fabric.switch(name).device for name in switches)
        server = P4RuntimeServer(devices, self._on_packet_out)
        topo = self._topo.served_at(await server.start(f"{LOOPBACK}:0"))
        self._servers |= dict.fromkeys(switches, server)
        written = {}
        for pushed in await push(topo, self._pipeline):
            if pushed.switch in switches:
                if pushed.errors:
                    raise ControlError(f"{pushed.switch}: {pushed.errors[0]}")
                written[pushed.switch] = pushed.inserted
        for verified in await verify(topo, self._pipeline):
            if verified.switch in switches and not verified.ok:
                reason = verified.error or "reads back other entries than were pushed"
                raise ControlError(f"{verified.switch}: {reason}")
        return written
