"""Starts the switch of one container and keeps it company: BMv2 where `simple_switch_grpc` is, else `mrcfab switch`.

It finds the interface of each port by the subnet of its link, or by name, says in one line why a switch cannot
start, gives the data queue of every port its rate, and then reports the container healthy (the file READY).

Standard library and Python 3.8 only: it also runs in BMv2's own image, which has no more.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

READY = Path("/tmp/ready")
CPU_PORT = 510
DATA_QUEUE = 0
"""As p4src/headers.p4 has both."""
PRIORITY_QUEUES = 8
SMALLEST_MTU = 4224
"""Bytes of an IP packet with 4096 of payload, in SRv6 mode."""
THRIFT_PORT = 9090
START_TIMEOUT = 30.0
POLL = 0.05
"""Seconds."""

_SIOCGIFADDR = 0x8915
_SIOCGIFMTU = 0x8921
_IFREQ_SIZE = 40


class StartError(Exception):
    """Why the switch can't start. str() is one line."""


def interface_of(port: str, place: str) -> str:
    """The interface of this name, or with an address in this subnet. Raises StartError."""
    addresses = {name: _address(name) for _, name in socket.if_nameindex()}
    if "/" in place:
        subnet = IPv4Network(place)
        found = [name for name, address in addresses.items() if address is not None and address in subnet]
    else:
        found = [name for name in addresses if name == place]
    if not found:
        what = f"no interface has an address in {place}" if "/" in place else f"no interface {place}"
        there = ", ".join(f"{name} {address or ''}".strip() for name, address in addresses.items())
        raise StartError(f"port {port}: {what}; there are {there}")
    mtu = struct.unpack_from("i", _ask(found[0], _SIOCGIFMTU), 16)[0]
    if mtu < SMALLEST_MTU:
        raise StartError(f"port {port}: {found[0]} has an MTU of {mtu} bytes, the fabric needs {SMALLEST_MTU}")
    return found[0]


def _address(name: str) -> IPv4Address | None:
    try:
        return IPv4Address(_ask(name, _SIOCGIFADDR)[20:24])
    except OSError:  # it has none
        return None


def _ask(name: str, request: int) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return fcntl.ioctl(any_socket, request, name.encode().ljust(_IFREQ_SIZE, b"\0"))


def check_machine(grpc: str) -> None:
    """Raises StartError for what would keep any switch from starting."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError:
        raise StartError("packet sockets are not permitted: the container needs the capability NET_RAW") from None
    for host, port in (host_port(grpc), ("0.0.0.0", THRIFT_PORT)):
        try:
            socket.create_server((host, port)).close()
        except OSError as error:
            raise StartError(f"can't listen on {host}:{port}: {os.strerror(error.errno)}") from None


def host_port(address: str) -> tuple[str, int]:
    """HOST:PORT in two parts."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def command(options: argparse.Namespace, ports: list[str]) -> list[str]:
    """What starts the switch. Raises StartError if it is not here."""
    common = [word for port in ports for word in ("-i", port)] + ["--no-p4", "--device-id", options.device_id]
    target = [
        "--grpc-server-addr",
        options.grpc,
        "--cpu-port",
        f"{CPU_PORT}",
        "--priority-queues",
        f"{PRIORITY_QUEUES}",
    ]
    if shutil.which("simple_switch_grpc"):
        return ["simple_switch_grpc", *common, "--thrift-port", f"{THRIFT_PORT}", "--", *target]
    if shutil.which("mrcfab"):
        return ["mrcfab", "switch", *common, *target, "--queue-rate", f"{DATA_QUEUE}={options.queue_rate}"]
    raise StartError("this image has neither simple_switch_grpc nor mrcfab")


def wait_for(address: tuple[str, int], process: subprocess.Popen[bytes], until: float) -> None:
    """Until something listens there. Raises StartError when the process has ended, or it takes too long."""
    while process.poll() is None:
        try:
            socket.create_connection(address, timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise StartError(f"nothing listens on {address[0]}:{address[1]} after {START_TIMEOUT:g} s") from None
            time.sleep(POLL)
    raise StartError(f"{process.args[0]} {ending(process.returncode)}, see above")


def set_bmv2_rates(ports: list[str], rate: int) -> None:
    """BMv2 takes queue rates over Thrift only. Raises StartError."""
    lines = "".join(f"set_queue_rate {rate} {port.partition('@')[0]} {DATA_QUEUE}\n" for port in ports)
    cli = ["simple_switch_CLI", "--thrift-port", f"{THRIFT_PORT}"]
    try:
        done = subprocess.run(
            cli, input=lines, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=START_TIMEOUT, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"no queue rates: {error}") from None
    if done.returncode or "Error" in done.stdout or "Invalid" in done.stdout:
        raise StartError(f"no queue rates: {done.stdout.strip().splitlines()[-1:]}")


def ending(code: int) -> str:
    """How a process ended, in words."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def run(options: argparse.Namespace) -> int:
    """The switch, to its end; its exit code, 0 if it ended because it was told to. Raises StartError."""
    READY.unlink(missing_ok=True)
    ports = []
    for text in options.ports:
        number, _, place = text.partition("@")
        ports.append(f"{number}@{interface_of(number, place)}")
    check_machine(options.grpc)
    told = False
    process = subprocess.Popen(command(options, ports))

    def stop(*_: object) -> None:
        nonlocal told
        told = True
        process.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        until = time.monotonic() + START_TIMEOUT
        wait_for(("127.0.0.1", host_port(options.grpc)[1]), process, until)
        if process.args[0] == "simple_switch_grpc":
            wait_for(("127.0.0.1", THRIFT_PORT), process, until)
            set_bmv2_rates(ports, options.queue_rate)
        READY.touch()
        print(
            f"{process.args[0]} serves; ports {' '.join(ports)}; data queues at {options.queue_rate} packets/s",
            flush=True,
        )
        code = process.wait()
    except StartError:
        if told:
            return 0
        process.kill()
        process.wait()
        raise
    if told:
        return 0
    raise StartError(f"{process.args[0]} {ending(code)}, see above")


def main() -> int:
    """The container's entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device-id", required=True)
    parser.add_argument("--grpc", required=True, metavar="HOST:PORT")
    parser.add_argument(
        "--queue-rate", type=int, default=int(os.environ.get("MRCFAB_QUEUE_RATE", "0")), metavar="PACKETS/S"
    )
    parser.add_argument("ports", nargs="+", metavar="PORT@PLACE")
    options = parser.parse_args()
    try:
        return run(options)
    except StartError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
