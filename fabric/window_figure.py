"""What congestion control decided, over time, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from fabric.figure import STYLE
from nic_model.events import WindowEvent

COLORS = {
    "proportional increase": "#2b9a8b",
    "fast increase": "#5b8c3a",
    "fair increase": "#4aa3c7",
    "multiplicative decrease": "#c98a1b",
    "one packet less": "#d9822b",
    "quick adapt": "#c8352b",
}
OTHER = "#b8bec6"
"""Nothing was changed, whatever the reason."""


def save(events: Sequence[WindowEvent], title: str, path: Path) -> None:
    """Draw the window events of one NIC. Raises ValueError for a kind of picture that matplotlib cannot write."""
    with mpl.rc_context(STYLE):
        _draw(events, title).savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(events: Sequence[WindowEvent], title: str) -> Figure:
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    window, rtt, decisions = figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1.5, 1.6])
    times = [event.time / 1000 for event in events]
    window.step(times, [event.cwnd / 1000 for event in events], where="post", color="#2a2f36", label="window")
    window.plot(times, [event.in_flight / 1000 for event in events], color="#8b929c", lw=0.7, label="in flight")
    window.set_ylabel("kB")
    window.set_ylim(bottom=0)
    window.legend(loc="upper right", frameon=False)
    window.set_title(title, loc="left", fontsize=9)
    for marked, color, label in ((False, "#3d6fb4", "not marked"), (True, "#c2a200", "ECN-CE")):
        found = [(event.time / 1000, event.rtt / 1000) for event in events if event.rtt and event.marked is marked]
        if found:
            rtt.plot(*zip(*found, strict=True), ".", ms=2.5, color=color, label=label)
    rtt.set_ylabel("round trip, us")
    rtt.set_ylim(bottom=0)
    rtt.legend(loc="upper right", frameon=False)
    names = list(dict.fromkeys(event.decision for event in events))
    for row, name in enumerate(names):
        at = [time for time, event in zip(times, events, strict=True) if event.decision == name]
        decisions.plot(at, [row] * len(at), "|", ms=7, color=COLORS.get(name, OTHER))
    decisions.set_yticks(range(len(names)), names)
    decisions.set_ylim(-0.6, len(names) - 0.4)
    decisions.set_xlabel("virtual time, us")
    return figure
