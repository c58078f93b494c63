"""The controller against the embedded switches: the demo's forty, over real gRPC, in one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from finsy.p4schema import P4UpdateType

from controller.p4runtime import Pipeline, SwitchClient
from controller.plan import Entry, entries
from controller.push import PushResult, push, verify
from controller.topology import Topology, preset_text
from controller.yaml_file import Document
from switch_model.device import Device
from switch_model.server import P4RuntimeServer

PIPELINE = Pipeline()


@pytest.fixture
async def demo() -> AsyncIterator[Topology]:
    """The demo's topology, its switches served without a pipeline at a free port."""
    devices = [Device(switch.control.device_id, name=switch.name) for switch in Topology.preset("demo").switches()]
    server = P4RuntimeServer(devices)
    address = await server.start("127.0.0.1:0")
    yield Topology(Document.parse(preset_text("demo").replace("127.0.0.1:9559", address), "demo.yaml"))
    await server.stop()


async def test_push_verify_and_push_again(demo: Topology) -> None:
    assert [result.error for result in await verify(demo, PIPELINE)] == 40 * [
        f"runs no pipeline, not the planned one (cookie {PIPELINE.cookie:#x})"
    ]
    results = await push(demo, PIPELINE)
    sizes = {"t0": 86, "t1": 20}
    assert results == [
        PushResult(switch.name, pipeline_set=True, inserted=sizes[switch.role]) for switch in demo.switches()
    ]
    assert all(result.ok for result in await verify(demo, PIPELINE))
    assert await push(demo, PIPELINE) == [
        PushResult(switch.name, unchanged=sizes[switch.role]) for switch in demo.switches()
    ]


async def test_a_drifted_switch_is_found_and_repaired(demo: Topology) -> None:
    await push(demo, PIPELINE)
    switch = demo.switch("p2t1-5")
    lost = next(entry for entry in entries(demo, switch) if entry.table == "my_sid")
    strange = Entry("fib", (("dst_addr", "fcbb:bbbb:4000::/48"),), "discard", ())
    async with SwitchClient(switch.control, PIPELINE, 10.0) as client:
        await client.become_primary(1)
        assert await client.write(P4UpdateType.DELETE, [lost]) == []
        assert await client.write(P4UpdateType.INSERT, [strange]) == []

    drifted = [result for result in await verify(demo, PIPELINE) if not result.ok]
    assert [result.switch for result in drifted] == ["p2t1-5"]
    assert drifted[0].difference is not None
    assert (drifted[0].difference.missing, drifted[0].difference.extra) == ([lost], [strange])

    repaired = await push(demo, PIPELINE)
    assert PushResult("p2t1-5", inserted=1, deleted=1, unchanged=19) in repaired
    assert all(result.ok for result in await verify(demo, PIPELINE))


async def test_what_the_switch_refuses_is_named(demo: Topology) -> None:
    await push(demo, PIPELINE)
    switch = demo.switch("p0t0-0")
    entry = next(entries(demo, switch))
    async with SwitchClient(switch.control, PIPELINE, 10.0) as client:
        await client.become_primary(1)
        refusals = await client.write(P4UpdateType.INSERT, [entry, entry._replace(match=(("next_hop_id", 999),))])
    assert len(refusals) == 1
    assert str(refusals[0]).startswith(f"insert {entry}: ALREADY_EXISTS")
