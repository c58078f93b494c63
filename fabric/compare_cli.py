"""`mrcfab compare`: scenarios, or the variants of one, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from controller.yaml_file import FileError
from fabric.compare import Compared, candidates, rows, save
from fabric.compare import compare as run_all
from fabric.control import ControlError

FAILED = 1
BAD_INPUT = 2


def compare(
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO...", show_default=False)],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with the scenario's seed and those after it.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write comparison.json, comparison.html and all reports there."),
    ] = None,
) -> None:
    """Run scenarios, or all variants of one, and set them side by side: goodput, completion times, what it took.

    Example: mrcfab compare scenarios/compare/incast.yaml --out out/incast
    """
    console = Console()
    try:
        found = candidates(scenarios)
        compared = {candidate.label: Compared(candidate.label, []) for candidate in found}
        for candidate, run, result in run_all(found, seeds):
            compared[candidate.label].results.append(result)
            console.print(f"{candidate.label}, seed {result.seed}: {result.wall_s:.1f} s", style="dim", highlight=False)
            if out is not None and len(compared[candidate.label].results) == 1:
                from fabric import report  # with matplotlib, which takes a second to load

                own = out / candidate.label
                own.mkdir(parents=True, exist_ok=True)
                chosen = "" if candidate.variant is None else f" --variant {candidate.variant}"
                command = f"mrcfab run {candidate.path}{chosen} --seed {result.seed} --out {own}"
                result.save(own)
                report.write(own, result, run.samples, run.health, command)
        _show(list(compared.values()), console)
        if out is not None:
            from fabric import compare_page

            names = " ".join(map(str, scenarios))
            command = f"mrcfab compare {names} --seeds {seeds} --out {out}"
            title = " and ".join(dict.fromkeys(path.stem for path in scenarios))
            written = [save(list(compared.values()), out)]
            written.append(compare_page.write(out, list(compared.values()), title, command))
            typer.echo("\n".join(map(str, written)))
    except FileError as error:
        _fail(str(error), BAD_INPUT)
    except ControlError as error:
        _fail(str(error), FAILED)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), FAILED)
    raise typer.Exit(0 if all(each.verified for each in compared.values()) else FAILED)


def _show(compared: list[Compared], console: Console) -> None:
    headings, lines = rows(compared)
    shown = Table(box=box.SIMPLE_HEAD, padding=0)
    for heading in headings:
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for line in lines:
        shown.add_row(*line)
    console.print(shown)
    for each in compared:
        console.print(f"{each.label}: {each.results[0].speaks}, {each.results[0].topology}", highlight=False)
        for error in dict.fromkeys(error for result in each.results for error in result.errors):
            console.print(f"{each.label}: {error}", style="red", markup=False, highlight=False)


def _fail(reason: str, code: int) -> NoReturn:
    typer.echo(reason, err=True)
    raise typer.Exit(code)
