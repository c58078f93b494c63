"""A result, printed as a person wants to read it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from fabric.results import Result, columns

_BARS = " ▁▂▃▄▅▆▇█"


def show(result: Result, console: Console) -> None:
    """Print a run."""
    console.print(_planes(result))
    console.print(result.speaks, highlight=False)
    _show_goodput(result, console)
    for phase in result.phases:
        victim = phase.victim_goodput_gbps
        beside = "" if victim is None else f"; its victim {victim:,.0f} Gb/s"
        console.print(
            f"{phase.kind}: {phase.start_us:,.1f} to {phase.end_us:,.1f} us, {phase.payload_bytes:,} bytes, "
            f"{phase.goodput_gbps:,.0f} Gb/s{beside}",
            highlight=False,
        )
    for name, counts, by_plane in (
        ("taken for lost", result.losses, []),
        ("lost on links", result.link_losses, [plane.link_losses for plane in result.per_plane]),
        ("dropped by switches", result.switch_drops, [plane.switch_drops for plane in result.per_plane]),
        ("refused by NICs", result.refused_by_nics, []),
    ):
        if counts:
            console.print(f"{name}: {_listed(counts, by_plane)}", highlight=False, markup=False)
    for error in result.errors:
        console.print(f"error: {error}", style="red", markup=False)
    verdict = "every byte is right" if result.verified else "NOT verified"
    console.print(
        f"{verdict}: {result.payload_bytes:,} bytes in {result.virtual_time_us:,.1f} us of virtual time "
        f"({result.goodput_gbps:,.0f} Gb/s), {result.wall_s:.1f} s of yours",
        style="bold green" if result.verified else "bold red",
    )


def _listed(counts: dict[str, int], by_plane: Sequence[dict[str, int]]) -> str:
    """Reasons with their counts, and those of each plane that has any."""
    reasons = []
    for reason, count in counts.items():
        planes = [f"{found[reason]:,} in plane {plane}" for plane, found in enumerate(by_plane) if reason in found]
        reasons.append(f"{reason} {count:,}" + (f" ({', '.join(planes)})" if planes else ""))
    return ", ".join(reasons)


def _planes(result: Result) -> Table:
    title = f"{result.scenario}: {result.size}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0)
    shown = columns(result)
    for heading in ("plane", *(column.heading for column in shown)):
        table.add_column(heading, justify="right")
    for plane in result.per_plane:
        table.add_row(str(plane.plane), *(f"{column.of(plane):,.0f}" for column in shown))
    return table


def _show_goodput(result: Result, console: Console) -> None:
    gbps: list[float] = result.goodput_over_time["gbps"]
    if not gbps:
        return
    interval: float = result.goodput_over_time["interval_us"]
    values_per_column = -(-len(gbps) // console.width)
    columns = [
        sum(gbps[start : start + values_per_column]) / values_per_column
        for start in range(0, len(gbps), values_per_column)
    ]
    width = interval * values_per_column
    top = max(*columns, 1e-9)
    bars = "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in columns)
    console.print(f"goodput, {width:g} us a column, full height {top:,.0f} Gb/s", highlight=False)
    console.print(bars, markup=False, highlight=False)
    marks = [" "] * len(columns)
    for fault in result.faults:
        column = int(fault.at_us // width)
        if column < len(marks):
            marks[column] = "x"
    if result.faults:
        console.print("".join(marks), style="red", markup=False)
        for fault in result.faults:
            console.print(f"x {fault.at_us:g} us: {fault.what}", markup=False, highlight=False)
