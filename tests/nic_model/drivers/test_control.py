"""The exchange of QP parameters: what is taken, what is refused, and in what words."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address

import pytest

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
    parse,
)

ADDRESS = IPv6Address("fd00:6d72:6300:1::")
MESSAGES: list[tuple[Message, str]] = [
    (Describe(), '{"version":1,"kind":"describe"}'),
    (
        Description(name="nic2", address=ADDRESS, planes=2),
        '{"version":1,"kind":"description","name":"nic2","address":"fd00:6d72:6300:1::","planes":2}',
    ),
    (
        Connect(address=ADDRESS, qpn=16, psn=4242, mpr=8, max_wimm=32, path_mtu=4096, length=1_000_000),
        '{"version":1,"address":"fd00:6d72:6300:1::","qpn":16,"psn":4242,"mpr":8,"max_wimm":32,"kind":"connect",'
        '"path_mtu":4096,"length":1000000}',
    ),
    (
        Connected(address=ADDRESS, qpn=31, psn=17, mpr=8, max_wimm=32, va=1 << 32, rkey=256),
        '{"version":1,"address":"fd00:6d72:6300:1::","qpn":31,"psn":17,"mpr":8,"max_wimm":32,"kind":"connected",'
        '"va":4294967296,"rkey":256}',
    ),
    (Digest(), '{"version":1,"kind":"digest"}'),
    (Digested(sha256="0f" * 32), '{"version":1,"kind":"digested","sha256":"' + "0f" * 32 + '"}'),
    (Refused(reason="no"), '{"version":1,"kind":"refused","reason":"no"}'),
]


@pytest.mark.parametrize(("message", "line"), MESSAGES, ids=[message.kind for message, _ in MESSAGES])
def test_messages_are_written_and_read(message: Message, line: str) -> None:
    assert message.model_dump_json() == line
    assert parse(line.encode()) == message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\x80\x04K\x01.", "Invalid JSON: expected value at line 1 column 1"),
        (b"[]", "Input should be an object"),
        (
            b'{"version":1,"kind":"eval"}',
            "Input tag 'eval' found using 'kind' does not match any of the expected tags: 'describe', 'description', "
            "'connect', 'connected', 'digest', 'digested', 'refused'",
        ),
        (b'{"version":2,"kind":"digest"}', "digest.version: Input should be 1"),
        (b'{"version":1,"kind":"digest","x":1}', "digest.x: Extra inputs are not permitted"),
        (
            b'{"version":1,"kind":"digested","sha256":"00"}',
            "digested.sha256: String should match pattern '^[0-9a-f]{64}$'",
        ),
        (
            MESSAGES[2][1].replace('"qpn":16', '"qpn":2').encode(),
            "connect.qpn: Input should be greater than or equal to 16",
        ),
        (MESSAGES[2][1].replace('"psn":4242', '"psn":"4242"').encode(), "connect.psn: Input should be a valid integer"),
        (
            MESSAGES[2][1].replace("1000000", "2147483649").encode(),
            "connect.length: Input should be less than or equal to 2147483648",
        ),
        (
            MESSAGES[2][1].replace('"fd00:6d72:6300:1::"', '"10.0.0.1"').encode(),
            "connect.address: Value error, At least 3 parts expected in '10.0.0.1'",
        ),
    ],
)
def test_anything_else_is_refused_in_one_line(line: bytes, reason: str) -> None:
    with pytest.raises(ControlError) as caught:
        parse(line)
    assert str(caught.value) == f"not a control message: {reason}"


@pytest.mark.parametrize(
    ("text", "host", "port"), [("nic2:4790", "nic2", 4790), ("[::1]:1", "::1", 1), ("10.0.0.2:0", "10.0.0.2", 0)]
)
def test_control_addresses(text: str, host: str, port: int) -> None:
    assert HostPort.parse(text) == (host, port)
    assert str(HostPort.parse(text)) == text


@pytest.mark.parametrize("text", ["nic2", "nic2:", ":4790", "::1:4790", "nic2:99999", "nic2:x"])
def test_what_is_no_control_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not HOST:PORT, such as 127\.0\.0\.1:4790 or \[::1\]:4790"):
        HostPort.parse(text)


async def ask_one_that_says(answer: bytes, *, close: bool = True) -> None:
    """Ask a server that answers with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        await writer.drain()
        if close:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        until = asyncio.get_running_loop().time() + (5.0 if close else 0.05)
        channel = await Channel.open(HostPort(*server.sockets[0].getsockname()), until)
        try:
            await channel.ask(Describe(), Description, until)
        finally:
            channel.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "the peer closed the connection when asked to describe"),
        (b'{"version":1,"kind":"refused","reason":"go away"}\n', "describe refused: go away"),
        (b'{"version":1,"kind":"digest"}\n', "the peer answered with 'digest' when asked to describe"),
        (b"x" * (MAX_LINE + 1) + b"\n", "not a control message: longer than 1024 bytes"),
    ],
)
async def test_a_wrong_answer_is_an_error_in_one_line(answer: bytes, reason: str) -> None:
    with pytest.raises(ControlError) as caught:
        await ask_one_that_says(answer)
    assert str(caught.value) == reason


async def test_no_answer_is_an_error_when_the_time_is_over() -> None:
    with pytest.raises(ControlError) as caught:
        await ask_one_that_says(b"", close=False)
    assert str(caught.value) == "the peer does not answer when asked to describe"


async def test_nobody_there() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = HostPort(*server.sockets[0].getsockname())
    server.close()
    with pytest.raises(ControlError, match=rf"^cannot reach {address}: "):
        await Channel.open(address, asyncio.get_running_loop().time() + 5)
