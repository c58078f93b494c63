"""`mrcfab events`: read an event log that `mrcfab run --events` or `mrcfab nic write --events` has written."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from nic_model import event_log
from nic_model.event_log import EventLogError, read, record
from nic_model.events import WindowEvent

BAD_INPUT = 2

events_app = typer.Typer(help="Read an event log: what NICs decided, and why.", no_args_is_help=True)
LogFile = Annotated[Path, typer.Argument(metavar="FILE", help="The event log.", show_default=False)]


@events_app.command()
def count(file: LogFile) -> None:
    """Count a log's events, by kind and by what they say.

    Example: mrcfab events count out/events.jsonl
    """
    counts: Counter[tuple[str, str]] = Counter()
    try:
        for _, event in read(file):
            line = record("", event)
            why = line.get("reason") or line.get("decision") or line.get("state") or ""
            counts[line["event"], why] += 1
    except (EventLogError, OSError) as error:
        _fail(file, error)
    table = Table("event", "why", "count")
    for (name, why), number in sorted(counts.items()):
        table.add_row(name, why, f"{number:,}")
    Console().print(table)


@events_app.command()
def window(
    file: LogFile,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture to write (.svg or .png).", show_default=False)],
    nic: Annotated[str, typer.Option(help="Whose window.", show_default=False)],
    qp: Annotated[int | None, typer.Option(help="Only SACKs of this QP.", show_default=False)] = None,
) -> None:
    """Plot what congestion control did: the window, what was in flight, round trips, and each decision.

    Example: mrcfab events window out/events.jsonl --nic nic0 --out window.svg
    """
    try:
        events = [
            event
            for name, event in read(file)
            if name == nic and isinstance(event, WindowEvent) and qp in (None, event.qpn)
        ]
    except (EventLogError, OSError) as error:
        _fail(file, error)
    if not events:
        _fail(file, f"there are no window events of {nic}" + ("" if qp is None else f", QP {qp}"))
    from fabric import window_figure  # with matplotlib, which takes a second to load

    try:
        window_figure.save(events, f"{nic}: congestion window", out)
    except (OSError, ValueError) as error:
        _fail(out, error)
    typer.echo(str(out))


@events_app.command()
def schema() -> None:
    """Print the JSON Schema of a line of a log.

    Example: mrcfab events schema > event-log.schema.json
    """
    typer.echo(json.dumps(event_log.schema(), indent=2))


def _fail(file: Path, reason: object) -> NoReturn:
    text = str(reason)
    if isinstance(reason, OSError):
        text = f"{file}: {reason.strerror}"
    elif not text.startswith(str(file)):
        text = f"{file}: {text}"
    typer.echo(text, err=True)
    raise typer.Exit(BAD_INPUT)
