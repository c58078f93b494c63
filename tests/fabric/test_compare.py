"""Scenarios and variants side by side: the command, its numbers, its pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from controller.yaml_file import FileError
from fabric.cli import app
from fabric.compare import Compared, candidates
from fabric.results import FlowResult, PhaseResult, Result
from fabric.run import Run
from tests.fabric.roce_runs import PFC, ROCE, TOPOLOGY
from tests.fabric.test_report import Page

READY_MADE = sorted((Path(__file__).parents[2] / "scenarios" / "compare").glob("*.yaml"))
SCENARIOS = [path for path in READY_MADE if "variants" in path.read_text()]

COMPARED: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "seed": 4,
    "variants": {
        "mrc": {"topology": "compose", "qp": {"active_evs": 4, "backup_evs": 0}},
        "roce": {"topology": "roce.yaml", "qp": ROCE},
    },
    "workloads": [{"kind": "incast", "target": "nic0", "senders": ["nic2", "nic3"], "bytes": 100_000}],
    "faults": [{"kind": "flap", "link": ["p0t0-0", "p0t1-1"], "at_us": 3, "period_us": 5, "down_us": 1, "count": 1}],
}


def write(directory: Path, **change: Any) -> Path:
    topology = {**TOPOLOGY, "links": {**TOPOLOGY["links"], "pfc": PFC}}
    (directory / "roce.yaml").write_text(yaml.safe_dump(topology))
    path = directory / "small.yaml"
    path.write_text(yaml.safe_dump({**COMPARED, **change}))
    return path


def test_the_command_runs_every_variant_and_writes_what_it_found(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["compare", str(write(tmp_path)), "--seeds", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.iterdir()) == ["comparison.html", "comparison.json", "mrc", "roce"]
    mrc, roce = json.loads((out / "comparison.json").read_text())
    assert (mrc["label"], roce["label"]) == ("mrc", "roce")
    assert mrc["seeds"] == roce["seeds"] == [4, 5] and mrc["verified"] and roce["verified"]
    assert roce["trims"] == 0 and mrc["PFC pauses"] == 0
    for each in (mrc, roce):
        own = json.loads((out / each["label"] / "summary.json").read_text())
        assert own["seed"] == 4 and own["goodput_gbps"] == each["goodput_gbps_by_seed"][0]
        assert each["goodput_gbps"] == pytest.approx(sum(each["goodput_gbps_by_seed"]) / 2, abs=0.001)
    page = Page((out / "comparison.html").read_text())
    assert {"mrc", "roce", "RoCE, 1 QP per peer, DCQCN, PFC", "dcqcn.r_ai", "flows done, share"} <= set(page.words)
    assert all(reference.startswith(("#", "mrc/", "roce/")) for reference in page.references)
    report = Page((out / "roce" / "report.html").read_text())
    assert {"CNPs", "NAKs", "PFC pauses", "QP rate", "Parameters", "pfc.xoff_bytes"} <= set(report.words)
    assert not {"trims", "EVs replaced", "ASSUMED_BAD", "GOOD"} & set(report.words)
    assert f"mrcfab run {tmp_path / 'small.yaml'} --variant roce --seed 4" in (out / "roce" / "report.html").read_text()
    report = Page((out / "mrc" / "report.html").read_text())
    assert {"trims", "EVs replaced", "ASSUMED_BAD"} <= set(report.words)
    assert not {"CNPs", "NAKs", "QP rate", "Parameters"} & set(report.words)


def test_a_variant_that_fails_is_shown_and_the_command_fails(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["compare", str(write(tmp_path, time_limit_us=5))])
    assert done.exit_code == 1
    assert "mrc (failed)" in done.output and "roce: not done after 5.0 us of virtual time" in done.output


def test_one_variant_alone(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(write(tmp_path)), "--variant", "roce"])
    assert done.exit_code == 0
    assert "small-roce: 8 NICs, 1 plane, 6 switches" in done.output and "RoCE, 1 QP per peer, DCQCN, PFC" in done.output


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["run"], "variants: one of them must be chosen: mrc, roce"),
        (["run", "--variant", "tcp"], "variants: there is no 'tcp': mrc, roce"),
    ],
)
def test_a_variant_must_be_one_of_those_that_are_there(tmp_path: Path, arguments: list[str], error: str) -> None:
    command, *options = arguments
    done = CliRunner().invoke(app, [command, str(write(tmp_path)), *options])
    assert done.exit_code == 2 and error in done.stderr and done.stderr.count("\n") == 1


def test_a_bad_variant_is_named_with_its_line(tmp_path: Path) -> None:
    variants = {**COMPARED["variants"], "roce": {"topology": "compose", "qp": ROCE}}
    done = CliRunner().invoke(app, ["compare", str(write(tmp_path, variants=variants))])
    assert done.exit_code == 2
    assert (
        "variants.roce.topology: compose has mode: srv6" in done.stderr and f"{tmp_path / 'small.yaml'}:" in done.stderr
    )


def test_scenarios_without_variants_stand_for_themselves(tmp_path: Path) -> None:
    alone = tmp_path / "alone.yaml"
    alone.write_text(yaml.safe_dump({**COMPARED, "name": "alone", "variants": {}, "topology": "compose"}))
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({**COMPARED, "name": "mrc", "variants": {}, "topology": "compose"}))
    found = candidates([write(tmp_path), alone, other])
    assert [candidate.label for candidate in found] == ["mrc", "roce", "alone", "mrc/mrc"]
    assert [candidate.variant for candidate in found] == ["mrc", "roce", None, None]


def test_completion_times_are_taken_by_nearest_rank(tmp_path: Path) -> None:
    """Flows of 1 MB at 8000 / t Gb/s take t us each."""
    result = Run(write(tmp_path), variant="mrc").execute()
    flows = [FlowResult("a", "b", 1_000_000, 8000 / time, False) for time in range(1, 101)]
    result.phases = [PhaseResult("write", 0, 100, 100_000_000, 1, None, flows)]
    compared = Compared("mrc", [result])
    assert compared.completion_us == pytest.approx(range(1, 101))
    assert [compared.percentile_us(percent) for percent in (50, 99, 100)] == pytest.approx([50, 99, 100])
    result.phases = [PhaseResult("ring-all-reduce", 10, 40, 100, 1)]
    assert compared.completion_us == [30]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_ready_made_scenarios_are_ready(path: Path) -> None:
    """All NICs have 400G, whatever the variant, and as much bandwidth up as down."""
    for candidate in candidates([path]):
        topo = candidate.prepare(0).topo
        nic, uplink = topo.model.links.nic.rate_gbps, topo.model.links.fabric.rate_gbps
        assert topo.nic_count == 16 and topo.planes * nic == 400
        assert topo.nics_per_row * nic == topo.t1_per_plane * uplink


def test_there_are_ready_made_scenarios() -> None:
    assert {path.stem for path in SCENARIOS} == {"incast", "permutation", "link-flap", "t1-lost"}


def test_mrc_beats_roce_where_the_paper_says_so() -> None:
    """A permutation with collisions (figure 20), a T1 that is lost (figure 8): MRC hardly notices."""
    results: dict[tuple[str, str], Result] = {}
    for path in SCENARIOS:
        if path.stem in ("permutation", "t1-lost"):
            for variant in ("mrc", "roce"):
                results[path.stem, variant] = result = Run(path, variant=variant).execute()
                assert result.errors == []
    for name in ("permutation", "t1-lost"):
        assert results[name, "mrc"].goodput_gbps > 1.5 * results[name, "roce"].goodput_gbps


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        candidates([tmp_path / "none.yaml"])
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "none.yaml")])
    assert done.exit_code == 2 and done.stderr == f"{tmp_path / 'none.yaml'}: No such file or directory\n"
