"""The RoCEv2 baseline in the fabric: the same verbs and work as MRC, one path per QP, marked at every hop, never a byte
wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.topology import Topology
from controller.yaml_file import FileError
from fabric import counts
from fabric.network import Fabric
from fabric.nodes import CPU_PORT
from fabric.run import Run
from fabric.transports import MrcTransport, base_rtt
from nic_model.congestion import FixedWindow
from nic_model.ev import EvProfile
from nic_model.roce import DcqcnParameters
from tests.fabric.roce_runs import ACROSS, IN_ROW, PFC, PFC_ONLY, ROCE, TOPOLOGY, execute, prepare

RING: dict[str, Any] = {"kind": "ring-all-reduce", "bytes": 400_000}
WRITE: dict[str, Any] = {
    "kind": "write",
    "pairs": [["nic0", "nic4"], ["nic5", "nic1"]],
    "bytes": 300_001,
    "messages": 2,
}
PERMUTATION: dict[str, Any] = {"kind": "permutation", "bytes": 400_000}
LINK_100G = {"rate_gbps": 100, "delay_ns": 500}
T0_T1, NIC_T0 = ["p0t0-0", "p0t1-1"], ["nic0", "p0t0-0"]


@pytest.mark.parametrize("qp", [ROCE, PFC_ONLY, {**ROCE, "qps_per_peer": 3}], ids=str)
@pytest.mark.parametrize("work", [RING, WRITE, PERMUTATION], ids=lambda work: work["kind"])
def test_the_same_work_as_mrcs(tmp_path: Path, work: dict[str, Any], qp: dict[str, Any]) -> None:
    result = execute(tmp_path, workloads=[work], qp=qp)
    assert result.errors == [] and (result.retransmissions, result.trims, result.ev_replaced) == (0, 0, 0)
    assert (result.transport, result.qps_per_peer) == ("roce", qp.get("qps_per_peer", 1))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "link-down", "link": T0_T1, "at_us": 4, "until_us": 20},
        {"kind": "link-down", "link": NIC_T0, "at_us": 4, "until_us": 20},
        {"kind": "loss", "link": T0_T1, "rate": 0.02},
        {"kind": "loss", "link": NIC_T0, "rate": 0.02},
        {"kind": "corrupt", "link": NIC_T0, "rate": 0.02},
        {"kind": "corrupt", "link": NIC_T0, "rate": 0.02, "undetected": True},
        {"kind": "flap", "link": NIC_T0, "at_us": 3, "period_us": 8, "down_us": 2, "count": 3},
        {"kind": "switch-black-hole", "switch": "p0t1-1", "at_us": 4, "until_us": 40},
        {"kind": "switch-down", "switch": "p0t1-1", "at_us": 4, "until_us": 20},
    ],
    ids=lambda fault: "-".join(str(value) for value in fault.values()),
)
@pytest.mark.parametrize("pfc", [None, PFC], ids=["lossy", "pfc"])
def test_go_back_n_brings_every_byte_through_every_kind_of_fault(
    tmp_path: Path, pfc: dict[str, Any] | None, fault: dict[str, Any], seed: int
) -> None:
    qp = {**ROCE, "qps_per_peer": seed}
    result = execute(tmp_path, pfc, workloads=[RING, WRITE], qp=qp, faults=[fault], seed=seed, control_latency_us=5)
    assert result.errors == []
    if fault.get("rate"):
        assert result.retransmissions > 0


def test_a_qp_whose_path_stays_dead_fails_as_it_has_no_other(tmp_path: Path) -> None:
    down = {"kind": "link-down", "link": NIC_T0, "at_us": 4}
    result = execute(tmp_path, workloads=[WRITE], faults=[down])
    assert "nic0: QP 16: RETRY_EXC_ERR" in result.errors


# ---- paths -------------------------------------------------------------------------------------------------


def t1s_with_data(run: Run, packets: int) -> list[int]:
    """Packets through each T1 that passed on more than control packets, of which there are fewer than `packets`."""
    t1s = [node for node in run.fabric.switches.values() if node.role == "t1"]
    through = [sum(node.device.read_counter("port_tx", port)[0] for port in range(CPU_PORT)) for node in t1s]
    return [count for count in through if count > packets]


@pytest.mark.parametrize("seed", range(4))
def test_one_qp_takes_one_path_and_several_take_several(tmp_path: Path, seed: int) -> None:
    work = {"kind": "write", "pairs": [["nic0", "nic4"]], "bytes": 4096 * 800}
    run = prepare(tmp_path, workloads=[work], seed=seed)
    assert run.execute().errors == []
    assert len(t1s_with_data(run, 60)) == 1  # 50 ACKs may come back over another
    run = prepare(tmp_path, workloads=[work], seed=seed, qp={**ROCE, "qps_per_peer": 16})
    assert run.execute().errors == []
    assert len(t1s_with_data(run, 60)) == 4


def flows_gbps(run: Run) -> list[float]:
    result = run.execute()
    assert result.errors == []
    return [flow.goodput_gbps for flow in result.phases[0].flows]


def test_flows_collide_on_single_paths_and_not_when_sprayed(tmp_path: Path) -> None:
    """Four flows from one row to the other, four uplinks: hashes collide (arXiv 2605.04333, figure 20), and flows that
    share a link share its rate; MRC, on four planes of 100G with the same four uplinks each, sprays."""
    pairs = [[f"nic{number}", f"nic{number + 4}"] for number in range(4)]
    work = {"kind": "write", "pairs": pairs, "bytes": 2_000_000}
    slowest = [min(flows_gbps(prepare(tmp_path, workloads=[work], qp=PFC_ONLY, seed=seed))) for seed in range(4)]
    assert min(slowest) < 0.55 * 400  # two flows or more on one link; by chance it may be none with another seed
    planes = {**TOPOLOGY, "planes": 4, "mode": "srv6", "links": {"nic": LINK_100G, "fabric": dict(LINK_100G)}}
    (tmp_path / "planes.yaml").write_text(yaml.safe_dump(planes))
    mrc: dict[str, Any] = {"topology": "planes.yaml", "qp": {"active_evs": 16, "backup_evs": 0}, "workloads": [work]}
    for seed in range(4):
        sprayed = flows_gbps(prepare(tmp_path, **mrc, seed=seed))
        assert min(sprayed) > 0.8 * 400 and max(sprayed) < 1.02 * min(sprayed)


# ---- ECN ---------------------------------------------------------------------------------------------------

MARKING = {"mark_from": 5, "mark_to": 20}


def marks_by_role(run: Run) -> dict[str, int]:
    total = {"t0": 0, "t1": 0}
    for node in run.fabric.switches.values():
        total[node.role] += node.counts().marks
    return total


def test_the_last_hop_marks_for_roce(tmp_path: Path) -> None:
    run = prepare(tmp_path, queues={**MARKING, "mark_last_hop": True}, workloads=[IN_ROW])
    result = run.execute()
    assert result.errors == [] and result.roce is not None
    assert marks_by_role(run)["t0"] == result.marks > 0
    assert 0 < result.roce.cnps <= result.marks  # at most one in 50 us for each QP
    assert all(rate < 400 for rate in run.samples.rates[1])


def test_and_not_where_it_is_not_asked_to(tmp_path: Path) -> None:
    run = prepare(tmp_path, queues=MARKING, workloads=[IN_ROW])
    result = run.execute()
    assert result.errors == [] and result.roce is not None
    assert (result.marks, result.roce.cnps) == (0, 0)


def test_without_rate_control_nothing_can_be_marked(tmp_path: Path) -> None:
    run = prepare(tmp_path, queues={**MARKING, "mark_last_hop": True}, workloads=[IN_ROW], qp=PFC_ONLY)
    result = run.execute()
    assert result.errors == [] and result.marks == 0


def test_every_hop_on_the_way_marks(tmp_path: Path) -> None:
    """Eleven to one over slow links between the switches: queues at two T0s' uplinks, in T1s that both send to, and at
    the last hop."""
    links = {"nic": LINK_100G, "fabric": {"rate_gbps": 40, "delay_ns": 500}}
    topology = {**TOPOLOGY, "rows": 3, "links": {**links, "pfc": PFC}, "queues": {**MARKING, "mark_last_hop": True}}
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(topology))
    senders = [f"nic{number}" for number in range(1, 12)]
    work = {"kind": "incast", "target": "nic0", "senders": senders, "bytes": 300_000}
    run = prepare(tmp_path, topology="slow.yaml", workloads=[work])
    assert run.execute().errors == []
    marks = {name: node.counts().marks for name, node in run.fabric.switches.items()}
    assert all(marks[name] > 0 for name in ("p0t0-1", "p0t0-2", "p0t0-0"))
    assert any(count > 0 for name, count in marks.items() if name.startswith("p0t1"))


# ---- what is said of it ------------------------------------------------------------------------------------


def test_the_summary_has_the_parameters_with_their_sources(tmp_path: Path) -> None:
    run = prepare(tmp_path, workloads=[WRITE])
    summary = run.execute().summary()
    found = {each["name"]: each for each in summary["parameters"]}
    for name, value, unit, meaning, source in DcqcnParameters.scaled(400).rows():
        assert found[f"dcqcn.{name}"] == {
            "name": f"dcqcn.{name}", "value": value, "unit": unit, "meaning": meaning, "source": source,
        }  # fmt: skip
    assert found["rc.max_outstanding"]["value"] == round(1.5 * 400 * base_rtt(run.topo) / 8)
    assert found["pfc.headroom_bytes.nic"]["value"] == 58_608
    assert summary["roce"] == {"cnps": 0, "sequence_naks": 0, "timeouts": 0}
    assert all(each["source"] for each in summary["parameters"])


def test_counts_are_those_of_the_qps(tmp_path: Path) -> None:
    fault = {"kind": "loss", "link": NIC_T0, "rate": 0.02}
    run = prepare(tmp_path, workloads=[WRITE], faults=[fault], qp={**ROCE, "qps_per_peer": 2})
    result = run.execute()
    assert result.errors == [] and result.roce is not None
    sent = [qp.requester.counters for qp in counts.roce_queue_pairs(run.fabric) if qp.requester is not None]
    assert len(sent) == 2 * 2 * 2
    assert result.data_packets == sum(each.packets for each in sent)
    assert result.retransmissions == sum(each.retransmissions for each in sent) > 0
    assert result.roce.sequence_naks + result.roce.timeouts > 0
    lines = (counts.save_queue_pairs(run.fabric, tmp_path / "qps.jsonl")).read_text().splitlines()
    assert sum(json.loads(line)["sent"]["packets"] for line in lines) == result.data_packets


def test_same_seed_same_summary(tmp_path: Path) -> None:
    summaries = []
    for _ in range(2):
        summary = execute(tmp_path, workloads=[ACROSS], seed=5, qp={**ROCE, "qps_per_peer": 2}).summary()
        del summary["wall_s"]
        summaries.append(summary)
    assert summaries[0] == summaries[1]


# ---- bad scenarios -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"qp": {"transport": "tcp"}}, "qp: transport must be 'mrc' or 'roce'"),
        ({"qp": {**ROCE, "active_evs": 4}}, "qp.active_evs: unknown key"),
        ({"qp": {**ROCE, "spray": "reps"}}, "qp.spray: unknown key"),
        ({"qp": {**ROCE, "congestion": "nscc"}}, "qp.congestion: input should be 'dcqcn' or 'none'"),
        ({"qp": {"congestion": "dcqcn"}}, "qp.congestion: input should be 'nscc' or 'fixed'"),
        ({"qp": {"window_bytes": 9000}}, "qp: window_bytes is for congestion: fixed, nscc has a window of its own"),
        ({"qp": {**ROCE, "qps_per_peer": 0}}, "qp.qps_per_peer: "),
        ({"qp": {}}, "topology: the links of small have PFC, which MRC NICs do not obey"),
        ({"topology": "compose"}, "topology: compose has mode: srv6, but RoCE packets are plain IPv6: mode: ecmp"),
        ({"topology": ""}, "topology is missing, or variants with one each"),
        ({"variants": {"a": {"topology": "compose"}}}, "qp stands beside variants, which have their own"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_bad_scenarios_are_one_line_with_their_place(tmp_path: Path, change: dict[str, Any], error: str) -> None:
    with pytest.raises(FileError) as caught:
        prepare(tmp_path, workloads=[WRITE], **change)
    assert error in str(caught.value) and str(tmp_path / "scenario.yaml:") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pfc", "queues", "error"),
    [
        ({**PFC, "xon_bytes": 60_001}, {}, "links.pfc.xon_bytes: 60001 is above xoff_bytes, 60000"),
        ({**PFC, "xoff": 1}, {}, "links.pfc.xoff: unknown key"),
        ({**PFC, "pause_quanta": 65536}, {}, "links.pfc.pause_quanta: does not fit: the field has 16 bits"),
        (PFC, {"data_packets": 20}, "queues.data_packets: has no meaning with links.pfc: data has no limit then"),
        (None, {"mark_to": 500}, "queues.mark_to: 500 is not below data_packets, 48"),
    ],
)
def test_bad_topologies_too(tmp_path: Path, pfc: dict[str, Any] | None, queues: dict[str, Any], error: str) -> None:
    with pytest.raises(FileError, match=r"topology\.yaml:") as caught:
        prepare(tmp_path, pfc, queues, workloads=[WRITE])
    assert error in str(caught.value)


def test_the_fabric_refuses_nics_that_do_not_obey_pfc(tmp_path: Path) -> None:
    prepare(tmp_path, workloads=[WRITE])
    transport = MrcTransport(EvProfile(2, 2), congestion=lambda _: FixedWindow(100_000))
    with pytest.raises(ValueError, match="the links of small have PFC, which nic0 does not obey"):
        Fabric(Topology.load(tmp_path / "topology.yaml"), transport, seed=1)
