"""A plan as text, a line per entry. It is that of `plan.entries`, but no entry is made an object on the way.

A series becomes a template for its lines, once per switch; the rows of values fill it in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from controller.plan import Entry, Series, plan
from controller.topology import SwitchSpec, Topology


class Lines(NamedTuple):
    """The lines of one table's entries, as one text, and how many they are."""

    table: str
    entries: int
    text: str


def readable(topo: Topology, switch: SwitchSpec) -> Iterator[Lines]:
    """A switch's plan for people: its name and `str(entry)`."""
    return _lines(topo, switch, lambda entry: f"{switch.name}: {entry}\n", _readable_template)


def json_lines(topo: Topology, switch: SwitchSpec) -> Iterator[Lines]:
    """A switch's plan as JSON lines: each is an object of `switch` and what `Entry.as_json` gives."""
    return _lines(
        topo, switch, lambda entry: json.dumps({"switch": switch.name, **entry.as_json()}) + "\n", _json_template
    )


def _lines(
    topo: Topology,
    switch: SwitchSpec,
    line: Callable[[Entry], str],
    template: Callable[[SwitchSpec, Series], str],
) -> Iterator[Lines]:
    for part in plan(topo, switch):
        if isinstance(part, Entry):
            yield Lines(part.table, 1, line(part))
        elif part.rows:
            yield Lines(part.table, len(part.rows), "".join(map(template(switch, part).__mod__, part.rows)))


def _readable_template(switch: SwitchSpec, series: Series) -> str:
    match = " ".join(f"{name}=%s" for name in series.match)
    params = ", ".join(f"{name}=%s" for name in series.params)
    return f"{switch.name}: {series.table} {match} -> {series.action}({params})\n"


def _json_template(switch: SwitchSpec, series: Series) -> str:
    # Texts are names and addresses, which JSON quotes but need not escape.
    places = ['"%s"' if isinstance(value, str) else "%d" for value in series.rows[0]]
    keys = len(series.match)
    match = ", ".join(f'"{name}": {place}' for name, place in zip(series.match, places, strict=False))
    params = ", ".join(f'"{name}": {place}' for name, place in zip(series.params, places[keys:], strict=True))
    return (
        f'{{"switch": "{switch.name}", "table": "{series.table}", "match": {{{match}}}, '
        f'"action": "{series.action}", "params": {{{params}}}}}\n'
    )
