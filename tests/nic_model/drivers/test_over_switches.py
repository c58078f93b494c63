"""Two NICs over a fabric of switches on real interfaces: the `compose` preset, its routes pushed by the controller.

The switches are BMv2 processes, or `mrcfab switch`, which takes the same command line.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.path_files import path_file
from controller.topology import Topology, preset_text
from controller.yaml_file import Document
from tests.nic_model.drivers.namespaces import REASON, Namespaces, available
from tests.nic_model.drivers.test_namespaces import NIC, next_event

BMV2 = shutil.which("simple_switch_grpc")
EMBEDDED = [sys.executable, "-c", "from switch_model.cli import switch_app; switch_app()"]
ROUTES = [sys.executable, "-c", "from controller.cli import routes_app; routes_app()"]
ASKER, SERVER = "nic0", "nic2"
CONTROL = "10.0.0.2:4790"
START_TIMEOUT = 30.0

pytestmark = pytest.mark.skipif(not available(), reason=REASON)


class SwitchFabric:
    """All switches in one namespace, two NICs of different rows in one each; `server` is nic2, which serves."""

    def __init__(self, namespaces: Namespaces, directory: Path, target: str) -> None:
        self.namespaces = namespaces
        self._target = target
        self.directory = directory
        self.topo = self._topology()
        for name in ("switches", ASKER, SERVER):
            namespaces.add(name)
        for nic in (ASKER, SERVER):
            row = self.topo.nic(nic).row
            path_file(self.topo, row).save(directory / f"{nic}.jsonl")
        self._lay_links()
        self.switches = {switch.name: self._start(switch.name) for switch in self.topo.switches()}
        self._push()
        self.server = namespaces.start(
            SERVER, [*NIC, "serve", "--listen", CONTROL, "--json", *self.nic(SERVER)], directory / "serve.log"
        )
        assert self.event()["event"] == "ready"

    def _topology(self) -> Topology:
        """The preset, with an address of its own for each switch."""
        text = preset_text("compose")
        file = self.directory / "fabric.yaml"
        text += "overrides:\n  switches:\n"
        for switch in Topology(Document.parse(preset_text("compose"), "compose")).switches():
            text += f'    {switch.name}: {{address: "127.0.0.1:{50000 + switch.control.device_id}"}}\n'
        file.write_text(text)
        return Topology.load(file)

    def _lay_links(self) -> None:
        self._ports: dict[str, list[int]] = defaultdict(list)
        for link in self.topo.links():
            if link.kind == "fabric":
                self._ports[link.a.node].append(link.a.port)
                lower = ("switches", f"{link.a.node}.{link.a.port}")
                mac = None
            elif link.a.node in (ASKER, SERVER):
                lower = (link.a.node, f"port{link.plane}")
                mac = self.topo.nic(link.a.node).ports[link.plane].mac
            else:
                continue
            self._ports[link.b.node].append(link.b.port)
            self.namespaces.link(lower, ("switches", f"{link.b.node}.{link.b.port}"), mac)
        self.namespaces.link((ASKER, "control"), (SERVER, "control"))
        self.namespaces.ip(ASKER, "address", "add", "10.0.0.1/24", "dev", "control")
        self.namespaces.ip(SERVER, "address", "add", "10.0.0.2/24", "dev", "control")

    def _start(self, name: str) -> subprocess.Popen[str]:
        address, device_id = self.topo.switch(name).control
        interfaces = [word for port in self._ports[name] for word in ("-i", f"{port}@{name}.{port}")]
        return self.namespaces.start(
            "switches",
            [
                *([str(BMV2), "--thrift-port", str(9090 + device_id)] if self._target == "bmv2" else EMBEDDED),
                *(*interfaces, "--no-p4", "--device-id", str(device_id)),
                *("--", "--grpc-server-addr", address, "--priority-queues", "8", "--cpu-port", "510"),
            ],
            self.directory / f"{name}.log",
        )

    def _push(self) -> None:
        """Until all switches answer: each try takes its time, so that none has to be waited for."""
        until = time.monotonic() + START_TIMEOUT
        while True:
            pushed = self.namespaces.run("switches", [*ROUTES, "push", str(self.directory / "fabric.yaml")])
            if pushed.returncode == 0:
                return
            assert time.monotonic() < until, pushed.stdout + pushed.stderr

    def nic(self, name: str) -> list[str]:
        return ["--paths", str(self.directory / f"{name}.jsonl"), "--name", name]

    def command(self, *arguments: str) -> list[str]:
        return [*NIC, *arguments, "--json", *self.nic(ASKER)]

    def event(self) -> dict[str, Any]:
        return next_event(self.server, self.directory / "serve.log")


@pytest.fixture(params=["embedded", "bmv2"])
def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SwitchFabric]:
    if request.param == "bmv2" and BMV2 is None:
        pytest.skip("simple_switch_grpc (BMv2) is not installed")
    with Namespaces(request.param) as namespaces:
        yield SwitchFabric(namespaces, tmp_path, request.param)


def test_1_mb_arrives_while_a_t1_dies(fabric: SwitchFabric) -> None:
    command = fabric.command("write", "--pattern", "1MB", CONTROL, "--pace", "500")
    writing = fabric.namespaces.start(ASKER, command, fabric.directory / "write.log")
    assert fabric.event() == {
        "event": "connected",
        "peer": str(fabric.topo.nic(ASKER).ports[0].address),
        "length": 1_000_000,
    }
    fabric.switches["p0t1-0"].kill()
    output, _ = writing.communicate(timeout=30)
    assert writing.returncode == 0, output + (fabric.directory / "write.log").read_text()
    result = json.loads(output)
    assert result["verified"]
    assert result["retransmissions"] > 0
    bad = {
        (event["plane"], event["value"] >> 19 & 0x3FF) for event in result["ev_events"] if event["new"] == "assumed_bad"
    }
    assert (0, 0) in bad

    probing = fabric.command("probe", CONTROL, "--patience", "1", "--count", "2")
    probed = fabric.namespaces.run(ASKER, probing)
    assert (probed.returncode, probed.stderr) == (1, "error: 1 of 4 paths never answered\n")
    paths = json.loads(probed.stdout)["paths"]
    assert [(path["plane"], path["uplink"]) for path in paths if not path["answered"]] == [(0, 0)]
