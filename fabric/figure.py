"""A run over time as one picture: goodput, signals, queues and EV health above one time axis."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from fabric.ev_health import HealthMap, Path
from fabric.results import Result
from fabric.samples import Samples

PLANE_COLORS = ("#3d6fb4", "#2b9a8b", "#8663a9", "#c98a1b", "#5b8c3a", "#b0578d", "#4aa3c7", "#7a6a58")
FAULT_COLOR = "#c8352b"
GOOD_COLOR, SKIP_COLOR, BAD_COLOR, UNUSED_COLOR = "#d5eadd", "#f2c14e", FAULT_COLOR, "#ffffff"
SIGNAL_COLORS = {
    "trims": "#d9822b", "ECN marks": "#c2a200", "frames lost": FAULT_COLOR, "CNPs": "#8663a9",
    "retransmissions": "#b0578d", "PFC pauses": "#2b9a8b",
}  # fmt: skip
INK, FAINT = "#2a2f36", "#8b929c"

Array = NDArray[np.floating[Any]]

_WIDTH = 11.0  # inches, as all sizes here
_TOTAL_HEIGHT, _PLANE_HEIGHT, _SIGNAL_HEIGHT, _QUEUE_HEIGHT = 1.0, 0.42, 0.4, 0.75
_ROW_HEIGHT, _MAX_HEALTH_HEIGHT = 0.085, 5.0
_GAP = 0.16
_LABELLED_ROWS = 48

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mrcfab",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "ytick.labelsize": 7,
}


def svg(result: Result, samples: Samples, health: HealthMap) -> str:
    """An <svg> element; the same bytes for the same run."""
    with mpl.rc_context(STYLE):
        text = io.StringIO()
        _draw(result, samples, health).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<!DOCTYPE")[2].partition(">\n")[2]


def _draw(result: Result, samples: Samples, health: HealthMap) -> Figure:
    signals = [name for name, values in samples.signals.items() if any(values)]
    heights = [_TOTAL_HEIGHT, *[_PLANE_HEIGHT] * result.planes, *[_SIGNAL_HEIGHT] * len(signals)]
    heights += [_QUEUE_HEIGHT, _QUEUE_HEIGHT]
    is_rated = result.congestion == "dcqcn"
    if is_rated:
        heights.append(_QUEUE_HEIGHT)
    if health.paths:
        heights.append(min(_MAX_HEALTH_HEIGHT, max(0.4, _ROW_HEIGHT * len(health.paths))))
    top, bottom = 0.3, 0.62
    height = sum(heights) + _GAP * (len(heights) - 1) + top + bottom
    figure = Figure(figsize=(_WIDTH, height))
    grid = figure.add_gridspec(
        len(heights), 1, height_ratios=heights, hspace=_GAP / (sum(heights) / len(heights)),
        left=0.095, right=0.985, top=1 - top / height, bottom=bottom / height,
    )  # fmt: skip
    first = figure.add_subplot(grid[0])
    axes = iter([first, *(figure.add_subplot(grid[row], sharex=first) for row in range(1, len(heights)))])

    _draw_total(next(axes), result, samples)
    most = max((max(samples.gbps(plane), default=0.0) for plane in range(result.planes)), default=0.0)
    for plane in range(result.planes):
        _draw_plane(next(axes), result, samples, plane, most)
    for name in signals:
        _draw_signal(next(axes), samples, name)
    for role in ("t0", "t1"):
        _draw_queues(next(axes), samples, role)
    if is_rated:
        _draw_rates(next(axes), samples)
    if health.paths:
        _draw_health(next(axes), samples, health)
    last = figure.axes[-1]
    for axis in figure.axes:
        _mark_phases(axis, result)
        axis.tick_params(labelbottom=axis is last, bottom=axis is last)
    last.set_xlabel("virtual time, µs")
    last.set_xlim(0, _edges(samples)[-1])
    return figure


def _edges(samples: Samples) -> Array:
    edges: Array = np.arange(len(samples) + 1) * (samples.interval / 1000)
    return edges


def _area(axis: Axes, samples: Samples, values: Sequence[float], color: str) -> None:
    axis.stairs(values, _edges(samples), fill=True, color=color, alpha=0.3, linewidth=0)
    axis.stairs(values, _edges(samples), color=color, linewidth=0.9, baseline=None)


def _label(axis: Axes, text: str, unit: str = "") -> None:
    name = f"{text}\n{unit}" if unit else text
    axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=7.5, labelpad=6)


def _draw_total(axis: Axes, result: Result, samples: Samples) -> None:
    _area(axis, samples, samples.goodput()["gbps"], INK)
    axis.set_ylim(bottom=0)
    axis.locator_params(axis="y", nbins=3)
    _label(axis, "goodput", "Gb/s")
    for phase in result.phases:
        axis.annotate(
            phase.kind, ((phase.start_us + phase.end_us) / 2, 1), xycoords=("data", "axes fraction"),
            xytext=(0, 5), textcoords="offset points", ha="center", va="bottom", fontsize=8, fontweight="bold",
        )  # fmt: skip


def _mark_phases(axis: Axes, result: Result) -> None:
    for phase in result.phases:
        for at in (phase.start_us, phase.end_us):
            axis.axvline(at, color=FAINT, linewidth=0.5, dashes=(2, 3), zorder=0)


def _draw_plane(axis: Axes, result: Result, samples: Samples, plane: int, most: float) -> None:
    """A plane's goodput, and the faults in it by their numbers."""
    _area(axis, samples, samples.gbps(plane), PLANE_COLORS[plane % len(PLANE_COLORS)])
    axis.set_ylim(0, most * 1.05 or 1)
    axis.locator_params(axis="y", nbins=1)
    _label(axis, f"plane {plane}")
    end = _edges(samples)[-1]
    for number, fault in enumerate(result.faults, 1):
        if fault.plane != plane:
            continue
        for start, until in fault.spans:
            until = end if until is None else until
            axis.axvspan(start, until, color=FAULT_COLOR, alpha=0.09, linewidth=0)
            axis.plot(
                (start, until),
                (1, 1),
                transform=axis.get_xaxis_transform(),
                color=FAULT_COLOR,
                linewidth=2.2,
                solid_capstyle="butt",
                clip_on=True,
            )
        axis.annotate(
            str(number), (fault.at_us, 1), xycoords=("data", "axes fraction"), ha="center", va="center",
            fontsize=6.5, color="white", annotation_clip=True, zorder=5,
            bbox={"boxstyle": "circle,pad=0.25", "facecolor": FAULT_COLOR, "edgecolor": "none"},
        )  # fmt: skip


def _draw_signal(axis: Axes, samples: Samples, name: str) -> None:
    axis.stairs(samples.signals[name], _edges(samples), fill=True, color=SIGNAL_COLORS[name], linewidth=0)
    axis.set_ylim(bottom=0)
    axis.locator_params(axis="y", nbins=2, integer=True)
    _label(axis, name, f"per {samples.interval / 1000:g} µs")


def _draw_queues(axis: Axes, samples: Samples, role: str) -> None:
    for (plane, of), depths in samples.depth.items():
        if of == role:
            color = PLANE_COLORS[plane % len(PLANE_COLORS)]
            axis.stairs(depths, _edges(samples), color=color, linewidth=0.9, baseline=None, label=f"plane {plane}")
    axis.set_ylim(bottom=0)
    axis.locator_params(axis="y", nbins=2, integer=True)
    _label(axis, f"deepest {role.upper()}\nqueue", "packets")
    if role == "t0":
        axis.legend(
            loc="upper left", ncols=8, fontsize=6.5, frameon=False, borderaxespad=0.1, handlelength=1, columnspacing=1
        )


def _draw_rates(axis: Axes, samples: Samples) -> None:
    for values, color, label in zip(
        zip(*samples.rates, strict=True), (INK, FAULT_COLOR), ("mean", "lowest"), strict=True
    ):
        axis.stairs(values, _edges(samples), color=color, linewidth=0.9, baseline=None, label=label)
    axis.set_ylim(bottom=0)
    axis.locator_params(axis="y", nbins=3)
    _label(axis, "QP rate", "Gb/s")
    axis.legend(loc="upper right", ncols=2, fontsize=6.5, frameon=False, borderaxespad=0.1, handlelength=1)


def _draw_health(axis: Axes, samples: Samples, health: HealthMap) -> None:
    axis.imshow(
        _health_colors(health), aspect="auto", interpolation="none", origin="upper",
        extent=(0, float(_edges(samples)[-1]), len(health.paths), 0),
    )  # fmt: skip
    _label(axis, "")
    labelled = len(health.paths) <= _LABELLED_ROWS
    axis.set_yticks(
        [row + 0.5 for row in range(len(health.paths))] if labelled else [],
        [path.name for path in health.paths] if labelled else [],
        fontsize=5.2,
    )
    axis.tick_params(axis="y", length=0, pad=2)
    for first, last, plane in _plane_rows(health.paths):
        axis.axhline(last, color="white", linewidth=1.6)
        axis.annotate(
            f"EVs in\nplane {plane}", (0, (first + last) / 2), xycoords=("axes fraction", "data"), xytext=(-30, 0),
            textcoords="offset points", ha="right", va="center", fontsize=7.5,
        )  # fmt: skip
    shown = ((GOOD_COLOR, "GOOD"), (SKIP_COLOR, "SKIP"), (BAD_COLOR, "ASSUMED_BAD"))
    axis.legend(
        handles=[Patch(color=color, label=state) for color, state in shown], loc="upper right",
        bbox_to_anchor=(1, 0), bbox_transform=axis.transAxes, borderaxespad=2.2, ncols=3, frameon=False, fontsize=7,
    )  # fmt: skip


def _health_colors(health: HealthMap) -> Array:
    """From GOOD's colour towards the others', by their shares of the EVs; any bad EV is visible."""
    good, skip, bad = (np.array(to_rgb(color)) for color in (GOOD_COLOR, SKIP_COLOR, BAD_COLOR))
    skipped, failed = (np.sqrt(share)[..., None] for share in (health.skipped, health.bad))
    colors: Array = good + (skip - good) * skipped
    colors += (bad - colors) * failed
    colors[np.isnan(health.bad)] = to_rgb(UNUSED_COLOR)
    return colors


def _plane_rows(paths: Sequence[Path]) -> Iterator[tuple[int, int, int]]:
    """(first row, the row after the last, plane) of each plane."""
    planes = [path.plane for path in paths]
    for plane in dict.fromkeys(planes):
        first = planes.index(plane)
        yield first, first + planes.count(plane), plane
