"""DCQCN: numbers worked out by hand from Zhu et al., SIGCOMM 2015, section 5; CNPs between two NICs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from nic_model.packet import Frame
from nic_model.roce import DcqcnParameters, RoceSettings
from nic_model.roce.dcqcn import Dcqcn
from nic_model.roce.packet import WRITE_OPCODES, Opcode, parse
from tests.nic_model.roce.pair import DELAY, RATE, Pair, deliver, marked

US = 1000
PAPER = DcqcnParameters.scaled(40)
HAND = replace(PAPER, g=0.5, k=10 * US, t=100 * US, b=1_000_000, f=2, r_ai=1, r_hai=4, min_rate=1)
"""Round numbers: 40 Gb/s, two events of fast recovery."""


def send(limiter: Dcqcn, size: int, now: int) -> None:
    limiter.on_sent(size, now)


def test_the_paper_s_parameters() -> None:
    assert (PAPER.g, PAPER.f, PAPER.k, PAPER.t, PAPER.n) == (1 / 256, 5, 55 * US, 55 * US, 50 * US)
    assert (PAPER.line_rate, PAPER.r_ai, PAPER.b) == (40, 0.040, 10_000_000)


def test_rates_and_bytes_scale_with_the_line_rate() -> None:
    p = DcqcnParameters.scaled(400)
    assert (p.line_rate, p.r_ai, p.r_hai, p.min_rate, p.b) == (400, 0.4, 2.0, 4.0, 100_000_000)
    assert (p.g, p.f, p.k, p.t, p.n) == (PAPER.g, PAPER.f, PAPER.k, PAPER.t, PAPER.n)


def test_parameters_print_with_their_sources() -> None:
    lines = str(DcqcnParameters.scaled(400)).splitlines()
    assert len(lines) == 10
    assert " ".join(lines[1].split()) == (
        "r_ai 0.4 Gb/s step of additive increase (the authors' ns-3 at 40 Gb/s, scaled with the line rate)"
    )
    assert lines[4].startswith("b            100,000,000 bytes")


@pytest.mark.parametrize("change", [{"r_ai": 0}, {"k": 0}, {"g": 1.0}, {"min_rate": 41.0}, {"f": -1}])
def test_parameters_that_make_no_sense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="DCQCN"):
        replace(PAPER, **change)  # type: ignore[arg-type]


# ---- decrease and alpha ------------------------------------------------------------------------------------


def test_first_cnp_halves_the_rate() -> None:
    """alpha is 1: R_T = 40, R_C = 40 (1 - 1/2); alpha = (1 - g) 1 + g = 1."""
    limiter = Dcqcn(PAPER)
    limiter.on_cnp(1_000_000)
    assert (limiter.target, limiter.rate, limiter.alpha) == (40, 20, 1)


def test_a_second_cnp_cuts_from_where_the_first_left() -> None:
    limiter = Dcqcn(HAND)
    limiter.on_cnp(0)
    limiter.on_cnp(5 * US)  # sooner than K: alpha is still 1
    assert (limiter.target, limiter.rate, limiter.alpha) == (20, 10, 1)
    limiter.on_cnp(25 * US)  # two K: alpha = 1/4, R_C = 10 (1 - 1/8), alpha = 1/8 + 1/2
    assert (limiter.target, limiter.rate, limiter.alpha) == (10, 8.75, 0.625)


def test_alpha_starts_to_decay_with_the_first_cnp() -> None:
    limiter = Dcqcn(HAND)
    send(limiter, 4096, 1_000_000)
    limiter.on_cnp(2_000_000)
    assert limiter.rate == 20


def test_the_rate_has_a_floor() -> None:
    limiter = Dcqcn(HAND)
    for _ in range(20):
        limiter.on_cnp(0)
    assert limiter.rate == HAND.min_rate


# ---- increase ----------------------------------------------------------------------------------------------


def rates_at(limiter: Dcqcn, *times: int) -> list[tuple[float, float]]:
    """(R_T, R_C) after a small packet at each time."""
    found = []
    for time in times:
        send(limiter, 64, time)
        found.append((limiter.target, limiter.rate))
    return found


def test_timer_fast_recovery_then_additive_increase() -> None:
    """From 40 and then 20: R_C = 10, R_T = 20 after two cuts. F = 2 halvings of the gap, then R_T + 1 each time."""
    limiter = Dcqcn(HAND)
    limiter.on_cnp(0)
    limiter.on_cnp(0)
    assert rates_at(limiter, *(tick * 100 * US for tick in range(6))) == [
        (20, 10),
        (20, 15),
        (20, 17.5),
        (21, 19.25),
        (22, 20.625),
        (23, 21.8125),
    ]


def test_a_limiter_that_was_not_asked_catches_up() -> None:
    limiter = Dcqcn(HAND)
    limiter.on_cnp(0)
    limiter.on_cnp(0)
    assert rates_at(limiter, 599 * US) == [(23, 21.8125)]


def test_byte_counter_alone_gives_additive_increase() -> None:
    limiter = Dcqcn(HAND)
    limiter.on_cnp(0)
    limiter.on_cnp(0)
    found = []
    for _ in range(4):
        send(limiter, 500_000, 0)
        before = limiter.rate
        send(limiter, 500_000, 0)
        found.append((before, limiter.target, limiter.rate))
    assert found == [(10, 20, 15), (15, 20, 17.5), (17.5, 21, 19.25), (19.25, 22, 20.625)]


def test_hyper_increase_when_both_have_passed_f() -> None:
    """Timer and byte counter alternate, F = 2: the 7th event is the first with both counts above 2."""
    limiter = Dcqcn(replace(HAND, line_rate=400))
    for _ in range(5):
        limiter.on_cnp(0)
    assert (limiter.target, limiter.rate) == (25, 12.5)
    targets = []
    for tick in range(1, 5):
        send(limiter, 64, tick * 100 * US)  # less than a byte event
        targets.append(limiter.target)
        send(limiter, 1_000_000 - 64, tick * 100 * US)
        targets.append(limiter.target)
    # counts before each event: (0,0) (1,0) (1,1) (2,1) (2,2) (3,2) (3,3) (4,3)
    assert targets == [25, 25, 25, 26, 27, 28, 32, 36]


def test_the_line_rate_is_the_end() -> None:
    limiter = Dcqcn(HAND)
    limiter.on_cnp(0)
    assert rates_at(limiter, 100 * US, 200 * US) == [(40, 30), (40, 35)]
    assert rates_at(limiter, 100_000 * US) == [(40, 40)]
    send(limiter, 4096, 100_001 * US)
    assert limiter.send_at == 100_001 * US  # the port is the pace


# ---- pace --------------------------------------------------------------------------------------------------


def test_packets_are_spaced_by_the_rate() -> None:
    """10 Gb/s: 1250 bytes take 1000 ns."""
    limiter = Dcqcn(HAND)
    limiter.on_cnp(0)
    limiter.on_cnp(0)
    times = []
    for _ in range(4):
        send(limiter, 1250, max(limiter.send_at, 1_000))
        times.append(limiter.send_at)
    assert times == [1_000, 2_000, 3_000, 4_000]


def test_waiting_for_the_port_costs_no_rate_but_idling_saves_none() -> None:
    limiter = Dcqcn(HAND)
    limiter.on_cnp(0)
    limiter.on_cnp(0)
    send(limiter, 1250, 10_000)
    send(limiter, 1250, 10_400)
    assert limiter.send_at == 11_000
    send(limiter, 1250, 11_300)  # 300 ns late
    assert limiter.send_at == 12_000
    send(limiter, 1250, 90_000)  # long idle: one packet's time is made up for, no more
    assert limiter.send_at == 90_000
    send(limiter, 1250, 90_000)
    assert limiter.send_at == 91_000


# ---- between two NICs --------------------------------------------------------------------------------------


def congested(_sender: int, _plane: int, frame: Frame, _now: int) -> int | tuple[int, Frame]:
    """All data is marked."""
    return (DELAY, marked(frame)) if parse(frame).opcode in WRITE_OPCODES else DELAY


SETTINGS = RoceSettings(DcqcnParameters.scaled(RATE), 64 * 4096)


def test_one_cnp_in_50_us_however_many_packets_are_marked() -> None:
    pair = Pair(congested, settings=SETTINGS)
    source, target = pair.regions(1_500_000)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    times = [now for now, side, _, packet in pair.log if side == 1 and packet.opcode == Opcode.CNP]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) > 2
    assert min(gaps) >= 50 * US
    assert max(gaps[:2]) < 55 * US  # at 50 and 25 Gb/s the next marked packet is at most 1.4 us away
    responder, requester = pair.sides[1].core.responder, pair.sides[0].core.requester
    assert responder is not None and requester is not None
    assert requester.counters.cnps == responder.counters.cnps == len(times)
    assert responder.counters.marked == responder.counters.packets


def test_a_cnp_halves_the_pace() -> None:
    """At 50 Gb/s a full packet and its overhead, 4198 bytes, take 672 ns."""
    pair = Pair(congested, settings=SETTINGS)
    source, target = pair.regions(800_000)
    pair.write(source, target)
    pair.run()
    cnp_at = next(now for now, _, _, packet in pair.log if packet.opcode == Opcode.CNP) + DELAY
    times = [now for now, side, _, _ in pair.log if side == 0]
    after = [later - earlier for earlier, later in pairwise(times) if earlier > cnp_at + 1000]
    assert set(after[:40]) == {671, 672}


def test_without_dcqcn_packets_are_not_ecn_capable_and_there_is_no_cnp() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100_000)
    pair.write(source, target)
    pair.run()
    assert {packet.ecn for packet in pair.sent(0)} == {0b00}
    pair = Pair(deliver, settings=SETTINGS)
    source, target = pair.regions(100_000)
    pair.write(source, target)
    pair.run()
    assert {packet.ecn for packet in pair.sent(0)} == {0b10}
    assert {packet.ecn for packet in pair.sent(1)} == {0b00}


def test_an_uncongested_qp_fills_the_port() -> None:
    pair = Pair(deliver, settings=SETTINGS)
    source, target = pair.regions(400_000)
    pair.write(source, target)
    pair.run()
    times = [now for now, side, _, _ in pair.log if side == 0]
    assert {later - earlier for earlier, later in pairwise(times[1:])} == {336}


def test_settings_scale_with_rate_and_rtt() -> None:
    """1.5 x 400 Gb/s x 8 us = 600,000 bytes."""
    settings = RoceSettings.scaled(400, 8_000)
    assert settings == RoceSettings(DcqcnParameters.scaled(400), 600_000, ack_interval=16)
    with pytest.raises(ValueError, match="max_outstanding"):
        RoceSettings(None, 0)
