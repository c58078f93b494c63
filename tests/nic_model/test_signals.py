"""What the network tells the endpoint: trims, ECN, ports that go down and up, paths that heal."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from nic_model.ev import EvProfile
from nic_model.ev_format import EvFormat, EvMode, GeneratedField, generate
from nic_model.events import EvState
from nic_model.headers import EndpointOp, NackReason, Opcode
from nic_model.packet import Frame, Packet, parse
from nic_model.paths import srv6_ev
from nic_model.peer import Deny
from nic_model.verbs import MR, QP, SGE, QPAttr, QPInitAttr, SendWR, WROpcode
from tests.nic_model.back_to_back import PLANES, SERIALISE, BackToBack, constant_delay

DELAY = 2000
RTO = 1024 << 7
TRIM_SIZE = 128
TRIMMED, TRIMMED_LASTHOP = 12, 16


def filled(pair: BackToBack, packets: int) -> tuple[MR, MR]:
    source, target = pair.region(0, packets * 4096), pair.region(1, packets * 4096)
    source.write(random.Random(7).randbytes(packets * 4096))
    return source, target


def trimmed(frame: Frame, dscp: int) -> Frame:
    """What a switch makes of a frame that its queue refuses: outer DSCP and length rewritten, then cut."""
    raw = bytearray((frame[0] + frame[1])[:TRIM_SIZE])
    raw[14:16] = (int.from_bytes(raw[14:16], "big") & 0xF03F | dscp << 6).to_bytes(2, "big")
    raw[18:20] = (min(int.from_bytes(raw[18:20], "big"), TRIM_SIZE - 54)).to_bytes(2, "big")
    return bytes(raw), b""


def marked(frame: Frame) -> Frame:
    """The outer header's ECN field is CE."""
    head = bytearray(frame[0])
    head[15] |= 0x30
    return bytes(head), frame[1]


def sent_by(pair: BackToBack, side: int) -> list[tuple[int, int, Packet]]:
    return [(now, plane, parse(frame)) for now, sender, plane, frame in pair.wire_log if sender == side]


def data_by(pair: BackToBack, side: int) -> list[tuple[int, int, Packet]]:
    return [entry for entry in sent_by(pair, side) if entry[2].opcode <= Opcode.WRITE_ONLY_IMM]


def endpoint_packets(pair: BackToBack, side: int) -> list[Packet]:
    kinds = (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE)
    return [packet for _, _, packet in sent_by(pair, side) if packet.opcode in kinds]


def transitions(pair: BackToBack, side: int, new: EvState) -> list[tuple[int, int]]:
    return [(event.time, event.value) for event in pair.sides[side].events if event.new is new]


@pytest.mark.parametrize(
    ("dscp", "reason"), [(TRIMMED, NackReason.TRIMMED), (TRIMMED_LASTHOP, NackReason.TRIMMED_LASTHOP)]
)
def test_a_trimmed_packet_is_nacked_and_sent_again_once(dscp: int, reason: NackReason) -> None:
    cut: list[Packet] = []

    def every_tenth(sender: int, _plane: int, frame: Frame, _now: int) -> int | tuple[int, Frame]:
        packet = parse(frame)
        if sender == 0 and packet.opcode <= Opcode.WRITE_ONLY_IMM and not packet.rtx and packet.psn % 10 == 3:
            cut.append(packet)
            return DELAY, trimmed(frame, dscp)
        return DELAY

    pair = BackToBack(every_tenth)
    source, target = filled(pair, 400)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    nacks = [p.nack for _, _, p in sent_by(pair, 1) if p.opcode == Opcode.NACK]
    assert [(n.nack_psn, n.entropy, n.reason) for n in nacks] == [(p.psn, p.envelope.ev, reason) for p in cut]
    again = Counter(packet.psn for _, _, packet in data_by(pair, 0) if packet.rtx)
    assert again == Counter(packet.psn for packet in cut) and max(again.values()) == 1
    # A trim in the fabric lets the path rest once; one at the last hop says nothing of it. None is a failed path.
    skipped = transitions(pair, 0, EvState.SKIP)
    assert bool(skipped) is (reason is NackReason.TRIMMED)
    assert transitions(pair, 0, EvState.ASSUMED_BAD) == []
    responder = pair.sides[1].qp.core.responder
    assert responder is not None and responder.counters.trimmed == len(cut)


def test_a_short_packet_that_is_only_remarked_is_data() -> None:
    def remark(sender: int, _plane: int, frame: Frame, _now: int) -> int | tuple[int, Frame]:
        short = sender == 0 and len(frame[0]) + len(frame[1]) <= 142
        return (DELAY, remarked(frame)) if short else DELAY

    def remarked(frame: Frame) -> Frame:
        head = bytearray(frame[0])
        head[14:16] = (int.from_bytes(head[14:16], "big") & 0xF03F | TRIMMED << 6).to_bytes(2, "big")
        return bytes(head), frame[1]

    pair = BackToBack(remark)
    source, target = filled(pair, 1)
    pair.write(source, target, length=3)
    pair.run()
    assert target.buf[:3] == source.buf[:3]
    assert [p.opcode for _, _, p in sent_by(pair, 1) if p.dqpn != 2] == [Opcode.SACK, Opcode.TRANSPORT_ACK]


def test_an_ecn_mark_makes_a_sack_at_once_and_the_path_rest_once() -> None:
    first: list[Packet] = []

    def mark_one(sender: int, _plane: int, frame: Frame, _now: int) -> int | tuple[int, Frame]:
        packet = parse(frame)
        if sender == 0 and packet.psn == 0xFFFFF1:
            first.append(packet)
            return DELAY, marked(frame)
        return DELAY

    pair = BackToBack(mark_one)
    source, target = filled(pair, 200)
    pair.write(source, target)
    pair.run()
    sacks = [p.sack for _, _, p in sent_by(pair, 1) if p.opcode == Opcode.SACK]
    assert [(s.m, s.entropy, s.ack_psn_offset) for s in sacks if s.m] == [(1, first[0].envelope.ev, 0)]
    ((_, skipped),) = transitions(pair, 0, EvState.SKIP)
    assert skipped == first[0].envelope.ev
    ((_, rested),) = transitions(pair, 0, EvState.GOOD)
    assert rested == skipped
    uses = Counter(packet.envelope.ev for _, _, packet in data_by(pair, 0))
    assert uses[skipped] == min(uses.values()) < max(uses.values())


def test_a_port_that_goes_down_is_announced_and_the_peer_leaves_it_until_it_returns() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 3000)
    pair.write(source, target)
    pair.run(until=60_000)
    pair.sides[1].nic.port_status(1, False, pair.now)  # the receiver's port
    pair.run(until=120_000)
    pair.sides[1].nic.port_status(1, True, pair.now)
    pair.run()
    assert target.buf == source.buf
    updates = [p for p in endpoint_packets(pair, 1) if p.endpoint.op == EndpointOp.PORT_STATUS_UPDATE]
    assert [(p.endpoint.port_status_mask, p.dqpn) for p in updates] == [(0b1101, 2), (0b1111, 2)]  # type: ignore[union-attr]
    answers = [p for p in endpoint_packets(pair, 0) if p.endpoint.op == EndpointOp.PORT_STATUS_UPDATE]
    assert [(p.opcode, p.psn) for p in answers] == [(Opcode.ENDPOINT_RESPONSE, p.psn) for p in updates]
    heard = 60_000 + DELAY + 500
    while_down = Counter(plane for now, plane, _ in data_by(pair, 0) if heard < now < 120_000)
    after = Counter(plane for now, plane, _ in data_by(pair, 0) if now > 120_000 + DELAY + 500)
    assert set(while_down) == {0, 2, 3} and max(while_down.values()) - min(while_down.values()) <= 2
    assert set(after) == {0, 1, 2, 3}
    assert transitions(pair, 0, EvState.ASSUMED_BAD) == []


def test_an_unanswered_port_status_update_is_repeated() -> None:
    lost = 0

    def lose_three(_sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        nonlocal lost
        if parse(frame).opcode == Opcode.ENDPOINT_REQUEST and lost < 3:
            lost += 1
            return None
        return DELAY

    pair = BackToBack(lose_three)
    pair.sides[1].nic.port_status(2, False, 0)
    pair.run()
    times = [now for now, _, p in sent_by(pair, 1) if p.opcode == Opcode.ENDPOINT_REQUEST]
    assert times == [0, RTO, 2 * RTO, 3 * RTO]
    assert pair.sides[0].qp.core.planes_up == 0b1011


def test_a_port_status_update_that_nobody_answers_ends() -> None:
    pair = BackToBack(lambda *_: None)
    pair.sides[1].nic.port_status(2, False, 0)
    pair.run()
    assert pair.now == 133 * RTO  # 7 + 2 + 4 + 8 + 16 + 32 + 64


def test_a_path_that_heals_is_trusted_again_after_three_probes() -> None:
    dead: list[int] = []

    def until_150_us(sender: int, _plane: int, frame: Frame, now: int) -> int | None:
        packet = parse(frame)
        if sender == 0 and not dead and now > 20_000:
            dead.append(packet.envelope.ev)
        return None if sender == 0 and dead and packet.envelope.ev == dead[0] and now < 150_000 else DELAY

    # No backups: the place in the rotation stays free until the path is back.
    pair = BackToBack(until_150_us, profile=EvProfile(16, 0))
    source, target = filled(pair, 4000)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    ((gone, bad),) = transitions(pair, 0, EvState.ASSUMED_BAD)
    ((back, good),) = transitions(pair, 0, EvState.GOOD)
    assert bad == good == dead[0]
    probes = [
        now
        for now, _, p in sent_by(pair, 0)
        if p.opcode == Opcode.ENDPOINT_REQUEST and p.envelope.ev == dead[0] and p.endpoint.op == EndpointOp.EV_PROBE
    ]
    interval = RTO // 8
    for n, sent in enumerate(probes, start=1):  # a busy port makes one wait for a packet's length at most
        assert gone + interval * n <= sent <= gone + interval * n + n * SERIALISE
    assert sum(now >= 150_000 for now in probes) == 3
    assert 0 <= back - probes[-1] - 2 * DELAY <= 3 * SERIALISE
    uses = [now for now, _, packet in data_by(pair, 0) if packet.envelope.ev == dead[0]]
    assert not any(gone < now < back for now in uses) and any(now > back for now in uses)


def test_a_path_that_stays_dead_is_probed_only_while_there_is_work() -> None:
    dead: list[int] = []

    def for_ever(sender: int, _plane: int, frame: Frame, now: int) -> int | None:
        packet = parse(frame)
        if sender == 0 and not dead and now > 20_000:
            dead.append(packet.envelope.ev)
        return None if sender == 0 and dead and packet.envelope.ev == dead[0] else DELAY

    pair = BackToBack(for_ever)
    source, target = filled(pair, 1000)
    pair.write(source, target)
    pair.run()
    finished = max(now for now, _, p in sent_by(pair, 1) if p.opcode == Opcode.TRANSPORT_ACK)
    assert target.buf == source.buf and pair.now < finished + RTO
    assert len(transitions(pair, 0, EvState.ASSUMED_BAD)) == 1


def test_endpoint_packets_that_make_no_sense_are_counted() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 4)
    pair.sides[0].nic.port_status(3, False, 0)
    pair.write(source, target)
    pair.run()
    (request,) = [f for _, s, _, f in pair.wire_log if s == 0 and parse(f).opcode == Opcode.ENDPOINT_REQUEST]
    (response,) = [f for _, s, _, f in pair.wire_log if s == 1 and parse(f).opcode == Opcode.ENDPOINT_RESPONSE]
    plane = parse(response).envelope.ev >> 29
    nic = pair.sides[0].nic
    for frame in (response, response):  # nobody waits for it any more
        nic.receive(plane, (nic.ports[plane].mac + frame[0][6:], frame[1]), pair.now)
    assert nic.counters.refused == {"no such endpoint request": 2}
    assert parse(request).endpoint.port_status_mask == 0b0111  # type: ignore[union-attr]
    assert len(nic.ports) == PLANES


def sacks_of(pair: BackToBack, side: int) -> list[Packet]:
    return [p for _, _, p in sent_by(pair, side) if p.opcode == Opcode.SACK]


def test_dynamic_mpr_is_told_and_kept_to() -> None:
    pair = BackToBack(constant_delay(200_000), window=1 << 40, dynamic_mpr=True, timeout=12)
    responder = pair.sides[1].qp.core.responder
    assert responder is not None
    responder.set_mpr(2048)
    source, target = filled(pair, 6000)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    assert {p.sack.mpr for p in sacks_of(pair, 1)} == {16}
    sent, cack, ahead = 0, -1, 0
    for _, side, _, frame in pair.wire_log:
        packet = parse(frame)
        if side == 0 and packet.opcode <= Opcode.WRITE_ONLY_IMM:
            sent = (packet.psn - 0xFFFFF0) % (1 << 24)
            ahead = max(ahead, sent - cack)
        elif packet.opcode == Opcode.SACK:
            cack = max(cack, (packet.sack.cack_psn - 0xFFFFF0 + (1 << 23)) % (1 << 24) - (1 << 23))
    assert 1024 < ahead <= 2048
    assert responder.counters.out_of_window == 0


def test_without_dynamic_mpr_sacks_say_0() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 20)
    pair.write(source, target)
    pair.run()
    assert {p.sack.mpr for p in sacks_of(pair, 1)} == {0}


def test_host_back_pressure_is_told_until_it_ends() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 400)
    pair.write(source, target)
    pair.sides[1].nic.host_penalty.value = 40
    pair.run(until=15_000)
    pair.sides[1].nic.host_penalty.value = 0
    pair.run()
    told = [(p.cc.rcv_cwnd_pen, p.cc.restore_cwnd) for p in sacks_of(pair, 1)]
    first_free = told.index((0, True))
    assert set(told[:first_free]) == {(40, False)}
    assert set(told[first_free : first_free + 8]) == {(0, True)} and set(told[first_free + 8 :]) == {(0, False)}


def test_qps_to_one_destination_share_a_window() -> None:
    window = 40_000
    pair = BackToBack(constant_delay(20_000), window=window)
    a, b = pair.sides
    more = [QP(side.pd, QPInitAttr(side.cq, side.cq)) for side in (a, b)]
    for mine, other, side in ((0, 1, b), (1, 0, a)):
        attr = QPAttr(dest_qp_num=more[other].qp_num, dgid=side.nic.ports[0].address)
        more[mine].to_init(attr)
        more[mine].to_rtr(attr)
        more[mine].to_rts(attr)
    source, target = filled(pair, 100)
    half = 50 * 4096
    pair.write(source, target, length=half)
    sge = SGE(source.addr + half, half, source.lkey)
    more[0].post_send(SendWR(1, WROpcode.RDMA_WRITE, [sge], target.addr + half, target.rkey))
    pair.run(until=19_000)  # before the first SACK
    assert sum(packet.envelope.udp_len - 8 + 40 for _, _, packet in data_by(pair, 0)) <= window
    assert {packet.dqpn for _, _, packet in data_by(pair, 0)} == {b.qp.qp_num, more[1].qp_num}
    pair.run()
    assert target.buf == source.buf
    assert len(a.completions()) == 2


def test_control_packets_leave_a_reverse_path_that_died() -> None:
    """The reverse EVs are probed while the QP only receives; an answer takes the dead one's place."""
    dead: set[int] = set()

    def reverse_path_dies(sender: int, _plane: int, frame: Frame, now: int) -> int | None:
        packet = parse(frame)
        if sender == 1 and not dead and now > 30_000 and packet.opcode == Opcode.SACK:
            dead.add(packet.envelope.ev)
        return None if sender == 1 and packet.envelope.ev in dead else DELAY

    pair = BackToBack(reverse_path_dies)
    source, target = filled(pair, 3000)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    sacks = [(now, p.envelope.ev) for now, _, p in sent_by(pair, 1) if p.opcode == Opcode.SACK]
    on_dead = [now for now, ev in sacks if ev in dead]
    assert len(on_dead) > 1 and max(on_dead) < 200_000
    probed = [p for _, _, p in sent_by(pair, 1) if p.opcode == Opcode.ENDPOINT_REQUEST]
    assert {p.endpoint.op for p in probed} == {EndpointOp.EV_PROBE}
    round_trips = pair.now // (2 * DELAY)
    assert len(probed) <= round_trips + 1
    requester = pair.sides[0].qp.core.requester
    assert requester is not None and requester.counters.retransmissions == 0


def test_with_traffic_both_ways_nothing_is_probed() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 1000)
    back, there = pair.region(1, 1000 * 4096), pair.region(0, 1000 * 4096)
    pair.write(source, target)
    pair.write(back, there, side=1)
    pair.run(until=90_000)
    assert not [p for side in (0, 1) for _, _, p in sent_by(pair, side) if p.opcode == Opcode.ENDPOINT_REQUEST]


def used(pair: BackToBack, since: int = 0) -> set[tuple[int, int]]:
    """(plane, uplink) of the data packets of side 0."""
    return {(p.envelope.ev >> 29, p.envelope.ev >> 19 & 0x3FF) for now, _, p in data_by(pair, 0) if now >= since}


def test_explicit_evs_are_used_and_no_others() -> None:
    paths = [(plane, uplink) for plane in range(PLANES) for uplink in (1, 5)]
    profile = EvProfile(8, 0, mode=EvMode.EXPLICIT, explicit=tuple((p, srv6_ev(p, u)) for p, u in paths))
    pair = BackToBack(constant_delay(DELAY), profile=profile)
    source, target = filled(pair, 100)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf and used(pair) == set(paths)


def test_generated_srv6_evs_make_the_outer_address() -> None:
    def fields(plane: int) -> tuple[GeneratedField, ...]:
        values = [0x2000 | plane << 10, 0x4000 | plane << 10, 0x2001 | plane << 10, 0xE000 | plane << 10]
        usids = [GeneratedField(16, value) for value in values]
        usids[1] = GeneratedField(16, values[1], max=7, mask=7)
        return (GeneratedField(32, 0xFCBBBBBB), *usids, GeneratedField(32))

    generated = tuple(fields(plane) for plane in range(PLANES))
    profile = EvProfile(16, 0, mode=EvMode.GENERATED, format=EvFormat.SRV6_USID, generated=generated)
    pair = BackToBack(constant_delay(DELAY), profile=profile)
    source, target = filled(pair, 100)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    for _, plane, packet in data_by(pair, 0):
        uplink = packet.envelope.ev >> 19 & 0x3FF
        assert packet.envelope.outer_dst == generate(generated[plane], uplink).to_bytes(16, "big")


def test_a_denylist_forbids_a_plane_a_t1_and_a_remote_link() -> None:
    pair = BackToBack(constant_delay(DELAY), profile=EvProfile(32, 0))
    source, target = filled(pair, 4000)
    pair.write(source, target)
    pair.run(until=50_000)
    assert len(used(pair)) == 32
    rules = [Deny(0), Deny(1, 3), Deny(2, 4, row=1), Deny(3, 5, row=0)]
    pair.sides[0].nic.set_denylist(rules, pair.now)
    pair.run(until=100_000)
    everything = {(plane, uplink) for plane in range(PLANES) for uplink in range(8)}
    allowed = {path for path in everything if path[0] != 0} - {(1, 3), (2, 4)}
    assert used(pair, since=50_001) == allowed
    pair.sides[0].nic.set_denylist([], pair.now)
    pair.run()
    assert target.buf == source.buf and used(pair, since=110_000) == everything
    assert transitions(pair, 0, EvState.ASSUMED_BAD) == []


def test_in_ecmp_mode_nothing_is_encapsulated_and_the_evs_are_random_values() -> None:
    pair = BackToBack(constant_delay(DELAY), mode="ecmp", profile=EvProfile(64, 0))
    source, target = filled(pair, 640)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    data = data_by(pair, 0)
    assert len({packet.envelope.ev for _, _, packet in data}) == 64
    for _, plane, packet in data:
        assert packet.envelope.outer_dst is None and packet.envelope.ev >> 29 == plane
        assert packet.envelope.dst[8:10] == plane.to_bytes(2, "big")
    requester = pair.sides[0].qp.core.requester
    assert requester is not None and requester.counters.retransmissions == 0
