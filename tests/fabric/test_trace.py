"""A path's hops as its probes find them: real switches, the controller's answers over P4Runtime, the peer's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.topology import Topology, preset_text
from fabric.cli import app
from fabric.trace import trace


def test_across_t1_each_hop_gets_what_the_one_before_has_shifted() -> None:
    hops = trace(Topology.preset("demo"), "nic0", "nic4", 0x0018_0000)
    assert [hop[:4] for hop in hops] == [
        (1, "p0t0-0", "fd00:6d72:6301::2000", "fcbb:bbbb:2000:4003:2001:e000::"),
        (2, "p0t1-3", "fd00:6d72:6301::4003", "fcbb:bbbb:4003:2001:e000::"),
        (3, "p0t0-1", "fd00:6d72:6301::2001", "fcbb:bbbb:2001:e000::"),
        (4, "nic4", "fd00:6d72:6300:1::", "fcbb:bbbb:e000::"),
    ]


def test_inside_a_row() -> None:
    hops = trace(Topology.preset("compose"), "nic0", "nic1", 0x2000_0000)
    assert [hop[1:4] for hop in hops] == [
        ("p1t0-0", "fd00:6d72:6301::2400", "fcbb:bbbb:2400:e401::"),
        ("nic1", "fd00:6d72:6300:0:1::1", "fcbb:bbbb:e401::"),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("nic0", "nic2", "--ev", "0x00000001"), "EV 0x00000001 is no path to row 1: 2 planes x 2 paths"),
        (("nic0", "nic2", "--ev", "0xe0000000"), "EV 0xe0000000 is no path: compose has 2 planes"),
        (("nic0", "nic0", "--ev", "0"), "there is no path from nic0 to nic0"),
        (("nic0", "nic9", "--ev", "0"), "no NIC 'nic9' in compose: nic0..3"),
        (("nic0", "nic2", "--ev", "x"), "'x' is not a 32-bit EV, such as 0x00180000"),
    ],
)
def test_what_cannot_be_traced(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    result = run(tmp_path, "trace", *arguments)
    assert (result.exit_code, result.stderr) == (2, f"error: {reason}\n")


def test_the_command_in_json(tmp_path: Path) -> None:
    result = run(tmp_path, "trace", "nic0", "nic2", "--ev", "0x00080000", "--json")
    hops = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [(hop["hop_limit"], hop["node"]) for hop in hops] == [
        (1, "p0t0-0"), (2, "p0t1-1"), (3, "p0t0-1"), (4, "nic2"),
    ]  # fmt: skip


def run(directory: Path, *arguments: str):  # type: ignore[no-untyped-def]
    file = directory / "compose.yaml"
    file.write_text(preset_text("compose"))
    return CliRunner().invoke(app, ["path", *arguments, "--topology", str(file)])
