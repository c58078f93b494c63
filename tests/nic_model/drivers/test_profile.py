"""The profile `bmv2`, and timestamps in ticks of 1 us."""

from __future__ import annotations

import random

import pytest

from nic_model.device import FIRST_QPN
from nic_model.drivers.profile import BMV2, HEADERS, MAX_QPN
from nic_model.headers import Opcode
from nic_model.packet import Wire, parse
from nic_model.retry import TIMEOUT_UNIT, RetryTimes
from tests.nic_model.back_to_back import BackToBack, constant_delay
from tests.nic_model.drivers.direct import direct_paths


def test_the_headers_of_a_full_packet_fit_the_least_mtu() -> None:
    # 40 + 40 + 8 + 12 + 4 + 4 + 16 + 4 (OCP MRC in SRv6 mode, with TSETH)
    assert HEADERS == 128
    assert HEADERS + 4096 == 4224


def test_the_window_is_one_and_a_half_bandwidth_delay_products_of_the_pace() -> None:
    parameters = BMV2.nscc(planes=2, path_mtu=4096)
    # 2 ports x 4000 packets/s x 2 ms = 16 packets of 14 + 128 + 4096 bytes
    assert parameters.max_cwnd == pytest.approx(1.5 * 16 * 4238, abs=1)
    assert parameters.base_rtt == 2_000_000


def test_no_burst_is_longer_than_what_a_software_switch_holds() -> None:
    assert BMV2.burst == 16
    assert BMV2.nscc(planes=2, path_mtu=4096).max_cwnd < 32 * 4238


def test_a_dead_peer_is_found_after_5_s() -> None:
    times = RetryTimes(TIMEOUT_UNIT << BMV2.timeout, BMV2.linear_cnt, BMV2.exp_cnt)
    waits = []
    while not times.exhausted:
        waits.append(times.next_wait())
    assert sum(waits) == (7 + 2 + 4 + 8 + 16) * (1024 << 17)  # 4.97 s


def test_a_nic_has_the_profiles_settings() -> None:
    nics = [BMV2.nic(direct_paths(0), "nic0", 4096, random.Random(seed)) for seed in range(2)]
    assert all(nic.wire == Wire(dscp=direct_paths(0).dscp, tsr=1) for nic in nics)
    assert all(nic.late_tolerance == 20_000_000 for nic in nics)
    first_qpns = [nic._next_qpn for nic in nics]
    assert first_qpns[0] != first_qpns[1] and all(FIRST_QPN <= qpn <= MAX_QPN for qpn in first_qpns)


@pytest.mark.parametrize(
    ("tsr", "now", "ticks"),
    [
        (0, 127, 0),
        (0, 128, 1),
        (0, 8_388_608, 0),
        (1, 999, 0),
        (1, 1000, 1),
        (1, 65_536_000, 0),
        (1, 65_535_999, 65_535),
    ],
)
def test_timestamps_are_16_bits_in_ticks_of_128_ns_or_1_us(tsr: int, now: int, ticks: int) -> None:
    assert Wire(tsr=tsr).timestamp(now) == ticks


def test_timestamps_go_out_in_ticks_of_1_us_and_match_when_they_come_back() -> None:
    pair = BackToBack(constant_delay(10_000_000), timeout=17)  # a round trip of 20 ms, in which 128-ns ticks wrap
    requester = pair.sides[0].qp.core.requester
    assert requester is not None
    requester._wire = Wire(tsr=1)
    source, target = (pair.region(side, 4096) for side in (0, 1))
    pair.write(source, target)
    pair.run()
    sent_at, _, _, frame = pair.wire_log[0]
    data = parse(frame)
    assert (data.opcode, data.tsr, data.tx_timestamp) == (Opcode.WRITE_ONLY, 1, sent_at // 1000 & 0xFFFF)
    assert requester._lateness.rtt.smallest == pytest.approx(20_000_000, rel=0.01)
