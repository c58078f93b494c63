"""The controller against BMv2, where simple_switch_grpc is installed: the same pipeline, the same entries."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator

import grpc
import pytest
from finsy.p4schema import P4UpdateType

from controller.p4runtime import Pipeline, SwitchClient
from controller.plan import entries
from controller.push import PushResult, push, verify
from controller.topology import Topology
from controller.watch import watch
from controller.yaml_file import Document
from tests.controller.test_push import T0, T1, TINY, group

BMV2 = shutil.which("simple_switch_grpc")
START_TIMEOUT = 20.0

pytestmark = pytest.mark.skipif(BMV2 is None, reason="simple_switch_grpc (BMv2) is not installed")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Bmv2:
    """A BMv2 process without a pipeline, at an address that it keeps when it is started again."""

    def __init__(self, device_id: int) -> None:
        port, self._thrift = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._device_id = device_id

    async def start(self) -> None:
        options = ["--no-p4", "--device-id", str(self._device_id), "--thrift-port", str(self._thrift)]
        target = ["--grpc-server-addr", self.address, "--priority-queues", "8", "--cpu-port", "510"]
        self._process = await asyncio.create_subprocess_exec(
            str(BMV2), *options, "--", *target, stdout=asyncio.subprocess.DEVNULL
        )
        async with grpc.aio.insecure_channel(self.address) as channel:
            await asyncio.wait_for(channel.channel_ready(), START_TIMEOUT)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@pytest.fixture
async def processes() -> AsyncIterator[list[Bmv2]]:
    started: list[Bmv2] = []
    try:
        for device_id in (1, 2, 3):
            process = Bmv2(device_id)
            await process.start()
            started.append(process)
        yield started
    finally:
        for process in started:
            await process.kill()


@pytest.fixture
def tiny(processes: list[Bmv2]) -> Topology:
    """Three switches, each a process."""
    names = ["p0t0-0", "p0t0-1", "p0t1-0"]
    text = TINY.replace("ADDRESS", "127.0.0.1:1") + "overrides:\n  switches:\n"
    for name, process in zip(names, processes, strict=True):
        text += f"    {name}: {{address: {process.address}}}\n"
    return Topology(Document.parse(text, "tiny.yaml"))


async def test_push_verify_and_repair(tiny: Topology) -> None:
    pipeline = Pipeline()
    assert not any(result.ok for result in await verify(tiny, pipeline))
    assert await push(tiny, pipeline) == [
        PushResult("p0t0-0", pipeline_set=True, inserted=T0),
        PushResult("p0t0-1", pipeline_set=True, inserted=T0),
        PushResult("p0t1-0", pipeline_set=True, inserted=T1),
    ]
    assert all(result.ok for result in await verify(tiny, pipeline))

    assert all(not result.inserted and not result.modified for result in await push(tiny, pipeline))

    switch = tiny.switch("p0t0-1")
    plan = list(entries(tiny, switch))
    planned_group = next(entry for entry in plan if entry.members)
    async with SwitchClient(switch.control, pipeline, 10.0) as client:
        await client.become_primary(1)
        assert [str(refusal) for refusal in await client.write(P4UpdateType.INSERT, plan[:1])] == [
            f"insert {plan[0]}: ALREADY_EXISTS: Match entry exists, use MODIFY if you wish to change action"
        ]
        assert await client.write(P4UpdateType.DELETE, plan[-1:]) == []
        assert await client.write(P4UpdateType.MODIFY, [group(9, 2, 9, 7)]) == []
    drifted = (await verify(tiny, pipeline))[1]
    assert drifted.difference is not None
    assert drifted.difference.missing == [plan[-1]]
    assert drifted.difference.changed == [(planned_group, group(2, 7, 9, 9))]
    assert (await push(tiny, pipeline))[1] == PushResult("p0t0-1", inserted=1, modified=1, unchanged=T0 - 2)
    assert all(result.ok for result in await verify(tiny, pipeline))


async def test_a_switch_that_is_killed_and_started_again_is_programmed_again(
    tiny: Topology, processes: list[Bmv2]
) -> None:
    reports: asyncio.Queue[PushResult] = asyncio.Queue()
    pipeline = Pipeline()
    watching = asyncio.create_task(watch(tiny, pipeline, reports.put_nowait, check=3600, retry=0.1))
    async with asyncio.timeout(60):
        assert {(await reports.get()).inserted for _ in range(3)} == {T0, T1}
        await processes[1].kill()
        away = await reports.get()
        assert away.switch == "p0t0-1"
        assert away.errors == (f"cannot reach {processes[1].address}: Connection refused",)
        await processes[1].start()
        assert await reports.get() == PushResult("p0t0-1", pipeline_set=True, inserted=T0)
        assert all(result.ok for result in await verify(tiny, pipeline))
    watching.cancel()
