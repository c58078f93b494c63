"""The embedded target in real time behind local sockets, for tests: `python -m ptf_tests.embedded_switch ADDRESSES`.

Each port is a Unix datagram socket DIRECTORY/PORT.switch; a tester plugs in by binding DIRECTORY/PORT.tester.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
from pathlib import Path

from switch_model.codegen import Frame
from switch_model.device import Device
from switch_model.realtime import RealTimeDriver, event_loop
from switch_model.server import P4RuntimeServer
from tests.dataplane.entries import CPU_PORT, MARKER_PORT, PORTS, QUEUES_PER_PORT
from tests.dataplane.processes import Addresses

MAX_FRAME = 1 << 16


class SocketPort:
    """A port of the switch."""

    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self._tester = str(directory / f"{number}.tester")
        path = directory / f"{number}.switch"
        path.unlink(missing_ok=True)  # of a switch before this one
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> list[Frame]:
        return [(self._socket.recv(MAX_FRAME), b"")]

    def send(self, frame: Frame) -> None:
        """Waits while the tester is slow: no frame is lost, unless nobody is plugged in."""
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            self._socket.sendto(b"".join(frame), self._tester)


async def serve(where: Addresses, rates: dict[int, int]) -> None:
    """Until the process is ended."""
    device = Device(where.device_id, priority_queues=QUEUES_PER_PORT, cpu_port=CPU_PORT)
    ports = [SocketPort(number, Path(where.sockets)) for number in (*PORTS, MARKER_PORT)]
    server = P4RuntimeServer([device], lambda _, frame: driver.packet_out(frame))
    driver = RealTimeDriver(device, ports, rates, lambda frame: server.deliver_packet_in(where.device_id, frame))
    with driver:
        await server.start(where.p4runtime)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", type=Addresses.parse)
    parser.add_argument("--queue-rate", action="append", default=[], metavar="QUEUE=PACKETS/S")
    arguments = parser.parse_args()
    rates = {int(queue): int(rate) for queue, _, rate in (text.partition("=") for text in arguments.queue_rate)}
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(serve(arguments.addresses, rates))


if __name__ == "__main__":
    main()
