"""Queues that really fill, on the embedded target: nothing leaves a port until the test says so.

On BMv2 a queue fills only against its own clock; `test_queues.py` sees the same rules there with limits of 0.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controller.p4runtime import Pipeline
from switch_model.device import Device
from tests.dataplane.harness import (
    DATA,
    INGRESS_PORT,
    NO_TRIM,
    TRIM,
    TRIMMED,
    Switch,
    basic,
    fabric_role,
    forwarded,
    host_role,
    queue_limits,
    station,
)
from tests.dataplane.targets import Embedded, embedded
from tests.dataplane.test_queues import OTHER_PORT, PORT, ROUTES, frame, limits, trimmed

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 8
QUEUES_PER_PORT = 8


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def switch() -> AsyncIterator[Switch]:
    async with embedded() as target:
        yield Switch(target, Pipeline())


def device(switch: Switch) -> Device:
    assert isinstance(switch.target, Embedded)
    return switch.target.device


def fill(switch: Switch, frames: list[bytes], port: int = INGRESS_PORT) -> list[int]:
    return [device(switch).ingress(port, (one[:100], one[100:]), 0) for one in frames]


def drain(switch: Switch, port: int = PORT) -> list[bytes]:
    out = []
    while (left := device(switch).dequeue(port, 0)) is not None:
        out.append(b"".join(left))
    return out


def occupancy(switch: Switch, port: int, queue: int) -> int:
    pipeline = device(switch).pipeline
    assert pipeline is not None
    return pipeline.register("occupancy")[port * QUEUES_PER_PORT + queue]


@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT])
async def test_exactly_what_is_over_the_limit_is_trimmed_and_overtakes(switch: Switch, count: int) -> None:
    await switch.program(limits(LIMIT))
    frames = [frame(500 + n) for n in range(count)]
    fill(switch, frames)
    assert occupancy(switch, PORT, DATA) == min(count, LIMIT)
    assert occupancy(switch, PORT, TRIM) == max(0, count - LIMIT)
    assert drain(switch) == [
        *(trimmed(one, PORT, TRIMMED) for one in frames[LIMIT:]),
        *(forwarded(one, PORT) for one in frames[:LIMIT]),
    ]
    assert occupancy(switch, PORT, DATA) == occupancy(switch, PORT, TRIM) == 0
    fill(switch, frames[:1])
    assert drain(switch) == [forwarded(frames[0], PORT)]


async def test_a_trim_queue_that_is_full_drops_and_counts(switch: Switch) -> None:
    await switch.program(limits(LIMIT, trim=3))
    frames = [frame(500 + n) for n in range(LIMIT + 5)]
    assert fill(switch, frames) == [PORT] * (LIMIT + 3) + [-1, -1]
    assert len(drain(switch)) == LIMIT + 3
    assert await switch.drops() == {"trim_queue_full": (2, sum(map(len, frames[-2:])))}


async def test_a_full_data_queue_drops_what_is_not_trimmable(switch: Switch) -> None:
    await switch.program(limits(LIMIT))
    frames = [frame(500, dscp=NO_TRIM)] * (LIMIT + 2)
    assert fill(switch, frames) == [PORT] * LIMIT + [-1, -1]
    assert len(drain(switch)) == LIMIT


async def test_two_ingress_ports_share_one_limit_and_two_egress_ports_do_not(switch: Switch) -> None:
    await switch.program([*limits(LIMIT), queue_limits(OTHER_PORT, 1, 60), fabric_role(OTHER_PORT), station(6)])
    fill(switch, [frame(500)] * 5, port=INGRESS_PORT)
    fill(switch, [frame(501)] * 5, port=6)
    fill(switch, [frame(502, dst="fd00::4")] * 2)
    assert occupancy(switch, PORT, DATA) == LIMIT and occupancy(switch, PORT, TRIM) == 2
    assert occupancy(switch, OTHER_PORT, DATA) == 1 and occupancy(switch, OTHER_PORT, TRIM) == 1
    assert [len(one) for one in drain(switch)] == [128, 128] + [500] * 5 + [501] * 3
    assert [len(one) for one in drain(switch, OTHER_PORT)] == [128, 502]


def ecn(one: bytes) -> int:
    return one[15] >> 4 & 3


@pytest.mark.parametrize(("sent", "marked"), [(0, 0), (1, 3), (2, 3), (3, 3)])
async def test_marks_above_a_hard_threshold_who_can_be_marked(switch: Switch, sent: int, marked: int) -> None:
    """Span 1: a packet is marked if and only if more than `from` packets wait behind it."""
    await switch.program([*basic(ROUTES), queue_limits(PORT, 48, 60), fabric_role(PORT, mark_from=3, span=1)])
    fill(switch, [frame(500, ecn=sent)] * 10)
    # 9, 8, ... 0 packets wait behind the first, second, ... tenth
    assert [ecn(one) for one in drain(switch)] == [marked] * 6 + [sent] * 4
    assert await switch.packets("port_marks") == ({PORT: 6} if sent in (1, 2) else {})


async def test_marks_rise_from_none_to_all_between_two_thresholds(switch: Switch) -> None:
    await switch.program([*basic(ROUTES), queue_limits(PORT, 48, 60), fabric_role(PORT, mark_from=10, span=20)])
    marks = [0] * 40
    for _ in range(400):
        fill(switch, [frame(200)] * 40)
        for behind, one in zip(range(39, -1, -1), drain(switch), strict=True):
            marks[behind] += ecn(one) == 3
    assert marks[:11] == [0] * 11
    assert marks[30:] == [400] * 10
    for behind in range(11, 30):
        assert marks[behind] / 400 == pytest.approx((behind - 10) / 20, abs=0.11)


async def test_host_ports_and_trims_are_never_marked(switch: Switch) -> None:
    await switch.program([*basic(ROUTES), queue_limits(PORT, 48, 60), host_role(PORT)])
    fill(switch, [frame(500)] * 40)
    assert {ecn(one) for one in drain(switch)} == {2}
    await switch.program([*basic(ROUTES), queue_limits(PORT, 5, 60), fabric_role(PORT, mark_from=0, span=1)])
    fill(switch, [frame(500)] * 20)
    assert [ecn(one) for one in drain(switch)] == [2] * 15 + [3] * 4 + [2]
