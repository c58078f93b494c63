"""Brings switches to their plan over P4Runtime, and checks that they are there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from finsy.p4schema import P4UpdateType

from controller.p4runtime import Pipeline, SwitchClient, SwitchError
from controller.plan import TABLES, Difference, Entry, compare, entries
from controller.topology import SwitchSpec, Topology
from controller.topology_checks import check_pushable

DEFAULT_ELECTION_ID = 10
DEFAULT_TIMEOUT = 10.0
"""Seconds that a switch has for each answer."""

CONCURRENT_SWITCHES = 16
_BATCH = 500
"""Updates per request: few round trips, and a request far below gRPC's usual limit of 4 MiB."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push did to a switch, in entries. `errors` are one line each, without the switch's name."""

    switch: str
    pipeline_set: bool = False
    inserted: int = 0
    modified: int = 0
    deleted: int = 0
    unchanged: int = 0
    errors: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return self.pipeline_set or bool(self.inserted or self.modified or self.deleted)


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """How a switch differs from its plan; `error` says in one line why that is unknown."""

    switch: str
    difference: Difference | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        """The switch runs the pipeline and holds exactly the planned entries."""
        return self.difference is not None and not self.difference


async def push(
    topo: Topology,
    pipeline: Pipeline,
    *,
    only: Collection[str] = (),
    election_id: int = DEFAULT_ELECTION_ID,
    answer_timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[PushResult], None] | None = None,
) -> list[PushResult]:
    """Bring the switches to their plan, concurrently; one result per switch, in the topology's order.

    `only` names switches; without it, all are meant. A switch that runs another pipeline gets this one; then only the
    entries that differ are written. A switch that fails does not hold up the others, and whatever a push leaves undone,
    also one that is killed, the next one does. `progress` is called as each one ends. Raises FileError if the topology
    cannot be pushed to v1model switches, UnknownNodeError for a switch that it does not have.
    """
    check_pushable(topo)

    async def work(switch: SwitchSpec) -> PushResult:
        try:
            async with SwitchClient(switch.control, pipeline, answer_timeout) as client:
                await client.become_primary(election_id)
                return await bring_to_plan(topo, switch, client, pipeline)
        except SwitchError as error:
            return PushResult(switch.name, errors=(str(error),))

    return await _for_each(chosen(topo, only), work, progress)


async def verify(
    topo: Topology,
    pipeline: Pipeline,
    *,
    only: Collection[str] = (),
    answer_timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[VerifyResult], None] | None = None,
) -> list[VerifyResult]:
    """Read the switches back and compare; one result per switch, in the topology's order. Writes nothing.

    `only` names switches; without it, all are meant. Raises FileError if the topology cannot be pushed to v1model
    switches, UnknownNodeError for a switch that it does not have.
    """
    check_pushable(topo)

    async def work(switch: SwitchSpec) -> VerifyResult:
        try:
            async with SwitchClient(switch.control, pipeline, answer_timeout) as client:
                cookie = await client.cookie()
                if cookie != pipeline.cookie:
                    runs = "no pipeline" if cookie is None else f"another pipeline (cookie {cookie:#x})"
                    raise SwitchError(f"runs {runs}, not the planned one (cookie {pipeline.cookie:#x})")
                return VerifyResult(switch.name, compare(entries(topo, switch), await client.read()))
        except SwitchError as error:
            return VerifyResult(switch.name, error=str(error))

    return await _for_each(chosen(topo, only), work, progress)


def chosen(topo: Topology, only: Collection[str]) -> list[SwitchSpec]:
    """The switches of these names in the topology's order, all without a name. Raises UnknownNodeError."""
    if not only:
        return list(topo.switches())
    wanted = {topo.switch(name).name for name in only}
    return [switch for switch in topo.switches() if switch.name in wanted]


async def bring_to_plan(topo: Topology, switch: SwitchSpec, client: SwitchClient, pipeline: Pipeline) -> PushResult:
    """Set a switch's pipeline, unless it runs it, and write what its entries lack. `client` must be its primary.

    A plan that does not fit is not begun. Raises SwitchError until the first entry is written, after that it is in
    the result.
    """
    planned = list(entries(topo, switch))
    pipeline.check_fits(planned)
    pipeline_set = await client.cookie() != pipeline.cookie
    if pipeline_set:
        await client.commit_pipeline()
    present = await client.read()
    difference = compare(planned, present)
    done: Counter[P4UpdateType] = Counter()
    errors: list[str] = []
    try:
        for update, batch in requests(difference, pipeline.room(present)):
            refusals = await client.write(update, batch)
            done[update] += len(batch) - len(refusals)
            errors += map(str, refusals)
    except SwitchError as error:
        errors.append(str(error))
    return PushResult(
        switch.name,
        pipeline_set,
        done[P4UpdateType.INSERT],
        done[P4UpdateType.MODIFY],
        done[P4UpdateType.DELETE],
        difference.unchanged,
        tuple(errors),
    )


def requests(difference: Difference, room: Mapping[str, int]) -> Iterator[tuple[P4UpdateType, list[Entry]]]:
    """What to write, in order. A switch may apply one request's updates in any order: one table each.

    Make before break: what has a way before and after has one all the time, because what is new comes first, and what
    it replaces goes last. Only where a table's `room` (entries that it can still take) is too small for that, its
    deletes go first, or a full table could keep a push from ever getting through.
    """
    changed = [planned for planned, _ in difference.changed]
    new = Counter(entry.table for entry in difference.missing)
    crowded = [table for table in TABLES if new[table] > room[table]]
    for table in reversed(crowded):
        yield from _batches(P4UpdateType.DELETE, difference.extra, table)
    for table in TABLES:
        yield from _batches(P4UpdateType.MODIFY, changed, table)
        yield from _batches(P4UpdateType.INSERT, difference.missing, table)
    for table in reversed(TABLES):
        if table not in crowded:
            yield from _batches(P4UpdateType.DELETE, difference.extra, table)


def _batches(update: P4UpdateType, updated: list[Entry], table: str) -> Iterator[tuple[P4UpdateType, list[Entry]]]:
    batch = [entry for entry in updated if entry.table == table]
    for start in range(0, len(batch), _BATCH):
        yield update, batch[start : start + _BATCH]


async def _for_each(
    switches: Iterable[SwitchSpec],
    work: Callable[[SwitchSpec], Awaitable[R]],
    progress: Callable[[R], None] | None,
) -> list[R]:
    gate = asyncio.Semaphore(CONCURRENT_SWITCHES)

    async def one(switch: SwitchSpec) -> R:
        async with gate:
            result = await work(switch)
        if progress:
            progress(result)
        return result

    return await asyncio.gather(*map(one, switches))
