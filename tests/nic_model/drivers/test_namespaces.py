"""Two NICs on real interfaces: packet sockets over veth pairs, one per plane, in network namespaces."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nic_model.drivers.direct import PLANES, direct_paths
from tests.nic_model.drivers.namespaces import REASON, Namespaces, available

pytestmark = pytest.mark.skipif(not available(), reason=REASON)

NIC = [sys.executable, "-c", "from nic_model.cli import nic_app; nic_app()"]
CONTROL = "10.0.0.2:4790"


class Bench:
    """nic0 and nic1, each in its namespace; nic1 serves."""

    def __init__(self, namespaces: Namespaces, directory: Path) -> None:
        self.namespaces = namespaces
        self.directory = directory
        self.server = self._serve()
        self.ready = self.event()

    def _serve(self) -> subprocess.Popen[str]:
        command = ["serve", "--port", "1=port1", "--listen", CONTROL, "--json", *self.nic(1)]
        return self.namespaces.start("nic1", [*NIC, *command], self.directory / "serve.log")

    def nic(self, row: int) -> list[str]:
        return ["--paths", str(self.directory / f"row-{row}.jsonl"), "--name", f"nic{row}"]

    def event(self) -> dict[str, Any]:
        """The next thing that nic1 tells, but for links: the kernel tells of a new one's carrier when it likes."""
        return next_event(self.server, self.directory / "serve.log")

    def command(self, *arguments: str) -> list[str]:
        return [*NIC, *arguments, *self.nic(0)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of nic0."""
        return self.namespaces.run("nic0", self.command(*arguments))


def next_event(server: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """What a server tells, links aside. Fails with its log when it has ended."""
    assert server.stdout is not None
    for line in server.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["event"] != "link":
            return event
    raise AssertionError(log.read_text())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """The interfaces of plane 0 have the ports' MACs, those of plane 1 their own."""
    with Namespaces("direct") as namespaces:
        for row in (0, 1):
            namespaces.add(f"nic{row}")
            direct_paths(row).save(tmp_path / f"row-{row}.jsonl")
        for plane in range(PLANES):
            namespaces.link(("nic0", f"port{plane}"), ("nic1", f"port{plane}"))
        for row in (0, 1):
            mac = direct_paths(row).nics[0].ports[0].mac.hex(":")
            namespaces.ip(f"nic{row}", "link", "set", "port0", "address", mac)
        namespaces.link(("nic0", "control"), ("nic1", "control"))
        for row in (0, 1):
            namespaces.ip(f"nic{row}", "address", "add", f"10.0.0.{1 + row}/24", "dev", "control")
        yield Bench(namespaces, tmp_path)


def test_a_file_arrives_and_a_signal_ends_the_server(bench: Bench) -> None:
    assert [port["interface"] for port in bench.ready["ports"]] == ["port0", "port1"]
    file = bench.directory / "file"
    file.write_bytes(random.Random(1).randbytes(1_000_003))
    done = bench.run("write", str(file), CONTROL, "--port", "1=port1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["verified"] and result["sha256"] == result["peer_sha256"]
    assert result["packets"] - result["retransmissions"] == 245
    assert [plane["packets"] > 0 for plane in result["planes"]] == [True, True]
    assert bench.event()["event"] == "connected"
    closed = bench.event()
    assert (closed["event"], closed["payload_bytes"]) == ("closed", 1_000_003)

    bench.server.send_signal(signal.SIGINT)
    assert bench.event()["event"] == "end"
    assert bench.server.wait(10) == 0
    assert (bench.directory / "serve.log").read_text() == ""


def test_a_link_that_goes_down_moves_everything_to_the_other_plane(bench: Bench) -> None:
    command = bench.command("write", "--pattern", "1MB", CONTROL, "--port", "1=port1", "--pace", "500", "--json")
    writing = bench.namespaces.start("nic0", command, bench.directory / "write.log")
    assert bench.event()["event"] == "connected"
    bench.namespaces.ip("nic1", "link", "set", "port1", "down")
    output, _ = writing.communicate(timeout=30)
    result = json.loads(output)
    assert (writing.returncode, result["verified"]) == (0, True)
    first, second = result["planes"]
    assert first["packets"] > 2 * second["packets"]

    probed = bench.run("probe", CONTROL, "--port", "1=port1", "--patience", "0.5", "--count", "1", "--json")
    paths = json.loads(probed.stdout)["paths"]
    assert probed.returncode == 1 and probed.stderr == "error: 8 of 16 paths never answered\n"
    assert {path["plane"] for path in paths if path["rtt_us"] is None} == {1}


def test_a_signal_ends_a_write(bench: Bench) -> None:
    command = bench.command("write", "--pattern", "1MB", CONTROL, "--port", "1=port1", "--pace", "10")
    writing = bench.namespaces.start("nic0", command, bench.directory / "write.log")
    assert bench.event()["event"] == "connected"
    writing.send_signal(signal.SIGTERM)
    assert writing.wait(10) == 1
    assert (bench.directory / "write.log").read_text() == "error: interrupted\n"
    assert bench.event()["event"] == "closed"


def test_what_is_wrong_is_said_in_one_line(bench: Bench) -> None:
    bench.namespaces.ip("nic0", "link", "set", "port0", "mtu", "1500")
    done = bench.run("write", "--pattern", "1MB", CONTROL, "--port", "1=port1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: port0: MTU 1500 is too small, a path MTU of 4096 needs 4224: ip link set port0 mtu 4224\n"
    )
    done = bench.run("write", "--pattern", "1MB", CONTROL, "--port", "1=port1", "--path-mtu", "1024")
    assert (done.returncode, done.stderr) == (0, "")

    done = bench.run("write", "--pattern", "1MB", "10.0.0.2:1", "--port", "1=port1", "--path-mtu", "1024")
    assert (done.returncode, done.stderr) == (
        1,
        "error: cannot reach 10.0.0.2:1: Connect call failed ('10.0.0.2', 1)\n",
    )

    unprivileged = ["setpriv", "--bounding-set=-net_raw", *bench.command("probe", CONTROL, "--port", "1=port1")]
    done = bench.namespaces.run("nic0", unprivileged)
    assert (done.returncode, done.stderr) == (1, "error: port0: packet sockets need root or CAP_NET_RAW\n")


def test_two_processes_share_the_ports_of_a_nic(bench: Bench) -> None:
    serving = ["serve", "--port", "1=port1", "--json", *bench.nic(0)]
    server = bench.namespaces.start("nic0", [*NIC, *serving], bench.directory / "serve-0.log")
    assert next_event(server, bench.directory / "serve-0.log")["event"] == "ready"
    done = bench.run("write", "--pattern", "1MB", CONTROL, "--port", "1=port1", "--json")
    assert (done.returncode, json.loads(done.stdout)["verified"]) == (0, True)
    server.terminate()
    assert set(next_event(server, bench.directory / "serve-0.log")["untaken"]) <= {
        "no such QP",
        "no such endpoint request",
    }
