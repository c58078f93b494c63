"""Path files: the example of the uSID plan worked out by hand, the round trip, and every way to get one wrong."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.path_files import path_file, write_path_files
from controller.topology import Topology, UnknownNodeError, preset_text
from controller.yaml_file import Document
from nic_model.paths import DscpPlan, LocalPort, PathFile, PathFileError, srv6_ev

DEMO = Topology.preset("demo")
PAPER_ROW_0 = path_file(Topology.preset("paper-8x100"), 0)


def packed(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, text)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_path_files(DEMO, tmp_path / "paths")


def test_one_file_per_row_that_reads_back(files: list[Path]) -> None:
    assert [str(path.relative_to(path.parents[1])) for path in files] == ["default/row-0.jsonl", "default/row-1.jsonl"]
    assert [PathFile.load(path) for path in files] == [path_file(DEMO, 0), path_file(DEMO, 1)]


def test_the_lines_of_a_file(files: list[Path]) -> None:
    lines = [json.loads(line) for line in files[1].read_text().splitlines()]
    assert [line["record"] for line in lines] == ["row", "nic", "nic", "nic", "nic", "destination", "destination"]
    assert lines[0] == {
        "record": "row",
        "schema": 1,
        "row": 1,
        "block": "fcbb:bbbb::/32",
        "planes": 4,
        "uplinks": 8,
        "mode": "srv6",
        "dscp": {
            "no_trim": 0,
            "trimmable": 4,
            "trimmable_retx": 8,
            "trimmed": 12,
            "trimmed_lasthop": 16,
            "control": 46,
        },
    }
    assert (lines[3]["name"], lines[3]["index"]) == ("nic6", 2)
    assert lines[3]["ports"][3] == {
        "plane": 3,
        "address": "fd00:6d72:6300:1:3::2",
        "mac": "02:01:00:01:ec:02",
        "gateway": "02:00:00:00:2c:01",
        "usid": "ec02",
    }
    assert lines[5:] == [
        {
            "record": "destination",
            "row": 0,
            "prefix": "fd00:6d72:6300::/64",
            "template": "fcbb:bbbb:2001:4000:2000:e000::",
            "uplinks": 8,
        },
        {
            "record": "destination",
            "row": 1,
            "prefix": "fd00:6d72:6300:1::/64",
            "template": "fcbb:bbbb:2001:e000::",
            "uplinks": 0,
        },
    ]


def test_each_tenant_has_its_own_files(tmp_path: Path) -> None:
    """The other tenant's NICs are in no file of this one's, nor a row in which it has none."""
    tenants = """\
tenants:
- {name: red, block: "fcaa:1::/32", nics: [nic0..4, nic6]}
- {name: blue, block: "fcaa:2::/32", nics: [nic5, nic7]}
mode: ecmp
dscp: {control: 48}
"""
    text = preset_text("demo")
    topo = Topology(Document.parse(text.replace("block: fcbb:bbbb::/32", "# block:", 1) + tenants, "two.yaml"))
    files = write_path_files(topo, tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in files] == [
        "red/row-0.jsonl",
        "red/row-1.jsonl",
        "blue/row-1.jsonl",
    ]
    _, red, blue = map(PathFile.load, files)
    assert blue == path_file(topo, 1, "blue")
    assert [(nic.name, nic.index) for nic in red.nics] == [("nic4", 0), ("nic6", 2)]
    assert [(nic.name, nic.index) for nic in blue.nics] == [("nic5", 1), ("nic7", 3)]
    assert [template.row for template in red.templates] == [0, 1]
    assert [template.row for template in blue.templates] == [1]
    assert red.template_for(packed("fd00:6d72:6300::")).outer_da(0, 0) == packed("fcaa:1:2001:4000:2000:e000::")
    assert blue.template_for(packed("fd00:6d72:6300:1::")).outer_da(0, 1) == packed("fcaa:2:2001:e001::")
    assert (blue.mode, blue.dscp) == ("ecmp", DscpPlan(control=48))
    with pytest.raises(UnknownNodeError, match=r"^tenant 'blue' has no NIC in row 0 of demo$"):
        path_file(topo, 0, "blue")


def test_a_local_nic(files: list[Path]) -> None:
    nic = PathFile.load(files[0]).local("nic2")
    assert nic.index == 2
    assert nic.ports[1] == LocalPort(
        plane=1,
        address=packed("fd00:6d72:6300:0:1::2"),
        mac=bytes.fromhex("02010000e402"),
        gateway=bytes.fromhex("020000002400"),
        usid=0xE402,
    )
    with pytest.raises(KeyError):
        PathFile.load(files[0]).local("nic4")


def test_the_paths_to_another_row() -> None:
    paths = path_file(DEMO, 0)
    template = paths.template_for(packed("fd00:6d72:6300:1:3::2"))  # any port address of nic6
    assert (template.row, template.planes, template.paths) == (1, 4, 8)
    assert template.outer_da(0, 0) == packed("fcbb:bbbb:2000:4000:2001:e000::")
    assert template.outer_da(srv6_ev(3, 7), 2) == packed("fcbb:bbbb:2c00:4c07:2c01:ec02::")
    assert template.outer_da(0x6038_0000, 2) == packed("fcbb:bbbb:2c00:4c07:2c01:ec02::")


def test_the_paths_inside_a_row() -> None:
    template = path_file(DEMO, 1).template_for(packed("fd00:6d72:6300:1::"))
    assert (template.row, template.planes, template.paths) == (1, 4, 1)
    assert template.outer_da(srv6_ev(2, 0), 3) == packed("fcbb:bbbb:2801:e803::")


def test_an_address_of_no_row() -> None:
    with pytest.raises(KeyError):
        path_file(DEMO, 0).template_for(packed("fd00:6d72:6300:2::"))


@pytest.mark.parametrize("ev", [srv6_ev(4, 0), srv6_ev(0, 8), srv6_ev(1, 1) | 1, 1 << 32, -1])
def test_an_ev_that_is_no_path(ev: int) -> None:
    template = path_file(DEMO, 0).templates[1]
    with pytest.raises(ValueError, match=r"is no path to row 1: 4 planes x 8 paths$"):
        template.outer_da(ev, 0)


def test_an_index_that_no_nic_can_have() -> None:
    template = path_file(DEMO, 0).templates[1]
    with pytest.raises(ValueError, match=r"^NIC index 1024 is not in 0\.\.1023$"):
        template.outer_da(0, 1024)


@given(plane=st.integers(0, 7), uplink=st.integers(0, 255), index=st.integers(0, 255), row=st.integers(1, 511))
def test_every_path_of_the_paper_design_fits(plane: int, uplink: int, index: int, row: int) -> None:
    """Against the uSID plan, spelled out field by field."""
    usids = [0b001 << 13, 0b010 << 13 | uplink, 0b001 << 13 | row, 0b111 << 13 | index]
    expected = "fcbb:bbbb:" + ":".join(f"{value | plane << 10:x}" for value in usids) + "::"
    assert PAPER_ROW_0.templates[row].outer_da(srv6_ev(plane, uplink), index) == packed(expected)


Change = Callable[[list[dict[str, Any]]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[0].update(schema=2), "1: schema is not 1, the only one that is known"),
        (lambda lines: lines[0].update(speed=1), "1: unknown key 'speed'"),
        (lambda lines: lines[0].pop("planes"), "1: key 'planes' is missing"),
        (lambda lines: lines[0].update(planes="4"), "1: planes is '4', must be of type int"),
        (lambda lines: lines[0].update(planes=True), "1: planes is True, must be of type int"),
        (lambda lines: lines[0].update(planes=9), "1: planes is 9, must be in 1..8"),
        (
            lambda lines: lines[0].update(block="fcbb:bbbb::/48"),
            "1: block is 'fcbb:bbbb::/48', must be an IPv6 address",
        ),
        (
            lambda lines: lines[0].update(block="fcbb:bbbb::1/32"),
            "1: block is 'fcbb:bbbb::1/32', must be an IPv6 prefix of length 32",
        ),
        (lambda lines: lines[0].update(mode="hash"), "1: mode is 'hash', must be one of: srv6, ecmp"),
        (lambda lines: lines[0].pop("dscp"), "1: key 'dscp' is missing"),
        (lambda lines: lines[0].update(dscp=46), "1: dscp is 46, must be of type dict"),
        (lambda lines: lines[0]["dscp"].pop("trimmed"), "1: dscp: key 'trimmed' is missing"),
        (lambda lines: lines[0]["dscp"].update(control=64), "1: dscp: control is 64, must be in 0..63"),
        (lambda lines: lines[0]["dscp"].update(control=4), "1: dscp: two roles have the same DSCP"),
        (lambda lines: lines[0]["dscp"].update(voice=46), "1: dscp: unknown key 'voice'"),
        (lambda lines: lines.pop(0), "1: the first record must be of kind 'row'"),
        (lambda lines: lines.clear(), "1: the first record must be of kind 'row'"),
        (
            lambda lines: lines.insert(1, lines[0]),
            "2: record 'row' does not belong here: row, then nic, then destination",
        ),
        (
            lambda lines: lines.append(lines[1]),
            "8: record 'nic' does not belong here: row, then nic, then destination",
        ),
        (lambda lines: lines[1].update(name=7), "2: name is 7, must be of type str"),
        (lambda lines: lines[1].update(plane=1), "2: unknown key 'plane'"),
        (
            lambda lines: lines[2].update(name="nic0"),
            "3: NIC 'nic0' is number 1: names must differ, indices ascend",
        ),
        (lambda lines: lines.insert(1, lines.pop(2)), "3: NIC 'nic0' is number 0: names must differ, indices ascend"),
        (lambda lines: lines[1]["ports"].pop(), "2: NIC 'nic0' has 3 ports, the row has 4 planes"),
        (
            lambda lines: lines[1]["ports"].reverse(),
            "2: ports[0]: plane must be 0: ports stand in the order of their planes",
        ),
        (lambda lines: lines[1].update(ports=[1]), "2: ports[0] is 1, must be an object"),
        (lambda lines: lines[1]["ports"][1].update(extra=0), "2: ports[1]: unknown key 'extra'"),
        (
            lambda lines: lines[1]["ports"][1].update(mac="2:1::1"),
            "2: ports[1]: mac is '2:1::1', must be a MAC address such as 02:00:00:00:20:00",
        ),
        (
            lambda lines: lines[1]["ports"][1].update(address="fd00::z"),
            "2: ports[1]: address is 'fd00::z', must be an IPv6 address",
        ),
        (
            lambda lines: lines[1]["ports"][1].update(address="fd00:6d72:6300:0:1::5"),
            "2: ports[1]: address is fd00:6d72:6300:0:1::5, its low 16 bits must be the index, 0",
        ),
        (
            lambda lines: lines[1]["ports"][1].update(usid="e401"),
            "2: ports[1]: usid is 'e401', NIC 0 has e400 in plane 1",
        ),
        (lambda lines: lines[6].update(row=0), "7: uplinks is 8: 0 is for the own row, 0, and only for it"),
        (lambda lines: lines[5].update(uplinks=1), "6: uplinks is 1: 0 is for the own row, 0, and only for it"),
        (lambda lines: lines[6].update(uplinks=9), "7: uplinks is 9, must be in 0..8"),
        (lambda lines: lines.append(lines[6]), "8: row 1 or its prefix is already there"),
        (lambda lines: lines[6].update(prefix=lines[5]["prefix"]), "7: row 1 or its prefix is already there"),
        (lambda lines: lines.pop(5), "6: ends without a destination record for its own row 0"),
        (
            lambda lines: lines[6].update(template="fcbb:bbbb:2000:4001:2001:e000::"),
            "7: template has 4001, not a T1 uSID of plane 0, T1 0, NIC 0",
        ),
        (
            lambda lines: lines[6].update(template="fcbb:bbbb:2400:4000:2001:e000::"),
            "7: template has 2400, not a T0 uSID of plane 0, T1 0, NIC 0",
        ),
        (
            lambda lines: lines[6].update(template="fcbb:bbbb:2000:4000:2001::"),
            "7: template has 0000, not a NIC uSID of plane 0, T1 0, NIC 0",
        ),
        (
            lambda lines: lines[6].update(template="fcbb:bbbb:2000:4000:2001:e000:1:0"),
            "7: template is fcbb:bbbb:2000:4000:2001:e000:1:0, must be block, 4 uSIDs, zeros",
        ),
        (
            lambda lines: lines[6].update(template="fcbb:bbbc:2000:4000:2001:e000::"),
            "7: template is fcbb:bbbc:2000:4000:2001:e000::, must be block, 4 uSIDs, zeros",
        ),
    ],
)
def test_a_wrong_file_is_told_with_its_line(files: list[Path], change: Change, message: str) -> None:
    lines = [json.loads(line) for line in files[0].read_text().splitlines()]
    change(lines)
    files[0].write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(PathFileError) as caught:
        PathFile.load(files[0])
    assert str(caught.value) == f"{files[0]}:{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row\n", ":1: not JSON: Expecting value"),
        ("[]\n", ":1: must be a JSON object"),
        ('{"record": "row", "record": "row"}\n', ":1: a key stands there twice"),
    ],
)
def test_a_line_that_is_no_record(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "row.jsonl"
    path.write_text(text)
    with pytest.raises(PathFileError) as caught:
        PathFile.load(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PathFileError, match=r"none\.jsonl: No such file or directory$"):
        PathFile.load(tmp_path / "none.jsonl")
