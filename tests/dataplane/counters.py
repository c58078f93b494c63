"""Counters as P4Runtime tells them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from finsy import P4Schema
from finsy.proto import p4r

from controller.p4runtime import Pipeline
from controller.plan import Entry


class Count(NamedTuple):
    packets: int
    bytes: int


NOTHING = Count(0, 0)


def counter_entity(schema: P4Schema, name: str, index: int | None = None) -> p4r.Entity:
    """Selects a cell of an indirect counter, or all of them."""
    cell = None if index is None else p4r.Index(index=index)
    return p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=schema.counters[name].id, index=cell))


def counts(entities: Iterable[p4r.Entity]) -> dict[int, Count]:
    """The cells that are not 0, by index."""
    cells = (entity.counter_entry for entity in entities)
    return {
        cell.index.index: Count(cell.data.packet_count, cell.data.byte_count)
        for cell in cells
        if cell.data.packet_count
    }


def direct_counter_entity(pipeline: Pipeline, entry: Entry) -> p4r.Entity:
    """Selects the counter of a table entry."""
    table_entry = pipeline.encode(entry).table_entry
    table_entry.ClearField("action")
    return p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=table_entry))
