"""Whole runs: fabric up, routes pushed over gRPC, work, faults, and every byte right or the run says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.yaml_file import FileError
from fabric.phases import ring
from fabric.results import Result
from fabric.run import Run

SMALL = {"schema": 1, "name": "small", "topology": "compose", "qp": {"active_evs": 2, "backup_evs": 2}}
RING: dict[str, Any] = {"kind": "ring-all-reduce", "bytes": 400_000}
WRITE: dict[str, Any] = {
    "kind": "write",
    "pairs": [["nic0", "nic2"], ["nic3", "nic1"], ["nic0", "nic1"]],
    "bytes": 300_001,
}
T0_T1 = ["p0t0-0", "p0t1-1"]
NIC_T0 = ["nic0", "p1t0-0"]


def prepare(directory: Path, **scenario: Any) -> Run:
    path = directory / "scenario.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "workloads": [WRITE], **scenario}))
    return Run(path)


def execute(directory: Path, **scenario: Any) -> Result:
    return prepare(directory, **scenario).execute()


def without_wall(result: Result) -> dict[str, Any]:
    summary = result.summary()
    del summary["wall_s"]
    return summary


@pytest.mark.parametrize("workload", [RING, WRITE], ids=["ring", "write"])
def test_without_faults_nothing_is_lost(tmp_path: Path, workload: dict[str, Any]) -> None:
    result = execute(tmp_path, workloads=[workload])
    assert result.verified
    assert (result.retransmissions, result.losses, result.switch_drops, result.refused_by_nics) == (0, {}, {}, {})
    # Per port my_station, next_hop, queue_limits, port_role; 6 traffic classes, 1 uN, 1 punt; on a T0 2 + 2 uSIDs, 2
    # addresses, a row and its group, and per host port host_port and 2 guards; on a T1 2 uSIDs and 2 rows.
    assert result.entries == 4 * (4 * 4 + 8 + 4 + 2 + 2 + 2 * 3) + 4 * (2 * 4 + 8 + 2 + 2)
    data = [plane.data_packets for plane in result.per_plane]
    assert max(data) - min(data) <= len(WRITE["pairs"]) + 8


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "link-down", "link": T0_T1, "at_us": 8},
        {"kind": "link-down", "link": T0_T1, "at_us": 8, "until_us": 20},
        {"kind": "link-down", "link": NIC_T0, "at_us": 8},
        {"kind": "link-down", "link": NIC_T0, "at_us": 8, "until_us": 20},
        {"kind": "loss", "link": T0_T1, "rate": 0.02},
        {"kind": "loss", "link": NIC_T0, "rate": 0.02, "at_us": 3, "until_us": 40},
        {"kind": "loss", "link": T0_T1, "rate": 1.0, "at_us": 8},
    ],
    ids=lambda fault: "-".join(str(value) for value in fault.values()),
)
def test_every_kind_of_fault_leaves_every_byte_right(tmp_path: Path, fault: dict[str, Any], seed: int) -> None:
    for workload in (RING, WRITE):
        result = execute(tmp_path, workloads=[workload], faults=[fault], seed=seed)
        assert result.errors == []


def test_losses_are_found_and_their_paths_replaced(tmp_path: Path) -> None:
    result = execute(tmp_path, workloads=[RING], faults=[{"kind": "link-down", "link": T0_T1, "at_us": 8}])
    assert result.verified
    assert result.per_plane[0].lost_on_links > 0 and result.per_plane[1].lost_on_links == 0
    assert result.per_plane[0].ev_replaced > 0 and result.per_plane[1].ev_replaced == 0
    assert result.retransmissions >= sum(result.losses.values()) > 0


def test_a_nic_cut_off_ends_the_run_with_errors(tmp_path: Path) -> None:
    faults = [{"kind": "link-down", "link": ["nic2", f"p{plane}t0-1"], "at_us": 5} for plane in range(2)]
    result = execute(tmp_path, faults=faults)
    assert not result.verified
    assert "nic0: QP 16: RETRY_EXC_ERR" in result.errors


def test_a_run_that_is_not_done_in_time_says_so(tmp_path: Path) -> None:
    result = execute(tmp_path, time_limit_us=10)
    assert "not done after 10.0 us of virtual time" in result.errors


def test_wrong_bytes_are_noticed(tmp_path: Path) -> None:
    run = prepare(tmp_path, workloads=[RING])
    run.workloads[0].members[1].vector[5] += 1  # type: ignore[attr-defined]
    result = run.execute()
    assert "nic2: 1 of 100000 sums are wrong" in result.errors


def test_same_seed_same_summary_other_seed_another(tmp_path: Path) -> None:
    faults = [{"kind": "loss", "link": T0_T1, "rate": 0.05}]
    one, two = (execute(tmp_path, workloads=[RING], faults=faults, seed=7) for _ in range(2))
    other = execute(tmp_path, workloads=[RING], faults=faults, seed=8)
    assert without_wall(one) == without_wall(two) != without_wall(other)


def test_without_entries_nothing_is_forwarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switches know no path but what the controller writes over P4Runtime."""
    monkeypatch.setattr("controller.push.entries", lambda *_: ())
    result = execute(tmp_path, time_limit_us=1000)
    assert not result.verified and result.entries == 0 and result.payload_bytes == 0
    assert set(result.switch_drops) == {"not_my_station"}


def test_ring_neighbours_are_in_different_rows(tmp_path: Path) -> None:
    run = prepare(tmp_path, workloads=[RING], topology="demo")
    names = ring(run.topo)
    assert names == ["nic0", "nic4", "nic1", "nic5", "nic2", "nic6", "nic3", "nic7"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sead": 3}, "sead: unknown key"),
        ({"topology": "nowhere"}, "topology: 'nowhere' is neither a file beside the scenario nor a preset"),
        (
            {"faults": [{"kind": "link-down", "link": ["p0t0-0", "p1t1-0"], "at_us": 1}]},
            "faults[0].link: compose has no link between p0t0-0 and p1t1-0",
        ),
        ({"faults": [{"kind": "meteor", "at_us": 1}]}, "faults[0]"),
        ({"faults": [{"kind": "loss", "link": T0_T1, "rate": 2.0}]}, "faults[0].rate: "),
        ({"workloads": [{"kind": "write", "pairs": [["nic0", "nic9"]], "bytes": 1}]}, "no NIC 'nic9' in compose"),
        ({"workloads": [{"kind": "ring-all-reduce", "bytes": 6}]}, "workloads[0].bytes: "),
        ({"qp": {"path_mtu": 1500}}, "qp.path_mtu: "),
    ],
)
def test_bad_scenarios_are_one_line_with_their_place(tmp_path: Path, change: dict[str, Any], error: str) -> None:
    with pytest.raises(FileError) as caught:
        prepare(tmp_path, **change)
    assert error in str(caught.value) and str(tmp_path / "scenario.yaml:") in str(caught.value)
    assert "\n" not in str(caught.value)
