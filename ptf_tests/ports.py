"""The ports of both platforms, as ptf's DataPlane wants them: something to select on, `recv` and `send`."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from pathlib import Path
from typing import Any

import grpc

from tests.dataplane.entries import MARKER_PORT, PORTS
from tests.dataplane.processes import DEVICE_ID, dataplane_protocol

ALL_PORTS = (*PORTS, MARKER_PORT)
MAX_FRAME = 1 << 16

Received = tuple[int, int, bytes, float]
"""Device, port, frame, time."""


def port_map(interface: str, device: int = 0) -> dict[tuple[int, int], str]:
    """All ports of a switch at one place; `device` is ptf's number for it."""
    return {(device, port): interface for port in ALL_PORTS}


class SocketPort:
    """The tester's end of one port of `ptf_tests.embedded_switch`."""

    def __init__(self, directory: str, device: int, port: int, config: object = None) -> None:  # noqa: ARG002
        self._place = (device, port)
        self._switch = f"{directory}/{port}.switch"
        path = Path(directory) / f"{port}.tester"
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def get_packet_source(self) -> SocketPort:
        return self

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv(self) -> Received:
        return *self._place, self._socket.recv(MAX_FRAME), time.time()

    def send(self, packet: bytes) -> int:
        """Waits while the switch is slow; raises OSError if there is none."""
        return self._socket.sendto(packet, self._switch)

    def close(self) -> None:
        self._socket.close()


class Stream:
    """The stream of frames of one BMv2 process. It opens with the first frame: before a pipeline BMv2 refuses it."""

    def __init__(self, address: str, device: int, device_id: int) -> None:
        self._device = device
        self._device_id = device_id
        self._messages, services = dataplane_protocol()
        self._channel = grpc.insecure_channel(address)
        self.stub = services.DataplaneInterfaceStub(self._channel)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader: threading.Thread | None = None

    def fileno(self) -> int:
        return self._outside.fileno()

    def recv(self) -> Received | None:
        message = self._outside.recv(MAX_FRAME)
        port = int.from_bytes(message[:2], "big")
        return (self._device, port, message[2:], time.time()) if port in ALL_PORTS else None

    def send(self, port: int, packet: bytes) -> int:
        if self._reader is None:
            replies = self.stub.PacketStream(iter(self._requests.get, None))
            self._reader = threading.Thread(target=self._read, args=[replies], daemon=True)
            self._reader.start()
        self._requests.put(self._messages.PacketStreamRequest(device_id=self._device_id, port=port, packet=packet))
        return len(packet)

    def _read(self, replies: Any) -> None:
        with contextlib.suppress(grpc.RpcError, OSError):  # the switch or the test ended it
            for reply in replies:
                self._inside.send(reply.port.to_bytes(2, "big") + reply.packet)

    def set_port_up(self, port: int, up: bool) -> None:
        status = self._messages.OPER_STATUS_UP if up else self._messages.OPER_STATUS_DOWN
        request = self._messages.SetPortOperStatusRequest(device_id=self._device_id, port=port, oper_status=status)
        self.stub.SetPortOperStatus(request, timeout=10)

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()
        self._inside.close()
        self._outside.close()


class StreamPort:
    """One port of a BMv2 process; all of them share one stream."""

    streams: dict[tuple[str, int], Stream] = {}  # noqa: RUF012 (shared on purpose)

    def __init__(self, address: str, device: int, port: int, config: object = None) -> None:  # noqa: ARG002
        self._port = port
        self._key = (address, device)
        if self._key not in self.streams:
            # The suite's switch has DEVICE_ID and is ptf's device 0; those of single tests follow.
            self.streams[self._key] = Stream(address, device, DEVICE_ID + device)
        self._stream = self.streams[self._key]

    def get_packet_source(self) -> Stream:
        return self._stream

    def send(self, packet: bytes) -> int:
        return self._stream.send(self._port, packet)

    def down(self) -> None:
        self._stream.set_port_up(self._port, False)

    def up(self) -> None:
        self._stream.set_port_up(self._port, True)

    def close(self) -> None:
        if self.streams.pop(self._key, None) is not None:
            self._stream.close()
