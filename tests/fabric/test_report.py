"""The report page: whole, on its own, and the same for the same run."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fabric import report
from fabric.cli import app
from fabric.run import Run

SCENARIO: dict[str, Any] = {
    "schema": 1,
    "name": "reported",
    "topology": "compose",
    "seed": 3,
    "capture": "nic1",
    "control_latency_us": 5,
    "qp": {"active_evs": 4, "backup_evs": 0},
    "workloads": [
        {"kind": "write", "pairs": [["nic0", "nic2"], ["nic1", "nic3"]], "bytes": 400_000},
        {"kind": "incast", "target": "nic0", "bytes": 100_000, "victim": ["nic1", "nic3"]},
    ],
    "faults": [
        {"kind": "switch-black-hole", "switch": "p0t1-1", "at_us": 4, "until_us": 9},
        {"kind": "switch-down", "switch": "p1t1-0", "at_us": 3, "until_us": 6},
    ],
}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects text and everything that could load something."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.references: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.references += [value for name, value in attrs if value and name in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def page(directory: Path) -> str:
    (directory / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
    run = Run(directory / "scenario.yaml")
    result = run.execute()
    assert result.verified
    return report.page(result, run.samples, run.health, "mrcfab run a&b.yaml --seed 3")


def test_the_page_stands_alone_and_says_it_all(tmp_path: Path) -> None:
    text = page(tmp_path)
    parsed = Page(text)
    assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in parsed.references)
    assert "@import" not in text and "url(http" not in text and "<script" not in text
    words = set(parsed.words)
    assert {"reported", "every byte is right", "mrcfab run a&b.yaml --seed 3"} <= words
    assert {"switch p0t1-1 swallows everything until 9 us", "switch p1t1-0 down until 6 us"} <= words
    assert any(re.fullmatch(r"controller: \d+ entries to p1t1-0 again", word) for word in words)
    assert {"plane 0", "plane 1", "frames lost", "deepest T0", "T1-0", "T1-1", "ASSUMED_BAD"} <= words  # the picture
    assert {"write", "incast", "its victim alone", "black_hole", "link_down"} <= words
    assert {"nic0 → nic2", "nic2 → nic0", "nic1 → nic3"} <= words


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    assert page(tmp_path) == page(tmp_path)


def test_a_failed_run_has_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump({**SCENARIO, "time_limit_us": 15}))
    run = Run(tmp_path / "scenario.yaml")
    text = report.page(run.execute(), run.samples, run.health, "")
    assert {"not verified", "not done after 15.0 us of virtual time"} <= set(Page(text).words)


def test_the_command_writes_summary_report_and_capture(tmp_path: Path) -> None:
    scenario, out = tmp_path / "scenario.yaml", tmp_path / "deep" / "out"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    done = CliRunner().invoke(app, ["run", str(scenario), "--out", str(out)])
    assert done.exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "nic1.pcapng",
        "queue-pairs.jsonl",
        "report.html",
        "summary.json",
    ]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["verified"] and [phase["kind"] for phase in summary["phases"]] == ["write", "incast"]
    assert summary["goodput_over_time"]["interval_us"] == 10
    assert f"mrcfab run {scenario} --seed 3 --out {out}" in (out / "report.html").read_text()


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    scenario, out = tmp_path / "scenario.yaml", tmp_path / "out"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    out.write_text("a file")
    done = CliRunner().invoke(app, ["run", str(scenario), "--out", str(out)])
    assert done.exit_code == 1 and done.stderr == f"{out}: File exists\n"


@pytest.mark.parametrize("victim", [None, ["nic1", "nic3"]])
def test_only_an_incast_with_a_victim_has_its_goodput(tmp_path: Path, victim: list[str] | None) -> None:
    work = {"kind": "incast", "target": "nic0", "senders": ["nic2"], "bytes": 100_000, "victim": victim}
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump({**SCENARIO, "workloads": [work], "faults": []}))
    (phase,) = Run(tmp_path / "scenario.yaml").execute().phases
    assert (phase.victim_goodput_gbps is None) == (victim is None)
