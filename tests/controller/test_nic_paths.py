"""The paths between two NICs, and `mrcfab path show` and `of-ev`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from controller.cli import path_app
from controller.nic_paths import NicPath, PathError, path_of_ev, paths
from controller.topology import Topology, preset_text
from controller.yaml_file import Document
from nic_model.icmp import read_time_exceeded
from tests.controller.test_plan import TWO_TENANTS
from tests.controller.test_topology import small

DEMO = Topology.preset("demo")
app = Typer()
app.add_typer(path_app, name="path")


def test_every_path_across_t1() -> None:
    found = list(paths(DEMO, "nic1", "nic6"))
    assert len(found) == len({path.ev for path in found}) == len({path.outer_da for path in found}) == 4 * 8
    assert found[3 * 8 + 5] == NicPath(
        3,
        5,
        0x6028_0000,
        bytes.fromhex("fcbbbbbb2c004c052c01ec0200000000"),
        (0x2C00, 0x4C05, 0x2C01, 0xEC02),
        ("nic1", "p3t0-0", "p3t1-5", "p3t0-1", "nic6"),
    )
    assert all(DEMO.linked(*link) for path in found for link in path.links)
    assert [path_of_ev(DEMO, "nic1", "nic6", path.ev) for path in found] == found


def test_inside_a_row_there_is_one_path_a_plane() -> None:
    found = list(paths(DEMO, "nic0", "nic3"))
    assert [(path.plane, path.uplink, path.ev) for path in found] == [(p, None, p << 29) for p in range(4)]
    assert found[2].links == [("nic0", "p2t0-0"), ("p2t0-0", "nic3")]


def test_between_tenants_there_is_none() -> None:
    topo = small({"block: fcbb:bbbb::/32\n": TWO_TENANTS})
    with pytest.raises(PathError, match="no path from nic0 to nic2: they are of tenants red and blue"):
        list(paths(topo, "nic0", "nic2"))
    assert {path.outer_da[:4].hex() for path in paths(topo, "nic0", "nic3")} == {"fcaa0001"}


def test_in_ecmp_mode_an_ev_names_none() -> None:
    topo = Topology(Document.parse(preset_text("demo") + "mode: ecmp\n", "demo.yaml"))
    with pytest.raises(PathError, match="ECMP mode"):
        path_of_ev(topo, "nic0", "nic4", 0)


def run(directory: Path, *arguments: str) -> Result:
    file = directory / "demo.yaml"
    file.write_text(preset_text("demo"))
    return CliRunner().invoke(app, ["path", *arguments, "--topology", str(file)])


def test_the_commands_in_json(tmp_path: Path) -> None:
    shown = run(tmp_path, "show", "nic0", "nic4", "--json")
    assert shown.exit_code == 0 and len(shown.stdout.splitlines()) == 32
    found = json.loads(run(tmp_path, "of-ev", "nic0", "nic4", "0x00180000", "--json").stdout)
    assert found == json.loads(shown.stdout.splitlines()[3])
    assert found == {
        "plane": 0,
        "uplink": 3,
        "ev": "0x00180000",
        "outer_da": "fcbb:bbbb:2000:4003:2001:e000::",
        "usids": ["2000", "4003", "2001", "e000"],
        "nodes": ["nic0", "p0t0-0", "p0t1-3", "p0t0-1", "nic4"],
        "links": [["nic0", "p0t0-0"], ["p0t0-0", "p0t1-3"], ["p0t1-3", "p0t0-1"], ["p0t0-1", "nic4"]],
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "nic0", "nic0"), "nic0 and nic0 are one NIC"),
        (("show", "nic0", "nic8"), "no NIC 'nic8' in demo: nic0..7"),
        (("of-ev", "nic0", "nic4", "0x00180001"), "EV 0x00180001 is no path to row 1: 4 planes x 8 paths"),
        (("of-ev", "nic0", "nic4", "0x100000000"), "'0x100000000' is not a 32-bit EV, such as 0x00180000"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    result = run(tmp_path, *arguments)
    assert (result.exit_code, result.stderr) == (2, f"error: {reason}\n")


def test_a_nic_reads_no_time_exceeded_from_other_frames() -> None:
    assert read_time_exceeded(b"") is None and read_time_exceeded(bytes(200)) is None
