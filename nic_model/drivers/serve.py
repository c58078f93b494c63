"""A NIC that others write to: it answers control requests with QPs, memory and digests of what came."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from nic_model.drivers.control import (
    MAX_LINE,
    Channel,
    Connect,
    Connected,
    ControlError,
    Describe,
    Description,
    Digest,
    Digested,
    HostPort,
    Message,
    Refused,
)
from nic_model.drivers.host import TAKEN, Host, HostError
from nic_model.verbs import MR, QP, Access, VerbsError

MAX_SESSIONS = 64
FIRST_REQUEST_TIMEOUT = 10.0
"""Seconds that a new control connection may stay silent."""
_KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""Seconds, seconds and a number: a peer that shows no sign of life for half a minute loses its memory."""
_HASH_AT_ONCE = 1 << 20
"""Bytes hashed between two turns of the NIC."""


@dataclass(frozen=True, slots=True)
class SessionResult:
    """What one peer did. `payload_bytes` were put into memory; the others count packets."""

    peer: str
    payload_bytes: int
    packets: int
    duplicates: int
    trimmed: int


class Server:
    """Gives memory to whoever connects, `memory` bytes in all.

    `on_connect` is called with a peer's address and how many bytes it has got, `on_close` when it has left.
    """

    def __init__(
        self,
        host: Host,
        memory: int,
        on_connect: Callable[[str, int], None],
        on_close: Callable[[SessionResult], None],
    ) -> None:
        self.host = host
        self.memory = memory
        """Bytes that nobody has."""
        self.on_connect = on_connect
        self._on_close = on_close
        self._connections = 0

    async def listen(self, address: HostPort) -> asyncio.Server:
        """Take control connections. Raises ControlError."""
        try:
            return await asyncio.start_server(self._serve, *address, limit=MAX_LINE)
        except OSError as error:
            raise ControlError(f"cannot listen on {address}: {error.strerror}") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        channel, session = Channel(reader, writer), _Session(self)
        self._connections += 1
        try:
            await self._converse(channel, session)
        except (ControlError, TimeoutError) as error:
            with contextlib.suppress(ControlError):  # it may be that the peer is gone
                await channel.send(Refused.because(str(error) or "there was no request"))
        finally:
            self._connections -= 1
            channel.close()
            result = session.close()
            if result is not None:
                self._on_close(result)

    async def _converse(self, channel: Channel, session: _Session) -> None:
        if self._connections > MAX_SESSIONS:
            raise ControlError(f"{MAX_SESSIONS} peers are connected already")
        async with asyncio.timeout(FIRST_REQUEST_TIMEOUT) as first:
            while (request := await channel.receive()) is not None:
                first.reschedule(None)
                await channel.send(await session.answer(request))


class _Session:
    """One control connection, and the QP and memory that its peer has."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._host = server.host
        self._peer = ""
        self._qp: QP | None = None
        self._memory: MR | None = None

    async def answer(self, request: Message) -> Message:
        """A request that can't be done is refused."""
        try:
            if isinstance(request, Describe):
                return self._describe()
            if isinstance(request, Connect):
                return self._connect(request)
            if isinstance(request, Digest):
                return await self._digest()
        except (HostError, VerbsError) as error:
            return Refused.because(error)
        return Refused.because(f"{request.kind!r} is no request")

    def _describe(self) -> Description:
        nic = self._host.nic
        return Description(name=nic.name, address=self._host.address, planes=len(nic.ports))

    def _connect(self, request: Connect) -> Connected:
        host, server = self._host, self._server
        if self._qp is not None:
            raise HostError("this connection has had its QP")
        if request.path_mtu > host.path_mtu:
            raise HostError(f"a path MTU of {request.path_mtu} is too much for {host.nic.name}, it has {host.path_mtu}")
        if request.length > server.memory:
            raise HostError(f"{request.length} bytes are too much for {host.nic.name}, it has {server.memory} left")
        host.peer(request.address)
        self._qp, psn = host.new_qp()
        host.connect(self._qp, psn, request, request.path_mtu)
        server.memory -= request.length
        self._peer = str(request.address)
        self._memory = MR(host.pd, request.length, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
        server.on_connect(self._peer, request.length)
        return Connected(
            address=host.address,
            qpn=self._qp.qp_num,
            psn=psn,
            mpr=TAKEN.mpr_dest,
            max_wimm=TAKEN.max_wimm_dest,
            va=self._memory.addr,
            rkey=self._memory.rkey,
        )

    async def _digest(self) -> Digested:
        if self._memory is None:
            raise HostError("this connection has no memory yet")
        digest = hashlib.sha256()
        for start in range(0, self._memory.length, _HASH_AT_ONCE):
            digest.update(self._memory.buf[start : start + _HASH_AT_ONCE])
            await asyncio.sleep(0)
        return Digested(sha256=digest.hexdigest())

    def close(self) -> SessionResult | None:
        """Give everything back; returns what the peer did if it had memory."""
        if self._qp is not None:
            self._qp.close()
        if self._qp is None or self._memory is None or self._qp.core.responder is None:
            return None
        self._memory.close()
        self._server.memory += self._memory.length
        counters = self._qp.core.responder.counters
        return SessionResult(
            self._peer, counters.payload_bytes, counters.packets, counters.duplicates, counters.trimmed
        )
