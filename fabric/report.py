"""report.html: a run on one page that needs no other file and no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

from fabric import figure
from fabric.ev_health import EvHealth
from fabric.results import Column, Result, columns
from fabric.samples import Samples

REPORT = "report.html"

_PAGE = Path(__file__).with_name(REPORT)
_CAPTION = (
    "Goodput is payload put into memory, each byte once. A numbered circle is the beginning of a fault in its plane, "
    "the red band its duration. Queues: the most packets that waited for one port. "
)
_MRC_CAPTION = (
    "EV health: the EVs of all QPs that were sending, by the path that they stand for; the colour tells the share of "
    "them in that state."
)
_ROCE_CAPTION = "QP rate: what DCQCN allows the QPs that have work, their mean and the slowest."


def write(directory: Path, result: Result, samples: Samples, health: EvHealth, command: str) -> Path:
    """Write the report of a run that `command` makes again; into a directory that is there. Raises OSError."""
    path = directory / REPORT
    path.write_text(page(result, samples, health, command), encoding="utf-8")
    return path


def page(result: Result, samples: Samples, health: EvHealth, command: str) -> str:
    """The page's text."""
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        scenario=escape(result.scenario),
        verdict=_verdict(result),
        fabric=escape(
            f"topology {result.topology}: {result.size}, {result.entries:,} table entries; seed {result.seed}"
        ),
        speaks=escape(result.speaks),
        errors="\n".join(f'<p class="error">{escape(error)}</p>' for error in result.errors),
        command=escape(command),
        tiles=_tiles(result),
        figure=figure.svg(result, samples, health.map(samples.interval, len(samples))),
        caption=_CAPTION + (_MRC_CAPTION if result.roce is None else _ROCE_CAPTION),
        faults=_faults(result),
        phases=_phases(result),
        planes=_planes(result),
        losses=_losses(result),
        flows=_flows(result),
        parameters=parameters(result),
    )


def _verdict(result: Result) -> str:
    if result.verified:
        return '<span class="verdict">every byte is right</span>'
    return '<span class="verdict failed">not verified</span>'


def _tiles(result: Result) -> str:
    tiles = [
        (f"{result.goodput_gbps:,.0f}", "Gb/s goodput"),
        (f"{result.virtual_time_us:,.1f}", "µs virtual time"),
        (f"{result.payload_bytes / 1e6:,.1f}", "MB payload"),
        (f"{result.data_packets:,}", "data packets"),
        (f"{result.retransmissions:,}", "retransmissions"),
        (f"{result.marks:,}", "ECN marks"),
    ]
    if result.roce is None:
        tiles += [(f"{result.trims:,}", "trims"), (f"{result.ev_replaced:,}", "EVs replaced")]
    else:
        tiles += [(f"{result.roce.cnps:,}", "CNPs"), (f"{result.roce.sequence_naks:,}", "NAKs")]
    if result.pfc is not None:
        tiles.append((f"{result.pfc.pauses:,}", "PFC pauses"))
    return "\n".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for value, name in tiles)


def _faults(result: Result) -> str:
    rows = [
        [f'<span class="number">{number}</span>', f"{fault.at_us:,.1f}", escape(fault.what)]
        for number, fault in enumerate(result.faults, 1)
    ]
    for done in result.reprogrammed:
        rows.append(["", f"{done.at_us:,.1f}", escape(f"controller: {done.entries} entries to {done.switch} again")])
    rows.sort(key=lambda row: float(row[1].replace(",", "")))
    return section("Faults", table(("", "µs", "what"), rows, text_columns=(2,))) if rows else ""


def _phases(result: Result) -> str:
    rows = []
    for phase in result.phases:
        start, end = f"{phase.start_us:,.1f}", f"{phase.end_us:,.1f}"
        rows.append([phase.kind, start, end, f"{phase.payload_bytes / 1e6:,.1f}", f"{phase.goodput_gbps:,.0f}"])
        if phase.victim_goodput_gbps is not None:
            rows.append(["its victim alone", "", "", "", f"{phase.victim_goodput_gbps:,.0f}"])
    return section("Phases", table(("phase", "from µs", "to µs", "MB", "Gb/s"), rows, text_columns=(0,)))


def _planes(result: Result) -> str:
    shown = columns(result)
    shown.insert(1, Column("MB", lambda plane: plane.payload_bytes / 1e6))
    counts = [[column.of(plane) for column in shown] for plane in result.per_plane]
    rows = [[str(plane.plane), *map(_count, row)] for plane, row in zip(result.per_plane, counts, strict=True)]
    rows.append(["all", *(_count(sum(column)) for column in zip(*counts, strict=True))])
    headings = ("plane", *(column.heading.replace("-\n", "").replace("\n", " ") for column in shown))
    return table(headings, rows, total=True)


def parameters(result: Result) -> str:
    """What a RoCE run was tuned to."""
    rows = [
        [each.name, f"{each.value:,g}" if each.value < 1 else f"{each.value:,}", each.unit, each.meaning, each.source]
        for each in result.parameters
    ]
    cells = [[escape(cell) for cell in row] for row in rows]
    headings = ("parameter", "value", "unit", "meaning", "source")
    return section("Parameters", table(headings, cells, text_columns=(0, 2, 3, 4))) if rows else ""


def _losses(result: Result) -> str:
    """Where frames were lost, by plane; then why requesters took packets for lost and NICs refused them, in all."""
    planes = result.per_plane
    rows = []
    for what, total, by_plane in (
        ("lost on links", result.link_losses, [plane.link_losses for plane in planes]),
        ("dropped in switches", result.switch_drops, [plane.switch_drops for plane in planes]),
        ("taken for lost", result.losses, []),
        ("refused by NICs", result.refused_by_nics, []),
    ):
        for index, (reason, count) in enumerate(total.items()):
            cells = [_count(counts.get(reason, 0)) for counts in by_plane] or [""] * len(planes)
            rows.append(["" if index else what, escape(reason), *cells, _count(count)])
    if not rows:
        return ""
    headings = ("", "reason", *(f"plane {plane.plane}" for plane in planes), "all")
    return section("Losses, in packets", table(headings, rows, text_columns=(0, 1)))


def _flows(result: Result) -> str:
    sections = []
    for phase in result.phases:
        rows = [
            [f"{flow.source} → {flow.target}", "victim" if flow.is_victim else "", f"{flow.payload_bytes / 1e6:,.2f}",
             f"{flow.goodput_gbps:,.1f}"]
            for flow in phase.flows
        ]  # fmt: skip
        if rows:
            flows = table(("flow", "", "MB", "Gb/s"), rows, text_columns=(0, 1))
            sections.append(section(f"Flows of {phase.kind}", flows))
    return f'<div class="columns">{"".join(sections)}</div>'


def _count(value: float) -> str:
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return text if value else f'<span class="zero">{text}</span>'


def section(title: str, content: str) -> str:
    """A part of a page with its heading; both are HTML."""
    return f"<section><h2>{title}</h2>{content}</section>"


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: Sequence[int] = (), total: bool = False
) -> str:
    """A table of cells that are HTML already; columns are right-aligned but for `text_columns`."""
    rows = list(rows)
    kinds = [' class="text"' if column in text_columns else "" for column in range(len(headings))]
    lines = ["".join(f"<th{kind}>{heading}</th>" for kind, heading in zip(kinds, headings, strict=True))]
    lines += ["".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows]
    ends = [' class="total"' if total and index == len(rows) else "" for index in range(len(lines))]
    return f"<table>{''.join(f'<tr{end}>{line}</tr>' for end, line in zip(ends, lines, strict=True))}</table>"
