"""What the data-plane tests say: a switch with entries, frames into it, all that comes out."""

from __future__ import annotations

from finsy import P4Client
from finsy.p4schema import P4UpdateType
from finsy.proto import p4r

from controller.drop_reasons import DROP_REASONS
from controller.p4runtime import Pipeline, SwitchClient
from controller.plan import Entry
from tests.dataplane.counters import Count, counter_entity, counts
from tests.dataplane.entries import INGRESS_PORT, MARKER_PORT
from tests.dataplane.frames import marker
from tests.dataplane.processes import DEVICE_ID
from tests.dataplane.targets import Target


class Switch:
    """A target under test with its program."""

    def __init__(self, target: Target, pipeline: Pipeline) -> None:
        self.target = target
        self.pipeline = pipeline
        self._election_id = 0

    async def program(self, entries: list[Entry]) -> None:
        """A fresh pipeline with these entries and no others; all counters are 0."""
        self._election_id += 1  # a switch may not have noticed yet that the last connection is gone
        async with SwitchClient(self.target.control, self.pipeline, 10) as client:
            await client.become_primary(self._election_id)
            await client.commit_pipeline()
            assert await client.write(P4UpdateType.INSERT, entries) == []

    async def counter(self, name: str) -> dict[int, Count]:
        """An indirect counter's cells that are not 0, by index."""
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=[counter_entity(self.pipeline.schema, name)])
        client = P4Client(self.target.control.address)
        await client.open()
        try:
            return counts([entity async for reply in client.request_iter(request) for entity in reply.entities])
        finally:
            await client.close()

    async def packets(self, name: str) -> dict[int, int]:
        """Of a counter of packets: its bytes mean nothing, and BMv2 counts them all the same."""
        return {index: packets for index, (packets, _) in (await self.counter(name)).items()}

    async def drops(self) -> dict[str, Count]:
        """(packets, bytes) by reason."""
        return {DROP_REASONS[index]: count for index, count in (await self.counter("drop_reasons")).items()}

    async def exchange(self, *frames: bytes, port: int = INGRESS_PORT) -> list[tuple[int, bytes]]:
        """Send frames; all that comes out, as (port, frame), the marker aside. Nothing is waited for by time.

        A control-class marker follows. When it is out the ingress has decided on every frame, so the counted drops say
        how many more are to come; in the end the egress must have sent just those.
        """
        dropped_before, sent_before = await self._dropped(), await self._sent()
        for frame in frames:
            await self.target.send(port, frame)
        await self.target.send(INGRESS_PORT, marker())
        received: list[tuple[int, bytes]] = []
        expected: int | None = None
        while expected is None or len(received) < expected:
            out, frame = await self.target.receive()
            if out == MARKER_PORT:
                expected = len(frames) - (await self._dropped() - dropped_before)
            else:
                received.append((out, frame))
        assert await self._sent() - sent_before == len(received) + 1
        return received

    async def _dropped(self) -> int:
        return sum(packets for packets, _ in (await self.counter("drop_reasons")).values())

    async def _sent(self) -> int:
        return sum(packets for packets, _ in (await self.counter("port_tx")).values())
