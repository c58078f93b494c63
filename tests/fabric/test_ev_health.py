"""EV states over time, worked out by hand for a few events."""

from __future__ import annotations

import numpy as np

from fabric.ev_health import EvHealth, Path
from nic_model.ev import Ev
from nic_model.events import EvEvent, EvState
from nic_model.packet import Encap

T0, T1, NIC = 0x2000, 0x4000, 0xE000
QPN = 16


def ev(plane: int, uplink: int | None) -> Ev:
    """An EV over a T1, or (None) inside the row."""
    usids = (T0, NIC) if uplink is None else (T0, T1 | plane << 10 | uplink, T0, NIC)
    outer = bytes.fromhex("fcbbbbbb") + b"".join(usid.to_bytes(2, "big") for usid in usids)
    return Ev(plane, plane << 29 | (uplink or 0) << 19, encap(outer.ljust(16, b"\0")))


def encap(outer_dst: bytes | None) -> Encap:
    """Nothing of it counts here but the outer destination."""
    outer_src = None if outer_dst is None else bytes(16)
    return Encap(
        eth_dst=bytes(6), eth_src=bytes(6), outer_src=outer_src, outer_dst=outer_dst, inner_src=bytes(16),
        inner_dst=bytes(16), ev=0,
    )  # fmt: skip


def watching(*evs_by_nic: list[Ev], now: int = 0) -> EvHealth:
    """One NIC per list of EVs, each with one QP."""
    health = EvHealth()
    health.begin(((f"nic{number}", QPN, ev) for number, evs in enumerate(evs_by_nic) for ev in evs), now)
    return health


def move(health: EvHealth, nic: str, of: Ev, time: int, old: EvState, new: EvState) -> None:
    health.on_event(nic, EvEvent(time, QPN, of.plane, of.value, old, new, "test", 0))


def test_a_path_is_named_by_its_t1() -> None:
    assert Path.of(ev(2, 5)) == Path(2, 5, "T1-5")
    assert Path.of(ev(2, None)) == Path(2, -1, "own T0")
    assert Path.of(Ev(1, 0x2ABCDEF0, encap(None))) == Path(1, 0, "0x2abcdef0")


def test_the_map_tells_the_worst_state_in_each_interval() -> None:
    one, other = ev(0, 3), ev(0, 3)
    one.packets = other.packets = 1
    health = watching([one], [other], now=10)
    move(health, "nic0", one, 25, EvState.GOOD, EvState.SKIP)
    move(health, "nic0", one, 31, EvState.SKIP, EvState.GOOD)
    move(health, "nic0", one, 45, EvState.GOOD, EvState.ASSUMED_BAD)
    move(health, "nic1", other, 47, EvState.GOOD, EvState.ASSUMED_BAD)
    move(health, "nic1", other, 52, EvState.ASSUMED_BAD, EvState.GOOD)
    health.end(69)
    found = health.map(10, 8)
    assert found.paths == [Path(0, 3, "T1-3")]
    nan = np.nan
    np.testing.assert_array_equal(found.skipped, [[nan, 0, 0.5, 0.5, 0, 0, 0, nan]])
    np.testing.assert_array_equal(found.bad, [[nan, 0, 0, 0, 1, 1, 0.5, nan]])


def test_queue_pairs_that_send_nothing_are_left_out() -> None:
    used, unused, answering = ev(1, 0), ev(0, 1), ev(0, 2)
    used.packets = 1
    health = watching([used, unused], [answering])
    assert health.map(10, 1).paths == [Path(0, 1, "T1-1"), Path(1, 0, "T1-0")]


def test_data_on_an_ev_that_is_not_good_is_told() -> None:
    path = ev(0, 3)
    health = watching([path])
    path.packets = 7
    move(health, "nic0", path, 10, EvState.GOOD, EvState.ASSUMED_BAD)
    path.packets = 9
    move(health, "nic0", path, 20, EvState.ASSUMED_BAD, EvState.GOOD)
    path.packets = 12
    assert health.violations() == [
        "nic0: QP 16: 2 data packets went out on EV 0x00180000 while it was not GOOD",
    ]


def test_data_on_an_ev_that_stayed_bad_is_told_once() -> None:
    path = ev(0, 3)
    health = watching([path])
    move(health, "nic0", path, 10, EvState.GOOD, EvState.ASSUMED_BAD)
    path.packets = 1
    assert len(health.violations()) == 1 and len(health.violations()) == 1
