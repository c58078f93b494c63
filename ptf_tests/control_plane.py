"""P4Runtime for tests that wait for each answer: the controller's own client, run by an event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import grpc
from finsy import GRPCStatusCode
from finsy.p4schema import P4UpdateType
from finsy.proto import U128, p4r, p4r_grpc, rpc_status

from controller.p4runtime import Pipeline, Refusal, SwitchClient
from controller.packet_io import PacketIn, PacketIo
from controller.plan import Entry
from controller.topology import Control
from tests.dataplane.counters import Count, counter_entity, counts, direct_counter_entity
from tests.dataplane.processes import TIMEOUT, Addresses

T = TypeVar("T")

INSERT, MODIFY, DELETE = P4UpdateType.INSERT, P4UpdateType.MODIFY, P4UpdateType.DELETE


@cache
def pipeline() -> Pipeline:
    """The switch program as it is checked in."""
    return Pipeline()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Raises TimeoutError after TIMEOUT seconds."""

    async def limited() -> T:
        return await asyncio.wait_for(work, TIMEOUT)

    return asyncio.run_coroutine_threadsafe(limited(), _loop()).result()


class Error(NamedTuple):
    """What P4Runtime says about an update or a request."""

    code: str
    message: str


def _errors(error: Any) -> list[Error]:
    """One p4.v1.Error for each update (P4Runtime 1.4, "Error Reporting Messages"), or what the RPC failed with."""
    details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
    if details is None:
        return [Error(error.code().name, error.details())]
    found = []
    for detail in rpc_status.Status.FromString(details).details:
        message = p4r.Error()
        detail.Unpack(message)
        found.append(Error(GRPCStatusCode(message.canonical_code).name, message.message))
    return found


class ControlPlane:
    """A controller's connection to one switch, as its primary with `election_id`."""

    def __init__(self, where: Addresses, election_id: int) -> None:
        self.device_id = where.device_id
        self.election_id = election_id
        self._channel = grpc.insecure_channel(where.p4runtime)
        self.stub = p4r_grpc.P4RuntimeStub(self._channel)
        """For requests that the controller would never make."""
        wait_for(self._connect(where))

    async def _connect(self, where: Addresses) -> None:
        self._client = SwitchClient(Control(where.p4runtime, where.device_id), pipeline(), TIMEOUT)
        self._packets = PacketIo(self._client, pipeline())
        await self._client.__aenter__()
        await self._client.become_primary(self.election_id)

    def close(self) -> None:
        wait_for(self._client.__aexit__(None, None, None))
        self._channel.close()

    def commit_pipeline(self) -> None:
        wait_for(self._client.commit_pipeline())

    def cookie(self) -> int | None:
        """Of the switch's pipeline; None if it has none."""
        return wait_for(self._client.cookie())

    def write(self, update: P4UpdateType, entries: Sequence[Entry]) -> list[Refusal]:
        return wait_for(self._client.write(update, entries))

    def entries(self) -> list[Entry]:
        """All table entries that the switch holds."""
        return wait_for(self._client.read())

    def packet_in(self) -> PacketIn:
        return wait_for(self._packets.receive())

    def packet_out(self, port: int, frame: bytes) -> None:
        wait_for(self._packets.send(port, frame))

    def refused(self, update: P4UpdateType, *entities: p4r.Entity, **fields: Any) -> list[Error]:
        """Write entities as they are; the error of each update, or of the request. `fields` replace the request's."""
        updates = [p4r.Update(type=update.vt(), entity=entity) for entity in entities]
        defaults: dict[str, Any] = {
            "device_id": self.device_id,
            "election_id": U128.encode(self.election_id),
            "updates": updates,
        }
        try:
            self.stub.Write(p4r.WriteRequest(**(defaults | fields)), timeout=TIMEOUT)
        except grpc.RpcError as error:
            return _errors(error)
        return []

    def read(self, *selectors: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=selectors)
        return [entity for reply in self.stub.Read(request, timeout=TIMEOUT) for entity in reply.entities]

    def counter(self, name: str, indexes: Iterable[int]) -> dict[int, Count]:
        """The cells of an indirect counter that are not 0."""
        schema = pipeline().schema
        return counts(self.read(*(counter_entity(schema, name, index) for index in indexes)))

    def direct_counter(self, entry: Entry) -> Count:
        """What a table entry has counted."""
        (found,) = self.read(direct_counter_entity(pipeline(), entry))
        data = found.direct_counter_entry.data
        return Count(data.packet_count, data.byte_count)
