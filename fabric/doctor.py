"""`mrcfab doctor`: whether this machine can run the fabric in containers, and what to do where it can't."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Literal

from fabric.compose import BMV2_IMAGE

Verdict = Literal["ok", "note", "bad"]

TESTED_COMPOSE = (2, 26)
"""What `make compose-test` runs with."""
IP6TABLES_BY_DEFAULT = 27
"""The engine that lets IPv6 through its bridges by rules of its own (Docker 27's release notes)."""
ENOUGH_MEMORY = 2 << 30
"""Bytes: thirteen Python processes of 60 MB, and as much again for the images' files."""
_TIMEOUT = 20.0
_ROUTES = Path("/proc/net/route")
_BRIDGE_FILTER = Path("/proc/sys/net/bridge/bridge-nf-call-ip6tables")
_IPV6_OFF = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Finding:
    """`text` is one line; with `bad`, and mostly with `note`, it says what to do."""

    verdict: Verdict
    text: str


def examine(subnet: IPv4Network) -> Iterator[Finding]:
    """What is found here, in the order in which one would put it right. `subnet` is that of the compose file."""
    engine = yield from _engine()
    if engine is not None:
        yield from _compose()
        yield from _switch_image()
        yield from _firewall(engine)
    yield from _networks(subnet)
    yield from _size()
    yield from _without_containers()


def _engine() -> Generator[Finding, None, int | None]:
    """Returns the engine's major version, None if there is no engine."""
    if shutil.which("docker") is None:
        yield Finding(
            "bad", "docker is not installed: https://docs.docker.com/engine/install, or your system's docker.io"
        )
        return None
    code, output = _run("docker", "version", "--format", "{{.Server.Version}}")
    if code:
        yield Finding("bad", f"no engine answers: {output} Start it; who is not root must be in the group docker")
        return None
    yield Finding("ok", f"engine {output}")
    return int(output.partition(".")[0])


def _compose() -> Iterator[Finding]:
    code, output = _run("docker", "compose", "version", "--short")
    match = re.match(r"v?(\d+)\.(\d+)", output)
    if code or match is None:
        yield Finding(
            "bad", "no compose plugin (`docker compose`): docker-compose-plugin, or Debian 13's docker-compose"
        )
    elif (int(match[1]), int(match[2])) < TESTED_COMPOSE:
        yield Finding("note", f"compose {output} is older than what was tested, {'.'.join(map(str, TESTED_COMPOSE))}")
    else:
        yield Finding("ok", f"compose {output}")


def _switch_image() -> Iterator[Finding]:
    image = os.environ.get("MRCFAB_SWITCH_IMAGE", BMV2_IMAGE)
    code, _ = _run("docker", "image", "inspect", "--format", "{{.Id}}", image)
    if code:
        yield Finding("note", f"switch image {image} is not here: compose pulls it; or MRCFAB_SWITCH_IMAGE=mrcfab")
    else:
        yield Finding("ok", f"switch image {image}")


def _networks(subnet: IPv4Network) -> Iterator[Finding]:
    taken = [(route, name) for route, name in _routes() if route.overlaps(subnet) and not _is_the_fabrics(name)]
    if taken:
        route, name = taken[0]
        yield Finding("bad", f"{subnet} overlaps {route} on {name}: give mrcfab compose another --subnet")
    else:
        yield Finding("ok", f"{subnet} is free for the containers' networks")
    if not _IPV6_OFF.exists() or _IPV6_OFF.read_text().strip() == "1":
        yield Finding(
            "bad", "the kernel has no IPv6, which the link networks need: sysctl net.ipv6.conf.all.disable_ipv6=0"
        )


def _firewall(engine: int) -> Iterator[Finding]:
    if engine < IP6TABLES_BY_DEFAULT and _drops_bridged_ipv6():
        yield Finding(
            "bad",
            "the firewall drops IPv6 on bridges, and with it all packets of the fabric: "
            "sysctl net.bridge.bridge-nf-call-ip6tables=0, or ip6tables -P FORWARD ACCEPT",
        )


def _routes() -> Iterator[tuple[IPv4Network, str]]:
    """IPv4 destinations of this machine and their interfaces, the default route aside."""
    for line in _ROUTES.read_text().splitlines()[1:]:
        name, destination, _, _, _, _, _, mask, *_ = line.split()
        address, length = (socket.ntohl(int(text, 16)) for text in (destination, mask))
        if length:
            yield IPv4Network((address, str(IPv4Address(length)))), name


def _is_the_fabrics(interface: str) -> bool:
    """Whether an interface is the bridge of one of the compose file's networks."""
    code, output = _run("docker", "network", "ls", "--quiet", "--filter", "label=com.docker.compose.project=mrcfab")
    return code == 0 and interface.removeprefix("br-") in output.split()


def _drops_bridged_ipv6() -> bool:
    if not _BRIDGE_FILTER.exists() or _BRIDGE_FILTER.read_text().strip() == "0" or shutil.which("ip6tables") is None:
        return False
    _, output = _run("ip6tables", "-S", "FORWARD")
    return "-P FORWARD DROP" in output


def _size() -> Iterator[Finding]:
    match = re.search(r"^MemAvailable: +(\d+) kB$", _MEMORY.read_text(), re.MULTILINE)
    memory = int(match[1]) << 10 if match else 0
    cores = os.cpu_count() or 1
    text = f"{cores} cores, {memory / (1 << 30):.1f} GiB of memory free"
    if memory < ENOUGH_MEMORY:
        yield Finding("note", f"{text}: the default fabric needs about {ENOUGH_MEMORY >> 30} GiB")
    elif cores < 2:
        yield Finding("note", f"{text}: lower MRCFAB_QUEUE_RATE and MRCFAB_PACE if paths are taken for failed")
    else:
        yield Finding("ok", text)


def _without_containers() -> Iterator[Finding]:
    if shutil.which("simple_switch_grpc") is None:
        yield Finding("note", "simple_switch_grpc (BMv2) is not installed: its tests are skipped outside of containers")
    else:
        yield Finding("ok", f"simple_switch_grpc {_run('simple_switch_grpc', '--version')[1]}")
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError:
        yield Finding("note", "no packet sockets without root or CAP_NET_RAW: mrcfab nic and mrcfab switch need them")
    else:
        yield Finding("ok", "packet sockets, for mrcfab nic and mrcfab switch")


def _run(*command: str) -> tuple[int, str]:
    """Exit code, and what was said; of a complaint the last line."""
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.strip() or "".join(done.stderr.strip().splitlines()[-1:])
