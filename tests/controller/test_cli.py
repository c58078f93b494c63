"""The commands: what they print, where, and the exit codes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from finsy.proto import rpc_code
from typer import Typer
from typer.testing import CliRunner, Result

from controller.cli import routes_app, topo_app
from controller.plan import Entry
from controller.topology import preset_text
from nic_model.paths import PathFile
from tests.controller.fake_p4runtime import FakeDevice, FakeP4Runtime
from tests.controller.test_plan import TWO_TENANTS
from tests.controller.test_push import PIPELINE, T0, T1, TINY, count_requests, fib, put, remove
from tests.controller.test_topology import SMALL

app = Typer()
app.add_typer(topo_app, name="topo")
app.add_typer(routes_app, name="routes")


T1_OF_DEMO = (
    "20 entries for 1 switch: next_hop 2, fib 4, my_sid 1, traffic_class 6, queue_limits 2, port_role 2, punt 1, "
    "my_station 2\n"
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "demo.yaml"
    path.write_text(preset_text("demo"))
    return path


@pytest.mark.parametrize(
    "command",
    [
        *(("topo", command) for command in ("new", "check", "show")),
        *(("routes", command) for command in ("plan", "push", "verify", "diff", "watch")),
    ],
)
def test_each_command_explains_itself_with_an_example(command: tuple[str, str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example: mrcfab {' '.join(command)} " in result.stdout
    assert "Exit codes: 0 " in result.stdout


def test_topo_new_prints_a_preset_or_writes_it_once(tmp_path: Path) -> None:
    assert run("topo", "new", "--preset", "demo").stdout == preset_text("demo")
    path = tmp_path / "new.yaml"
    result = run("topo", "new", "--preset", "demo", "-o", path)
    assert (result.exit_code, result.output, path.read_text()) == (0, "", preset_text("demo"))
    again = run("topo", "new", "--preset", "compose", "-o", path)
    assert (again.exit_code, again.stderr) == (2, f"error: {path}: File exists\n")
    assert path.read_text() == preset_text("demo")


def test_an_unknown_preset() -> None:
    result = run("topo", "new", "--preset", "x")
    assert (result.exit_code, result.stderr) == (2, "error: no preset 'x': compose, demo, paper-8x100\n")


def test_topo_check(demo: Path) -> None:
    result = run("topo", "check", demo)
    assert (result.exit_code, result.stdout) == (0, f"{demo}: ok, 40 switches, 8 NICs\n")
    demo.write_text(preset_text("paper-8x100"))
    result = run("topo", "check", demo)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{demo}: ok, 6144 switches, 131072 NICs",
        f"{demo}:8: t1_per_plane: a T0 has 512 ports, a v1model switch at most 509: it can be planned, not pushed",
    ]


@pytest.mark.parametrize(
    "command",
    [("topo", "check"), ("topo", "show"), *(("routes", c) for c in ("plan", "push", "verify", "diff", "watch"))],
)
def test_bad_input_is_one_line_and_exit_code_2(demo: Path, command: tuple[str, str]) -> None:
    demo.write_text(preset_text("demo").replace("planes: 4", "planes: 9"))
    result = run(*command, demo)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {demo}:5: planes: does not fit: a uSID has 3 bits for the plane, so at most 8, got 9\n"
    )


def test_topo_show(demo: Path) -> None:
    result = run("topo", "show", demo)
    assert result.exit_code == 0
    for line in (
        "links +│ 32 NIC-T0, 64 T0-T1",
        "mode +│ srv6, SR-domain guard on",
        "tenant +│ default: fcbb:bbbb::/32, nic0..7",
        "queues +│ data 48 packets, trims 60; marks from 10 to 38",
        "trim size +│ 128 bytes",
        "DSCP +│ no_trim 0, trimmable 4, trimmable_retx 8, trimmed 12, trimmed_lasthop 16, control 46",
    ):
        assert re.search(line, result.stdout), line
    assert "p0t0-0" not in result.stdout
    everything = run("topo", "show", demo, "--all").stdout
    assert re.search(r"p3t1-7 +│ 4c07 +│ fd00:6d72:6301::4c07", everything)
    assert re.search(r"nic7 +│ default +│ 3 +│ ec03 +│ fd00:6d72:6300:1:3::3", everything)


def test_topo_show_with_tenants(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(SMALL.replace("block: fcbb:bbbb::/32\n", TWO_TENANTS) + "mode: ecmp\nguard: false\n")
    everything = run("topo", "show", path, "--all").stdout
    for line in (
        "mode +│ ecmp, SR-domain guard off",
        "tenant +│ red: fcaa:1::/32, nic0..1, nic3 ",
        "tenant +│ blue: fcaa:2::/32, nic2 ",
        "nic2 +│ blue +│ 0 +│ e000",
    ):
        assert re.search(line, everything), line


def test_routes_plan(demo: Path) -> None:
    result = run("routes", "plan", demo)
    assert (result.exit_code, result.stderr) == (
        0,
        "1,328 entries for 40 switches: next_hop 160, ecmp_group 8, fib 264, my_sid 40, traffic_class 240, "
        "queue_limits 160, port_role 160, punt 40, guard 64, host_port 32, my_station 160\n",
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 1328
    assert lines[0] == (
        "p0t0-0: next_hop next_hop_id=1 -> forward(port=1, src_mac=02:00:00:00:20:00, dst_mac=02:01:00:00:e0:00)"
    )
    assert lines[-1] == "p3t1-7: my_station ingress_port=2 dst_mac=02:00:00:00:4c:07 -> admit_frame()"


def test_routes_plan_of_one_switch_as_json(demo: Path) -> None:
    result = run("routes", "plan", demo, "--switch", "p0t1-3", "--json")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, len(records), result.stderr) == (0, 20, T1_OF_DEMO)
    assert records[2] == {
        "switch": "p0t1-3",
        "table": "fib",
        "match": {"dst_addr": "fcbb:bbbb:2000::/48"},
        "action": "route_to",
        "params": {"next_hop_id": 1},
    }


def test_routes_plan_of_a_switch_that_is_not_there(demo: Path) -> None:
    result = run("routes", "plan", demo, "--switch", "p9t0-0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: no switch 'p9t0-0' in demo: p0..3, t0-0..1, t1-0..7\n"


def test_routes_plan_writes_path_files(demo: Path, tmp_path: Path) -> None:
    directory = tmp_path / "paths"
    result = run("routes", "plan", demo, "--switch", "p0t1-3", "--paths", directory)
    assert (result.exit_code, result.stderr) == (0, f"{T1_OF_DEMO}2 path files in {directory}\n")
    assert PathFile.load(directory / "default" / "row-1.jsonl").local("nic7").index == 3
    blocked = run("routes", "plan", demo, "--switch", "p0t1-3", "--paths", demo)
    assert (blocked.exit_code, blocked.stderr) == (2, f"{T1_OF_DEMO}error: {demo}: Not a directory\n")


def test_a_switch_that_cannot_be_reached_is_one_line(demo: Path) -> None:
    demo.write_text(preset_text("demo").replace("127.0.0.1:9559", "127.0.0.1:1"))
    result = run("routes", "push", demo)
    assert result.exit_code == 1
    assert result.stderr == "p0t0-0 and 39 more: cannot reach 127.0.0.1:1: Connection refused\n"
    assert result.stdout.startswith("0 switches pushed, 40 failed; 0 pipelines set; entries: 0 inserted, ")
    result = run("routes", "verify", demo)
    assert (result.exit_code, result.stdout) == (1, "0 switches as planned, 40 not\n")
    assert result.stderr == "p0t0-0 and 39 more: cannot reach 127.0.0.1:1: Connection refused\n"


def test_a_pipeline_that_is_not_there(demo: Path, tmp_path: Path) -> None:
    result = run("routes", "push", demo, "--p4", tmp_path)
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {tmp_path}/mrc_switch.p4info.txtpb: no such file; is this the directory of p4c's output?\n",
    )


@pytest.fixture
async def fake() -> AsyncIterator[FakeP4Runtime]:
    async with FakeP4Runtime({1: FakeDevice(), 2: FakeDevice(), 3: FakeDevice()}) as server:
        yield server


@pytest.fixture
def tiny(fake: FakeP4Runtime, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("ADDRESS", fake.address))
    return path


async def run_beside(*arguments: str | Path) -> Result:
    """Run a command in a thread, while this one's event loop serves it."""
    return await asyncio.to_thread(run, *arguments)


async def test_push_and_verify(tiny: Path, fake: FakeP4Runtime) -> None:
    result = await run_beside("routes", "push", tiny)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(
        r"3 switches pushed, 0 failed; 3 pipelines set; entries: 68 inserted, 0 modified, 0 deleted, 0 unchanged "
        r"\(\d+\.\d s\)\n",
        result.stdout,
    )
    result = await run_beside("routes", "verify", tiny)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "3 switches as planned, 0 not\n", "")

    remove(fake.devices[1], fib("fcbb:bbbb:4000::/48", 2))
    put(fake.devices[1], fib("fcbb:bbbb:4321::/48", 1))
    put(fake.devices[1], fib("fcbb:bbbb:e000::/48", 2))
    result = await run_beside("routes", "verify", tiny)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.splitlines() == [
        "p0t0-0: missing fib dst_addr=fcbb:bbbb:4000::/48 -> route_to(next_hop_id=2)",
        "p0t0-0: extra fib dst_addr=fcbb:bbbb:4321::/48 -> route_to(next_hop_id=1)",
        "p0t0-0: changed fib dst_addr=fcbb:bbbb:e000::/48 -> route_to(next_hop_id=2), planned route_to(next_hop_id=1)",
        "2 switches as planned, 1 not",
    ]


async def test_verify_shows_some_of_many_differences(tiny: Path, fake: FakeP4Runtime) -> None:
    await run_beside("routes", "push", tiny)
    fake.devices[1].entries.clear()
    few = (await run_beside("routes", "verify", tiny)).stdout.splitlines()
    assert (len(few), few[-2]) == (7, "p0t0-0: and 19 more")
    assert len((await run_beside("routes", "verify", tiny, "--all")).stdout.splitlines()) == 25


async def test_push_names_the_refused_entry(tiny: Path, fake: FakeP4Runtime) -> None:
    refused: Entry = fib("fcbb:bbbb:4000::/48", 2)
    fake.devices[1].refuse = lambda update: (
        (rpc_code.RESOURCE_EXHAUSTED, "full") if PIPELINE.decode(update.entity) == refused else None
    )
    result = await run_beside("routes", "push", tiny)
    assert result.exit_code == 1
    assert result.stderr == f"p0t0-0: insert {refused}: RESOURCE_EXHAUSTED: full\n"
    assert result.stdout.startswith("2 switches pushed, 1 failed; 3 pipelines set; entries: 67 inserted, ")


async def test_push_with_an_election_id_that_loses(tiny: Path, fake: FakeP4Runtime) -> None:
    for device in fake.devices.values():
        device.primary_id = device.highest_id = 20
    result = await run_beside("routes", "push", tiny, "--election-id", "19")
    assert result.exit_code == 1
    assert result.stderr == ("p0t0-0, p0t0-1, p0t1-0: not primary with election id 19: a controller with 20 is\n")
    assert (await run_beside("routes", "push", tiny, "--election-id", "21")).exit_code == 0


async def test_push_and_verify_of_one_switch_as_json(tiny: Path, fake: FakeP4Runtime) -> None:
    result = await run_beside("routes", "push", tiny, "--switch", "p0t1-0", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    pushed = {"pipeline_set": True, "inserted": T1, "modified": 0, "deleted": 0, "unchanged": 0, "errors": []}
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"switch": "p0t1-0", **pushed}]
    remove(fake.devices[3], fib("fcbb:bbbb:2000::/48", 1))
    result = await run_beside("routes", "verify", tiny, "--switch", "p0t0-0", "--switch", "p0t1-0", "--json")
    no_pipeline = f"runs no pipeline, not the planned one (cookie {PIPELINE.cookie:#x})"
    differs = {"missing": 1, "extra": 0, "changed": 0, "unchanged": T1 - 1}
    assert (result.exit_code, result.stderr) == (1, f"p0t0-0: {no_pipeline}\n")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"switch": "p0t0-0", "ok": False, "error": no_pipeline},
        {"switch": "p0t1-0", "ok": False, "error": "", **differs},
    ]


@pytest.mark.parametrize("command", ["push", "verify", "diff", "watch"])
def test_a_switch_that_the_topology_does_not_have(demo: Path, command: str) -> None:
    result = run("routes", command, demo, "--switch", "p0t2-0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: no switch 'p0t2-0' in demo: p0..3, t0-0..1, t1-0..7\n"


async def test_verbose_tells_switch_by_switch(tiny: Path) -> None:
    pushed = await run_beside("routes", "push", tiny, "-v")
    assert sorted(pushed.stderr.splitlines()) == [
        f"p0t0-{row}: pipeline set; {T0} inserted, 0 modified, 0 deleted, 0 unchanged" for row in (0, 1)
    ] + [f"p0t1-0: pipeline set; {T1} inserted, 0 modified, 0 deleted, 0 unchanged"]
    again = await run_beside("routes", "push", tiny, "-v", "--switch", "p0t1-0")
    assert again.stderr == f"p0t1-0: as planned, {T1} entries\n"
    verified = await run_beside("routes", "verify", tiny, "-v", "--switch", "p0t1-0")
    assert verified.stderr == f"p0t1-0: as planned, {T1} entries\n"


async def test_diff_shows_each_entry_that_a_push_would_write(tiny: Path, fake: FakeP4Runtime) -> None:
    result = await run_beside("routes", "diff", tiny)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"p0t0-0, p0t0-1, p0t1-0: runs no pipeline, not the planned one (cookie {PIPELINE.cookie:#x})\n"
    )
    await run_beside("routes", "push", tiny)
    result = await run_beside("routes", "diff", tiny)
    assert (result.exit_code, result.output) == (0, "")

    missing, extra = fib("fcbb:bbbb:4000::/48", 2), fib("fcbb:bbbb:4321::/48", 1)
    planned, present = fib("fcbb:bbbb:e000::/48", 1), fib("fcbb:bbbb:e000::/48", 2)
    remove(fake.devices[1], missing)
    put(fake.devices[1], extra)
    put(fake.devices[1], present)
    result = await run_beside("routes", "diff", tiny)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.splitlines() == [
        f"p0t0-0: + {missing}",
        f"p0t0-0: ~ {planned}, is route_to(next_hop_id=2)",
        f"p0t0-0: - {extra}",
    ]
    result = await run_beside("routes", "diff", tiny, "--json")
    assert result.exit_code == 1
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"switch": "p0t0-0", "change": "missing", "planned": missing.as_json(), "present": None},
        {"switch": "p0t0-0", "change": "changed", "planned": planned.as_json(), "present": present.as_json()},
        {"switch": "p0t0-0", "change": "extra", "planned": None, "present": extra.as_json()},
    ]


@pytest.mark.parametrize("request_number", [1, 4, 10, 16, 22, 28, 34, 42])
async def test_a_push_that_is_killed_is_completed_by_the_next(
    tiny: Path, fake: FakeP4Runtime, request_number: int
) -> None:
    """SIGKILL to the real process, at points spread over its 42 requests."""
    before = count_requests(fake, request_number)
    command = "from controller.cli import routes_app; routes_app()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", command, "push", str(tiny))
    await asyncio.wait_for(before.reached.wait(), 30)
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    before.release.set()
    count_requests(fake)
    assert (await run_beside("routes", "push", tiny)).exit_code == 0
    assert (await run_beside("routes", "diff", tiny)).output == ""
