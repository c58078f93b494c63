"""Settings and rules that few packets meet: remap delay, NO_TRIM, P_Key, RESET, a silent window, denied paths, logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from nic_model.ev import EvProfile
from nic_model.ev_format import EvFormat, EvMode, GeneratedField, ProfileState
from nic_model.events import (
    EvState,
    LossEvent,
    LossReason,
    PortEvent,
    ProbeEvent,
    ProbeReason,
    QpEvent,
    RetransmissionEvent,
    TimerEvent,
    WindowEvent,
)
from nic_model.headers import Opcode
from nic_model.packet import Frame, Malformed, MalformedError, Wire, parse, pkeys_match
from nic_model.peer import Deny
from nic_model.verbs import QPAttr, QPState, VerbsError, WCStatus
from tests.nic_model.back_to_back import PLANES, SERIALISE, BackToBack, constant_delay
from tests.nic_model.test_audit import DELAY, FIRST_PSN, LIFETIME, RTO, data, filled, halves, inject, sent_by
from tests.nic_model.test_ev import make_set

# ---- ports -------------------------------------------------------------------------------------------------


def test_a_remap_delay_lets_a_port_that_is_down_hold_its_packets_for_so_long() -> None:
    """While the QP has not left the port, its next packet waits there, and nothing else goes (decision)."""
    delay = 30_000
    pair = BackToBack(constant_delay(DELAY), remap_delay=delay)
    source, target = filled(pair, 2000)
    pair.write(source, target)
    pair.run(until=60_000)
    pair.sides[0].nic.port_status(1, False, pair.now)
    down_at = pair.now
    pair.run()
    assert target.buf == source.buf
    sent = [(now, plane) for now, plane, packet in sent_by(pair, 0) if packet.opcode < Opcode.TRANSPORT_ACK]
    stalled = [now for now, _ in sent if down_at + 2_000 < now < down_at + delay]
    assert stalled == [] and {plane for now, plane in sent if now > down_at} == {0, 2, 3}
    assert min(now for now, _ in sent if now > down_at + 2_000) == down_at + delay
    told = [now for now, _, packet in sent_by(pair, 0) if packet.opcode == Opcode.ENDPOINT_REQUEST]
    assert min(told) == down_at + delay


def test_a_port_that_is_back_before_the_remap_delay_is_over_is_never_left() -> None:
    pair = BackToBack(constant_delay(DELAY), remap_delay=30_000)
    source, target = filled(pair, 2000)
    pair.write(source, target)
    pair.run(until=60_000)
    pair.sides[0].nic.port_status(1, False, pair.now)
    pair.run(until=70_000)
    pair.sides[0].nic.port_status(1, True, pair.now)
    pair.run()
    assert target.buf == source.buf and sent_by(pair, 0, Opcode.ENDPOINT_REQUEST) == []
    after = Counter(plane for now, plane, _ in sent_by(pair, 0) if now > 80_000)
    assert max(after.values()) - min(after.values()) <= 2


@pytest.mark.parametrize("side", [0, 1])
def test_without_any_port_an_idle_qp_ends_as_well(side: int) -> None:
    """Loss of all ports kills the QPs (arXiv 2605.04333): when all retries of one with work would be over."""
    pair = BackToBack(constant_delay(DELAY))
    for plane in range(PLANES):
        pair.sides[side].nic.port_status(plane, False, 0)
    pair.run()
    assert pair.sides[side].qp.qp_state is QPState.ERR and pair.now == LIFETIME
    assert pair.sides[1 - side].qp.qp_state is QPState.RTS


def test_with_one_port_back_in_time_an_idle_qp_lives_on() -> None:
    pair = BackToBack(constant_delay(DELAY))
    for plane in range(PLANES):
        pair.sides[0].nic.port_status(plane, False, 1_000)
    pair.run(until=LIFETIME - 10_000)
    pair.sides[0].nic.port_status(2, True, LIFETIME - 10_000)
    pair.run()
    source, target = filled(pair, 10)
    pair.write(source, target)
    pair.run()
    assert pair.sides[0].qp.qp_state is QPState.RTS and target.buf == source.buf


# ---- attributes --------------------------------------------------------------------------------------------


def test_data_of_a_no_trim_qp_is_of_that_class_when_sent_again_too() -> None:
    lost: list[int] = []

    def lose_one(sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        if not sender and len(lost) < 1:
            lost.append(parse(frame).psn)
            return None
        return DELAY

    pair = BackToBack(lose_one, no_trim=True)
    source, target = filled(pair, 40)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    packets = [packet for _, _, packet in sent_by(pair, 0) if packet.opcode < Opcode.TRANSPORT_ACK]
    assert {packet.envelope.dscp for packet in packets} == {0} and any(packet.rtx for packet in packets)


def test_above_its_window_a_silent_responder_sends_no_nack() -> None:
    for silent, answers in ((False, 1), (True, 0)):
        pair = BackToBack(constant_delay(DELAY), silent_above_window=silent)
        target = pair.region(1, 8)
        inject(pair, 1, data(pair, target, psn=FIRST_PSN + 1024 & 0xFFFFFF))
        pair.run()
        assert halves(pair)[1].counters.out_of_window == 1
        assert len(sent_by(pair, 1, Opcode.NACK)) == answers and sent_by(pair, 1, Opcode.SACK) == []


def test_a_qp_goes_back_to_reset_and_works_again() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 200)
    pair.write(source, target, wr_id=5)
    pair.run(until=5_000)
    for mine, other in (pair.sides, pair.sides[::-1]):
        mine.qp.to_reset()
        assert mine.qp.qp_state is QPState.RESET and mine.nic.peer(other.nic.ports[0].address).queue_pairs == []  # type: ignore[union-attr]
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [(5, WCStatus.WR_FLUSH_ERR)]
    pair.run()  # what was on the wire finds no QP to work on
    with pytest.raises(VerbsError, match="is in RESET, sending needs RTS"):
        pair.write(source, target)
    for mine, other in (pair.sides, pair.sides[::-1]):
        attr = QPAttr(dest_qp_num=other.qp.qp_num, dgid=other.nic.ports[0].address, rq_psn=7, sq_psn=7)
        mine.qp.to_init(attr)
        mine.qp.to_rtr(attr)
        mine.qp.to_rts(attr)
    pair.write(source, target, wr_id=6)
    pair.run()
    assert target.buf == source.buf
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [(6, WCStatus.SUCCESS)]


# ---- partitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "match"),
    [
        (0xFFFF, 0xFFFF, True),
        (0xFFFF, 0x7FFF, True),
        (0x7FFF, 0xFFFF, True),
        (0x7FFF, 0x7FFF, False),  # two limited members
        (0xFFFF, 0xFFFE, False),
        (0x8001, 0x8002, False),
    ],
)
def test_partition_keys(one: int, other: int, match: bool) -> None:
    """InfiniBand 10.9.3: the low 15 bits are equal, and one of the two is a full member."""
    assert pkeys_match(one, other) is match


def test_a_packet_of_another_partition_is_refused_and_counted() -> None:
    pair = BackToBack(constant_delay(DELAY))
    target = pair.region(1, 8)
    head, tail = data(pair, target)
    frame = head, tail
    assert parse(frame).payload
    with pytest.raises(MalformedError) as caught:
        parse(frame, Wire(pkey=0x8001))
    assert caught.value.reason is Malformed.PKEY
    pair = BackToBack(constant_delay(DELAY), wire=Wire(pkey=0x8001))
    inject(pair, 1, frame)
    pair.run()
    assert pair.sides[1].nic.counters.refused == {"pkey": 1} and pair.wire_log == []


# ---- paths -------------------------------------------------------------------------------------------------


def test_control_packets_leave_denied_paths_too() -> None:
    pair = BackToBack(constant_delay(DELAY), profile=EvProfile(32, 0))
    source, target = filled(pair, 4000)
    pair.write(source, target)
    pair.run(until=50_000)
    rules = [Deny(plane, uplink) for plane in range(PLANES) for uplink in range(8) if uplink != 5]
    pair.sides[1].nic.set_denylist(rules, pair.now)
    pair.run()
    assert target.buf == source.buf
    later = [packet for now, _, packet in sent_by(pair, 1) if now > 51_000]
    assert len(later) > 500 and {packet.envelope.ev >> 19 & 0x3FF for packet in later} == {5}


def test_in_ecmp_mode_a_rule_about_one_t1_denies_nothing() -> None:
    """Which T1 an EV leads over, only the switches know."""
    pair = BackToBack(constant_delay(DELAY), mode="ecmp")
    pair.sides[0].nic.set_denylist([Deny(0, uplink) for uplink in range(8)], 0)
    assert {ev.state for ev in halves(pair)[0].evs} == {EvState.GOOD}
    pair.sides[0].nic.set_denylist([Deny(0)], 0)
    assert {ev.plane for ev in halves(pair)[0].evs if ev.state is EvState.DENIED} == {0}


def test_evs_of_planes_that_are_down_do_not_count_towards_the_floor() -> None:
    evs = make_set(active=4, backup=0, planes=2, min_active=4)
    assert evs.upcoming(0b01, 0) is not None  # four EVs are left, and all four are needed
    for ev in [ev for ev in evs if ev.plane == 0]:
        evs.assume_bad(ev, "loss", 0)
    assert {ev.state for ev in evs} == {EvState.GOOD}
    assert evs.upcoming(0b11, 0) is not None
    for ev in [ev for ev in evs if ev.plane == 0]:
        evs.assume_bad(ev, "loss", 0)
    assert Counter(ev.state for ev in evs) == {EvState.ASSUMED_BAD: 4, EvState.GOOD: 4}


def test_an_ev_profile_is_stepped_and_only_used_online() -> None:
    nic = BackToBack(constant_delay(DELAY)).sides[0].nic
    nic.ev_profiles[3] = replace(nic.ev_profiles[0], state=ProfileState.INIT)
    with pytest.raises(ValueError, match="does not go from INIT to ONLINE"):
        nic.step_ev_profile(3, ProfileState.ONLINE)
    for state in (ProfileState.OFFLINE, ProfileState.ONLINE, ProfileState.OFFLINE, ProfileState.INIT):
        nic.step_ev_profile(3, state)
        assert nic.ev_profiles[3].state is state
    with pytest.raises(KeyError):
        nic.step_ev_profile(4, ProfileState.ONLINE)


UDP_PORTS = tuple((GeneratedField(16, init_val=plane << 13, max=15, mask=0x00F0),) for plane in range(PLANES))


@pytest.mark.parametrize(
    "profile",
    [
        EvProfile(32, 0, format=EvFormat.UDP_PORT),
        EvProfile(32, 0, mode=EvMode.GENERATED, format=EvFormat.UDP_PORT, generated=UDP_PORTS),
    ],
    ids=["auto", "generated"],
)
def test_evs_of_the_udp_port_format_leave_the_flow_label_alone(profile: EvProfile) -> None:
    pair = BackToBack(constant_delay(DELAY), mode="ecmp", profile=profile)
    source, target = filled(pair, 200)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    evs = {(plane, packet.envelope.ev) for _, plane, packet in sent_by(pair, 0) if packet.opcode < Opcode.TRANSPORT_ACK}
    assert len(evs) == 32 and all(ev & 0xFFFF == 0 and ev >> 29 == plane for plane, ev in evs)
    if profile.generated:
        assert all(ev >> 16 & 0x1F0F == 0 for _, ev in evs)


def test_one_generated_ev_in_two_planes_is_misuse() -> None:
    same = tuple((GeneratedField(32, init_val=0, max=15, mask=0xF),) for _ in range(PLANES))
    profile = EvProfile(32, 0, mode=EvMode.GENERATED, generated=same)
    with pytest.raises(VerbsError, match=r"EV 0x[0-9a-f]{8} stands for several paths"):
        BackToBack(constant_delay(DELAY), mode="ecmp", profile=profile)


def test_a_batch_of_ev_probes_gives_all_results_once_in_order() -> None:
    def plane_2_is_dead(_sender: int, plane: int, _frame: Frame, _now: int) -> int | None:
        return None if plane == 2 else DELAY

    pair = BackToBack(plane_2_is_dead)
    nic, peer = pair.sides[0].nic, pair.sides[0].qp.core.peer
    assert peer is not None
    paths = [(plane, peer.any_ev(plane)) for plane in (3, 2, 0)]
    seen = []
    nic.endpoint.probe_batch(peer, paths, 20_000, lambda results, now: seen.append((results, now)), 0)
    pair.run()
    rtt = 2 * (SERIALISE + DELAY)
    assert seen == [([(*paths[0], rtt), (*paths[1], None), (*paths[2], rtt)], 20_000)]


# ---- timers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [1, 2, 7])
def test_a_lost_tail_is_found_by_a_probe_within_the_ack_timeout_and_one_round_trip(missing: int) -> None:
    packets = 60
    tail = {FIRST_PSN + packets - 1 - back & 0xFFFFFF for back in range(missing)}

    def lose_the_tail(sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        packet = parse(frame)
        return None if not sender and packet.psn in tail and not packet.rtx and packet.payload else DELAY

    pair = BackToBack(lose_the_tail)
    source, target = filled(pair, packets)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    (probed_at,) = [now for now, _, _ in sent_by(pair, 0, Opcode.RELIABILITY_PROBE)]
    last_feedback = max(now for now, sender, _, _ in pair.wire_log if sender and now < RTO) + DELAY
    assert last_feedback + RTO <= probed_at <= last_feedback + RTO + SERIALISE
    again = {packet.psn: now for now, _, packet in sent_by(pair, 0) if packet.rtx}
    round_trip = 2 * (DELAY + SERIALISE)
    assert (
        tail <= set(again) and len(again) <= missing + 1
    )  # the timer itself sends the oldest that is not acknowledged
    assert max(again.values()) <= probed_at + round_trip + SERIALISE * missing
    probes = [event for event in pair.sides[0].log if isinstance(event, ProbeEvent)]
    assert [event.reason for event in probes] == [ProbeReason.TAIL]


def test_the_longer_a_peer_is_silent_the_less_often_bad_paths_are_probed() -> None:
    pair = BackToBack(lambda *_: None, profile=EvProfile(16, 0))
    source, target = filled(pair, 4)
    pair.write(source, target)
    requester, _ = halves(pair)
    pair.run(until=3 * RTO)
    requester.evs.assume_bad(next(iter(requester.evs)), "test", pair.now)
    early = len(sent_by(pair, 0, Opcode.ENDPOINT_REQUEST))
    pair.run(until=LIFETIME)
    probes = [now for now, _, _ in sent_by(pair, 0, Opcode.ENDPOINT_REQUEST)][early:]
    late = [now for now in probes if now > LIFETIME - 64 * RTO]
    # The last wait is 64 timeouts: eight probes for each bad EV, not 512, and one round over all paths at its begin.
    bad = sum(ev.state is EvState.ASSUMED_BAD for ev in requester.evs) or 16
    assert len(late) <= 16 + 9 * bad


# ---- the event log -----------------------------------------------------------------------------------------


def test_the_log_says_what_was_decided_and_why() -> None:
    psns = [FIRST_PSN + 5]

    def lose_two(sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        packet = parse(frame)
        if not sender and packet.payload and packet.psn in psns:
            psns.remove(packet.psn)
            return None
        return DELAY

    pair = BackToBack(lose_two)
    source, target = filled(pair, 100)
    pair.write(source, target)
    pair.run()
    log = pair.sides[0].log
    assert [event for event in log if isinstance(event, QpEvent)] == [
        QpEvent(0, 16, "INIT", None),
        QpEvent(0, 16, "RTR", None),
        QpEvent(0, 16, "RTS", None),
    ]
    (lost,) = [event for event in log if isinstance(event, LossEvent)]
    (again,) = [event for event in log if isinstance(event, RetransmissionEvent)]
    sent = {packet.rtx: (now, packet) for now, _, packet in sent_by(pair, 0) if packet.psn == FIRST_PSN + 5}
    assert (lost.psn, lost.sent_at, lost.transmissions, lost.blamed) == (FIRST_PSN + 5, sent[False][0], 1, True)
    assert lost.reason in (LossReason.OVERTAKEN, LossReason.LATE) and lost.value == sent[False][1].envelope.ev
    assert (again.time, again.psn, again.transmissions) == (sent[True][0], FIRST_PSN + 5, 2)
    assert again.value == sent[True][1].envelope.ev
    (bad,) = [event for event in pair.sides[0].events if event.new is EvState.ASSUMED_BAD]
    assert (bad.time, bad.value, bad.reason, bad.losses) == (lost.time, lost.value, lost.reason.value, 1)
    windows = [event for event in log if isinstance(event, WindowEvent)]
    assert len(windows) == halves(pair)[0].counters.sacks + 1  # and the loss
    assert {event.decision for event in windows} == {"fixed"} and {event.cwnd for event in windows} == {400_000}


def test_the_log_tells_of_timers_ports_and_the_end() -> None:
    pair = BackToBack(lambda *_: None)
    source, target = filled(pair, 1)
    pair.write(source, target)
    pair.run(until=1_000)
    pair.sides[0].nic.port_status(1, False, 1_000)
    pair.sides[1].nic.port_status(2, False, 1_000)
    pair.run()
    log = pair.sides[0].log
    timers = [(event.silent, event.time, event.deadline) for event in log if isinstance(event, TimerEvent)]
    waits = [RTO] * 7 + [RTO << doubling for doubling in range(1, 7)]
    ends = [sum(waits[: number + 1]) for number in range(len(waits))]
    assert timers == [(number + 1, ends[number], ends[number + 1]) for number in range(len(waits) - 1)]
    assert log[-1] == QpEvent(LIFETIME, 16, "ERR", "RETRY_EXC_ERR")
    assert [event for event in log if isinstance(event, PortEvent)] == [PortEvent(1_000, 1, False, None)]


def test_the_log_tells_of_a_peers_ports() -> None:
    pair = BackToBack(constant_delay(DELAY))
    pair.run()
    pair.sides[1].nic.port_status(2, False, 1_000)
    pair.run()
    address = "fd00:6d72:6300:1:2::"
    assert [event for event in pair.sides[0].log if isinstance(event, PortEvent)] == [
        PortEvent(SERIALISE + DELAY, 2, False, address)
    ]
