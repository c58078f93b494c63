"""Switches in processes of their own: `simple_switch_grpc`, and the embedded target behind local sockets.

Neither needs root. Both take the same entries and frames; `Addresses` says where.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
from thriftpy2 import load as load_thrift
from thriftpy2.protocol import TBinaryProtocolFactory, TMultiplexedProtocolFactory
from thriftpy2.rpc import make_client

from tests.dataplane.entries import CPU_PORT, MARKER_PORT, PORTS, QUEUES_PER_PORT

BMV2 = shutil.which("simple_switch_grpc")
NO_BMV2 = "no simple_switch_grpc"
EMBEDDED_SWITCH = "ptf_tests.embedded_switch"
DEVICE_ID = 1
TIMEOUT = 20.0
"""Seconds after which a switch that does not answer fails the test."""
_HERE = Path(__file__).parent


@cache
def dataplane_protocol() -> tuple[Any, Any]:
    """The messages and the services of BMv2's data plane."""
    proto = _HERE / "bmv2_dataplane.proto"
    messages, services = grpc.protos_and_services(str(proto.relative_to(Path.cwd())))
    return messages, services


@dataclass(frozen=True)
class Addresses:
    """Where a switch is reached. As text, `name=value,...`, it is what ptf's `--platform-args` takes."""

    p4runtime: str
    device_id: int = DEVICE_ID
    sockets: str = ""
    """The embedded target: the directory of its ports' sockets."""
    dataplane: str = ""
    """BMv2: HOST:PORT of its data-plane gRPC service."""
    thrift: int = 0
    """BMv2: its Thrift port."""

    def __str__(self) -> str:
        return ",".join(f"{one.name}={getattr(self, one.name)}" for one in fields(self) if getattr(self, one.name))

    @classmethod
    def parse(cls, text: str) -> Addresses:
        """Raises ValueError."""
        known = {one.name for one in fields(cls)}
        values: dict[str, Any] = {}
        for pair in text.split(","):
            name, _, value = pair.partition("=")
            if name not in known:
                raise ValueError(f"--platform-args: {pair!r} is none of {', '.join(sorted(known))}=...")
            values[name] = int(value) if name in ("device_id", "thrift") else value
        if "p4runtime" not in values:
            raise ValueError("--platform-args: p4runtime=HOST:PORT is missing")
        return cls(**values)


def free_ports(count: int) -> list[int]:
    """TCP ports that were free just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return numbers


@dataclass
class SwitchProcess:
    """A switch without a pipeline. `rates` in packets/s are those of each port's queues; others are never held up."""

    addresses: Addresses
    rates: Mapping[int, int] = field(default_factory=dict)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Returns once it answers. Raises RuntimeError."""
        output = subprocess.DEVNULL
        self.process = subprocess.Popen(self._command(), stdin=output, stdout=output, stderr=output)
        retries = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 20)]
        with grpc.insecure_channel(self.addresses.p4runtime, retries) as channel:
            try:
                grpc.channel_ready_future(channel).result(TIMEOUT)
            except grpc.FutureTimeoutError:
                self.stop()
                raise RuntimeError(f"no answer within {TIMEOUT:g} s from: {' '.join(self._command())}") from None
        if self.rates and self.addresses.thrift:
            self._shape_bmv2()

    def stop(self) -> None:
        """It goes as in a power cut."""
        self.process.kill()
        self.process.wait()

    def _command(self) -> list[str]:
        where = self.addresses
        if where.dataplane:
            return bmv2_command(where)
        rates = [word for queue, rate in self.rates.items() for word in ("--queue-rate", f"{queue}={rate}")]
        return [sys.executable, "-m", EMBEDDED_SWITCH, str(where), *rates]

    def _shape_bmv2(self) -> None:
        """BMv2 takes the rates of its queues over Thrift only, queue by queue."""
        service = load_thrift(str(_HERE / "bmv2_queues.thrift"), module_name="bmv2_queues_thrift").SimpleSwitch
        protocol = TMultiplexedProtocolFactory(TBinaryProtocolFactory(), "simple_switch")  # type: ignore[no-untyped-call]
        client = make_client(service, "127.0.0.1", self.addresses.thrift, proto_factory=protocol)
        try:
            for port, (queue, rate) in product((*PORTS, MARKER_PORT), self.rates.items()):
                client.set_egress_priority_queue_rate(port, queue, rate)
        finally:
            client.close()


def bmv2_command(where: Addresses) -> list[str]:
    """BMv2's command line. What only simple_switch_grpc knows comes behind `--`."""
    return [
        *(str(BMV2), "--no-p4", "--device-id", str(where.device_id), "--thrift-port", str(where.thrift), "--"),
        *("--grpc-server-addr", where.p4runtime, "--dp-grpc-server-addr", where.dataplane),
        *("--priority-queues", str(QUEUES_PER_PORT), "--cpu-port", str(CPU_PORT)),
    ]


@contextmanager
def running(
    target: str, device_id: int = DEVICE_ID, rates: Mapping[int, int] = MappingProxyType({})
) -> Iterator[SwitchProcess]:
    """A switch of the kind `embedded` or `bmv2` on free ports, stopped at the end by its process id."""
    with tempfile.TemporaryDirectory(prefix="switch-") as sockets:
        if target == "bmv2":
            p4runtime, dataplane, thrift = free_ports(3)
            where = Addresses(f"127.0.0.1:{p4runtime}", device_id, "", f"127.0.0.1:{dataplane}", thrift)
        else:
            where = Addresses(f"127.0.0.1:{free_ports(1)[0]}", device_id, sockets)
        switch = SwitchProcess(where, rates)
        try:
            yield switch
        finally:
            switch.stop()
