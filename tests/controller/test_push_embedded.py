"""The controller against the embedded switches: the demo's forty, over real gRPC, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from finsy.p4schema import P4UpdateType
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

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


async def test_a_push_onto_a_live_switch_loses_no_packet() -> None:
    """The fabric grows, and shrinks again: entries of all tables are added, changed and removed under traffic.

    Four rows are one prefix for the guard and two rows another one, so that what plain packets may pass by is replaced.
    """
    device = Device(1, name="p0t0-0")
    server = P4RuntimeServer([device])
    address = await server.start("127.0.0.1:0")
    demo = preset_text("demo").replace("127.0.0.1:9559", address)
    small = Topology(Document.parse(demo, "demo.yaml"))
    grown_text = demo.replace("rows: 2 ", "rows: 4 ").replace("t1_per_plane: 8", "t1_per_plane: 12")
    grown_text += "queues: {data_packets: 32, mark_from: 5, mark_to: 20}\ntrim_size: 256\n"
    grown = Topology(Document.parse(grown_text, "grown.yaml"))

    sender, receiver = small.nic("nic0").ports[0], small.nic("nic4").ports[0]
    inner = IPv6(src=str(sender.address), dst=str(receiver.address)) / UDP()
    ether = Ether(dst=small.switch("p0t0-0").mac, src=sender.mac)
    uplink_3 = small.nics_per_row + 1 + 3
    srv6 = bytes(ether / IPv6(src=str(sender.address), dst="fcbb:bbbb:2000:4003:2001:e000::") / inner)
    plain = bytes(ether / inner)

    def forwarded(frame: bytes) -> int:
        port = device.ingress(1, (frame, b""), 0)
        assert device.dequeue(port, 0) is not None
        return port

    await push(small, PIPELINE, only=["p0t0-0"])
    for topo in (grown, small):
        work = asyncio.create_task(push(topo, PIPELINE, only=["p0t0-0"]))
        while not work.done():
            assert forwarded(srv6) == uplink_3
            assert small.nics_per_row < forwarded(plain) <= topo.nics_per_row + grown.t1_per_plane
            await asyncio.sleep(0)
        [result] = work.result()
        assert result.inserted and result.modified and result.deleted and not result.errors
        assert [verified.ok for verified in await verify(topo, PIPELINE, only=["p0t0-0"])] == [True]
    await server.stop()


async def test_what_the_switch_refuses_is_named(demo: Topology) -> None:
    await push(demo, PIPELINE)
    switch = demo.switch("p0t0-0")
    entry = next(entries(demo, switch))
    async with SwitchClient(switch.control, PIPELINE, 10.0) as client:
        await client.become_primary(1)
        refusals = await client.write(P4UpdateType.INSERT, [entry, entry._replace(match=(("next_hop_id", 999),))])
    assert len(refusals) == 1
    assert str(refusals[0]).startswith(f"insert {entry}: ALREADY_EXISTS")
