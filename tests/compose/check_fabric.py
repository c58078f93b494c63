"""`make compose-test`: the committed docker-compose.yml on a real engine, once for each kind of switch.

Not part of `make test`: it needs a Docker engine, and minutes. The tests share a fabric and run in this order.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from fabric.compose import QUEUE_RATE
from tests.compose.bmv2_image import bmv2_image
from tests.compose.engine import Engine, NoEngineError
from tests.compose.fabric import IMAGE, ComposeFabric

ASKER, SERVER, NEIGHBOUR = "nic0", "nic2", "nic1"
PEER = f"{SERVER}:4790"
T1 = "p0t1-1"
AS_PLANNED = "8 switches as planned, 0 not\n"
EVENT_TIMEOUT = 30.0
HEADERS = 14 + 40
"""Bytes of Ethernet and outer IPv6, which the IPv6 payload length does not count."""
PACKETS = Path(__file__).with_name("packets.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    try:
        with Engine() as engine:
            yield engine
    except NoEngineError as error:
        pytest.skip(f"no Docker engine to be had: {error}")


@pytest.fixture(scope="module", params=["embedded", "bmv2"])
def fabric(request: pytest.FixtureRequest, engine: Engine) -> Iterator[ComposeFabric]:
    image = IMAGE if request.param == "embedded" else bmv2_image(engine)
    if image is None:
        pytest.skip("no image with BMv2: p4lang/behavioral-model can't be pulled, simple_switch_grpc is not installed")
    with ComposeFabric(engine, image) as fabric:
        yield fabric


def test_the_doctor_finds_nothing_wrong(engine: Engine) -> None:
    done = engine.run([sys.executable, "-c", "from fabric.cli import main; main()", "doctor"])
    assert done.returncode == 0, done.stdout


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    """The engine tells of nothing, it has to be asked."""
    until = time.monotonic() + EVENT_TIMEOUT
    while not condition():
        assert time.monotonic() < until, f"not within {EVENT_TIMEOUT:g} s: {what}"


def paths(fabric: ComposeFabric, peer: str) -> dict[tuple[int, int], bool]:
    """Whether each (plane, uplink) to a peer answers probes."""
    done = fabric.execute(ASKER, "mrcfab", "nic", "probe", f"{peer}:4790", "--json", "--patience", "1")
    assert done.stdout, done.stderr
    return {(path["plane"], path["uplink"]): path["answered"] > 0 for path in json.loads(done.stdout)["paths"]}


def test_the_routes_are_pushed_and_as_planned(fabric: ComposeFabric) -> None:
    assert "8 switches pushed, 0 failed" in fabric.logs("controller")
    done = fabric.controller("mrcfab", "routes", "verify")
    assert (done.returncode, done.stdout) == (0, AS_PLANNED), done.stderr


def test_every_path_answers(fabric: ComposeFabric) -> None:
    assert paths(fabric, SERVER) == {(plane, uplink): True for plane in (0, 1) for uplink in (0, 1)}
    assert paths(fabric, NEIGHBOUR) == {(0, 0): True, (1, 0): True}


def test_the_ptf_tests_of_un_pass_in_the_image(fabric: ComposeFabric, engine: Engine) -> None:
    """Of the embedded switch, as it is in the image: its Python, its packages, its program."""
    assert fabric.switch_image  # the image is built
    done = engine.run(["docker", "run", "--rm", IMAGE, "python", "-m", "ptf_tests.run", "embedded", "un"])
    assert done.returncode == 0 and "ptf on embedded: passed" in done.stdout, done.stdout + done.stderr


# ---- packets on a link ---------------------------------------------------------------------------------------
# What the packet tests prove of one switch, here of the switches in their containers.


def round_trip(fabric: ComposeFabric, plane: int, dscp: int, size: int) -> tuple[Packet, Packet]:
    """A frame of nic0 over T0, T1 and T0 back to itself, as it leaves and as it has to come back."""
    topo = fabric.topo
    port = topo.nic(ASKER).ports[plane]
    t0, t1 = topo.switch(f"p{plane}t0-0"), topo.switch(f"p{plane}t1-1")
    block = "fcbb:bbbb"
    inner = IPv6(src=str(port.address), dst=str(port.address), tc=dscp << 2) / UDP(sport=1, dport=9, chksum=0)
    inner /= Raw(bytes(index & 0xFF for index in range(size)))
    usids = f"{t0.usid:x}:{t1.usid:x}:{t0.usid:x}:{port.usid:x}"
    outer = IPv6(src=str(port.address), dst=f"{block}:{usids}::", hlim=64, tc=dscp << 2)
    sent = Ether(bytes(Ether(src=port.mac, dst=t0.mac) / outer / inner))
    expected = sent.copy()
    expected.src, expected.dst = t0.mac, port.mac
    expected[IPv6].dst, expected[IPv6].hlim = f"{block}:{port.usid:x}::", 61
    return sent, Ether(bytes(expected))


def exchange(fabric: ComposeFabric, plane: int, frames: list[Packet], gap: float) -> list[bytes]:
    """Send frames from a port of nic0, until as many have come back to it."""
    order = {
        "subnet": str(fabric.subnet(ASKER, plane)),
        "frames": [bytes(frame).hex() for frame in frames],
        "gap": gap,
        "count": len(frames),
        "timeout": 10,
        "ether_dst": fabric.topo.nic(ASKER).ports[plane].mac.replace(":", ""),
    }
    done = fabric.execute(ASKER, "python", "-c", PACKETS, stdin=json.dumps(order))
    assert done.returncode == 0, done.stderr
    return [bytes.fromhex(frame) for frame in json.loads(done.stdout)]


@pytest.mark.parametrize("plane", [0, 1])
def test_each_un_hop_shifts_its_usid_and_touches_nothing_else(fabric: ComposeFabric, plane: int) -> None:
    sent, expected = round_trip(fabric, plane, fabric.topo.model.dscp.control, 1000)
    assert exchange(fabric, plane, [sent], 0) == [bytes(expected)]


def test_what_is_too_much_for_a_queue_is_trimmed_and_nothing_is_lost(fabric: ComposeFabric) -> None:
    dscp, limit = fabric.topo.model.dscp, fabric.topo.model.queues.data_packets
    sent, expected = round_trip(fabric, 0, dscp.trimmable, 4000)
    burst = 4 * limit
    gap = 1 / (2 * QUEUE_RATE)  # the queue grows by one packet in two
    came = exchange(fabric, 0, [sent] * burst, gap)
    trimmed = Ether(bytes(expected))
    trimmed[IPv6].tc = dscp.trimmed << 2
    trimmed[IPv6].plen = fabric.topo.model.trim_size - HEADERS
    kinds = Counter(came)
    assert set(kinds) == {bytes(expected), bytes(trimmed)[: fabric.topo.model.trim_size]}
    assert kinds.total() == burst
    assert kinds[bytes(expected)] >= limit


# ---- a transfer while a T1 goes away and comes back ----------------------------------------------------------------


def test_10_mb_arrive_while_a_t1_is_stopped_and_started(fabric: ComposeFabric) -> None:
    made = fabric.execute(ASKER, "sh", "-c", "head -c 10000000 /dev/urandom > /tmp/file && sha256sum < /tmp/file")
    digest = made.stdout.split()[0]
    writing = fabric.start(ASKER, "mrcfab", "nic", "write", "/tmp/file", PEER, "--json", "--pace", "150")
    wait_until("the transfer began", lambda: "has 10,000,000 bytes of memory" in fabric.logs(SERVER))
    assert fabric.compose("stop", T1).returncode == 0
    assert writing.poll() is None, "the transfer ended too soon to mean anything"
    state = fabric.state(T1)
    assert (state["ExitCode"], state["Status"]) == (0, "exited")
    assert fabric.compose("up", "--detach", "--wait", "--no-deps", T1).returncode == 0
    output, complaint = writing.communicate(timeout=60)
    assert writing.returncode == 0, complaint
    result: dict[str, Any] = json.loads(output)
    assert (result["verified"], result["sha256"], result["peer_sha256"]) == (True, digest, digest)
    assert result["payload_bytes"] == 10_000_000
    assert result["retransmissions"] > 0
    lost = [event for event in result["ev_events"] if event["new"] == "assumed_bad"]
    assert (0, 1) in {(event["plane"], event["value"] >> 19 & 0x3FF) for event in lost}


def test_a_switch_that_came_back_is_empty_until_the_next_push(fabric: ComposeFabric) -> None:
    assert paths(fabric, SERVER)[0, 1] is False
    done = fabric.controller("mrcfab", "routes", "verify")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "7 switches as planned, 1 not")
    done = fabric.controller("mrcfab", "routes", "push")
    assert (done.returncode, done.stdout.startswith("8 switches pushed, 0 failed; 1 pipeline set")) == (0, True)
    assert fabric.controller("mrcfab", "routes", "verify").stdout == AS_PLANNED
    assert all(paths(fabric, SERVER).values())


# ---- a switch that doesn't start says why --------------------------------------------------------------------------


def start_switch(
    fabric: ComposeFabric, *options: str, port: str = "1@127.0.0.0/8", device_id: str = "1"
) -> tuple[int, str]:
    """Exit code, and what it said on stderr, of a switch that can't run."""
    command = ("python3", "/switch.py", f"--device-id={device_id}", "--grpc=0.0.0.0:9559", "--queue-rate=1000", port)
    done = fabric.run(fabric.switch_image, options, *command)
    return done.returncode, done.stderr.strip()


def test_a_missing_capability_is_named(fabric: ComposeFabric) -> None:
    assert start_switch(fabric) == (
        1,
        "error: packet sockets are not permitted: the container needs the capability NET_RAW",
    )


def test_a_taken_port_is_named(fabric: ComposeFabric) -> None:
    beside = f"--network=container:{fabric.container('p0t0-0')}"
    assert start_switch(fabric, beside, "--cap-add=NET_RAW") == (
        1,
        "error: can't listen on 0.0.0.0:9559: Address already in use",
    )


@pytest.mark.parametrize(
    ("place", "reason"),
    [("10.1.2.0/29", "no interface has an address in 10.1.2.0/29"), ("port1", "no interface port1")],
)
def test_a_missing_link_is_named(fabric: ComposeFabric, place: str, reason: str) -> None:
    assert start_switch(fabric, "--network=none", port=f"1@{place}") == (
        1,
        f"error: port 1: {reason}; there are lo 127.0.0.1",
    )


def test_a_switch_that_ends_by_itself_is_reported(fabric: ComposeFabric) -> None:
    code, said = start_switch(fabric, "--network=none", "--cap-add=NET_RAW", device_id="one")
    assert code == 1
    assert re.fullmatch(r"error: \S+ (ended with exit code \d+|was ended by SIG\w+), see above", said.splitlines()[-1])
