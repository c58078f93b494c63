"""An event log: what endpoints decided and why, one JSON object a line.

Each object has `event` (see `nic_model.events.EVENT_NAMES`), `nic`, and the fields of that event's record under their
own names. docs/event-log.schema.json is its JSON Schema, docs/event-log.md explains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from nic_model.events import EVENT_NAMES, Event


class EventLogError(Exception):
    """A file that is no event log: names file, line and what is wrong."""


def record(nic: str, event: Event) -> dict[str, Any]:
    """One line of the log."""
    line: dict[str, Any] = {"event": EVENT_NAMES[type(event)], "nic": nic}
    for field in fields(event):
        value = getattr(event, field.name)
        line[field.name] = value.value if isinstance(value, Enum) else value
    return line


@dataclass(slots=True)
class EventLog:
    """Writes a log; `add` is told of every event, in the order of time."""

    file: IO[str]

    def add(self, nic: str, event: Event) -> None:
        """Write what a NIC decided."""
        self.file.write(json.dumps(record(nic, event)) + "\n")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one line."""
    kinds, definitions = [], {}
    for kind, name in EVENT_NAMES.items():
        made = TypeAdapter(kind).json_schema(ref_template="#/$defs/{model}")
        definitions.update(made.pop("$defs", {}))
        made["properties"] = {"event": {"const": name}, "nic": {"type": "string"}} | made["properties"]
        made["required"] = ["event", "nic", *made["required"]]
        made["additionalProperties"] = False
        kinds.append(made)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of an MRC endpoint's event log",
        "oneOf": kinds,
        "$defs": definitions,
    }


def read(path: Path) -> Iterator[tuple[str, Event]]:
    """The (NIC, event) pairs of a log. Raises EventLogError for a line that is none, OSError."""
    adapters = {name: TypeAdapter(kind) for kind, name in EVENT_NAMES.items()}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                values = json.loads(line)
                nic, name = values.pop("nic"), values.pop("event")
                adapter = adapters[name]
                event: Event = adapter.validate_python(values)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                reason = str(error).split("\n", 1)[0]
                raise EventLogError(f"{path}:{number}: not an event: {reason}") from None
            yield nic, event
