"""EV sets: rotation, SKIP, replacement in the same plane, the floor (OCP MRC; arXiv 2605.04333 section 3)."""

from __future__ import annotations

from collections import Counter

import pytest

from nic_model.ev import Ev, EvProfile, EvSet
from nic_model.ev_format import EvFormat, EvMode, GeneratedField
from nic_model.events import EvState
from nic_model.packet import Encap
from nic_model.paths import srv6_ev

ENCAP = Encap(
    eth_dst=bytes(6),
    eth_src=bytes(6),
    outer_src=bytes(16),
    outer_dst=bytes(16),
    inner_src=bytes(16),
    inner_dst=bytes(16),
    ev=0,
)
ALL_UP = 0b1111


def make_set(active: int, backup: int, min_active: int | None = None, planes: int = 4) -> EvSet:
    def evs(first: int, count: int) -> list[Ev]:
        return [Ev(plane, srv6_ev(plane, first + n), ENCAP) for plane in range(planes) for n in range(count)]

    return EvSet(planes, evs(0, active), evs(active, backup), min_active, lambda *_: None)


def take(evs: EvSet, planes_up: int = ALL_UP, avoid: Ev | None = None) -> Ev:
    ev = evs.upcoming(planes_up, 0, avoid)
    assert ev is not None
    evs.take(ev)
    return ev


def test_each_packet_takes_another_ev_and_planes_take_turns() -> None:
    evs = make_set(active=4, backup=0)
    lap = [take(evs) for _ in range(16)]
    assert [ev.plane for ev in lap] == [0, 1, 2, 3] * 4
    assert len(set(lap)) == 16
    assert [take(evs) for _ in range(16)] == lap


def test_upcoming_stays_until_it_is_taken() -> None:
    evs = make_set(active=2, backup=0)
    assert evs.upcoming(ALL_UP, 0) is evs.upcoming(ALL_UP, 0)


def test_a_plane_that_is_down_is_passed_over_and_the_rest_stay_even() -> None:
    evs = make_set(active=4, backup=0)
    used = Counter(take(evs, 0b1011).plane for _ in range(300))
    assert used == {0: 100, 1: 100, 3: 100}


def test_no_plane_up_means_no_ev() -> None:
    assert make_set(active=4, backup=0).upcoming(0, 0) is None


def test_skip_is_used_up_by_one_turn() -> None:
    evs = make_set(active=2, backup=0, planes=1)
    a, b = take(evs, 1), take(evs, 1)
    evs.skip_once(a, "ECN", 0)
    assert a.state is EvState.SKIP
    assert [take(evs, 1), take(evs, 1), take(evs, 1)] == [b, a, b]
    assert {ev.state for ev in evs} == {EvState.GOOD}


def test_repeated_feedback_does_not_skip_twice() -> None:
    evs = make_set(active=2, backup=0, planes=1)
    a, b = take(evs, 1), take(evs, 1)
    evs.skip_once(a, "ECN", 0)
    evs.skip_once(a, "ECN", 0)
    assert [take(evs, 1) for _ in range(4)] == [b, a, b, a]


def test_an_upcoming_ev_that_is_marked_is_not_used() -> None:
    evs = make_set(active=2, backup=0, planes=1)
    first = evs.upcoming(1, 0)
    assert first is not None
    evs.skip_once(first, "ECN", 0)
    assert evs.upcoming(1, 0) is not first


def test_all_in_skip_still_gives_one() -> None:
    evs = make_set(active=3, backup=0, planes=1)
    for ev in evs:
        evs.skip_once(ev, "ECN", 0)
    assert take(evs, 1).state is EvState.GOOD


def test_a_bad_ev_is_replaced_by_one_of_its_plane() -> None:
    evs = make_set(active=2, backup=1)
    bad = take(evs)
    evs.assume_bad(bad, "loss", 0)
    used = Counter(take(evs) for _ in range(80))
    assert bad.state is EvState.ASSUMED_BAD and bad not in used
    assert Counter(ev.plane for ev in used.elements()) == {0: 20, 1: 20, 2: 20, 3: 20}
    assert srv6_ev(bad.plane, 2) in {ev.value for ev in used}
    assert evs.replaced == [1, 0, 0, 0] and evs.active_count == 8


def test_feedback_on_a_retired_ev_changes_nothing() -> None:
    evs = make_set(active=2, backup=2, planes=1)
    bad = take(evs, 1)
    evs.assume_bad(bad, "loss", 0)
    evs.assume_bad(bad, "loss", 0)
    evs.skip_once(bad, "ECN", 0)
    assert evs.replaced == [1] and bad.state is EvState.ASSUMED_BAD


def test_a_plane_without_good_evs_carries_nothing() -> None:
    evs = make_set(active=1, backup=0, min_active=1)
    bad = take(evs)
    evs.assume_bad(bad, "loss", 0)
    assert {take(evs).plane for _ in range(30)} == {1, 2, 3}


def test_the_floor_holds() -> None:
    evs = make_set(active=4, backup=0)  # 16 active, floor a quarter: 4
    for ev in list(evs):
        evs.assume_bad(ev, "loss", 0)
    assert evs.active_count == 4
    assert sum(ev.state is EvState.GOOD for ev in evs) == 4
    assert evs.upcoming(ALL_UP, 0) is not None


@pytest.mark.parametrize("active", [1, 2, 4])
def test_a_retransmission_avoids_the_ev_that_lost_it(active: int) -> None:
    evs = make_set(active=active, backup=0)
    for _ in range(40):
        avoid = evs.upcoming(ALL_UP, 0)
        assert avoid is not None
        assert take(evs, avoid=avoid) is not avoid


def test_the_only_ev_is_used_again() -> None:
    evs = make_set(active=1, backup=0, planes=1)
    only = take(evs, 1)
    assert take(evs, 1, avoid=only) is only


@pytest.mark.parametrize(
    ("profile", "planes", "paths", "expected"),
    [
        (EvProfile(16, 16), 4, 8, (4, 4)),
        (EvProfile(128, 16), 4, 8, (4, 4)),  # min(128, paths minus backups)
        (EvProfile(128, 16), 8, 256, (16, 2)),
        (EvProfile(16, 16), 4, 1, (1, 0)),  # inside a row there is one path per plane
        (EvProfile(16, 0), 4, 2, (2, 0)),
        (EvProfile(2, 0), 4, 8, (1, 0)),
    ],
)
def test_shares_per_plane(profile: EvProfile, planes: int, paths: int, expected: tuple[int, int]) -> None:
    assert profile.per_plane(planes, paths) == expected


def test_transitions_are_reported() -> None:
    heard: list[tuple[int, int, EvState, EvState, str]] = []
    evs = EvSet(
        1,
        [Ev(0, 7, ENCAP), Ev(0, 8, ENCAP)],
        [],
        1,
        lambda now, ev, old, new, reason: heard.append((now, ev.value, old, new, reason)),
    )
    first = take(evs, 1)
    evs.skip_once(first, "ECN", 10)
    take(evs, 1)
    evs.upcoming(1, 20)
    evs.assume_bad(first, "ACK timer", 30)
    assert heard == [
        (10, 7, EvState.GOOD, EvState.SKIP, "ECN"),
        (20, 7, EvState.SKIP, EvState.GOOD, "skipped once"),
        (30, 7, EvState.GOOD, EvState.ASSUMED_BAD, "ACK timer"),
    ]


def test_denied_paths_are_out_of_use_below_the_floor_too_and_come_back() -> None:
    evs = make_set(active=2, backup=1)
    for ev in list(evs):
        if ev.plane == 1:
            evs.deny(ev, "denylist", 0)
    assert {take(evs).plane for _ in range(60)} == {0, 2, 3}
    for ev in list(evs):
        evs.deny(ev, "denylist", 0)
    assert evs.upcoming(ALL_UP, 0) is None
    for ev in list(evs):
        evs.assume_bad(ev, "loss", 0)  # what is denied stays denied
        evs.allow(ev, "denylist", 0)
    assert evs.active_count == 8 and len({take(evs) for _ in range(64)}) == 8


def test_profiles_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="not 128 bits wide"):
        EvProfile(mode=EvMode.GENERATED, format=EvFormat.SRV6_USID, generated=((GeneratedField(32),),))
    with pytest.raises(ValueError, match="SRV6_USID_SRH are not generated"):
        EvProfile(mode=EvMode.GENERATED, format=EvFormat.SRV6_USID_SRH)
    with pytest.raises(ValueError, match="active >= 1"):
        EvProfile(active=0)
