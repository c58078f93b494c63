"""Whole runs: fabric up, routes pushed over gRPC, work, faults, and every byte right or the run says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.plan import entries
from controller.yaml_file import FileError
from fabric.phases import ring
from fabric.results import Result
from fabric.run import Run
from fabric.workloads import Transfer

SMALL = {"schema": 1, "name": "small", "topology": "compose", "qp": {"active_evs": 2, "backup_evs": 2}}
RING: dict[str, Any] = {"kind": "ring-all-reduce", "bytes": 400_000}
WRITE: dict[str, Any] = {
    "kind": "write",
    "pairs": [["nic0", "nic2"], ["nic3", "nic1"], ["nic0", "nic1"]],
    "bytes": 300_001,
}
INCAST: dict[str, Any] = {"kind": "incast", "target": "nic0", "bytes": 200_000}
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
        {"kind": "corrupt", "link": T0_T1, "rate": 0.02},
        {"kind": "corrupt", "link": NIC_T0, "rate": 0.02, "undetected": True},
        {"kind": "flap", "link": NIC_T0, "at_us": 5, "period_us": 10, "down_us": 3, "count": 3},
        {"kind": "nic-port-down", "nic": "nic0", "plane": 1, "at_us": 8, "until_us": 20},
        {"kind": "switch-black-hole", "switch": "p0t1-1", "at_us": 8, "until_us": 40},
        {"kind": "switch-down", "switch": "p0t1-1", "at_us": 8, "until_us": 20},
    ],
    ids=lambda fault: "-".join(str(value) for value in fault.values()),
)
def test_every_kind_of_fault_leaves_every_byte_right(tmp_path: Path, fault: dict[str, Any], seed: int) -> None:
    phases = [RING, WRITE] if seed % 2 else [WRITE, RING]
    result = execute(tmp_path, workloads=phases, faults=[fault], seed=seed)
    assert result.errors == []


def test_losses_are_found_and_their_paths_replaced(tmp_path: Path) -> None:
    down = {"kind": "link-down", "link": T0_T1, "at_us": 8}
    result = execute(tmp_path, workloads=[RING], faults=[down], seed=2)
    assert result.verified
    lossy, sound = result.per_plane
    assert list(lossy.link_losses) == ["link_down"] and sound.link_losses == {}
    assert lossy.lost_on_links == lossy.link_losses["link_down"] > 0
    assert lossy.ev_replaced > 0 and sound.ev_replaced == 0
    assert result.retransmissions >= sum(result.losses.values()) > 0


def test_every_frame_that_fcs_finds_damaged_is_counted_as_lost(tmp_path: Path) -> None:
    faults = [{"kind": "corrupt", "link": T0_T1, "rate": 0.1}]
    run = prepare(tmp_path, workloads=[RING], faults=faults)
    result = run.execute()
    assert result.verified and result.refused_by_nics == {}
    lost = run.fabric.link(*T0_T1).lost()
    assert result.link_losses == {"fcs_error": lost["fcs_error"]} and lost["fcs_error"] > 0


def test_what_fcs_does_not_find_is_refused_before_it_reaches_memory(tmp_path: Path) -> None:
    faults = [{"kind": "corrupt", "link": NIC_T0, "rate": 0.2, "undetected": True}]
    run = prepare(tmp_path, workloads=[RING], faults=faults)
    result = run.execute()
    assert result.verified and result.link_losses == {}
    corrupted = sum(wire.counters.corrupted for wire in run.fabric.link(*NIC_T0).wires)
    assert 10 < result.refused_by_nics["icrc"] <= corrupted


def test_a_black_hole_swallows_unseen(tmp_path: Path) -> None:
    faults = [{"kind": "switch-black-hole", "switch": "p0t1-1", "at_us": 8, "until_us": 60}]
    result = execute(tmp_path, workloads=[RING], faults=faults)
    assert result.verified and result.link_losses == {}
    assert result.per_plane[0].switch_drops == result.switch_drops
    assert list(result.switch_drops) == ["black_hole"] and result.switch_drops["black_hole"] > 0


def test_a_switch_comes_back_empty_and_is_programmed_again(tmp_path: Path) -> None:
    faults = [{"kind": "switch-down", "switch": "p0t1-1", "at_us": 8, "until_us": 20}]
    run = prepare(tmp_path, workloads=[RING, WRITE], faults=faults, control_latency_us=15)
    planned = {str(entry) for entry in entries(run.topo, run.topo.switch("p0t1-1"))}
    result = run.execute()
    assert result.verified
    assert [(done.at_us, done.switch, done.entries) for done in result.reprogrammed] == [(35, "p0t1-1", len(planned))]


def test_a_switch_that_is_off_again_is_not_programmed(tmp_path: Path) -> None:
    faults = [
        {"kind": "switch-down", "switch": "p0t1-1", "at_us": 8, "until_us": 20},
        {"kind": "switch-down", "switch": "p0t1-1", "at_us": 25},
    ]
    result = execute(tmp_path, workloads=[RING], faults=faults, control_latency_us=15)
    assert result.verified and result.reprogrammed == []


def test_phases_follow_each_other_at_once(tmp_path: Path) -> None:
    permutation = {"kind": "permutation", "bytes": 100_000, "messages": 2}
    result = execute(tmp_path, workloads=[WRITE, permutation, RING])
    assert result.verified and result.payload_bytes == 3 * 300_001 + 4 * 200_000 + 6 * 400_000
    write, permuted, ring_ = result.phases
    assert [phase.kind for phase in result.phases] == ["write", "permutation", "ring-all-reduce"]
    assert (write.start_us, permuted.start_us, ring_.start_us) == (0, write.end_us, permuted.end_us)
    assert ring_.end_us == result.virtual_time_us
    assert write.goodput_gbps == round(900_003 * 8 / (write.end_us * 1000), 3)
    assert [(flow.source, flow.target) for flow in write.flows] == [tuple(pair) for pair in WRITE["pairs"]]
    assert max(flow.payload_bytes * 8 / flow.goodput_gbps for flow in write.flows) == pytest.approx(
        write.end_us * 1000, rel=1e-4
    )


def test_in_a_permutation_everyone_writes_to_one_other_and_is_written_to_by_one(tmp_path: Path) -> None:
    run = prepare(tmp_path, workloads=[{"kind": "permutation", "bytes": 1000}], topology="demo")
    names = sorted(nic.name for nic in run.topo.nics())
    transfers = [transfer for transfer, _ in run.workloads[0].flows()]
    assert sorted(transfer.source for transfer in transfers) == names
    assert sorted(transfer.target for transfer in transfers) == names
    assert all(transfer.source != transfer.target for transfer in transfers)


def test_an_incast_comes_from_all_others_but_its_victim(tmp_path: Path) -> None:
    work = {**INCAST, "target": "nic2", "victim": ["nic5", "nic6"]}
    run = prepare(tmp_path, workloads=[work], topology="demo")
    transfers = [transfer for transfer, _ in run.workloads[0].flows()]
    senders = ["nic0", "nic1", "nic3", "nic4", "nic7"]
    assert transfers[:-1] == [Transfer(sender, "nic2", 200_000) for sender in senders]
    assert transfers[-1] == Transfer("nic5", "nic6", 200_000, messages=5, is_victim=True)


def test_an_incast_trims_and_loses_nothing(tmp_path: Path) -> None:
    senders = [f"nic{number}" for number in range(2, 8)]
    work = {"kind": "incast", "target": "nic0", "senders": senders, "bytes": 400_000}
    settings = {"active_evs": 16, "backup_evs": 16}
    result = execute(tmp_path, workloads=[work], topology="demo", qp=settings)
    assert result.verified
    assert result.trims > 0 and result.trims == sum(plane.trims for plane in result.per_plane)
    assert (result.link_losses, result.switch_drops) == ({}, {})
    assert result.losses == {"trimmed": result.trims} and result.retransmissions == result.trims
    assert result.ev_replaced == 0


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
        ({"workloads": []}, "workloads: "),
        ({"workloads": [WRITE, {**INCAST, "target": "nic7"}]}, "workloads[1].target: no NIC 'nic7' in compose"),
        (
            {"workloads": [{**INCAST, "senders": ["nic1", "nic0"]}]},
            "workloads[0].senders[1]: nic0 would write to itself",
        ),
        ({"workloads": [{**INCAST, "victim": ["nic1", "t0"]}]}, "workloads[0].victim: no NIC 't0' in compose"),
        ({"capture": "nic4"}, "capture: no NIC 'nic4' in compose"),
        (
            {"faults": [{"kind": "switch-down", "switch": "p0t1-9", "at_us": 1}]},
            "faults[0].switch: no switch 'p0t1-9' in compose",
        ),
        (
            {"faults": [{"kind": "nic-port-down", "nic": "nic0", "plane": 2, "at_us": 1}]},
            "faults[0].nic: nic0 has no port 2: 0..1",
        ),
        (
            {"faults": [{"kind": "link-down", "link": T0_T1, "at_us": 3, "until_us": 2}]},
            "faults[0]: until_us, 2, must be later than at_us, 3",
        ),
        ({"qp": {"path_mtu": 1500}}, "qp.path_mtu: "),
    ],
)
def test_bad_scenarios_are_one_line_with_their_place(tmp_path: Path, change: dict[str, Any], error: str) -> None:
    with pytest.raises(FileError) as caught:
        prepare(tmp_path, **change)
    assert error in str(caught.value) and str(tmp_path / "scenario.yaml:") in str(caught.value)
    assert "\n" not in str(caught.value)
