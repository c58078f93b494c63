"""Out of band: how two NICs tell each other their QPs and memory, for MRC has no connection manager (OCP MRC 1.0).

Over TCP, to the control address of the NIC that serves: one JSON object a line (UTF-8, at most 1024 bytes), a
request and its answer in turn. Each has `version` 1 and its `kind`; an unknown key, kind or version is refused.

    > {"version": 1, "kind": "describe"}
    < {"version": 1, "kind": "description", "name": "nic2", "address": "fd00:6d72:6300:1::", "planes": 2}
    > {"version": 1, "kind": "connect", "address": "fd00:6d72:6300::", "qpn": 16, "psn": 4242, "mpr": 8,
       "max_wimm": 32, "path_mtu": 4096, "length": 1000000}
    < {"version": 1, "kind": "connected", "address": "fd00:6d72:6300:1::", "qpn": 31, "psn": 17, "mpr": 8,
       "max_wimm": 32, "va": 4294967296, "rkey": 256}
    > {"version": 1, "kind": "digest"}
    < {"version": 1, "kind": "digested", "sha256": "9f86d0..."}
    < {"version": 1, "kind": "refused", "reason": "..."}      may answer anything

`connect` makes a QP and a memory region of `length` bytes that the peer may write, and they last as long as the
connection does; `digest` is over the whole region. Any NIC port's address names its NIC. Nothing here is
authenticated or secret: whoever reaches the control address may connect, so keep it on a network that you trust.
"""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address
from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nic_model.device import FIRST_QPN
from nic_model.drivers.profile import MAX_QPN
from nic_model.verbs import RDMA_MAX_MESSAGE

MAX_LINE = 1024
_MAX_REASON = 500


class ControlError(Exception):
    """The other side does not answer, refuses, or does not speak this protocol. str() is one line."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    version: Literal[1] = 1


class Describe(_Message):
    """Who are you?"""

    kind: Literal["describe"] = "describe"


class Description(_Message):
    """A NIC: its name, the address of one of its ports, and how many it has."""

    kind: Literal["description"] = "description"
    name: str = Field(max_length=64)
    address: IPv6Address
    planes: int = Field(ge=1, le=8)


class _Side(_Message):
    """A QP: its NIC, where its PSNs begin, and what its responder takes (`verbs.QPAttr`)."""

    address: IPv6Address
    qpn: int = Field(ge=FIRST_QPN, le=MAX_QPN)
    psn: int = Field(ge=0, lt=1 << 24)
    mpr: int = Field(ge=8, le=255)
    max_wimm: int = Field(ge=32, le=0xFFFF)


class Connect(_Side):
    """The requester's QP, and how many bytes of memory it wants to write."""

    kind: Literal["connect"] = "connect"
    path_mtu: int = Field(ge=256, le=4096)
    length: int = Field(ge=1, le=RDMA_MAX_MESSAGE)


class Connected(_Side):
    """The responder's QP, and its memory."""

    kind: Literal["connected"] = "connected"
    va: int = Field(ge=0, lt=1 << 64)
    rkey: int = Field(ge=0, lt=1 << 32)


class Digest(_Message):
    """What is in the memory now?"""

    kind: Literal["digest"] = "digest"


class Digested(_Message):
    """The SHA-256 of the memory."""

    kind: Literal["digested"] = "digested"
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Refused(_Message):
    """The request can't be done."""

    kind: Literal["refused"] = "refused"
    reason: str = Field(max_length=_MAX_REASON)

    @classmethod
    def because(cls, reason: object) -> Refused:
        """With str(reason), shortened to what fits."""
        return cls(reason=str(reason)[:_MAX_REASON])


Message = Describe | Description | Connect | Connected | Digest | Digested | Refused
M = TypeVar("M", bound=_Message)

_messages: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


def parse(line: bytes) -> Message:
    """One line. Raises ControlError."""
    try:
        return _messages.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ControlError(f"not a control message: {place + ': ' if place else ''}{first['msg']}") from None


class HostPort(NamedTuple):
    """A control address."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """From HOST:PORT, or [IPV6]:PORT. Raises ValueError."""
        host, _, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if not bare or (":" in bare and bare == host) or not port.isdecimal() or int(port) > 0xFFFF:
            raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:4790 or [::1]:4790")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Channel:
    """Either end of a control connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: HostPort, until: float) -> Channel:
        """Connect to a NIC that serves, before the loop's time `until`. Raises ControlError."""
        try:
            async with asyncio.timeout_at(until):
                return cls(*await asyncio.open_connection(*address, limit=MAX_LINE))
        except TimeoutError:
            raise ControlError(f"cannot reach {address}: no answer") from None
        except OSError as error:
            raise ControlError(f"cannot reach {address}: {error.strerror or error}") from None

    async def send(self, message: Message) -> None:
        """Raises ControlError."""
        self._writer.write(message.model_dump_json().encode() + b"\n")
        try:
            await self._writer.drain()
        except OSError as error:
            raise ControlError(f"the control connection broke: {error.strerror}") from None

    async def receive(self) -> Message | None:
        """The next message, None at the end. Raises ControlError."""
        try:
            line = await self._reader.readline()
        except ValueError:
            raise ControlError(f"not a control message: longer than {MAX_LINE} bytes") from None
        except OSError as error:
            raise ControlError(f"the control connection broke: {error.strerror}") from None
        return parse(line) if line else None

    async def ask(self, request: Message, answer: type[M], until: float) -> M:
        """A request and its answer, which comes before the loop's time `until`.

        Raises ControlError, also if the request is refused.
        """
        try:
            async with asyncio.timeout_at(until):
                await self.send(request)
                message = await self.receive()
        except TimeoutError:
            raise ControlError(f"the peer does not answer when asked to {request.kind}") from None
        if isinstance(message, answer):
            return message
        if isinstance(message, Refused):
            raise ControlError(f"{request.kind} refused: {message.reason}")
        got = "closed the connection" if message is None else f"answered with {message.kind!r}"
        raise ControlError(f"the peer {got} when asked to {request.kind}")

    def close(self) -> None:
        """End the connection, and with it what the peer holds for it."""
        self._writer.close()
