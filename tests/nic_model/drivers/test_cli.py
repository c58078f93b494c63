"""`mrcfab nic`: bad input is one line and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nic_model.cli import nic_app
from nic_model.drivers import report
from nic_model.drivers.client import PathResult, PlaneShare, WriteResult
from nic_model.events import EvEvent, EvState
from tests.nic_model.drivers.direct import direct_paths

PEER = "127.0.0.1:4790"


@pytest.fixture
def paths(tmp_path: Path) -> Path:
    path = tmp_path / "row-0.jsonl"
    direct_paths(0).save(path)
    return path


def run(*arguments: object) -> tuple[int, str]:
    """Exit code, and what was said, in one line."""
    result = CliRunner().invoke(nic_app, [str(argument) for argument in arguments])
    return result.exit_code, result.output.rstrip("\n")


def bad_input(*arguments: object) -> str:
    code, output = run(*arguments)
    assert (code, output.startswith("error: "), "\n" in output) == (2, True, False), output
    return output.removeprefix("error: ")


def test_what_is_to_be_written(paths: Path, tmp_path: Path) -> None:
    nic = ("--paths", paths, "--name", "nic0", "--port", "0=lo", "--port", "1=lo")
    usage = "give FILE PEER, or --pattern BYTES PEER"
    assert bad_input("write", PEER, *nic) == usage
    assert bad_input("write", "file", PEER, "--pattern", "1MB", *nic) == usage
    assert bad_input("write", tmp_path / "x", PEER, *nic) == f"{tmp_path / 'x'}: No such file or directory"
    (tmp_path / "x").touch()
    assert bad_input("write", tmp_path / "x", PEER, *nic) == f"{tmp_path / 'x'}: has 0 bytes, must have 1 to 2147483648"
    assert bad_input("write", "--pattern", "0", PEER, *nic) == (
        "'0' is not a number of bytes, such as 65536, 10MB or 64MiB"
    )
    assert bad_input("write", "--pattern", "3GB", PEER, *nic) == (
        "--pattern is 3000000000 bytes, must be 2147483648 at most"
    )


def test_who_is_the_peer(paths: Path) -> None:
    reason = "'nic2' is not HOST:PORT, such as 127.0.0.1:4790 or [::1]:4790"
    assert bad_input("write", "file", "nic2", "--paths", paths, "--name", "nic0") == reason
    assert bad_input("probe", "nic2", "--paths", paths, "--name", "nic0") == reason
    assert bad_input(
        "serve", "--listen", "nic2", "--paths", paths, "--name", "nic0", "--port", "0=lo", "--port", "1=lo"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--name", "nic7"], "PATHS: no NIC 'nic7'; there are nic0"),
        (["--name", "nic0", "--profile", "x"], "no profile 'x'; there are bmv2"),
        (["--name", "nic0", "--path-mtu", "1500"], "--path-mtu is 1500, must be one of 256, 512, 1024, 2048, 4096"),
        (["--name", "nic0", "--port", "eth0"], "--port is 'eth0', must be PLANE=INTERFACE, such as 0=eth0"),
        (["--name", "nic0", "--port", "2=lo"], "--port names plane 2, nic0 has 2 ports"),
        (["--name", "nic0", "--memory", "1 PB"], "'1 PB' is not a number of bytes, such as 65536, 10MB or 64MiB"),
    ],
)
def test_which_nic(paths: Path, options: list[str], reason: str) -> None:
    ports = [] if "--port" in options else ["--port", "0=lo", "--port", "1=lo"]
    assert bad_input("serve", "--paths", paths, *options, *ports) == reason.replace("PATHS", str(paths))


def test_an_interface_is_looked_for_by_the_ports_mac(paths: Path) -> None:
    assert bad_input("serve", "--paths", paths, "--name", "nic0").startswith(
        "no interface 02:01:00:00:00:00; there are lo"
    )


def test_the_path_file_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert bad_input("serve", "--paths", path, "--name", "nic0") == f"{path}: No such file or directory"


def test_every_command_has_help() -> None:
    for command in ("serve", "write", "probe"):
        code, output = run(command, "--help")
        assert code == 0 and f"mrcfab nic {command}" in output


# ---- what is shown -----------------------------------------------------------------------------------------

RESULT = WriteResult(
    peer="fd00::1",
    payload_bytes=1_000_000,
    sha256="ab",
    peer_sha256="ab",
    seconds=0.5,
    packets=250,
    retransmissions=5,
    timeouts=1,
    losses={"ACK timer": 5},
    planes=[PlaneShare(0, 100, 5, 0.4), PlaneShare(1, 150, 0, 0.6)],
    ev_events=[EvEvent(12_300_000, 16, 0, 0x80000, EvState.GOOD, EvState.ASSUMED_BAD, "ACK timer", 1)],
)


def test_a_transfer_in_words() -> None:
    assert list(report.write_lines(RESULT, {"oversized": 3})) == [
        "     12.3 ms  plane 0 EV 0x00080000: good -> assumed_bad (ACK timer)",
        "taken for lost: ACK timer 5",
        "frames not taken: oversized 3; receive offload joins them: ethtool -K INTERFACE gro off lro off",
        "250 packets, 5 retransmissions, 1 timeouts; sha256 ab",
        "fd00::1 has the same 1,000,000 bytes, after 0.500 s, 16 Mb/s",
    ]


def test_a_transfer_as_json() -> None:
    record = json.loads(json.dumps(report.write_record(RESULT, {})))
    assert record["goodput_mbps"] == 16.0 and record["verified"] is True
    assert record["planes"][1] == {"plane": 1, "packets": 150, "retransmissions": 0, "share": 0.6}
    assert record["ev_events"] == [
        {
            "time": 12_300_000,
            "qpn": 16,
            "plane": 0,
            "value": 0x80000,
            "old": "good",
            "new": "assumed_bad",
            "reason": "ACK timer",
            "losses": 1,
        }
    ]


def test_probed_paths() -> None:
    paths = [PathResult(0, 0, 3, [2_000_000, 1_500_000]), PathResult(0, 1, 3)]
    assert [report.path_record(path)["rtt_us"] for path in paths] == [1500.0, None]
    assert list(report.path_table("", paths).columns[1].cells) == ["1.500 ms, 1 of 3 lost", "lost"]
