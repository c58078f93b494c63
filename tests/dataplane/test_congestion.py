"""What only the embedded target in virtual time can show: the occupancy register from inside, and how often RED marks.

Queues that fill on both targets are in `ptf_tests/congestion.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controller.p4runtime import Pipeline
from switch_model.device import Device
from tests.dataplane.entries import (
    DATA,
    INGRESS_PORT,
    QUEUES_PER_PORT,
    TRIM,
    TRIMMED,
    basic,
    fabric_role,
    queue_limits,
)
from tests.dataplane.frames import ecn_of, forwarded, frame, trimmed
from tests.dataplane.harness import Switch
from tests.dataplane.targets import Embedded, embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = 8
DST, ELSEWHERE = "fd00::2", "fd00::4"
PORT, OTHER_PORT = 3, 4
ROUTES = {f"{DST}/128": PORT, f"{ELSEWHERE}/128": OTHER_PORT}


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
async def test_every_place_that_is_taken_is_given_back(switch: Switch, count: int) -> None:
    await switch.program([*basic(ROUTES), queue_limits(PORT, LIMIT, 60), fabric_role(PORT)])
    frames = [frame(500 + n, dst=DST) for n in range(count)]
    fill(switch, frames)
    assert occupancy(switch, PORT, DATA) == min(count, LIMIT)
    assert occupancy(switch, PORT, TRIM) == max(0, count - LIMIT)
    assert drain(switch) == [
        *(trimmed(one, PORT, TRIMMED) for one in frames[LIMIT:]),
        *(forwarded(one, PORT) for one in frames[:LIMIT]),
    ]
    assert occupancy(switch, PORT, DATA) == occupancy(switch, PORT, TRIM) == 0


async def test_refused_packets_take_no_place(switch: Switch) -> None:
    await switch.program([*basic(ROUTES), queue_limits(PORT, LIMIT, 3), fabric_role(PORT)])
    frames = [frame(500 + n, dst=DST) for n in range(LIMIT + 5)]
    assert fill(switch, frames) == [PORT] * (LIMIT + 3) + [-1, -1]
    assert occupancy(switch, PORT, DATA) == LIMIT and occupancy(switch, PORT, TRIM) == 3
    assert len(drain(switch)) == LIMIT + 3
    assert occupancy(switch, PORT, DATA) == occupancy(switch, PORT, TRIM) == 0


async def test_places_are_those_of_the_egress_port(switch: Switch) -> None:
    limits = [
        queue_limits(PORT, LIMIT, 60),
        fabric_role(PORT),
        queue_limits(OTHER_PORT, 1, 60),
        fabric_role(OTHER_PORT),
    ]
    await switch.program([*basic(ROUTES), *limits])
    fill(switch, [frame(500, dst=DST)] * 5, port=INGRESS_PORT)
    fill(switch, [frame(501, dst=DST)] * 5, port=6)
    fill(switch, [frame(502, dst=ELSEWHERE)] * 2)
    assert occupancy(switch, PORT, DATA) == LIMIT and occupancy(switch, PORT, TRIM) == 2
    assert occupancy(switch, OTHER_PORT, DATA) == 1 and occupancy(switch, OTHER_PORT, TRIM) == 1
    assert [len(one) for one in drain(switch)] == [128, 128] + [500] * 5 + [501] * 3
    assert [len(one) for one in drain(switch, OTHER_PORT)] == [128, 502]


async def test_marks_rise_from_none_to_all_between_two_thresholds(switch: Switch) -> None:
    await switch.program([*basic(ROUTES), queue_limits(PORT, 48, 60), fabric_role(PORT, mark_from=10, span=20)])
    marks = [0] * 40
    for _ in range(400):
        fill(switch, [frame(200, dst=DST)] * 40)
        for behind, one in zip(range(39, -1, -1), drain(switch), strict=True):
            marks[behind] += ecn_of(one) == 3
    assert marks[:11] == [0] * 11
    assert marks[30:] == [400] * 10
    for behind in range(11, 30):
        assert marks[behind] / 400 == pytest.approx((behind - 10) / 20, abs=0.11)
