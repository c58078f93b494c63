"""What MRC promises of a whole fabric: congestion is not failure, failure is found at once, and both heal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.topology import preset_text
from fabric.nodes import SwitchNode
from fabric.results import Result
from fabric.run import Run
from fabric.transports import base_rtt
from nic_model.events import Event, EvEvent, EvState
from nic_model.headers import WRITE_OPCODES
from nic_model.nic import Nic
from nic_model.packet import Frame, parse

# 2 planes, 2 rows of 9 NICs: room for 16 senders, a target and a stranger.
INCAST = (
    preset_text("compose")
    .replace("name: compose", "name: incast")
    .replace("nics_per_row: 2", "nics_per_row: 9")
    .replace("t1_per_plane: 2", "t1_per_plane: 4")
)
ALL_PATHS = {"active_evs": 8, "backup_evs": 0}
FIXED = {**ALL_PATHS, "congestion": "fixed"}


def prepare(directory: Path, topology: str = INCAST, **scenario: Any) -> tuple[Run, list[tuple[str, EvEvent]]]:
    """A run that is ready, and the EV events that it will fill in."""
    (directory / "topology.yaml").write_text(topology)
    path = directory / "scenario.yaml"
    defaults = {"schema": 1, "name": "must-hold", "topology": "topology.yaml", "qp": ALL_PATHS}
    path.write_text(yaml.safe_dump({**defaults, **scenario}))
    run = Run(path)
    events: list[tuple[str, EvEvent]] = []
    for name, node in run.fabric.nics.items():
        nic = node.nic
        assert isinstance(nic, Nic)
        before = nic.log

        def listen(event: Event, name: str = name, before: Any = before) -> None:
            if isinstance(event, EvEvent):
                events.append((name, event))
            if before is not None:
                before(event)

        nic.log = listen
    return run, events


def execute(directory: Path, **scenario: Any) -> tuple[Result, list[tuple[str, EvEvent]]]:
    run, events = prepare(directory, **scenario)
    return run.execute(), events


def gave_up(events: list[tuple[str, EvEvent]]) -> list[EvEvent]:
    return [event for _, event in events if event.new is EvState.ASSUMED_BAD]


@pytest.mark.parametrize("qp", [ALL_PATHS, FIXED], ids=["nscc", "fixed window"])
@pytest.mark.parametrize("senders", [4, 8, 16])
def test_in_an_incast_every_lost_payload_is_a_trim_and_each_is_sent_again_once(
    tmp_path: Path, senders: int, qp: dict[str, Any]
) -> None:
    names = [f"nic{n}" for n in range(1, senders + 1)]
    incast = {"kind": "incast", "target": "nic0", "senders": names, "bytes": 200_000}
    result, events = execute(tmp_path, workloads=[incast], qp=qp)
    assert result.errors == []
    assert result.trims > 0
    assert result.losses == {"trimmed": result.trims} and result.retransmissions == result.trims
    assert result.switch_drops == {} and result.refused_by_nics == {}
    assert gave_up(events) == []


def test_the_victim_of_an_incast_elsewhere_keeps_its_rate(tmp_path: Path) -> None:
    senders = ["nic1", "nic2", "nic3", "nic9", "nic10", "nic11", "nic12"]
    alone = {"kind": "write", "pairs": [["nic14", "nic5"]], "bytes": 1_400_000}
    incast = {"kind": "incast", "target": "nic0", "senders": senders, "bytes": 200_000, "victim": ["nic14", "nic5"]}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    unharmed, _ = execute(tmp_path / "a", workloads=[alone])
    victim, _ = execute(tmp_path / "b", workloads=[incast])
    assert unharmed.errors == [] and victim.errors == [] and victim.trims > 0
    rate = victim.phases[0].victim_goodput_gbps
    assert rate is not None and rate >= 0.95 * unharmed.phases[0].goodput_gbps


LOADS = {
    "all-reduce": {"kind": "ring-all-reduce", "bytes": 400_000},
    "permutation": {"kind": "permutation", "bytes": 400_000},
    "incast": {"kind": "incast", "target": "nic0", "bytes": 60_000},
    "short": {"kind": "write", "pairs": [[f"nic{n}", f"nic{17 - n}"] for n in range(9)], "bytes": 9_000, "messages": 9},
}


@pytest.mark.parametrize("mode", ["srv6", "ecmp"])
@pytest.mark.parametrize("qp", [ALL_PATHS, FIXED], ids=["nscc", "fixed window"])
@pytest.mark.parametrize("load", LOADS)
def test_without_faults_no_path_is_given_up_at_any_load(
    tmp_path: Path, load: str, qp: dict[str, Any], mode: str
) -> None:
    for seed in (1, 2):
        workloads = [LOADS[load]]
        topology = f"{INCAST}\nmode: {mode}\n"
        result, events = execute(tmp_path, topology=topology, workloads=workloads, qp=qp, seed=seed)
        assert result.errors == [] and gave_up(events) == []
        assert set(result.losses) <= {"trimmed"}
        data = [plane.data_packets for plane in result.per_plane]
        assert max(data) <= 1.05 * min(data) + 9


def test_a_black_t1_is_out_of_use_within_three_round_trips_and_its_evs_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_loss: dict[tuple[bytes, int], int] = {}
    arrive = SwitchNode.arrive

    def watched(node: SwitchNode, port: int, frame: Frame) -> None:
        if node._black_holes:
            packet = parse(frame)
            if packet.opcode in WRITE_OPCODES:
                first_loss.setdefault((packet.envelope.src, packet.envelope.ev), node._events.now)
        arrive(node, port, frame)

    monkeypatch.setattr(SwitchNode, "arrive", watched)
    black = {"kind": "switch-black-hole", "switch": "p0t1-1", "at_us": 60, "until_us": 120}
    run, events = prepare(
        tmp_path,
        topology=preset_text("demo"),
        workloads=[{"kind": "permutation", "bytes": 10_000_000}],
        faults=[black],
        qp={"active_evs": 32, "backup_evs": 0},
    )
    result = run.execute()
    assert result.errors == []
    bad = [(name, event) for name, event in events if event.new is EvState.ASSUMED_BAD]
    assert len(bad) == len(first_loss) > 0
    round_trip = base_rtt(run.topo)
    for name, event in bad:
        lost_at = first_loss[run.fabric.nics[name].nic.ports[0].address, event.value]
        assert event.time - lost_at <= 3 * round_trip
    back = [(name, event.value) for name, event in events if event.old is EvState.ASSUMED_BAD]
    assert sorted(back) == sorted((name, event.value) for name, event in bad)
    assert all(event.time > 120_000 for _, event in events if event.old is EvState.ASSUMED_BAD)


def test_both_modes_deliver_the_same_bytes_through_a_fault(tmp_path: Path) -> None:
    down = {"kind": "link-down", "link": ["p0t0-0", "p0t1-1"], "at_us": 8}
    for mode in ("srv6", "ecmp"):
        workloads = [{"kind": "ring-all-reduce", "bytes": 400_000}]
        result, _ = execute(tmp_path, topology=f"{INCAST}\nmode: {mode}\n", workloads=workloads, faults=[down])
        assert result.errors == [] and result.payload_bytes == 2 * 17 * 400_000
        assert result.per_plane[0].lost_on_links > 0


def test_two_tenants_share_the_switches_and_cannot_write_to_each_other(tmp_path: Path) -> None:
    tenants = (
        "tenants:\n"
        "  - {name: red, block: 'fcbb:aaaa::/32', nics: [nic0..4, nic9..13]}\n"
        "  - {name: blue, block: 'fcbb:bbbb::/32', nics: [nic5..8, nic14..17]}\n"
    )
    topology = "\n".join(line for line in INCAST.splitlines() if not line.startswith("block:")) + "\n" + tenants
    pairs = [["nic0", "nic10"], ["nic14", "nic6"]]
    result, _ = execute(tmp_path, topology=topology, workloads=[{"kind": "write", "pairs": pairs, "bytes": 100_000}])
    assert result.errors == [] and result.payload_bytes == 200_000
    for mode in ("srv6", "ecmp"):
        across = [{"kind": "write", "pairs": [["nic0", "nic5"]], "bytes": 1000}]
        result, _ = execute(tmp_path, topology=f"{topology}mode: {mode}\n", workloads=across)
        assert any("RETRY_EXC_ERR" in error for error in result.errors)
        assert result.payload_bytes == 0 and set(result.switch_drops) == {"no_route" if mode == "srv6" else "guard"}
