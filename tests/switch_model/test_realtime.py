"""The real-time driver over socket pairs, with a clock of the test's own; packet ports and the command line."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from switch_model.cli import switch_app
from switch_model.codegen import Frame
from switch_model.device import Device
from switch_model.packet_port import PacketPort, PortError
from switch_model.realtime import RealTimeDriver
from tests.switch_model.support import load

CPU_PORT = 64
RATE = 1000
GAP = 1_000_000  # ns
PRIORITY = 7
"""A command of the program `stateful`: the packet's priority is the argument. It leaves where it came in."""
TURNS = 50
"""Of the loop, in which everything that is due gets done."""


class Wire:
    """A port with its other end."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._own, self._other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._own.setblocking(False)
        self._other.setblocking(False)

    def fileno(self) -> int:
        return self._own.fileno()

    def receive(self) -> list[Frame]:
        return [(self._own.recv(2048), b"")]

    def send(self, frame: Frame) -> None:
        self._own.sendmsg(frame)

    def put(self, frame: bytes) -> None:
        self._other.send(frame)

    def taken(self) -> list[bytes]:
        frames = []
        while True:
            try:
                frames.append(self._other.recv(2048))
            except BlockingIOError:
                return frames

    def close(self) -> None:
        self._own.close()
        self._other.close()


class Bench:
    """A driven device with one port, whose queue 0 has a rate."""

    def __init__(self, program: str) -> None:
        self.now = 5 * GAP
        self.wire = Wire(1)
        self.device = Device(1, cpu_port=CPU_PORT)
        self.device.load(load(program)[1].pipeline.compiled)
        self.to_controller: list[bytes] = []
        self.driver = RealTimeDriver(
            self.device, [self.wire], {0: RATE}, self.to_controller.append, clock=lambda: self.now
        )

    async def put(self, *priorities: int) -> None:
        """A frame for each, which says which one it is."""
        for number, priority in enumerate(priorities):
            self.wire.put(bytes([PRIORITY]) + priority.to_bytes(2) + b"\0\0" + bytes([number]))
        await self.turns()

    async def turns(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def left_at(self, now: int) -> list[int]:
        """The frames that have left when it is `now`."""
        self.now = now
        await self.turns()
        return [frame[-1] for frame in self.wire.taken()]


@pytest.fixture
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    bench = Bench(getattr(request, "param", "stateful"))
    with bench.driver:
        yield bench
    bench.wire.close()


async def test_a_queue_keeps_its_rate_after_the_first_packet(bench: Bench) -> None:
    start = bench.now
    await bench.put(0, 0, 0, 0)
    assert await bench.left_at(start) == [0]
    assert await bench.left_at(start + GAP - 1) == []
    assert await bench.left_at(start + GAP) == [1]
    assert await bench.left_at(start + 3 * GAP + GAP // 2) == [2, 3]  # the loop was late, the rate is kept
    await bench.put(0)
    assert await bench.left_at(start + 4 * GAP - 1) == []
    assert await bench.left_at(start + 4 * GAP) == [0]


async def test_a_queue_that_was_idle_saves_nothing_up(bench: Bench) -> None:
    await bench.put(0)
    assert await bench.left_at(bench.now) == [0]
    later = bench.now = bench.now + 100 * GAP
    await bench.put(0, 0)
    assert await bench.left_at(later) == [0]
    assert await bench.left_at(later + GAP) == [1]


async def test_queues_without_a_rate_overtake(bench: Bench) -> None:
    await bench.put(0, 0, 2, 1)
    assert await bench.left_at(bench.now) == [0, 2, 3]
    assert await bench.left_at(bench.now + GAP) == [1]
    assert bench.device.occupancy() == 0


@pytest.mark.parametrize("bench", ["packet_io"], indirect=True)
async def test_the_cpu_port_leads_to_the_controller_and_other_ports_nowhere(bench: Bench) -> None:
    bench.wire.put(b"\x12\x34payload")
    await bench.turns()
    header = (1 << 39 | 5 << 35 | 0x712345678).to_bytes(6)  # ingress_port, reason, cookie
    assert bench.to_controller == [header + b"\x12\x34payload"]
    bench.driver.packet_out((1 << 13 | 1 << 4).to_bytes(2) + b"\x00\x05payload")  # to port 1
    assert bench.wire.taken() == [b"\x00\x06payload"]
    bench.driver.packet_out((1 << 13 | 300 << 4).to_bytes(2) + b"\x00\x05payload")
    assert (bench.wire.taken(), bench.device.occupancy()) == ([], 0)


# ---- interfaces and the command line ----------------------------------------------------------------------------


def test_an_interface_that_is_not_there_is_named() -> None:
    expected = "nope: no interface with this name" if os.geteuid() == 0 else "packet sockets need root or CAP_NET_RAW"
    with pytest.raises(PortError) as caught:
        PacketPort(1, "nope")
    assert str(caught.value) == expected


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(switch_app, list(arguments))
    assert result.exit_code == 2, result.output
    return result.output.strip()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-i", "eth0"), "-i is 'eth0', must be PORT@INTERFACE, such as 1@eth0"),
        (("-i", "511@eth0"), "-i 511@eth0: 511 is not in 0..510"),
        (("-i", "1@eth0", "-i", "1@eth1"), "-i 1@eth1: 1 was given already"),
        (("--queue-rate", "100"), "--queue-rate is '100', must be QUEUE=PACKETS/S, such as 0=1000"),
        (("--queue-rate", "1=100"), "--queue-rate 1=100: 1 is not in 0..0"),
        (("--queue-rate", "0=0"), "--queue-rate: '0' is not a number of packets/s, 1 to 1000000000"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], reason: str) -> None:
    assert refused(*arguments) == f"error: {reason}"


def test_bmv2s_separator_may_stand_before_the_target_s_options() -> None:
    arguments = ("--no-p4", "--device-id", "3", "--", "--priority-queues", "8", "--queue-rate", "8=1")
    assert refused(*arguments) == "error: --queue-rate 8=1: 8 is not in 0..7"
