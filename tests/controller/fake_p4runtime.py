"""A P4Runtime server without a switch: it keeps what is written, logs every request, and fails where it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as PbAny

Refuse = Callable[[p4r.Update], tuple[int, str] | None]
"""The canonical code and the message with which an update is refused, None if it is not."""


@dataclass
class FakeDevice:
    """One device: its state, and the faults to show."""

    config: p4r.ForwardingPipelineConfig | None = None
    entries: dict[bytes, p4r.TableEntry] = field(default_factory=dict)
    primary_id: int = 0
    highest_id: int = 0
    refuse: Refuse = lambda _: None
    refuse_pipeline: str = ""
    refuse_writes: str = ""
    silent_in: str = ""
    fail_in: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)
    """By method, how it ends."""
    before: Callable[[str], Awaitable[None]] | None = None
    """Told the name of each method that is called, before anything is done."""
    close_stream: bool = False
    streams: list[Any] = field(default_factory=list)
    on_packet_out: Callable[[p4r.PacketOut], list[p4r.StreamMessageResponse]] = lambda _: []
    """What the stream tells the controller when that has sent a packet."""
    writes: list[tuple[str, list[int]]] = field(default_factory=list)
    """Per Write request: the kinds of update in it, and the ids of the tables in the order of the updates."""


class FakeP4Runtime(p4r_grpc.P4RuntimeServicer):
    """A server of `devices` by device_id. `address` is HOST:PORT once it is started."""

    def __init__(self, devices: dict[int, FakeDevice]) -> None:
        self.devices = devices
        self.address = ""
        self._server = grpc.aio.server()

    async def __aenter__(self) -> FakeP4Runtime:
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    async def Capabilities(self, *_: Any) -> p4r.CapabilitiesResponse:  # noqa: N802 (gRPC's name)
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.3.0")

    async def StreamChannel(  # noqa: N802
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Any
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        device: FakeDevice | None = None
        async for request in requests:
            if device is not None and request.HasField("packet"):
                for message in device.on_packet_out(request.packet):
                    yield message
                continue
            device = await self._device(request.arbitration.device_id, "StreamChannel", context)
            if device.close_stream:
                return
            election_id = U128.decode(request.arbitration.election_id)
            if election_id == device.primary_id:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
            device.streams.append(context)
            yield p4r.StreamMessageResponse(arbitration=device_arbitration(device, election_id))

    async def take_over(self, device: FakeDevice, election_id: int) -> None:
        """Another controller becomes a device's primary; those that are connected hear of it."""
        device.primary_id = device.highest_id = election_id
        for stream in device.streams:
            await stream.write(p4r.StreamMessageResponse(arbitration=device_arbitration(device, 0)))

    async def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.GetForwardingPipelineConfigResponse:
        device = await self._device(request.device_id, "GetForwardingPipelineConfig", context)
        if device.config is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device"
            )
        assert device.config is not None
        return p4r.GetForwardingPipelineConfigResponse(config=p4r.ForwardingPipelineConfig(cookie=device.config.cookie))

    async def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        device = await self._device(request.device_id, "SetForwardingPipelineConfig", context)
        if device.refuse_pipeline:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, device.refuse_pipeline)
        await self._check_primary(device, request, context)
        device.config = request.config
        device.entries.clear()
        return p4r.SetForwardingPipelineConfigResponse()

    async def Read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:  # noqa: N802
        device = await self._device(request.device_id, "Read", context)
        for entry in device.entries.values():
            yield p4r.ReadResponse(entities=[p4r.Entity(table_entry=entry)])

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:  # noqa: N802
        device = await self._device(request.device_id, "Write", context)
        kinds = {p4r.Update.Type.Name(update.type) for update in request.updates}
        device.writes.append(
            (" ".join(sorted(kinds)), [update.entity.table_entry.table_id for update in request.updates])
        )
        if device.refuse_writes:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, device.refuse_writes)
        await self._check_primary(device, request, context)
        results = [self._apply(device, update) for update in request.updates]
        if any(result.canonical_code for result in results):
            status = rpc_status.Status(code=rpc_code.UNKNOWN, details=[_any(result) for result in results])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNKNOWN, "")
        return p4r.WriteResponse()

    def _apply(self, device: FakeDevice, update: p4r.Update) -> p4r.Error:
        refusal = device.refuse(update)
        if refusal:
            return p4r.Error(canonical_code=refusal[0], message=refusal[1], space="fake")
        entry = update.entity.table_entry
        key = entry_key(entry)
        if (key in device.entries) is (update.type == p4r.Update.INSERT):
            return p4r.Error(canonical_code=rpc_code.INVALID_ARGUMENT, message="fake: no such entry, or a second one")
        if update.type == p4r.Update.DELETE:
            del device.entries[key]
        else:
            device.entries[key] = entry
        return p4r.Error()

    async def _check_primary(self, device: FakeDevice, request: Any, context: Any) -> None:
        if U128.decode(request.election_id) < device.primary_id:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not primary")

    async def _device(self, device_id: int, method: str, context: Any) -> FakeDevice:
        device = self.devices.get(device_id)
        if device is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Device {device_id} is unknown")
        assert device is not None
        if device.before:
            await device.before(method)
        if method in device.fail_in:
            await context.abort(*device.fail_in[method])
        if device.silent_in == method:
            await asyncio.Event().wait()
        return device


def entry_key(entry: p4r.TableEntry) -> bytes:
    """What a table holds at most one entry for."""
    return p4r.TableEntry(table_id=entry.table_id, match=entry.match).SerializeToString(deterministic=True)


def device_arbitration(device: FakeDevice, election_id: int) -> p4r.MasterArbitrationUpdate:
    """The answer to an arbitration, as P4Runtime 1.3 section 5 has it."""
    if device.primary_id > election_id:
        code, winner = rpc_code.ALREADY_EXISTS, device.primary_id
    elif device.highest_id > election_id:
        code, winner = rpc_code.NOT_FOUND, device.highest_id
    else:
        code, winner = rpc_code.OK, election_id
    return p4r.MasterArbitrationUpdate(election_id=U128.encode(winner), status=rpc_status.Status(code=code))


def _any(message: p4r.Error) -> PbAny:
    packed = PbAny()
    packed.Pack(message)
    return packed
