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


@pytest.fixture
async def tiny() -> AsyncIterator[Topology]:
    """Three switches, each a BMv2 process without a pipeline at an address of its own."""
    text = TINY.replace("ADDRESS", "127.0.0.1:1") + "overrides:\n  switches:\n"
    names = ["p0t0-0", "p0t0-1", "p0t1-0"]
    ports = free_ports(2 * len(names))
    processes = []
    try:
        for device_id, name in enumerate(names, start=1):
            address, thrift = f"127.0.0.1:{ports.pop()}", str(ports.pop())
            options = ["--no-p4", "--device-id", str(device_id), "--thrift-port", thrift]
            processes.append(
                await asyncio.create_subprocess_exec(
                    str(BMV2),
                    *options,
                    "--",
                    "--grpc-server-addr",
                    address,
                    "--priority-queues",
                    "8",
                    "--cpu-port",
                    "510",
                    stdout=asyncio.subprocess.DEVNULL,
                )
            )
            async with grpc.aio.insecure_channel(address) as channel:
                await asyncio.wait_for(channel.channel_ready(), START_TIMEOUT)
            text += f"    {name}: {{address: {address}}}\n"
        yield Topology(Document.parse(text, "tiny.yaml"))
    finally:
        for process in processes:
            process.kill()
            await process.wait()


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
