"""The same work on different fabrics and transports, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from controller.yaml_file import Document
from fabric.results import Result
from fabric.run import Run
from fabric.scenario import Scenario

COMPARISON = "comparison.json"
PERCENTILES = (50, 99, 100)
"""Of flows' completion times; the last one is the slowest flow's."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is compared: a scenario, or one of its variants."""

    label: str
    path: Path
    variant: str | None

    def prepare(self, seed_offset: int) -> Run:
        """A run with the scenario's seed plus `seed_offset`. Raises FileError."""
        seed = Document.read(self.path).validate(Scenario).seed + seed_offset
        return Run(self.path, seed, variant=self.variant)


def candidates(paths: Sequence[Path]) -> list[Candidate]:
    """All variants of all scenarios, and the scenarios that have none. Raises FileError."""
    found: list[Candidate] = []
    for path in paths:
        scenario = Document.read(path).validate(Scenario)
        for variant in scenario.variants or (None,):
            own = scenario.name if variant is None else variant
            taken = any(own == other.label for other in found)
            found.append(Candidate(f"{scenario.name}/{own}" if taken else own, path, variant))
    return found


@dataclass(frozen=True, slots=True)
class Compared:
    """A candidate's results, one for each seed."""

    label: str
    results: list[Result]

    @property
    def verified(self) -> bool:
        """Every byte was right in every run."""
        return all(result.verified for result in self.results)

    @property
    def goodput_gbps(self) -> float:
        """The mean over the runs."""
        return self._mean(lambda result: result.goodput_gbps)

    @property
    def victim_gbps(self) -> float | None:
        """The mean goodput of the incasts' victims."""
        phases = [phase for result in self.results for phase in result.phases]
        rates = [phase.victim_goodput_gbps for phase in phases if phase.victim_goodput_gbps is not None]
        return sum(rates) / len(rates) if rates else None

    @property
    def completion_us(self) -> list[float]:
        """How long each flow of all runs took that was done; of work without flows, each phase. Sorted."""
        times = []
        for phase in (phase for result in self.results for phase in result.phases):
            if phase.flows:
                times += [flow.completion_us for flow in phase.flows if flow.goodput_gbps]
            else:
                times.append(phase.end_us - phase.start_us)
        return sorted(times)

    def percentile_us(self, percent: float) -> float:
        """Of the completion times, by nearest rank; NaN if there are none."""
        times = self.completion_us
        return float(np.percentile(times, percent, method="inverted_cdf")) if times else float("nan")

    def counts(self) -> dict[str, float]:
        """What it took, a run on the average."""
        return {
            "sent again": self._mean(lambda result: result.retransmissions),
            "trims": self._mean(lambda result: result.trims),
            "drops": self._mean(lambda result: _total(result.switch_drops) + _total(result.link_losses)),
            "marks": self._mean(lambda result: result.marks),
            "PFC pauses": self._mean(lambda result: result.pfc.pauses if result.pfc else 0),
        }

    def _mean(self, of: Callable[[Result], float]) -> float:
        return sum(map(of, self.results)) / len(self.results)

    def summary(self) -> dict[str, Any]:
        """What comparison.json holds of it."""
        first = self.results[0]
        return {
            "label": self.label,
            "verified": self.verified,
            "transport": first.speaks,
            "topology": first.topology,
            "seeds": [result.seed for result in self.results],
            "goodput_gbps": round(self.goodput_gbps, 3),
            "goodput_gbps_by_seed": [result.goodput_gbps for result in self.results],
            "victim_gbps": self.victim_gbps,
            "completion_us": {f"p{percent}": round(self.percentile_us(percent), 3) for percent in PERCENTILES},
            **self.counts(),
            "errors": [error for result in self.results for error in result.errors],
        }


def compare(found: Sequence[Candidate], seeds: int) -> Iterator[tuple[Candidate, Run, Result]]:
    """Run each candidate with each of `seeds` seeds, one after the other. Raises FileError and ControlError."""
    for candidate in found:
        for offset in range(seeds):
            run = candidate.prepare(offset)
            yield candidate, run, run.execute()


def rows(compared: Sequence[Compared]) -> tuple[list[str], list[list[str]]]:
    """Headings, and for each candidate its cells, as text. The victim stands there only if there is one."""
    victims = any(each.victim_gbps is not None for each in compared)
    headings = ["", "Gb/s", *(f"p{percent}\nus" if percent < 100 else "last\nus" for percent in PERCENTILES)]
    headings += ["victim\nGb/s"] if victims else []
    headings += [heading.replace(" ", "\n") for heading in compared[0].counts()]
    lines = []
    for each in compared:
        line = [each.label if each.verified else f"{each.label} (failed)", f"{each.goodput_gbps:,.0f}"]
        line += [f"{each.percentile_us(percent):,.1f}" for percent in PERCENTILES]
        if victims:
            line.append("" if each.victim_gbps is None else f"{each.victim_gbps:,.0f}")
        line += [f"{count:,.0f}" for count in each.counts().values()]
        lines.append(line)
    return headings, lines


def save(compared: Sequence[Compared], directory: Path) -> Path:
    """Write comparison.json into a directory that is there. Raises OSError."""
    path = directory / COMPARISON
    path.write_text(json.dumps([each.summary() for each in compared], indent=1) + "\n", encoding="utf-8")
    return path


def _total(by_reason: dict[str, int]) -> int:
    return sum(by_reason.values())
