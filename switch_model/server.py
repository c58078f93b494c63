"""The P4Runtime service for any number of devices at one address (grpc.aio).

Everything runs in the loop that `start` is called in, and a request touches a device between two awaits only, so
that nothing is seen half done.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status

from switch_model import p4info
from switch_model.arbitration import Arbitration
from switch_model.codegen import compile_program
from switch_model.device import Device
from switch_model.entities import Config
from switch_model.errors import PipelineError, UnsupportedError
from switch_model.packet_io import decode_packet_in, encode_packet_out
from switch_model.status import StatusError

API_VERSION = "1.4.0"
"""Of P4Runtime, as Capabilities gives it."""

ERROR_SPACE = "switch_model"
"""`space` of every p4.v1.Error."""

MAX_MESSAGE_SIZE = 256 * 1024 * 1024
"""Bytes of a request, as PI allows."""

READ_BATCH = 1000
"""Entities in one ReadResponse."""

MAX_WAITING = 1000
"""Messages that may wait for a client before packet-ins for it are lost."""

STOP_GRACE = 1.0
"""Seconds for requests under way when the server stops."""

_SetConfig = p4r.SetForwardingPipelineConfigRequest
_GetConfig = p4r.GetForwardingPipelineConfigRequest


PacketOutHook: TypeAlias = Callable[[Device, bytes], None]
"""Takes a frame for `Device.packet_out`: who moves the frames knows when."""


class P4RuntimeServer:
    """Serves `devices`, told apart by their device_id, over P4Runtime.

    Frames that the controller sends go to `on_packet_out`, within the server's loop; without it they are refused.
    Raises ValueError if two devices have the same id.
    """

    def __init__(self, devices: Iterable[Device], on_packet_out: PacketOutHook | None = None) -> None:
        self._on_packet_out = on_packet_out
        self._targets: dict[int, _Target] = {}
        for device in devices:
            if device.device_id in self._targets:
                other = self._targets[device.device_id].device.name
                raise ValueError(f"device id {device.device_id} of {device.name} is taken by {other}")
            self._targets[device.device_id] = _Target(device)
        self._server: Any = None
        self.address = ""
        """Where it listens, once it does."""

    async def start(self, address: str) -> str:
        """Listens on "host:port" (port 0: any free one) in the running loop; the address that it got.

        Raises OSError or RuntimeError if the address can't be bound.
        """
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_SIZE),
            ("grpc.so_reuseport", 0),  # else a second server would share the port, and take half of the connections
        ]
        server = grpc.aio.server(options=options)
        p4r_grpc.add_P4RuntimeServicer_to_server(_Service(self._targets, self._on_packet_out), server)
        port = server.add_insecure_port(address)
        await server.start()
        self._server = server
        self.address = f"{address.rpartition(':')[0]}:{port}"
        return self.address

    def deliver_packet_in(self, device_id: int, frame: bytes) -> bool:
        """Hands a frame that left a device through its CPU port to the device's primary. Call it within the loop.

        False if nobody takes it: there is no primary or no program, the frame is shorter than the packet-in header, or
        too many wait. Raises KeyError for an unknown device.
        """
        return self._targets[device_id].packet_in(frame)

    async def stop(self) -> None:
        """Ends all streams and stops listening."""
        if self._server is not None:
            for target in self._targets.values():
                target.end_streams()
            await self._server.stop(STOP_GRACE)
            self._server = None


class _Client:
    """A StreamChannel: what it is to be sent waits in `outbox`, so that no slow reader holds up another. None ends
    the stream."""

    def __init__(self) -> None:
        self.outbox: asyncio.Queue[p4r.StreamMessageResponse | None] = asyncio.Queue()


class _Target:
    """A device with its clients and its forwarding pipeline config."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.arbitration: Arbitration[_Client] = Arbitration(device.device_id)
        self._config: Config | None = None

    @property
    def config(self) -> Config:
        """What Read and Write refer to."""
        if self._config is None:
            raise StatusError(rpc_code.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
        return self._config

    def end_streams(self) -> None:
        for client in self.arbitration.clients:
            client.outbox.put_nowait(None)

    def notify(self, updates: Mapping[_Client, p4r.MasterArbitrationUpdate]) -> None:
        for client, update in updates.items():
            client.outbox.put_nowait(p4r.StreamMessageResponse(arbitration=update))

    def packet_in(self, frame: bytes) -> bool:
        primary = self.arbitration.primary
        if primary is None or self._config is None or primary.outbox.qsize() >= MAX_WAITING:
            return False
        packet = decode_packet_in(self._config.schema.packet_in, frame)
        if packet is None:
            return False
        primary.outbox.put_nowait(p4r.StreamMessageResponse(packet=packet))
        return True

    def packet_out(self, client: _Client, message: p4r.PacketOut) -> bytes:
        """The frame to send into the device. Raises StatusError."""
        if client != self.arbitration.primary:
            raise StatusError(rpc_code.PERMISSION_DENIED, f"not primary of device {self.device.device_id}")
        if self.device.cpu_port is None:
            raise StatusError(rpc_code.FAILED_PRECONDITION, f"{self.device.name} has no CPU port")
        return encode_packet_out(self.config.schema.packet_out, message)

    def check_writer(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        election_id = U128.decode(request.election_id) if request.HasField("election_id") else None
        if not self.arbitration.may_write(election_id):
            raise StatusError(rpc_code.PERMISSION_DENIED, f"not primary of device {request.device_id}")

    def set_config(self, action: int, message: p4r.ForwardingPipelineConfig, has_config: bool) -> None:
        """SetForwardingPipelineConfig (P4Runtime 1.4). A saved config takes Reads and Writes, and forwards once
        it is committed."""
        if action == _SetConfig.COMMIT:
            if has_config:
                raise StatusError(rpc_code.INVALID_ARGUMENT, "COMMIT takes no config")
            self._commit()
            return
        if action not in _SetConfig.Action.values() or action == _SetConfig.UNSPECIFIED:
            raise StatusError(rpc_code.INVALID_ARGUMENT, f"action {action} of SetForwardingPipelineConfig")
        if not has_config:
            raise StatusError(rpc_code.INVALID_ARGUMENT, "no config is given")
        config = self._prepared(message)
        if action == _SetConfig.VERIFY:
            return
        if action == _SetConfig.RECONCILE_AND_COMMIT and self._config is not None:
            _replay(self._config, config)
        self._config = config
        if action != _SetConfig.VERIFY_AND_SAVE:
            self._commit()

    def _prepared(self, message: p4r.ForwardingPipelineConfig) -> Config:
        try:
            compiled = compile_program(message.p4_device_config)
            schema = p4info.join(message.p4info, compiled.program)
        except PipelineError as error:
            prefix = "not supported: " if isinstance(error, UnsupportedError) else ""
            raise StatusError(rpc_code.INVALID_ARGUMENT, f"{prefix}{error}") from None
        return Config(message, schema, self.device.new_pipeline(compiled))

    def _commit(self) -> None:
        if self._config is None or self._config.pipeline is self.device.pipeline:
            raise StatusError(rpc_code.NOT_FOUND, "no saved config to commit")
        self.device.commit(self._config.pipeline)


_REPLAYED = (
    p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
    p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
    p4r.Entity(table_entry=p4r.TableEntry()),
)
"""What RECONCILE_AND_COMMIT keeps, each behind what it refers to."""


def _replay(old: Config, new: Config) -> None:
    """Inserts the old entities into the new pipeline."""
    for entity in (found for selector in _REPLAYED for found in old.read(selector)):
        if entity.table_entry.is_const:
            continue
        try:
            new.write(p4r.Update(type=p4r.Update.INSERT, entity=entity))
        except StatusError as error:
            raise StatusError(rpc_code.INVALID_ARGUMENT, f"the entries can't be kept: {error.message}") from None


class _Service(p4r_grpc.P4RuntimeServicer):
    """The RPCs; method names are those of the service."""

    def __init__(self, targets: Mapping[int, _Target], on_packet_out: PacketOutHook | None) -> None:
        self._targets = targets
        self._on_packet_out = on_packet_out

    def _target(self, device_id: int, role: str = "") -> _Target:
        target = self._targets.get(device_id)
        if target is None:
            raise StatusError(rpc_code.NOT_FOUND, f"no device with id {device_id}")
        if role:
            raise StatusError(rpc_code.NOT_FOUND, f"no role '{role}': only the default role is supported")
        return target

    async def Capabilities(self, request: p4r.CapabilitiesRequest, context: Any) -> p4r.CapabilitiesResponse:  # noqa: N802, ARG002
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        try:
            target = self._target(request.device_id, request.role)
            target.check_writer(request)
            target.set_config(request.action, request.config, request.HasField("config"))
        except StatusError as error:
            await _abort(context, error)
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.GetForwardingPipelineConfigResponse:
        try:
            stored = self._target(request.device_id).config.message
            return p4r.GetForwardingPipelineConfigResponse(config=_selected(stored, request.response_type))
        except StatusError as error:
            await _abort(context, error)

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:  # noqa: N802
        try:
            target = self._target(request.device_id, request.role)
            target.check_writer(request)
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise StatusError(rpc_code.UNIMPLEMENTED, "only CONTINUE_ON_ERROR is supported")
            _write_all(target.config, request.updates)
        except StatusError as error:
            await _abort(context, error)
        return p4r.WriteResponse()

    async def Read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:  # noqa: N802
        try:
            config = self._target(request.device_id, request.role).config
            entities = [found for entity in request.entities for found in config.read(entity)]
        except StatusError as error:
            await _abort(context, error)
        for start in range(0, len(entities), READ_BATCH):
            yield p4r.ReadResponse(entities=entities[start : start + READ_BATCH])

    async def StreamChannel(  # noqa: N802
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Any
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        client = _Client()
        reader = asyncio.create_task(self._receive_all(client, requests))
        try:
            while (response := await client.outbox.get()) is not None:
                yield response
            if reader.done():  # else it is the server that ends the stream
                await reader
        except StatusError as error:
            await _abort(context, error)
        finally:
            reader.cancel()

    async def _receive_all(self, client: _Client, requests: AsyncIterator[p4r.StreamMessageRequest]) -> None:
        target: _Target | None = None
        try:
            async for request in requests:
                target = self._receive(client, target, request)
        finally:
            if target is not None:
                target.notify(target.arbitration.disconnect(client))
            client.outbox.put_nowait(None)

    def _receive(self, client: _Client, target: _Target | None, request: p4r.StreamMessageRequest) -> _Target | None:
        """One message of a stream; the target that the stream belongs to from then on."""
        if request.WhichOneof("update") != "arbitration":
            try:
                self._receive_packet(client, target, request)
            except StatusError as error:
                client.outbox.put_nowait(p4r.StreamMessageResponse(error=_stream_error(error, request)))
            return target
        update = request.arbitration
        if target is None:
            target = self._target(update.device_id)
        elif update.device_id != target.device.device_id:
            raise StatusError(rpc_code.FAILED_PRECONDITION, f"this stream belongs to device {target.device.device_id}")
        target.notify(target.arbitration.update(client, update))
        return target

    def _receive_packet(self, client: _Client, target: _Target | None, request: p4r.StreamMessageRequest) -> None:
        if not request.HasField("packet"):
            raise StatusError(rpc_code.UNIMPLEMENTED, "the stream takes arbitration and packet-outs only")
        if target is None:
            raise StatusError(
                rpc_code.FAILED_PRECONDITION, "the stream belongs to no device yet: arbitration comes first"
            )
        frame = target.packet_out(client, request.packet)
        if self._on_packet_out is None:
            raise StatusError(rpc_code.UNIMPLEMENTED, "no frames flow through the devices of this server")
        self._on_packet_out(target.device, frame)


def _stream_error(error: StatusError, request: p4r.StreamMessageRequest) -> p4r.StreamError:
    """The report, with what it is about (P4Runtime 1.4, "Stream Error Reporting")."""
    message = p4r.StreamError(canonical_code=error.code, message=error.message, space=ERROR_SPACE)
    match request.WhichOneof("update"):
        case "packet":
            message.packet_out.packet_out.CopyFrom(request.packet)
        case "digest_ack":
            message.digest_list_ack.SetInParent()
        case "other":
            message.other.SetInParent()
    return message


def _selected(stored: p4r.ForwardingPipelineConfig, response_type: int) -> p4r.ForwardingPipelineConfig:
    with_p4info = response_type in (_GetConfig.ALL, _GetConfig.P4INFO_AND_COOKIE)
    with_program = response_type in (_GetConfig.ALL, _GetConfig.DEVICE_CONFIG_AND_COOKIE)
    return p4r.ForwardingPipelineConfig(
        p4info=stored.p4info if with_p4info else None,
        p4_device_config=stored.p4_device_config if with_program else b"",
        cookie=stored.cookie if stored.HasField("cookie") else None,
    )


def _write_all(config: Config, updates: Iterable[p4r.Update]) -> None:
    """Carries out every update, whatever became of those before it; one p4.v1.Error for each if any failed."""
    errors = [_written(config, update) for update in updates]
    failed = [(place, error) for place, error in enumerate(errors) if error.canonical_code != rpc_code.OK]
    if failed:
        place, first = failed[0]
        message = f"{len(failed)} of {len(errors)} updates failed, first update {place}: {first.message}"
        raise StatusError(rpc_code.UNKNOWN, message, errors)


def _written(config: Config, update: p4r.Update) -> p4r.Error:
    try:
        config.write(update)
    except StatusError as error:
        return p4r.Error(canonical_code=error.code, message=error.message, space=ERROR_SPACE)
    return p4r.Error(canonical_code=rpc_code.OK)


_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def _abort(context: Any, error: StatusError) -> NoReturn:
    """Ends the RPC; errors per update travel as google.rpc.Status in grpc-status-details-bin."""
    trailers: tuple[tuple[str, bytes], ...] = ()
    if error.errors:
        status = rpc_status.Status(code=error.code, message=error.message)
        for item in error.errors:
            status.details.add().Pack(item)
        trailers = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(_STATUS_CODES[error.code], error.message, trailers)
    raise AssertionError("abort returned")
