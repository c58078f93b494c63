"""Keeps switches at their plan: one that comes back empty is programmed again, one that drifts is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from controller.p4runtime import Pipeline, SwitchClient, SwitchError
from controller.push import (
    CONCURRENT_SWITCHES,
    DEFAULT_ELECTION_ID,
    DEFAULT_TIMEOUT,
    PushResult,
    bring_to_plan,
    chosen,
)
from controller.topology import SwitchSpec, Topology
from controller.topology_checks import check_pushable

DEFAULT_CHECK = 5.0
"""Seconds between two readings of a switch. A switch that restarts ends its stream, which is seen at once."""

DEFAULT_RETRY = 0.5
"""Seconds between two attempts to reach a switch that is away, or to become its primary."""


async def watch(
    topo: Topology,
    pipeline: Pipeline,
    report: Callable[[PushResult], None],
    *,
    only: Collection[str] = (),
    election_id: int = DEFAULT_ELECTION_ID,
    answer_timeout: float = DEFAULT_TIMEOUT,
    check: float = DEFAULT_CHECK,
    retry: float = DEFAULT_RETRY,
) -> None:
    """Keep the switches at their plan until cancelled.

    `report` is told what the first look at a switch led to, once per connection, and then each time that something is
    written or goes wrong; the same trouble again is not told again. `only` names switches; without it, all are meant.
    Raises FileError if the topology cannot be pushed to v1model switches, UnknownNodeError for a switch that it does
    not have.
    """
    check_pushable(topo)
    gate = asyncio.Semaphore(CONCURRENT_SWITCHES)

    async def keep(switch: SwitchSpec) -> None:
        lost = ""
        while True:
            told: tuple[str, ...] | None = None
            try:
                async with SwitchClient(switch.control, pipeline, answer_timeout) as client:
                    await client.become_primary(election_id)
                    while True:
                        async with gate:
                            result = await bring_to_plan(topo, switch, client, pipeline)
                        if result.changed or result.errors != told:
                            report(result)
                        lost, told = "", result.errors
                        await client.stay_primary(check)
            except SwitchError as error:
                # What ended a connection is told by what comes of the next one.
                if told is None and str(error) != lost:
                    report(PushResult(switch.name, errors=(str(error),)))
                    lost = str(error)
            await asyncio.sleep(retry)

    await asyncio.gather(*map(keep, chosen(topo, only)))
