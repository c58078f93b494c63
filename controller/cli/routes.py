"""`mrcfab routes`: static routes, from the plan to switches that keep them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from controller.cli.common import (
    FAILED,
    P4,
    ElectionId,
    File,
    Json,
    Switches,
    Timeout,
    Verbose,
    bad_input,
    count,
    fail,
    note,
    print_json,
)
from controller.p4runtime import PIPELINE_DIR, Pipeline
from controller.path_files import write_path_files
from controller.plan import Difference, Entry
from controller.plan_text import json_lines, readable
from controller.push import DEFAULT_ELECTION_ID, DEFAULT_TIMEOUT, PushResult, VerifyResult, chosen, push, verify
from controller.topology import Topology

_SHOWN_PER_SWITCH = 5

R = TypeVar("R", PushResult, VerifyResult)

routes_app = typer.Typer(
    help="Static routes: plan them, push them to the switches, verify them, keep them.", no_args_is_help=True
)


@routes_app.command("plan")
def routes_plan(
    file: File,
    switch: Switches = None,
    as_json: Json = False,
    paths: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the NICs' path files, one per tenant and row.")
    ] = None,
) -> None:
    """Print the entries that the switches are to have, one per line; how many, to stderr. Nothing is sent.

    Exit codes: 0 printed, 2 bad input.

    Example: mrcfab routes plan demo.yaml --switch p0t0-1
    """
    with bad_input():
        topo = Topology.load(file)
        switches = chosen(topo, switch or ())
    lines = json_lines if as_json else readable
    entries: Counter[str] = Counter()
    for one in switches:
        for part in lines(topo, one):
            sys.stdout.write(part.text)
            entries[part.table] += part.entries
    tables = ", ".join(f"{table} {number:,}" for table, number in entries.items())
    note(f"{count(entries.total(), 'entry', 'entries')} for {count(len(switches), 'switch', 'switches')}: {tables}")
    if paths is not None:
        try:
            files = write_path_files(topo, paths)
        except OSError as error:
            fail(f"{paths}: {error.strerror}")
        note(f"{count(len(files), 'path file')} in {paths}")


@routes_app.command("push")
def routes_push(
    file: File,
    switch: Switches = None,
    p4: P4 = PIPELINE_DIR,
    election_id: ElectionId = DEFAULT_ELECTION_ID,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Bring the switches to the plan over P4Runtime; only what differs is written, what is new before what is old
    goes. A push that was interrupted is completed by the next one.

    Exit codes: 0 all as planned, 1 a switch failed or refused an entry, 2 bad input.

    Example: mrcfab routes push demo.yaml
    """
    started = time.monotonic()
    results = _on_switches(
        file,
        p4,
        "pushing",
        lambda topo, pipeline, progress: push(
            topo,
            pipeline,
            only=switch or (),
            election_id=election_id,
            answer_timeout=timeout,
            progress=progress,
        ),
        (lambda result: note(f"{result.switch}: {pushed_text(result)}")) if verbose else None,
    )
    if as_json:
        for result in results:
            print_json(asdict(result))
    else:
        _print_grouped((error, result.switch) for result in results for error in result.errors)
        typer.echo(f"{_push_summary(results)} ({time.monotonic() - started:.1f} s)")
    raise typer.Exit(FAILED if any(result.errors for result in results) else 0)


@routes_app.command("verify")
def routes_verify(
    file: File,
    switch: Switches = None,
    p4: P4 = PIPELINE_DIR,
    every: Annotated[bool, typer.Option("--all", help=f"More than {_SHOWN_PER_SWITCH} entries per switch.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read the switches back and compare them with the plan, exactly. Nothing is written.

    Exit codes: 0 all as planned, 1 a switch differs or cannot be read, 2 bad input.

    Example: mrcfab routes verify demo.yaml
    """
    results = _read_back(file, switch, p4, timeout, verbose)
    bad = sum(not result.ok for result in results)
    if as_json:
        for result in results:
            print_json(_verified_json(result))
        raise typer.Exit(FAILED if bad else 0)
    for result in results:
        if result.difference:
            lines = list(_difference_lines(result.difference))
            shown = lines if every else lines[:_SHOWN_PER_SWITCH]
            for line in shown:
                typer.echo(f"{result.switch}: {line}")
            if len(shown) < len(lines):
                typer.echo(f"{result.switch}: and {len(lines) - len(shown)} more")
    typer.echo(f"{count(len(results) - bad, 'switch', 'switches')} as planned, {bad} not")
    raise typer.Exit(FAILED if bad else 0)


@routes_app.command("diff")
def routes_diff(
    file: File,
    switch: Switches = None,
    p4: P4 = PIPELINE_DIR,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show each entry that a push would write: `+` insert, `-` delete, `~` change from what is there. No output means
    no drift. Nothing is written.

    Exit codes: 0 no drift, 1 drift, or a switch cannot be read, 2 bad input.

    Example: mrcfab routes diff demo.yaml --switch p0t0-1
    """
    results = _read_back(file, switch, p4, timeout, verbose)
    for result in results:
        if result.difference:
            if as_json:
                for record in _difference_json(result.difference):
                    print_json({"switch": result.switch, **record})
            else:
                for line in _diff_lines(result.difference):
                    typer.echo(f"{result.switch}: {line}")
    raise typer.Exit(0 if all(result.ok for result in results) else FAILED)


def pushed_text(result: PushResult) -> str:
    """What a push did to a switch."""
    if not result.changed:
        return "; ".join(result.errors) or f"as planned, {count(result.unchanged, 'entry', 'entries')}"
    done = f"{result.inserted} inserted, {result.modified} modified, {result.deleted} deleted"
    start = "pipeline set; " if result.pipeline_set else ""
    return "; ".join((f"{start}{done}, {result.unchanged} unchanged", *result.errors))


def _read_back(file: Path, switch: list[str] | None, p4: Path, timeout: float, verbose: bool) -> list[VerifyResult]:
    """Verify, and name the switches that cannot be read."""
    results = _on_switches(
        file,
        p4,
        "reading",
        lambda topo, pipeline, progress: verify(
            topo, pipeline, only=switch or (), answer_timeout=timeout, progress=progress
        ),
        (lambda result: note(f"{result.switch}: {_verified_text(result)}")) if verbose else None,
    )
    _print_grouped((result.error, result.switch) for result in results if result.error)
    return results


def _on_switches(
    file: Path,
    p4: Path,
    verb: str,
    work: Callable[[Topology, Pipeline, Callable[[R], None]], Coroutine[Any, Any, list[R]]],
    tell: Callable[[R], None] | None,
) -> list[R]:
    """Run an operation on switches of a topology file, with a progress bar if stderr is a terminal.

    `tell` is called with each result as it comes.
    """
    with bad_input():
        topo = Topology.load(file)
        pipeline = Pipeline(p4)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        terminal = Console(stderr=True)
        with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
            task = progress.add_task(verb, total=topo.switch_count)

            def advance(result: R) -> None:
                progress.advance(task)
                if tell:
                    tell(result)

            try:
                return asyncio.run(work(topo, pipeline, advance))
            except KeyboardInterrupt:
                note("interrupted; a push completes what is missing")
                raise typer.Exit(FAILED) from None


def _push_summary(results: list[PushResult]) -> str:
    failed = sum(bool(result.errors) for result in results)
    pipelines = sum(result.pipeline_set for result in results)
    inserted = sum(result.inserted for result in results)
    modified = sum(result.modified for result in results)
    deleted = sum(result.deleted for result in results)
    unchanged = sum(result.unchanged for result in results)
    return (
        f"{count(len(results) - failed, 'switch', 'switches')} pushed, {failed} failed; "
        f"{count(pipelines, 'pipeline')} set; entries: "
        f"{inserted} inserted, {modified} modified, {deleted} deleted, {unchanged} unchanged"
    )


def _verified_text(result: VerifyResult) -> str:
    if result.difference is None:
        return result.error
    missing, extra, changed, unchanged = _counts(result.difference)
    if result.ok:
        return f"as planned, {count(unchanged, 'entry', 'entries')}"
    return f"{missing} missing, {extra} extra, {changed} changed, {unchanged} as planned"


def _verified_json(result: VerifyResult) -> dict[str, Any]:
    data: dict[str, Any] = {"switch": result.switch, "ok": result.ok, "error": result.error}
    if result.difference is not None:
        data |= zip(("missing", "extra", "changed", "unchanged"), _counts(result.difference), strict=True)
    return data


def _counts(difference: Difference) -> tuple[int, int, int, int]:
    return len(difference.missing), len(difference.extra), len(difference.changed), difference.unchanged


def _difference_lines(difference: Difference) -> Iterator[str]:
    for entry in difference.missing:
        yield f"missing {entry}"
    for entry in difference.extra:
        yield f"extra {entry}"
    for planned, present in difference.changed:
        yield f"changed {present}, planned {planned.action_text}"


def _diff_lines(difference: Difference) -> Iterator[str]:
    for entry in difference.missing:
        yield f"+ {entry}"
    for planned, present in difference.changed:
        yield f"~ {planned}, is {present.action_text}"
    for entry in difference.extra:
        yield f"- {entry}"


def _difference_json(difference: Difference) -> Iterator[dict[str, Any]]:
    """Like `_diff_lines`; what is planned and what is there, None where there is nothing."""

    def record(change: str, planned: Entry | None, present: Entry | None) -> dict[str, Any]:
        planned_json, present_json = (None if entry is None else entry.as_json() for entry in (planned, present))
        return {"change": change, "planned": planned_json, "present": present_json}

    for entry in difference.missing:
        yield record("missing", entry, None)
    for planned, present in difference.changed:
        yield record("changed", planned, present)
    for entry in difference.extra:
        yield record("extra", None, entry)


def _print_grouped(reasons: Iterable[tuple[str, str]]) -> None:
    """Each reason once, with the switches that gave it: forty that cannot be reached are one line."""
    groups: dict[str, list[str]] = {}
    for reason, switch in reasons:
        groups.setdefault(reason, []).append(switch)
    for reason, names in groups.items():
        shown = ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"
        note(f"{shown}: {reason}")
