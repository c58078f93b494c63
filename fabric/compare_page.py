"""comparison.html: a table and a picture of what `mrcfab compare` found, on one page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.compare import Compared, rows
from fabric.figure import FAULT_COLOR, PLANE_COLORS, STYLE
from fabric.report import parameters, section, table

PAGE = "comparison.html"

_STYLESHEET_OF = Path(__file__).with_name("report.html")
_BODY = Template("""<body>
<header><h1>$title</h1></header>
<pre><code>$command</code></pre>
$table
<p class="soft">Goodput: payload put into memory, each byte once, over the whole run. Completion: of each flow, from the
start of its phase (of an all-reduce: the whole). Drops: in switches and on links. All are means over the seeds.</p>
<figure>
$figure
</figure>
$parameters
</body>
</html>
""")


def write(directory: Path, compared: Sequence[Compared], title: str, command: str) -> Path:
    """Write the page into a directory that is there. Raises OSError."""
    head = _STYLESHEET_OF.read_text(encoding="utf-8").partition("<body>")[0]
    found = {parameters(each.results[0]): each.label for each in compared if each.results[0].parameters}
    path = directory / PAGE
    body = _BODY.substitute(
        title=escape(title),
        command=escape(command),
        table=_table(compared),
        figure=svg(compared),
        parameters="\n".join(f"<h2>{escape(label)}</h2>{text}" for text, label in found.items()),
    )
    path.write_text(Template(head).substitute(scenario=escape(title)) + body, encoding="utf-8")
    return path


def _table(compared: Sequence[Compared]) -> str:
    headings, lines = rows(compared)
    linked = [
        [f'<a href="{escape(each.label)}/report.html">{escape(line[0])}</a>', escape(each.results[0].speaks), *line[1:]]
        for each, line in zip(compared, lines, strict=True)
    ]
    return section(
        "Side by side",
        table(("", "", *(heading.replace("\n", " ") for heading in headings[1:])), linked, text_columns=(0, 1)),
    )


def svg(compared: Sequence[Compared]) -> str:
    """An <svg> element: goodput over time with each one's first seed, and how many flows were done by when."""
    with mpl.rc_context(STYLE):
        text = io.StringIO()
        _draw(compared).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<!DOCTYPE")[2].partition(">\n")[2]


def _draw(compared: Sequence[Compared]) -> Figure:
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    over_time, done = figure.subplots(2, 1, height_ratios=(1.5, 1))
    for number, each in enumerate(compared):
        color = PLANE_COLORS[number % len(PLANE_COLORS)]
        goodput = each.results[0].goodput_over_time
        edges = np.arange(len(goodput["gbps"]) + 1) * goodput["interval_us"]
        over_time.stairs(goodput["gbps"], edges, baseline=None, color=color, linewidth=1.2, label=each.label)
        times = each.completion_us
        share = np.arange(1, len(times) + 1) / max(1, len(times))
        done.step([0, *times], [0, *share], where="post", color=color, linewidth=1.2)
    _mark_faults(over_time, compared)
    over_time.set_ylabel("goodput, Gb/s")
    over_time.set_xlabel("virtual time, µs")
    over_time.set_ylim(bottom=0)
    over_time.set_xlim(left=0)
    over_time.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=8, frameon=False)
    done.set_ylabel("flows done, share")
    done.set_xlabel("µs since their phase began")
    done.set_xlim(left=0)
    done.set_ylim(0, 1.03)
    return figure


def _mark_faults(axis: Axes, compared: Sequence[Compared]) -> None:
    end = axis.dataLim.x1
    for fault in compared[0].results[0].faults:
        for start, until in fault.spans:
            axis.axvspan(start, end if until is None else min(until, end), color=FAULT_COLOR, alpha=0.09, linewidth=0)
