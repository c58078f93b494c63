"""The controller's way to the fabric's switches: P4Runtime over gRPC, while virtual time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from controller.p4runtime import Pipeline
from controller.push import push, verify
from controller.topology import Topology
from fabric.network import Fabric
from switch_model.server import P4RuntimeServer

LOOPBACK = "127.0.0.1"


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
        self.again: list[Programmed] = []
        """What was programmed after the beginning."""

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.__exit__(kind, error, trace)

    def program(self) -> int:
        """Write and read back the tables of all switches; returns how many entries. Raises ControlError."""
        return sum(self._runner.run(self._program(self._fabric.switches)).values())

    def reprogram(self, switch: str) -> None:
        """Bring a switch that has come back empty to its plan, unless it is off again. Raises ControlError."""
        if self._fabric.switch(switch).powered:
            entries = self._runner.run(self._program([switch]))[switch]
            self.again.append(Programmed(self._fabric.events.now, switch, entries))

    async def _program(self, switches: Collection[str]) -> dict[str, int]:
        """Entries written to each. The others have what they need, and the controller cannot reach them meanwhile."""
        server = P4RuntimeServer(self._fabric.switch(name).device for name in switches)
        topo = self._topo.served_at(await server.start(f"{LOOPBACK}:0"))
        written = {}
        try:
            pipeline = Pipeline()
            for pushed in await push(topo, pipeline):
                if pushed.switch in switches:
                    if pushed.errors:
                        raise ControlError(f"{pushed.switch}: {pushed.errors[0]}")
                    written[pushed.switch] = pushed.inserted
            for verified in await verify(topo, pipeline):
                if verified.switch in switches and not verified.ok:
                    reason = verified.error or "reads back other entries than were pushed"
                    raise ControlError(f"{verified.switch}: {reason}")
        finally:
            await server.stop()
        return written
