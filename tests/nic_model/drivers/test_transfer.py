"""Serve, write and probe between two NICs in one loop, without a network; what is refused and what fails."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address

import pytest

from nic_model.drivers import serve
from nic_model.drivers.client import WriteResult, probe, write
from nic_model.drivers.control import (
    Channel,
    Connect,
    Connected,
    ControlError,
    Describe,
    Description,
    Digest,
    HostPort,
    Refused,
)
from nic_model.drivers.host import Host, HostError
from nic_model.drivers.serve import Server, SessionResult
from nic_model.peer import Deny
from tests.nic_model.drivers.direct import Side, hosts, until

MEMORY = 2_000_000
DATA = random.Random(5).randbytes(1_000_001)


@dataclass
class Pair:
    """A NIC that serves and one that asks it."""

    asker: Host
    server: Server
    address: HostPort
    sides: tuple[Side, Side]
    closed: list[SessionResult] = field(default_factory=list)
    connected: list[tuple[str, int]] = field(default_factory=list)

    @property
    def until(self) -> float:
        return asyncio.get_running_loop().time() + 10

    async def channel(self) -> Channel:
        return await Channel.open(self.address, self.until)

    async def write(self, data: bytes) -> WriteResult:
        channel = await self.channel()
        try:
            return await write(self.asker, channel, bytearray(data), self.until, lambda _: None)
        finally:
            channel.close()

    async def all_closed(self) -> None:
        """Until the server has seen that its peers are gone."""
        await until(lambda: self.server.memory == MEMORY)


@asynccontextmanager
async def serving() -> AsyncIterator[Pair]:
    with hosts() as (asker, host, sides):
        server = Server(host, MEMORY, lambda *what: pair.connected.append(what), lambda what: pair.closed.append(what))
        listening = await server.listen(HostPort("127.0.0.1", 0))
        async with listening:
            pair = Pair(asker, server, HostPort(*listening.sockets[0].getsockname()), sides)
            yield pair


def connect(pair: Pair, **changed: object) -> Connect:
    fields: dict[str, object] = {
        "address": pair.asker.address, "qpn": 16, "psn": 0, "mpr": 8, "max_wimm": 32, "path_mtu": 4096, "length": 10,
    }  # fmt: skip
    return Connect.model_validate(fields | changed)


async def test_a_write_arrives_and_the_peer_confirms_it() -> None:
    async with serving() as pair:
        progress: list[int] = []
        channel = await pair.channel()
        result = await write(pair.asker, channel, bytearray(DATA), pair.until, progress.append)
        channel.close()
        await pair.all_closed()
    assert result.error == "" and result.verified
    assert result.peer_sha256 == result.sha256 == hashlib.sha256(DATA).hexdigest()
    assert result.payload_bytes == progress[-1] == len(DATA)
    assert result.packets - result.retransmissions == -(-len(DATA) // 4096)
    assert [plane.plane for plane in result.planes] == [0, 1]
    assert sum(plane.packets for plane in result.planes) == result.packets
    assert sum(plane.share for plane in result.planes) == pytest.approx(1)
    assert result.goodput_mbps == pytest.approx(len(DATA) * 8 / 1e6 / result.seconds)
    assert pair.connected == [(str(pair.asker.address), len(DATA))]
    assert [(one.peer, one.payload_bytes) for one in pair.closed] == [(str(pair.asker.address), len(DATA))]


async def test_nothing_of_a_transfer_stays_behind() -> None:
    async with serving() as pair:
        for _ in range(3):
            assert (await pair.write(DATA[:9000])).verified
        await pair.all_closed()
        for side in pair.sides:
            assert side.nic.queue_pairs() == []
            assert side.nic.regions._by_key == {}


async def test_several_write_at_once() -> None:
    async with serving() as pair:
        pieces = [DATA[start : start + 100_000] for start in range(0, 800_000, 100_000)]
        results = await asyncio.gather(*map(pair.write, pieces))
        assert [result.verified for result in results] == [True] * 8


async def test_a_port_goes_down_while_a_write_is_under_way() -> None:
    async with serving() as pair:
        channel = await pair.channel()
        one, _ = pair.sides

        def on_progress(_done: int) -> None:
            one.set_link(1, False)

        data = bytearray(DATA) + bytearray(DATA[: MEMORY - len(DATA)])
        result = await write(pair.asker, channel, data, pair.until, on_progress)
        channel.close()
        assert result.verified
        assert result.planes[1].packets < result.planes[0].packets


async def test_a_peer_that_has_other_bytes_is_told() -> None:
    async with serving() as pair:
        regions = pair.sides[1].nic.regions

        def spoil(done: int) -> None:
            if done == len(DATA):
                next(iter(regions._by_key.values())).buf[0] ^= 1

        channel = await pair.channel()
        result = await write(pair.asker, channel, bytearray(DATA), pair.until, spoil)
        channel.close()
        assert (result.verified, result.error) == (False, "the peer has other bytes")


async def test_a_peer_that_falls_silent_is_told() -> None:
    async with serving() as pair:
        for interface in pair.sides[1].interfaces:
            interface.state["running"] = False
        pair.sides[1].links.changed()
        result = await pair.write(DATA)
        assert (result.verified, result.error) == (False, "the peer does not answer on any path")
        assert result.packets > 0


async def test_a_write_that_takes_too_long_is_told() -> None:
    async with serving() as pair:
        channel = await pair.channel()
        pair.asker.nic.set_denylist([Deny(0), Deny(1)], 0)  # no path: it takes for ever
        until = asyncio.get_running_loop().time() + 0.02
        result = await write(pair.asker, channel, bytearray(MEMORY), until, lambda _: None)
        channel.close()
        assert (result.verified, result.error) == (False, "not done in time")


# ---- what the server refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"length": MEMORY + 1}, "2000001 bytes are too much for nic1, it has 2000000 left"),
        ({"address": IPv6Address("fd00:9::")}, "the path file of nic1 has no way to fd00:9::"),
        ({"path_mtu": 3000}, "QPAttr.path_mtu is 3000, must be 256, 512, 1024, 2048 or 4096"),
    ],
)
async def test_a_connect_that_can_not_be_is_refused(changed: dict[str, object], reason: str) -> None:
    async with serving() as pair:
        channel = await pair.channel()
        with pytest.raises(ControlError) as caught:
            await channel.ask(connect(pair, **changed), Connected, pair.until)
        assert str(caught.value) == f"connect refused: {reason}"
        assert (await channel.ask(Describe(), Description, pair.until)).name == "nic1"
        assert pair.server.memory == MEMORY
        channel.close()


async def test_a_path_mtu_that_is_more_than_the_servers_is_refused() -> None:
    async with serving() as pair:
        pair.server.host.path_mtu = 1024
        channel = await pair.channel()
        with pytest.raises(
            ControlError, match=r"^connect refused: a path MTU of 4096 is too much for nic1, it has 1024$"
        ):
            await channel.ask(connect(pair), Connected, pair.until)
        channel.close()


async def test_one_connection_one_qp() -> None:
    async with serving() as pair:
        channel = await pair.channel()
        with pytest.raises(ControlError, match=r"^digest refused: this connection has no memory yet$"):
            await channel.ask(Digest(), Description, pair.until)
        await channel.ask(connect(pair), Connected, pair.until)
        with pytest.raises(ControlError, match=r"^connect refused: this connection has had its QP$"):
            await channel.ask(connect(pair), Connected, pair.until)
        channel.close()


async def test_an_answer_is_no_request() -> None:
    async with serving() as pair:
        channel = await pair.channel()
        await channel.send(Refused(reason="x"))
        assert await channel.receive() == Refused(reason="'refused' is no request")
        channel.close()


async def test_nonsense_is_refused_and_the_connection_closed() -> None:
    async with serving() as pair:
        reader, writer = await asyncio.open_connection(*pair.address)
        writer.write(b"GET / HTTP/1.1\r\n")
        assert (await reader.readline()).startswith(b'{"version":1,"kind":"refused","reason":"not a control message: ')
        assert await reader.read() == b""
        writer.close()


async def test_silence_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "FIRST_REQUEST_TIMEOUT", 0.01)
    async with serving() as pair:
        channel = await pair.channel()
        assert await channel.receive() == Refused(reason="there was no request")
        assert await channel.receive() is None
        channel.close()


async def test_there_is_an_end_to_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MAX_SESSIONS", 1)
    async with serving() as pair:
        first, second = await pair.channel(), await pair.channel()
        await first.ask(Describe(), Description, pair.until)
        assert await second.receive() == Refused(reason="1 peers are connected already")
        first.close()
        second.close()


# ---- probe -------------------------------------------------------------------------------------------------


async def test_every_path_is_probed() -> None:
    async with serving() as pair:
        paths = await probe(pair.asker, pair.server.host.address, 2, 5.0)
    assert [(path.plane, path.uplink) for path in paths] == [(p, uplink) for p in (0, 1) for uplink in range(8)]
    assert [(path.sent, len(path.rtts)) for path in paths] == [(2, 2)] * 16
    assert all(0 < rtt < 5_000_000_000 for path in paths for rtt in path.rtts)


async def test_paths_through_a_port_that_is_down_are_lost() -> None:
    async with serving() as pair:
        pair.sides[0].interfaces[1].state["running"] = False
        pair.sides[0].links.changed()
        await asyncio.sleep(0)
        paths = await probe(pair.asker, pair.server.host.address, 1, 0.05)
    assert {path.plane for path in paths if not path.rtts} == {1}


async def test_there_must_be_paths_to_probe() -> None:
    with hosts() as (asker, _, (one, _)):
        with pytest.raises(HostError, match=r"^the path file of nic0 has no way to fd00:9::$"):
            await probe(asker, IPv6Address("fd00:9::"), 1, 0.1)
        one.nic.srv6 = False
        with pytest.raises(HostError, match=r"^in ECMP mode switches choose the paths: none can be probed by name$"):
            await probe(asker, IPv6Address("fd00:6d72:6300:1::"), 1, 0.1)
