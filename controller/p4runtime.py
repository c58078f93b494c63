"""The switches' P4Runtime: the pipeline they run, plan entries as its messages, and a connection to one switch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from finsy import (
    GRPCStatusCode,
    P4Client,
    P4ClientError,
    P4IndirectAction,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.p4schema import P4ConfigAction, P4ConfigResponseType, P4Table, P4UpdateType
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format

from controller.plan import Entry, Fields, Member, Value, action_set
from controller.topology import Control, address_text
from controller.yaml_file import FileError

PIPELINE_DIR = Path(__file__).parents[1] / "p4src" / "build"
PIPELINE_NAME = "mrc_switch"

_TIME_TO_HEAR = 0.5
"""Seconds to wait for the word that another controller is primary: the switch sends it before it refuses anything."""

_MAX_WAITING = 1000
"""Messages of a switch that wait for `next_packet`; what comes on top is lost."""

_MAC_BITS = 48
_ADDRESS_BITS = 128


class Pipeline:
    """A compiled P4 program: its P4Info and the device configuration that p4c made for v1model."""

    def __init__(self, directory: Path = PIPELINE_DIR) -> None:
        """Load `mrc_switch.p4info.txtpb` and `mrc_switch.json`. Raises FileError."""
        p4info = directory / f"{PIPELINE_NAME}.p4info.txtpb"
        blob = directory / f"{PIPELINE_NAME}.json"
        for path in (p4info, blob):
            if not path.is_file():
                raise FileError(str(path), None, (), "no such file; is this the directory of p4c's output?")
        try:
            message = text_format.Parse(p4info.read_text(encoding="utf-8"), p4i.P4Info())
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise FileError(str(p4info), None, (), f"is not P4Info: {error}") from None
        self.schema = P4Schema(message, blob)
        self.config = self.schema.get_pipeline_config()
        self.cookie = self.schema.p4cookie

    def room(self, present: Iterable[Entry]) -> dict[str, int]:
        """Per table, how many entries more it takes."""
        held = Counter(entry.table for entry in present)
        return {table.alias: table.size - held[table.alias] for table in self.schema.tables}

    def check_fits(self, planned: Sequence[Entry]) -> None:
        """Raises SwitchError if a table of the program has no room for its part of a plan."""
        for table, room in self.room(planned).items():
            if room < 0:
                size = self.schema.tables[table].size
                raise SwitchError(f"the plan has {size - room} entries for {table}, which has room for {size}")

    def encode(self, entry: Entry) -> p4r.Entity:
        """An entry as a P4Runtime message."""
        action: P4TableAction | P4IndirectAction
        if entry.members:
            action = P4IndirectAction(
                [(member.weight, P4TableAction(member.action, **dict(member.params))) for member in entry.members]
            )
        else:
            action = P4TableAction(entry.action, **dict(entry.params))
        return P4TableEntry(entry.table, match=P4TableMatch(entry.match), action=action).encode(self.schema)

    def decode(self, entity: p4r.Entity) -> Entry:
        """An entry from the message that a switch answers with; tables of this program have exact and lpm keys."""
        message = entity.table_entry
        table = self.schema.tables[message.table_id]
        fields = {field.field_id: field for field in message.match}
        match = tuple(
            (key.alias, _match_value(fields[key.id], key.bitwidth)) for key in table.match_fields if key.id in fields
        )
        if message.action.HasField("action_profile_action_set"):
            # A switch may tell a weight as so many members, and the members in any order.
            chosen = message.action.action_profile_action_set.action_profile_actions
            return action_set(
                table.alias, match, (Member(*_call(table, one.action), weight=one.weight) for one in chosen)
            )
        return Entry(table.alias, match, *_call(table, message.action.action))


def _call(table: P4Table, message: p4r.Action) -> tuple[str, Fields]:
    """The name of an action and its parameters."""
    action = table.actions[message.action_id]
    params = {param.param_id: param for param in message.params}
    return action.alias, tuple((param.name, _value(params[param.id].value, param.bitwidth)) for param in action.params)


def _match_value(field: p4r.FieldMatch, bits: int) -> Value:
    if field.HasField("lpm"):
        return f"{_value(field.lpm.value, bits)}/{field.lpm.prefix_len}"
    return _value(field.exact.value, bits)


def _value(packed: bytes, bits: int) -> Value:
    number = int.from_bytes(packed, "big")
    if bits == _ADDRESS_BITS:
        return address_text(number)
    if bits == _MAC_BITS:
        return number.to_bytes(_MAC_BITS // 8, "big").hex(":")
    return number


class SwitchError(Exception):
    """Why a switch could not be spoken to. str() is one line, without the switch's name."""


class Refusal(NamedTuple):
    """An update that a switch refused, and its reason."""

    update: P4UpdateType
    entry: Entry
    reason: str

    def __str__(self) -> str:
        return f"{self.update.name.lower()} {self.entry}: {self.reason}"


class SwitchClient:
    """A connection to one switch. It answers, or there is a SwitchError, within `timeout` seconds."""

    def __init__(self, control: Control, pipeline: Pipeline, timeout: float) -> None:
        self._address, self._device_id = control
        self._pipeline = pipeline
        self._timeout = timeout
        self._client = P4Client(self._address, wait_for_ready=False)
        self._election_id = U128.encode(0)
        self._reader: asyncio.Task[None] | None = None
        self._inbox: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue(_MAX_WAITING)

    async def __aenter__(self) -> SwitchClient:
        await self._client.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        await self._client.close()

    async def become_primary(self, election_id: int) -> None:
        """Become the controller that may write, once per connection. Raises SwitchError that names the one that is."""
        async with self._one_line_errors():
            try:
                answer = await self._arbitrate(election_id)
                if answer.status.code == GRPCStatusCode.NOT_FOUND:
                    # Nobody is primary, and nobody may become it with less than the highest id seen so far.
                    election_id = U128.decode(answer.election_id)
                    answer = await self._arbitrate(election_id)
            except P4ClientError as error:
                if not error.is_election_id_used:
                    raise
                raise SwitchError(f"not primary: another controller has election id {election_id} too") from None
        if answer.status.code != GRPCStatusCode.OK:
            winner = U128.decode(answer.election_id)
            raise SwitchError(f"not primary with election id {election_id}: a controller with {winner} is")
        self._election_id = U128.encode(election_id)
        self._reader = asyncio.create_task(self._read_stream())

    async def stay_primary(self, seconds: float) -> None:
        """Wait. Raises SwitchError as soon as the switch is lost, or another controller has become primary."""
        assert self._reader is not None, "is not primary yet"
        done, _ = await asyncio.wait({self._reader}, timeout=seconds)
        if done:
            await self._reader

    async def cookie(self) -> int | None:
        """The cookie of the switch's pipeline, None if it has no pipeline."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._device_id, response_type=P4ConfigResponseType.COOKIE_ONLY.vt()
        )
        async with self._one_line_errors():
            try:
                reply = await self._client.request(request)
            except P4ClientError as error:
                if error.code != GRPCStatusCode.FAILED_PRECONDITION:
                    raise
                return None
            return reply.config.cookie.cookie if reply.config.HasField("cookie") else None

    async def commit_pipeline(self) -> None:
        """Make the switch run the pipeline. It forgets all entries."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=self._election_id,
            action=P4ConfigAction.VERIFY_AND_COMMIT.vt(),
            config=self._pipeline.config,
        )
        async with self._one_line_errors(), self._as_primary():
            await self._client.request(request)

    async def read(self) -> list[Entry]:
        """All table entries, the default ones aside."""
        request = p4r.ReadRequest(device_id=self._device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        async with self._one_line_errors():
            return [
                self._pipeline.decode(entity)
                async for reply in self._client.request_iter(request)
                for entity in reply.entities
                if not entity.table_entry.is_default_action
            ]

    async def write(self, update: P4UpdateType, entries: Sequence[Entry]) -> list[Refusal]:
        """Write entries in one request; returns those refused, the others are in force. Raises SwitchError."""
        request = p4r.WriteRequest(
            device_id=self._device_id,
            election_id=self._election_id,
            updates=[p4r.Update(type=update.vt(), entity=self._pipeline.encode(entry)) for entry in entries],
        )
        async with self._one_line_errors(), self._as_primary():
            try:
                await self._client.request(request)
            except P4ClientError as error:
                if not error.details:
                    raise
                return [
                    Refusal(update, entries[index], _reason(detail.canonical_code, detail.message))
                    for index, detail in error.details.items()
                ]
        return []

    async def send_packet(self, message: p4r.StreamMessageRequest) -> None:
        """Send a packet-out. Only the primary may."""
        async with self._one_line_errors():
            await self._client.send(message)

    async def next_packet(self) -> p4r.StreamMessageResponse:
        """The next packet-in, which only the primary gets; waits for as long as it takes. Too many that wait are lost.

        Raises SwitchError if there will be none because another controller is primary, and if the switch refused a
        packet-out.
        """
        assert self._reader is not None, "is not primary yet"
        arrival = asyncio.create_task(self._inbox.get())
        try:
            await asyncio.wait({arrival, self._reader}, return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                await self._reader
        finally:
            arrival.cancel()
        message = await arrival
        if message.HasField("error"):
            error = message.error
            raise SwitchError(f"packet-out: {_reason(GRPCStatusCode(error.canonical_code), error.message)}")
        return message

    async def _read_stream(self) -> None:
        """Keep what comes for `next_packet`, until there is a reason why nothing can come any more: a SwitchError."""
        async with self._one_line_errors(limited=False):
            while True:
                message = await self._receive()
                if message.HasField("arbitration") and message.arbitration.status.code != GRPCStatusCode.OK:
                    winner = U128.decode(message.arbitration.election_id)
                    raise SwitchError(f"not primary any more: a controller with election id {winner} is")
                if (message.HasField("packet") or message.HasField("error")) and not self._inbox.full():
                    self._inbox.put_nowait(message)

    async def _arbitrate(self, election_id: int) -> p4r.MasterArbitrationUpdate:
        await self._client.send(
            p4r.StreamMessageRequest(
                arbitration=p4r.MasterArbitrationUpdate(device_id=self._device_id, election_id=U128.encode(election_id))
            )
        )
        while True:
            answer = await self._receive()
            if answer.HasField("arbitration"):
                return answer.arbitration

    async def _receive(self) -> p4r.StreamMessageResponse:
        try:
            return await self._client.receive()
        except RuntimeError:  # finsy's word for a stream that the server ends without a status
            raise SwitchError(f"{self._address} closed the stream") from None

    @asynccontextmanager
    async def _as_primary(self) -> AsyncIterator[None]:
        """What only the primary may do. Where it is refused because another controller has come, says which."""
        try:
            yield
        except P4ClientError as error:
            if error.code != GRPCStatusCode.PERMISSION_DENIED:
                raise
            await self.stay_primary(_TIME_TO_HEAR)
            raise

    @asynccontextmanager
    async def _one_line_errors(self, *, limited: bool = True) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout if limited else None):
                yield
        except TimeoutError:
            raise SwitchError(f"no answer from {self._address} within {self._timeout:g} s") from None
        except P4ClientError as error:
            if error.code == GRPCStatusCode.UNAVAILABLE:
                # gRPC tells a chain of causes; the last one is what happened.
                cause = error.message.split(": ")[-1].strip("[]")
                raise SwitchError(f"cannot reach {self._address}: {cause}") from None
            raise SwitchError(_reason(error.code, error.message)) from None


def _reason(code: GRPCStatusCode, message: str) -> str:
    return f"{code.name}: {message}" if message else code.name
