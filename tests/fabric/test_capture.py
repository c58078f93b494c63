"""The capture, read back by scapy and tshark, and packet by packet by the NIC's own codec."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from scapy.utils import RawPcapNgReader

from fabric.run import Run
from nic_model.headers import WRITE_OPCODES
from nic_model.packet import parse

SCENARIO: dict[str, Any] = {
    "schema": 1,
    "name": "captured",
    "topology": "compose",
    "capture": "nic0",
    "qp": {"active_evs": 4, "backup_evs": 0},
    "workloads": [{"kind": "write", "pairs": [["nic0", "nic2"], ["nic3", "nic0"]], "bytes": 100_001}],
}


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    directory = tmp_path_factory.mktemp("captured")
    (directory / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
    run = Run(directory / "scenario.yaml")
    assert run.execute(out=directory).verified
    return run, directory / "nic0.pcapng"


def test_scapy_reads_back_every_frame_and_each_is_a_packet(captured: tuple[Run, Path]) -> None:
    run, path = captured
    ports = run.fabric.nic("nic0").nic.ports
    macs = [port.mac for port in ports]
    seen = [[0, 0] for _ in ports]
    payload = 0
    times = []
    with RawPcapNgReader(str(path)) as reader:
        meta: Any
        for frame, meta in reader:
            packet = parse((frame, b""))
            leaving = frame[6:12] in macs
            plane = macs.index(frame[6:12] if leaving else packet.envelope.eth_dst)
            assert meta.ifname == f"nic0 plane {plane}".encode() and meta.linktype == 1
            assert meta.wirelen == len(frame)
            assert meta.direction == (2 if leaving else 1)
            assert meta.tsresol == 10**9
            times.append(meta.tshigh << 32 | meta.tslow)
            seen[plane][leaving] += 1
            payload += len(packet.payload) if packet.opcode in WRITE_OPCODES else 0
    assert seen == [[port.packets_in, port.packets_out] for port in ports]
    assert payload == 2 * 100_001
    assert times == sorted(times) and times[0] == 0
    assert 0 <= run.fabric.events.now - times[-1] <= run.samples.interval


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_it(captured: tuple[Run, Path]) -> None:
    run, path = captured
    fields = ["frame.interface_name", "frame.time_epoch", "ipv6.nxt", "udp.dstport"]
    command = ["tshark", "-r", str(path), "-T", "fields", *(word for field in fields for word in ("-e", field))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == sum(port.packets_in + port.packets_out for port in run.fabric.nic("nic0").nic.ports)
    assert {row[0] for row in rows} == {"nic0 plane 0", "nic0 plane 1"}
    assert {row[2] for row in rows} == {"41,17"}  # IPv6 in IPv6, UDP
    assert {row[3] for row in rows} == {"4791"}
    assert rows[0][1] == "0.000000000"
