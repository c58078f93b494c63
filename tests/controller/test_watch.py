"""Watching embedded switches: what restarts is programmed again, what drifts is repaired, and it is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from finsy.p4schema import P4UpdateType

from controller.p4runtime import Pipeline, SwitchClient
from controller.plan import entries
from controller.push import PushResult, push, verify
from controller.topology import Topology
from controller.watch import watch
from switch_model.device import Device
from switch_model.server import P4RuntimeServer
from tests.controller.fake_p4runtime import FakeDevice, FakeP4Runtime
from tests.controller.test_push import T0, T1, tiny

PIPELINE = Pipeline()
RETRY = 0.01
NEVER, SOON = 3600.0, 0.05
"""Seconds between two readings."""


class Switches:
    """The three switches of `tiny`, at one address, which can be restarted: then they have forgotten everything."""

    def __init__(self) -> None:
        self.address = "127.0.0.1:0"

    async def start(self) -> None:
        self._server = P4RuntimeServer(Device(number) for number in (1, 2, 3))
        self.address = await self._server.start(self.address)

    async def stop(self) -> None:
        await self._server.stop()


@pytest.fixture
async def switches() -> AsyncIterator[Switches]:
    started = Switches()
    await started.start()
    yield started
    await started.stop()


class Watching:
    """A watch under way; `told` gives what it reports."""

    def __init__(self, topo: Topology, check: float, only: tuple[str, ...] = ()) -> None:
        self._reports: asyncio.Queue[PushResult] = asyncio.Queue()
        report = self._reports.put_nowait
        self._task = asyncio.create_task(watch(topo, PIPELINE, report, only=only, check=check, retry=RETRY))

    async def __aenter__(self) -> Watching:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        assert self._task.cancelled()
        assert self._reports.empty()

    async def told(self, count: int) -> list[PushResult]:
        """The next reports, sorted by switch."""
        async with asyncio.timeout(20):
            return sorted([await self._reports.get() for _ in range(count)], key=lambda result: result.switch)


PROGRAMMED = [
    PushResult("p0t0-0", pipeline_set=True, inserted=T0),
    PushResult("p0t0-1", pipeline_set=True, inserted=T0),
    PushResult("p0t1-0", pipeline_set=True, inserted=T1),
]


async def test_switches_that_restart_are_programmed_again(switches: Switches) -> None:
    topo = tiny(switches.address)
    async with Watching(topo, NEVER) as watching:
        assert await watching.told(3) == PROGRAMMED
        for _ in range(2):
            await switches.stop()
            lost: set[str] = set()
            while len(lost) < 3:
                [result] = await watching.told(1)
                assert result.errors and not result.changed
                lost.add(result.switch)
            await switches.start()
            again: list[PushResult] = []
            while len(again) < 3:  # a switch may be found away in more than one way
                again += [result for result in await watching.told(1) if not result.errors]
            assert sorted(again, key=lambda result: result.switch) == PROGRAMMED
        assert all(result.ok for result in await verify(topo, PIPELINE))


async def test_what_drifts_is_repaired_at_the_next_reading(switches: Switches) -> None:
    topo = tiny(switches.address)
    await push(topo, PIPELINE)
    async with Watching(topo, SOON, ("p0t1-0",)) as watching:
        assert await watching.told(1) == [PushResult("p0t1-0", unchanged=T1)]
        switch = topo.switch("p0t1-0")
        lost = [entry for entry in entries(topo, switch) if entry.table == "fib"]
        async with SwitchClient(switch.control, PIPELINE, 10.0) as other:
            await other.become_primary(11)
            assert await watching.told(1) == [
                PushResult("p0t1-0", errors=("not primary with election id 10: a controller with 11 is",))
            ]
            assert await other.write(P4UpdateType.DELETE, lost) == []
        # The other one has left, so that this one may write again.
        assert await watching.told(1) == [PushResult("p0t1-0", inserted=len(lost), unchanged=T1 - len(lost))]


async def test_the_same_trouble_is_told_once() -> None:
    async with FakeP4Runtime({1: FakeDevice(), 2: FakeDevice(), 3: FakeDevice()}) as fake:
        refused = asyncio.Event()
        tries = 0

        async def before(method: str) -> None:
            nonlocal tries
            tries += method == "SetForwardingPipelineConfig"
            if tries == 5:
                refused.set()

        device = fake.devices[2]
        device.refuse_pipeline, device.before = "no", before
        async with Watching(tiny(fake.address), NEVER, ("p0t0-1",)) as watching:
            assert await watching.told(1) == [PushResult("p0t0-1", errors=("INVALID_ARGUMENT: no",))]
            await asyncio.wait_for(refused.wait(), 20)
            device.refuse_pipeline = ""
            assert await watching.told(1) == [PROGRAMMED[1]]
