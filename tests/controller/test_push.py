"""Pushing and verifying against a fake server: what is written, in which order, and what a failure says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from finsy.p4schema import P4UpdateType
from finsy.proto import p4r, rpc_code

from controller.p4runtime import Pipeline
from controller.plan import TABLES, Difference, Entry, Member, action_set, entries
from controller.push import PushResult, VerifyResult, push, requests, verify
from controller.topology import Topology, UnknownNodeError
from controller.yaml_file import Document, FileError
from tests.controller.fake_p4runtime import FakeDevice, FakeP4Runtime, entry_key

# p0t0-0 is device 1, p0t0-1 device 2, p0t1-0 device 3; each has two ports.
T0 = 2 + 1 + (2 + 1 + 1) + 1 + 6 + 2 + 2 + 1 + 2 + 1 + 2
T1 = 2 + (2 + 2) + 1 + 6 + 2 + 2 + 1 + 2
"""Their numbers of entries, in the order of TABLES."""

TINY = """\
schema: 1
name: tiny
planes: 1
rows: 2
t1_per_plane: 1
nics_per_row: 1
block: fcbb:bbbb::/32
nic_prefix: fd00:6d72:6300::/48
switch_prefix: fd00:6d72:6301::/48
links: {nic: {rate_gbps: 100, delay_ns: 500}, fabric: {rate_gbps: 100, delay_ns: 500}}
control: {address: "ADDRESS"}
"""

PIPELINE = Pipeline()
TABLE_NAMES = {table.id: table.alias for table in PIPELINE.schema.tables}


def tiny(address: str) -> Topology:
    return Topology(Document.parse(TINY.replace("ADDRESS", address), "tiny.yaml"))


@pytest.fixture
async def fake() -> AsyncIterator[FakeP4Runtime]:
    async with FakeP4Runtime({1: FakeDevice(), 2: FakeDevice(), 3: FakeDevice()}) as server:
        yield server


def fib(prefix: str, hop: int) -> Entry:
    return Entry("fib", (("dst_addr", prefix),), "route_to", (("next_hop_id", hop),))


def member(hop: int, weight: int = 1) -> Member:
    return Member("set_next_hop", (("next_hop_id", hop),), weight)


def group(*hops: int) -> Entry:
    return action_set("ecmp_group", (("group_id", 1),), map(member, hops))


def put(device: FakeDevice, entry: Entry) -> None:
    message = PIPELINE.encode(entry).table_entry
    device.entries[entry_key(message)] = message


def remove(device: FakeDevice, entry: Entry) -> None:
    del device.entries[entry_key(PIPELINE.encode(entry).table_entry)]


def test_the_plan_knows_all_tables_of_the_program() -> None:
    assert sorted(TABLE_NAMES.values()) == sorted(TABLES)


@pytest.mark.parametrize("preset", ["demo", "compose"])
def test_entries_survive_the_way_through_p4runtime(preset: str) -> None:
    topo = Topology.preset(preset)
    for switch in topo.switches():
        for entry in entries(topo, switch):
            assert PIPELINE.decode(PIPELINE.encode(entry)) == entry


def test_an_entry_as_p4runtime_bytes() -> None:
    message = PIPELINE.encode(fib("fcbb:bbbb:2000::/48", 9)).table_entry
    assert TABLE_NAMES[message.table_id] == "fib"
    assert message.match[0].lpm.value == bytes.fromhex("fcbbbbbb2000" + "00" * 10)
    assert message.match[0].lpm.prefix_len == 48
    assert message.action.action.params[0].value == b"\x09"


def test_an_action_set_as_p4runtime_bytes() -> None:
    message = PIPELINE.encode(
        action_set("ecmp_group", (("group_id", 1),), [member(5), member(6, weight=2)])
    ).table_entry
    assert TABLE_NAMES[message.table_id] == "ecmp_group"
    actions = message.action.action_profile_action_set.action_profile_actions
    assert [(one.weight, one.action.params[0].value) for one in actions] == [(1, b"\x05"), (2, b"\x06")]
    assert not any(one.HasField("watch_port") or one.watch for one in actions)


async def test_a_push_to_empty_switches_then_another(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)
    seen: list[PushResult] = []
    assert await push(topo, PIPELINE, progress=seen.append) == [
        PushResult("p0t0-0", pipeline_set=True, inserted=T0),
        PushResult("p0t0-1", pipeline_set=True, inserted=T0),
        PushResult("p0t1-0", pipeline_set=True, inserted=T1),
    ]
    assert sorted(result.switch for result in seen) == ["p0t0-0", "p0t0-1", "p0t1-0"]
    for device in fake.devices.values():
        written = [(kind, {TABLE_NAMES[table] for table in tables}) for kind, tables in device.writes]
        held = {TABLE_NAMES[entry.table_id] for entry in device.entries.values()}
        assert written == [("INSERT", {table}) for table in TABLES if table in held]
        device.writes.clear()
    assert all(result.ok for result in await verify(topo, PIPELINE))

    assert await push(topo, PIPELINE) == [
        PushResult("p0t0-0", unchanged=T0),
        PushResult("p0t0-1", unchanged=T0),
        PushResult("p0t1-0", unchanged=T1),
    ]
    assert not any(device.writes for device in fake.devices.values())


async def test_only_the_difference_is_written(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)
    await push(topo, PIPELINE)
    device = fake.devices[1]
    device.writes.clear()
    remove(device, fib("fcbb:bbbb:4000::/48", 2))
    put(device, fib("fcbb:bbbb:e000::/48", 2))
    put(device, fib("fcbb:bbbb:4321::/48", 1))
    put(device, Entry("my_sid", (("dst_addr", "fcbb:bbbb:1::/48"),), "end_un", ()))

    assert (await verify(topo, PIPELINE))[0].difference
    assert (await push(topo, PIPELINE))[0] == PushResult("p0t0-0", inserted=1, modified=1, deleted=2, unchanged=T0 - 2)
    assert [(kind, [TABLE_NAMES[table] for table in tables]) for kind, tables in device.writes] == [
        ("MODIFY", ["fib"]),
        ("INSERT", ["fib"]),
        ("DELETE", ["my_sid"]),
        ("DELETE", ["fib"]),
    ]
    assert all(result.ok for result in await verify(topo, PIPELINE))


def test_what_is_new_comes_before_what_it_replaces_goes() -> None:
    old, new, moved = fib("fcbb:bbbb:1::/48", 1), fib("fcbb:bbbb:2::/48", 2), fib("fcbb:bbbb:3::/48", 3)
    own, station = Entry("my_sid", (("dst_addr", "::/48"),), "end_un", ()), Entry("my_station", (), "admit_frame", ())
    difference = Difference([new, station], [old, own], [(moved, fib("fcbb:bbbb:3::/48", 4))], 0)
    roomy = dict.fromkeys(TABLES, 1)
    made_first = [
        (P4UpdateType.MODIFY, [moved]),
        (P4UpdateType.INSERT, [new]),
        (P4UpdateType.INSERT, [station]),
        (P4UpdateType.DELETE, [own]),
        (P4UpdateType.DELETE, [old]),
    ]
    assert list(requests(difference, roomy)) == made_first
    # A full table has to lose something first, and it alone.
    assert list(requests(difference, roomy | {"fib": 0})) == [made_first[-1], *made_first[:-1]]


async def test_a_full_table_is_exchanged(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)
    await push(topo, PIPELINE)
    device = fake.devices[3]
    size = PIPELINE.schema.tables["punt"].size
    punt = next(entry for entry in entries(topo, topo.switch("p0t1-0")) if entry.table == "punt")
    remove(device, punt)
    table = [Entry("punt", (("drop_reason", reason),), "punt_to_controller", ()) for reason in range(100, 100 + size)]
    for entry in table:
        put(device, entry)

    def refuse(update: p4r.Update) -> tuple[int, str] | None:
        held = sum(TABLE_NAMES[entry.table_id] == "punt" for entry in device.entries.values())
        full = update.type == p4r.Update.INSERT and held >= size
        return (rpc_code.RESOURCE_EXHAUSTED, "full") if full else None

    device.refuse = refuse
    assert (await push(topo, PIPELINE))[2] == PushResult("p0t1-0", inserted=1, deleted=size, unchanged=T1 - 1)


async def test_only_the_chosen_switches(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)
    results = await push(topo, PIPELINE, only=["p0t1-0", "p0t0-1"])
    assert [(result.switch, result.inserted) for result in results] == [("p0t0-1", T0), ("p0t1-0", T1)]
    assert fake.devices[1].config is None
    assert [result.switch for result in await verify(topo, PIPELINE, only=["p0t1-0"])] == ["p0t1-0"]
    with pytest.raises(UnknownNodeError, match="no switch 'p0t0-2' in tiny"):
        await push(topo, PIPELINE, only=["p0t0-2"])


async def test_a_push_that_is_interrupted_anywhere_is_completed_by_the_next(fake: FakeP4Runtime) -> None:
    """Cut before each of its requests in turn, from where the last one left things to all that a push writes."""
    topo = tiny(fake.address)
    before = count_requests(fake)
    await push(topo, PIPELINE)
    total = before.total
    assert total > 3 * (4 + 8)
    for cut in range(1, total + 1):
        for device in fake.devices.values():
            device.config, device.entries = None, {}
        before = count_requests(fake, cut)
        work = asyncio.create_task(push(topo, PIPELINE))
        await before.reached.wait()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        before.release.set()
        count_requests(fake)
        assert not any(result.errors for result in await push(topo, PIPELINE))
        assert all(result.ok for result in await verify(topo, PIPELINE))


@dataclass
class Requests:
    """How many requests have come; the one with the number `hold` waits for `release`."""

    hold: int = 0
    total: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def before(self, method: str) -> None:  # noqa: ARG002
        self.total += 1
        if self.total == self.hold:
            self.reached.set()
            await self.release.wait()


def count_requests(fake: FakeP4Runtime, hold: int = 0) -> Requests:
    requests = Requests(hold)
    for device in fake.devices.values():
        device.before = requests.before
    return requests


async def test_verify_names_every_entry_that_differs(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)
    await push(topo, PIPELINE)
    device = fake.devices[2]
    remove(device, fib("fcbb:bbbb:4000::/48", 2))
    put(device, fib("fcbb:bbbb:e000::/48", 2))
    put(device, fib("fcbb:bbbb:4321::/48", 1))
    results = await verify(topo, PIPELINE)
    assert [result.ok for result in results] == [True, False, True]
    difference = results[1].difference
    assert difference is not None
    assert difference.missing == [fib("fcbb:bbbb:4000::/48", 2)]
    assert difference.extra == [fib("fcbb:bbbb:4321::/48", 1)]
    assert difference.changed == [(fib("fcbb:bbbb:e000::/48", 1), fib("fcbb:bbbb:e000::/48", 2))]
    assert difference.unchanged == T0 - 2


async def test_default_entries_are_not_compared(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)
    await push(topo, PIPELINE)
    table = PIPELINE.schema.tables["fib"]
    fake.devices[1].entries[b"default"] = p4r.TableEntry(table_id=table.id, is_default_action=True)
    assert all(result.ok for result in await verify(topo, PIPELINE))


async def test_a_big_table_goes_in_several_requests(fake: FakeP4Runtime) -> None:
    topo = Topology(
        Document.parse(
            TINY.replace("ADDRESS", fake.address).replace("nics_per_row: 1", "nics_per_row: 400"), "big.yaml"
        )
    )
    results = await push(topo, PIPELINE)
    requests = [401, 1, 500, 302, 1, 6, 401, 401, 1, 500, 300, 400, 401]
    assert results[0] == PushResult("p0t0-0", pipeline_set=True, inserted=sum(requests))
    assert [len(tables) for _, tables in fake.devices[1].writes] == requests


async def test_what_is_named_is_written_before_what_names_it(fake: FakeP4Runtime) -> None:
    """A group that gets a member back: the next hop first."""
    topo = tiny(fake.address)
    await push(topo, PIPELINE)
    device = fake.devices[1]
    device.writes.clear()
    hop = next(entry for entry in entries(topo, topo.switch("p0t0-0")) if entry.match == (("next_hop_id", 2),))
    remove(device, hop)
    put(device, group(1))
    assert (await push(topo, PIPELINE))[0] == PushResult("p0t0-0", inserted=1, modified=1, unchanged=T0 - 2)
    assert [(kind, [TABLE_NAMES[table] for table in tables]) for kind, tables in device.writes] == [
        ("INSERT", ["next_hop"]),
        ("MODIFY", ["ecmp_group"]),
    ]
    assert all(result.ok for result in await verify(topo, PIPELINE))


def test_a_group_reads_back_as_planned_however_the_switch_tells_it() -> None:
    """A member of weight 2 may be told as two members of weight 1, and members in any order."""
    weighted = action_set("ecmp_group", (("group_id", 1),), [member(5), member(6, weight=2)])
    message = PIPELINE.encode(weighted)
    actions = message.table_entry.action.action_profile_action_set.action_profile_actions
    five, six = actions
    six.weight = 1
    actions.MergeFrom([six, five])
    del actions[0]
    assert PIPELINE.decode(message) == weighted


async def test_a_plan_that_is_too_big_for_a_table_is_not_begun(fake: FakeP4Runtime) -> None:
    # NICs of two tenants by turns: each is let to its block, and to 400 single addresses.
    nics = ", ".join(f"nic{nic}" for nic in range(0, 800, 2)), ", ".join(f"nic{nic}" for nic in range(1, 800, 2))
    tenants = "".join(
        f"- {{name: {name}, block: 'fcaa:{name}::/32', nics: [{own}]}}\n" for name, own in zip("ab", nics, strict=True)
    )
    text = TINY.replace("ADDRESS", fake.address).replace("nics_per_row: 1", "nics_per_row: 400")
    text = text.replace("block: fcbb:bbbb::/32\n", f"tenants:\n{tenants}")
    results = await push(Topology(Document.parse(text, "big.yaml")), PIPELINE)
    count = 400 * (1 + 400)
    assert results[0] == PushResult(
        "p0t0-0", errors=(f"the plan has {count} entries for guard, which has room for 2048",)
    )
    assert fake.devices[1].config is None
    assert results[2].pipeline_set


async def test_a_refused_entry_is_named_and_the_rest_is_written(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)

    def refuse(update: p4r.Update) -> tuple[int, str] | None:
        entry = PIPELINE.decode(update.entity)
        if entry.table == "fib" and entry.match[0][1] in ("fcbb:bbbb:4000::/48", "fd00:6d72:6300::/128"):
            return rpc_code.RESOURCE_EXHAUSTED, "fib is full"
        return None

    fake.devices[1].refuse = refuse
    results = await push(topo, PIPELINE)
    assert results[0] == PushResult(
        "p0t0-0",
        pipeline_set=True,
        inserted=T0 - 2,
        errors=(
            "insert fib dst_addr=fcbb:bbbb:4000::/48 -> route_to(next_hop_id=2): RESOURCE_EXHAUSTED: fib is full",
            "insert fib dst_addr=fd00:6d72:6300::/128 -> route_to(next_hop_id=1): RESOURCE_EXHAUSTED: fib is full",
        ),
    )
    assert results[1] == PushResult("p0t0-1", pipeline_set=True, inserted=T0)
    assert len(fake.devices[1].entries) == T0 - 2


def primary_with_77(device: FakeDevice) -> None:
    device.primary_id = device.highest_id = 77


def primary_with_10(device: FakeDevice) -> None:
    device.primary_id = device.highest_id = 10


def refuses_pipeline(device: FakeDevice) -> None:
    device.refuse_pipeline = "fib: match kind not supported"


def closes_stream(device: FakeDevice) -> None:
    device.close_stream = True


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (primary_with_77, "not primary with election id 10: a controller with 77 is"),
        (primary_with_10, "not primary: another controller has election id 10 too"),
        (refuses_pipeline, "INVALID_ARGUMENT: fib: match kind not supported"),
        (closes_stream, "ADDRESS closed the stream"),
    ],
)
async def test_a_switch_that_fails_does_not_hold_up_the_others(
    fake: FakeP4Runtime, fault: Callable[[FakeDevice], None], error: str
) -> None:
    fault(fake.devices[2])
    results = await push(tiny(fake.address), PIPELINE)
    assert results == [
        PushResult("p0t0-0", pipeline_set=True, inserted=T0),
        PushResult("p0t0-1", errors=(error.replace("ADDRESS", fake.address),)),
        PushResult("p0t1-0", pipeline_set=True, inserted=T1),
    ]


@pytest.mark.parametrize("method", ["SetForwardingPipelineConfig", "Write"])
async def test_who_lost_while_pushing_says_who_won(fake: FakeP4Runtime, method: str) -> None:
    device = fake.devices[2]

    async def before(called: str) -> None:
        if called == method:
            await fake.take_over(device, 78)

    device.before = before
    results = await push(tiny(fake.address), PIPELINE)
    assert results[1].errors == ("not primary any more: a controller with election id 78 is",)
    assert (results[1].pipeline_set, results[1].inserted) == (method == "Write", 0)
    assert results[0] == PushResult("p0t0-0", pipeline_set=True, inserted=T0)


METHODS = ["StreamChannel", "GetForwardingPipelineConfig", "SetForwardingPipelineConfig", "Read", "Write"]
CODES = [
    (grpc.StatusCode.INTERNAL, "boom"),
    (grpc.StatusCode.UNIMPLEMENTED, ""),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "16 streams are open"),
    (grpc.StatusCode.UNAUTHENTICATED, "who are you"),
    (grpc.StatusCode.UNKNOWN, "no details"),
    (grpc.StatusCode.ABORTED, "later"),
    (grpc.StatusCode.DATA_LOSS, "flash"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("code", "message"), CODES)
async def test_what_a_method_ends_with_is_told(
    fake: FakeP4Runtime, method: str, code: grpc.StatusCode, message: str
) -> None:
    fake.devices[2].fail_in[method] = code, message
    topo = tiny(fake.address)
    reason = f"{code.name}: {message}" if message else code.name
    results = await push(topo, PIPELINE)
    assert results[1].errors == (reason,)
    assert [result.inserted for result in results] == [T0, 0, T1]
    fake.devices[2].config = fake.devices[1].config
    verified = await verify(topo, PIPELINE)
    assert verified[1].error == (reason if method in ("GetForwardingPipelineConfig", "Read") else "")


async def test_a_switch_that_refuses_to_be_written(fake: FakeP4Runtime) -> None:
    fake.devices[1].refuse_writes = "not primary"
    results = await push(tiny(fake.address), PIPELINE)
    assert results[0] == PushResult("p0t0-0", pipeline_set=True, errors=("PERMISSION_DENIED: not primary",))


@pytest.mark.parametrize("method", METHODS)
async def test_a_switch_that_does_not_answer(fake: FakeP4Runtime, method: str) -> None:
    fake.devices[1].silent_in = method
    results = await push(tiny(fake.address), PIPELINE, answer_timeout=0.2)
    assert results[0].errors == (f"no answer from {fake.address} within 0.2 s",)


async def test_an_election_id_that_is_high_enough_is_taken_over_from_who_left(fake: FakeP4Runtime) -> None:
    fake.devices[1].highest_id = 77
    results = await push(tiny(fake.address), PIPELINE)
    assert results[0] == PushResult("p0t0-0", pipeline_set=True, inserted=T0)


async def test_a_higher_election_id_wins(fake: FakeP4Runtime) -> None:
    primary_with_77(fake.devices[1])
    results = await push(tiny(fake.address), PIPELINE, election_id=78)
    assert results[0] == PushResult("p0t0-0", pipeline_set=True, inserted=T0)


async def test_another_pipeline_is_replaced(fake: FakeP4Runtime) -> None:
    topo = tiny(fake.address)
    cookie = p4r.ForwardingPipelineConfig.Cookie(cookie=0x1234)
    fake.devices[1].config = p4r.ForwardingPipelineConfig(cookie=cookie)
    results = await verify(topo, PIPELINE)
    expected = f"not the planned one (cookie {PIPELINE.cookie:#x})"
    assert results[0] == VerifyResult("p0t0-0", error=f"runs another pipeline (cookie 0x1234), {expected}")
    assert results[1] == VerifyResult("p0t0-1", error=f"runs no pipeline, {expected}")
    assert not results[0].ok
    assert (await push(topo, PIPELINE))[0] == PushResult("p0t0-0", pipeline_set=True, inserted=T0)


async def test_a_device_that_is_not_there(fake: FakeP4Runtime) -> None:
    del fake.devices[3]
    topo = tiny(fake.address)
    assert (await push(topo, PIPELINE))[2].errors == ("NOT_FOUND: Device 3 is unknown",)
    assert (await verify(topo, PIPELINE))[2].error == "NOT_FOUND: Device 3 is unknown"


async def test_a_server_that_is_not_there() -> None:
    topo = tiny("127.0.0.1:1")
    error = "cannot reach 127.0.0.1:1: Connection refused"
    results = await push(topo, PIPELINE)
    assert [result.errors for result in results] == 3 * [(error,)]
    assert [result.error for result in await verify(topo, PIPELINE)] == 3 * [error]


async def test_a_topology_with_too_many_ports_is_not_touched() -> None:
    topo = Topology.preset("paper-8x100")
    with pytest.raises(FileError, match="it can be planned, not pushed"):
        await push(topo, PIPELINE)
    with pytest.raises(FileError, match="it can be planned, not pushed"):
        await verify(topo, PIPELINE)


def test_a_directory_without_a_pipeline(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        Pipeline(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/mrc_switch.p4info.txtpb: no such file; is this the directory of p4c's output?"
    )
    (tmp_path / "mrc_switch.p4info.txtpb").write_text("tables {")
    (tmp_path / "mrc_switch.json").write_text("{}")
    with pytest.raises(FileError, match=r"mrc_switch\.p4info\.txtpb: is not P4Info: "):
        Pipeline(tmp_path)
