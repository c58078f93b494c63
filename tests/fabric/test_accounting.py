"""What must hold at the end of a run is noticed when it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric import counts
from fabric.accounting import unaccounted
from fabric.run import Run

SCENARIO: dict[str, Any] = {
    "schema": 1,
    "name": "counted",
    "topology": "compose",
    "qp": {"active_evs": 4, "backup_evs": 0},
    "workloads": [{"kind": "write", "pairs": [["nic0", "nic2"]], "bytes": 1_000_000}],
}
FRAME = (bytes(134), bytes(4100))


@pytest.fixture
def finished(tmp_path: Path) -> Run:
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
    run = Run(tmp_path / "scenario.yaml")
    assert run.execute().verified
    return run


def found(run: Run, *, even: bool = True) -> list[str]:
    return unaccounted(run.fabric, run.health, run.total_bytes, even=even)


def lose_a_frame(run: Run) -> None:
    run.fabric.nic("nic0").nic.ports[1].packets_out += 1


def leave_a_frame_on_a_link(run: Run) -> None:
    run.fabric.link("nic0", "p1t0-0").wires[0].send(FRAME)
    run.fabric.nic("nic0").nic.ports[1].packets_out += 1


def leave_a_place_taken(run: Run) -> None:
    pipeline = run.fabric.switch("p0t0-0").device.pipeline
    assert pipeline is not None
    pipeline.registers["occupancy"][8] = 2


def place_twice(run: Run) -> None:
    run.fabric.nic("nic2").nic.ports[0].payload_bytes += 4096


@pytest.mark.parametrize(
    ("break_it", "line"),
    [
        (lose_a_frame, r"plane 1: \d+ frames sent, \d+ received"),
        (leave_a_frame_on_a_link, "plane 1: 1 frames are left on links"),
        (leave_a_place_taken, "p0t0-0: its program still counts 2 packets in its queues"),
        (place_twice, "1004096 bytes of payload were put into memory, the work has 1000000"),
    ],
)
def test_each_thing_that_is_left_over_is_told(finished: Run, break_it: Callable[[Run], None], line: str) -> None:
    assert found(finished) == []
    break_it(finished)
    with pytest.raises(AssertionError, match=line):
        assert not found(finished), found(finished)[0]


def test_uneven_planes_are_told_where_they_should_be_even(finished: Run) -> None:
    requester = counts.requesters(finished.fabric)[0]
    ev = next(ev for ev in requester.evs if ev.plane == 0)
    ev.packets += 40
    assert found(finished, even=False) == []
    lines = found(finished)
    assert len(lines) == 2 and lines[0].startswith("plane 0 carried ") and lines[1].startswith("plane 1 carried ")
