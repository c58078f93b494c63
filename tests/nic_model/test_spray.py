"""The policies that MRC's spraying is compared with."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from nic_model.ev import Ev, EvProfile, SprayPolicy
from nic_model.packet import parse
from nic_model.paths import srv6_ev
from nic_model.spray import REPS_FREEZE, STATELESS, RandomSpray, Reps, RoundRobin, SinglePath, Spray
from tests.nic_model.back_to_back import PLANES, BackToBack
from tests.nic_model.test_ev import ALL_UP, ENCAP


def evs(per_plane: int) -> list[Ev]:
    return [Ev(plane, srv6_ev(plane, n), ENCAP) for plane in range(PLANES) for n in range(per_plane)]


def take(spray: Spray, planes_up: int = ALL_UP, now: int = 0) -> Ev:
    ev = spray.upcoming(planes_up, now)
    assert ev is not None and spray.upcoming(planes_up, now) is ev
    spray.take(ev)
    return ev


def test_round_robin_takes_planes_and_paths_in_turn_and_learns_nothing() -> None:
    spray = RoundRobin(evs(2), random.Random(1), PLANES)
    lap = [take(spray) for _ in range(8)]
    assert [(ev.plane, ev.value >> 19 & 0x3FF) for ev in lap] == [(p, n) for n in range(2) for p in range(4)]
    spray.skip_once(lap[0], "ECN", 0)
    spray.assume_bad(lap[1], "loss", 0)
    assert [take(spray) for _ in range(8)] == lap


def test_random_uses_all_about_equally() -> None:
    spray = RandomSpray(evs(4), random.Random(1), PLANES)
    uses = Counter(take(spray) for _ in range(16_000))
    assert len(uses) == 16 and all(800 < count < 1200 for count in uses.values())


def test_single_path_stays_until_its_port_is_down() -> None:
    spray = SinglePath(evs(4), random.Random(1), PLANES)
    first = take(spray)
    assert {take(spray) for _ in range(50)} == {first}
    other = take(spray, ALL_UP & ~(1 << first.plane))
    assert other.plane != first.plane


def test_reps_uses_what_came_back_unmarked_once_oldest_first() -> None:
    all_evs = evs(64)
    spray = Reps(all_evs, random.Random(1), PLANES)
    for ev in all_evs[:3]:
        spray.on_ack(ev, False, 0)
    spray.on_ack(all_evs[3], True, 0)
    assert [take(spray) for _ in range(3)] == all_evs[:3]
    assert len({take(spray) for _ in range(200)}) > 50  # then any


def test_reps_remembers_eight() -> None:
    all_evs = evs(64)
    spray = Reps(all_evs, random.Random(1), PLANES)
    for ev in all_evs[:12]:
        spray.on_ack(ev, False, 0)
    assert [take(spray) for _ in range(8)] == all_evs[4:12]


def test_reps_freezes_on_a_timeout() -> None:
    all_evs = evs(64)
    spray = Reps(all_evs, random.Random(1), PLANES)
    for ev in all_evs[:2]:
        spray.on_ack(ev, False, 0)
    spray.on_timeout(1000)
    assert [take(spray, now=2000) for _ in range(6)] == all_evs[:2] * 3
    assert len({take(spray, now=1000 + REPS_FREEZE) for _ in range(100)}) > 30


@pytest.mark.parametrize("policy", STATELESS)
def test_a_plane_that_is_down_carries_nothing(policy: SprayPolicy) -> None:
    spray = STATELESS[policy](evs(4), random.Random(1), PLANES)
    assert {take(spray, 0b0101).plane for _ in range(100)} <= {0, 2}
    assert spray.upcoming(0, 0) is None


@pytest.mark.parametrize("policy", list(SprayPolicy))
def test_a_qp_delivers_every_byte_with_any_policy_under_loss(policy: SprayPolicy) -> None:
    rng = random.Random(3)
    pair = BackToBack(lambda *_: None if rng.random() < 0.02 else 2000, profile=EvProfile(16, 8, policy=policy))
    source, target = pair.region(0, 800_000), pair.region(1, 800_000)
    source.write(rng.randbytes(800_000))
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    used = {parse(frame).envelope.ev for _, side, _, frame in pair.wire_log if side == 0 and parse(frame).opcode < 0xCC}
    assert (len(used) == 1) is (policy is SprayPolicy.SINGLE_PATH)


@pytest.mark.parametrize("policy", STATELESS)
def test_the_announced_ev_stays_even_if_it_should_be_avoided(policy: SprayPolicy) -> None:
    for seed in range(50):
        spray = STATELESS[policy](evs(1)[:2], random.Random(seed), PLANES)
        avoid = spray.upcoming(ALL_UP, 0)
        announced = spray.upcoming(ALL_UP, 0, avoid)
        assert [spray.upcoming(ALL_UP, 0, avoid) for _ in range(5)] == [announced] * 5
