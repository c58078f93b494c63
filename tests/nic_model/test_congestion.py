"""NSCC by its rules (UEC 1.0; OCP MRC 1.0), with figures worked out by hand."""

from __future__ import annotations

import pytest

from nic_model.congestion import FixedWindow, Nscc, NsccParameters, Window

# The reference network: 100 Gb/s x 12 us, so a = 1; target 9 us, b = 0.75.
REFERENCE = NsccParameters.scaled(100, 12_000, 4096)


def test_parameters_of_the_reference_network() -> None:
    assert REFERENCE.max_cwnd == 225_000  # 1.5 x 150,000
    assert REFERENCE.target_delay == 9_000
    assert REFERENCE.alpha == pytest.approx(4 * 4096 * 0.75 / 9_000)
    assert (REFERENCE.fi, REFERENCE.fi_scale) == (5 * 4096, 0.25)
    assert REFERENCE.eta == pytest.approx(0.15 * 4096)
    assert (REFERENCE.gamma, REFERENCE.max_md_jump, REFERENCE.qa_gate) == (0.8, 0.5, 3)
    assert (REFERENCE.adjust_bytes_threshold, REFERENCE.adjust_period_threshold) == (8 * 4096, 12_000)
    assert REFERENCE.qa_threshold == 36_000


def test_parameters_scale_with_the_nics_total_rate() -> None:
    four = NsccParameters.scaled(400, 12_000, 4096)
    assert four.max_cwnd == 4 * REFERENCE.max_cwnd and four.fi == 4 * REFERENCE.fi


def test_without_trimming_the_target_is_one_base_rtt() -> None:
    assert NsccParameters.scaled(100, 12_000, 4096, trimming=False).target_delay == 12_000


def below_maximum() -> Nscc:
    """A window of 100,000 bytes, some time after the start, with nothing to ignore."""
    nscc = Nscc(REFERENCE)
    nscc._cwnd = 100_000.0
    nscc._adjusted_at = nscc._decreased_at = 1_000_000
    nscc._round_ends = 10_000_000
    return nscc


def test_it_starts_with_the_largest_window() -> None:
    assert Nscc(REFERENCE).cwnd == 225_000


def test_proportional_increase_without_ecn_below_the_target() -> None:
    nscc = below_maximum()
    nscc.on_sack(8 * 4096, 12_000 + 3_000, False, 50_000, 1_000_100)
    # alpha x newly x (target - delay) / cwnd
    assert nscc.cwnd == int(100_000 + REFERENCE.alpha * 32_768 * 6_000 / 100_000)


def test_fair_increase_without_ecn_above_the_target() -> None:
    nscc = below_maximum()
    nscc.on_sack(8 * 4096, 12_000 + 20_000, False, 50_000, 1_000_100)
    assert nscc.cwnd == int(100_000 + 5 * 4096 * 32_768 / 100_000)


def test_eta_is_added_once_a_period() -> None:
    nscc = below_maximum()
    nscc.on_sack(4096, 12_000 + 9_000, False, 50_000, 1_012_000)
    assert nscc.cwnd == int(100_000 + 5 * 4096 * 4096 / 100_000 + 0.15 * 4096)


def test_ecn_below_the_target_changes_nothing() -> None:
    nscc = below_maximum()
    nscc.on_sack(8 * 4096, 12_000 + 3_000, True, 50_000, 1_000_100)
    assert nscc.cwnd == 100_000


def test_ecn_above_the_target_decreases_once_a_base_rtt() -> None:
    nscc = below_maximum()
    nscc._average = 18_000.0
    nscc.on_sack(4096, 12_000 + 18_000, True, 50_000, 1_012_000)
    once = 100_000 * (1 - 0.8 * (18_000 - 9_000) / 18_000)
    assert nscc.cwnd == pytest.approx(once + 0.15 * 4096, abs=1)
    nscc.on_sack(4096, 12_000 + 18_000, True, 50_000, 1_013_000)
    assert nscc.cwnd == pytest.approx(once + 0.15 * 4096, abs=1)


def test_a_decrease_is_at_most_one_half() -> None:
    nscc = below_maximum()
    nscc._average = 900_000.0
    nscc.on_sack(4096, 912_000, True, 50_000, 1_012_001)
    assert nscc.cwnd == pytest.approx(50_000 + 0.15 * 4096, abs=1)


def test_a_loss_takes_one_packet() -> None:
    nscc = below_maximum()
    nscc.on_loss(4176, 50_000, 1_000_100)
    assert nscc.cwnd == 100_000 - 4176


def test_quick_adapt_sets_the_window_to_what_was_achieved() -> None:
    nscc = below_maximum()
    nscc._round_ends = 1_000_000
    nscc._achieved = 20_000  # less than max_cwnd / 8
    nscc.on_loss(4176, 60_000, 1_000_100)
    assert nscc.cwnd == 20_000
    # what was in flight then is left out of account, and so are its losses
    nscc.on_loss(4176, 60_000, 1_000_200)
    nscc.on_sack(59_000, 12_000, False, 1_000, 1_000_300)
    assert nscc.cwnd == 20_000
    nscc.on_sack(1_000, 12_000, False, 1_000, 1_000_400)
    nscc.on_sack(32_768, 15_000, False, 1_000, 1_000_500)
    assert nscc.cwnd > 20_000


def test_quick_adapt_spares_who_achieves_enough() -> None:
    nscc = below_maximum()
    nscc._round_ends = 1_000_000
    nscc._achieved = REFERENCE.max_cwnd >> 3
    nscc.on_loss(4176, 60_000, 1_000_100)
    assert nscc.cwnd == 100_000 - 4176


def test_the_window_stays_between_one_packet_and_the_maximum() -> None:
    nscc = below_maximum()
    for _ in range(100):
        nscc.on_loss(4176, 50_000, 1_000_100)
    assert nscc.cwnd == 4096
    for n in range(5_000):
        nscc.on_sack(32_768, 12_000, False, 50_000, 1_000_200 + n * 12_000)
    assert nscc.cwnd == REFERENCE.max_cwnd


def test_a_fixed_window_stays() -> None:
    window = FixedWindow(7)
    window.on_loss(5, 5, 5)
    window.on_sack(5, 5, True, 5, 5)
    assert window.cwnd == 7


def test_a_penalty_comes_off_and_is_given_back() -> None:
    nscc = below_maximum()
    nscc.on_penalty(64, 10_000, 80_000)
    assert nscc.cwnd == 80_000 - 5_000  # min(cwnd, in flight) - (64 x 10,000 >> 7)
    nscc.on_penalty(127, 10_000, 80_000)
    assert nscc.cwnd == 75_000 - (127 * 10_000 >> 7)
    nscc.on_restore()
    assert nscc.cwnd == 100_000
    nscc.on_restore()
    assert nscc.cwnd == 100_000


def test_one_packet_may_always_go() -> None:
    window = Window(FixedWindow(100))
    assert window.admits(4176)
    window.in_flight = 50
    assert window.admits(50) and not window.admits(51)
