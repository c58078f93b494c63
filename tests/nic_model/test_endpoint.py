"""Two NICs back to back: what arrives in memory, which packets are sent, how work requests end."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nic_model.ev import EvProfile
from nic_model.events import EvState
from nic_model.headers import Opcode
from nic_model.packet import Frame, Packet, parse
from nic_model.verbs import Access, QPState, RecvWR, VerbsError, WCOpcode, WCStatus
from tests.nic_model.back_to_back import PLANES, BackToBack, constant_delay

DELAY = 2000
RTO = 1024 << 7
PSN_MASK = 0xFFFFFF


def filled(pair: BackToBack, length: int, seed: int = 7):  # type: ignore[no-untyped-def]
    source, target = pair.region(0, length), pair.region(1, length)
    source.write(random.Random(seed).randbytes(length))
    return source, target


def packets_of(pair: BackToBack, sender: int = 0) -> list[tuple[int, int, Packet]]:
    """(time, plane, packet) of what one side sent."""
    return [(now, plane, parse(frame)) for now, side, plane, frame in pair.wire_log if side == sender]


def data_of(pair: BackToBack) -> list[tuple[int, int, Packet]]:
    return [entry for entry in packets_of(pair) if entry[2].opcode <= Opcode.WRITE_ONLY_IMM]


class Lose:
    """Loses what `which` says; everything else takes DELAY."""

    def __init__(self, which, delay: int = DELAY) -> None:  # type: ignore[no-untyped-def]
        self.which = which
        self.delay = delay

    def __call__(self, sender: int, plane: int, frame: Frame, now: int) -> int | None:
        return None if self.which(sender, plane, parse(frame), now) else self.delay


# ---- transfer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 3, 4, 4095, 4096, 4097, 8192, 100_001, 1_500_000])
def test_write_delivers_every_byte(length: int) -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, length)
    pair.write(source, target, wr_id=9)
    pair.run()
    assert target.buf == source.buf
    (done,) = pair.sides[0].completions()
    assert (done.wr_id, done.status, done.opcode, done.byte_len) == (9, WCStatus.SUCCESS, WCOpcode.RDMA_WRITE, length)
    packets = -(-length // 4096)
    assert pair.sides[0].qp.core.requester.counters.packets == packets  # type: ignore[union-attr]
    assert pair.sides[0].qp.core.requester.counters.retransmissions == 0  # type: ignore[union-attr]


def test_opcodes_and_headers_of_a_three_packet_message() -> None:
    pair = BackToBack(constant_delay(DELAY), sq_psn=0xFFFFFF)
    source, target = filled(pair, 10_000)
    pair.post_receives(1, 1)
    pair.write(source, target, imm=0xCAFE)
    pair.run()
    sent = [packet for _, _, packet in data_of(pair)]
    assert [p.opcode for p in sent] == [Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST_IMM]
    assert [p.psn for p in sent] == [0xFFFFFF, 0, 1]
    assert [p.va - target.addr for p in sent] == [0, 4096, 8192]
    assert {p.dma_len for p in sent} == {10_000}
    assert {(p.msn, p.rqmsn) for p in sent} == {(1, 1)}
    assert [p.imm for p in sent] == [None, None, 0xCAFE]
    assert [p.ack_req for p in sent] == [False, False, True]
    assert {(p.envelope.dscp, p.envelope.ecn) for p in sent} == {(4, 2)}  # TRIMMABLE, ECT(0)
    (received,) = pair.sides[1].completions()
    assert (received.opcode, received.imm_data, received.byte_len) == (WCOpcode.RECV_RDMA_WITH_IMM, 0xCAFE, 10_000)


def test_zero_length_write_with_immediate() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 16)
    pair.post_receives(1, 1)
    pair.write(source, target, length=0, imm=5)
    pair.run()
    assert [p.opcode for _, _, p in data_of(pair)] == [Opcode.WRITE_ONLY_IMM]
    assert pair.sides[1].completions()[0].imm_data == 5
    assert pair.sides[0].completions()[0].status is WCStatus.SUCCESS
    assert target.buf == bytes(16)


def test_planes_carry_equal_shares_over_different_paths() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 160 * 4096)
    pair.write(source, target)
    pair.run()
    by_plane = Counter(plane for _, plane, _ in data_of(pair))
    assert by_plane == dict.fromkeys(range(PLANES), 40)
    assert Counter(Counter(packet.envelope.ev for _, _, packet in data_of(pair)).values()) == {10: 16}
    for _, plane, packet in data_of(pair):
        assert packet.envelope.ev >> 29 == plane


def test_the_outer_destination_is_the_evs_usid_list() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 64 * 4096)
    pair.write(source, target)
    pair.run()
    for _, plane, packet in data_of(pair):
        uplink = packet.envelope.ev >> 19 & 0x3FF
        usids = [0x2000 | plane << 10, 0x4000 | plane << 10 | uplink, 0x2001 | plane << 10, 0xE000 | plane << 10, 0, 0]
        assert packet.envelope.outer_dst == bytes.fromhex("fcbbbbbb") + b"".join(u.to_bytes(2, "big") for u in usids)


def test_paths_of_unequal_delay_cause_no_retransmission() -> None:
    """Placement in any order; reordering between paths is not loss."""
    delays = random.Random(3)
    per_path: dict[tuple[int, int], int] = {}

    def verdict(sender: int, _plane: int, frame: Frame, _now: int) -> int:
        return per_path.setdefault((sender, parse(frame).envelope.ev), delays.randrange(1000, 5000))

    pair = BackToBack(verdict)
    source, target = filled(pair, 3_000_000)
    pair.write(source, target)
    pair.run()
    requester = pair.sides[0].qp.core.requester
    assert requester is not None
    assert target.buf == source.buf
    assert requester.counters.retransmissions == 0
    assert pair.sides[0].events == []


def test_many_messages_complete_in_post_order_and_immediates_in_send_order() -> None:
    delays = random.Random(5)
    per_path: dict[int, int] = {}

    def verdict(_sender: int, _plane: int, frame: Frame, _now: int) -> int:
        return per_path.setdefault(parse(frame).envelope.ev, delays.randrange(1000, 9000))

    pair = BackToBack(verdict)
    source, target = filled(pair, 400_000)
    pair.post_receives(1, 100)
    for index in range(100):
        imm = index if index % 3 else None
        pair.write(source, target, wr_id=index, offset=index * 4000, length=4000, imm=imm)
    pair.run()
    assert [done.wr_id for done in pair.sides[0].completions()] == list(range(100))
    assert [done.imm_data for done in pair.sides[1].completions()] == [n for n in range(100) if n % 3]
    assert target.buf == source.buf


def test_immediates_in_flight_stay_within_the_peers_limit() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 200)
    pair.post_receives(1, 200)
    for index in range(200):
        pair.write(source, target, wr_id=index, offset=index, length=1, imm=index)
    pair.run()
    acked = 0
    for _, side, _, frame in pair.wire_log:
        packet = parse(frame)
        if side == 0 and packet.opcode == Opcode.WRITE_ONLY_IMM:
            assert packet.rqmsn - acked <= 32
        if packet.opcode == Opcode.TRANSPORT_ACK:
            acked = max(acked, packet.aeth.msn)
    assert [done.imm_data for done in pair.sides[1].completions()] == list(range(200))


def test_both_directions_at_once() -> None:
    pair = BackToBack(constant_delay(DELAY))
    a, b = pair.region(0, 500_000), pair.region(1, 500_000)
    c, d = pair.region(1, 500_000), pair.region(0, 500_000)
    a.write(random.Random(1).randbytes(500_000))
    c.write(random.Random(2).randbytes(500_000))
    pair.write(a, b)
    pair.write(c, d, side=1)
    pair.run()
    assert a.buf == b.buf and c.buf == d.buf


# ---- acknowledgement ---------------------------------------------------------------------------------------


def test_sack_after_each_16_kib_and_on_the_last_packet() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 12 * 4096)
    pair.write(source, target)
    pair.run()
    sacks = [packet for _, _, packet in packets_of(pair, 1) if packet.opcode == Opcode.SACK]
    # 4 x 4176 nominal bytes exceed the threshold of 16,384
    assert len(sacks) == 3
    assert [s.sack.cack_psn for s in sacks] == [0xFFFFF3, 0xFFFFF7, 0xFFFFFB]
    assert {(s.envelope.dscp, s.envelope.ecn) for s in sacks} == {(46, 0)}  # CONTROL, not-ECT


def test_a_lost_packet_is_sent_again_once_on_another_path_of_a_good_state() -> None:
    lost: list[Packet] = []

    def third(sender: int, _plane: int, packet: Packet, _now: int) -> bool:
        if sender == 0 and packet.psn == 0xFFFFF3 and not packet.rtx:
            lost.append(packet)
            return True
        return False

    pair = BackToBack(Lose(third))
    source, target = filled(pair, 200 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    again = [packet for _, _, packet in data_of(pair) if packet.rtx]
    assert [packet.psn for packet in again] == [0xFFFFF3]
    assert again[0].envelope.ev != lost[0].envelope.ev and again[0].envelope.dscp == 8  # TRIMMABLE_RETX
    (event,) = [event for event in pair.sides[0].events if event.new is EvState.ASSUMED_BAD]
    assert (event.value, event.old) == (lost[0].envelope.ev, EvState.GOOD)
    requester = pair.sides[0].qp.core.requester
    assert requester is not None
    assert requester.evs.replaced == [int(plane == lost[0].envelope.ev >> 29) for plane in range(PLANES)]
    # no data on the path after it was given up
    assert all(packet.envelope.ev != lost[0].envelope.ev for now, _, packet in data_of(pair) if now > event.time)


def test_a_dead_path_is_given_up_within_three_round_trips() -> None:
    first_loss: list[int] = []
    dead: list[int] = []

    def on_dead_path(sender: int, _plane: int, packet: Packet, now: int) -> bool:
        if sender or packet.opcode > Opcode.WRITE_ONLY_IMM or now < 20_000:
            return False
        if not dead:
            dead.append(packet.envelope.ev)
            first_loss.append(now)
        return packet.envelope.ev == dead[0]

    pair = BackToBack(Lose(on_dead_path))
    source, target = filled(pair, 1000 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    bad = [event for event in pair.sides[0].events if event.new is EvState.ASSUMED_BAD]
    assert {event.value for event in bad} == {dead[0]}
    assert bad[0].time - first_loss[0] <= 3 * 2 * (DELAY + 341)


def test_a_dead_plane_ends_without_data_and_the_rest_carry_on() -> None:
    def plane_two(sender: int, plane: int, _packet: Packet, now: int) -> bool:
        return sender == 0 and plane == 2 and now > 30_000

    pair = BackToBack(Lose(plane_two))
    source, target = filled(pair, 1500 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    late = Counter(plane for now, plane, _ in data_of(pair) if now > 150_000)
    assert set(late) == {0, 1, 3} and max(late.values()) - min(late.values()) <= 2


def test_lost_sacks_and_transport_acks_are_made_up_for() -> None:
    def half_of_control(sender: int, _plane: int, packet: Packet, now: int) -> bool:
        return sender == 1 and now < 300_000 and (packet.opcode == Opcode.TRANSPORT_ACK or now % 2 == 0)

    pair = BackToBack(Lose(half_of_control))
    source, target = filled(pair, 300 * 4096)
    for index in range(10):
        pair.write(source, target, wr_id=index, offset=index * 30 * 4096, length=30 * 4096)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.SUCCESS] * 10
    assert target.buf == source.buf


def test_a_lost_transport_ack_is_asked_for_by_a_probe() -> None:
    def first_ack(sender: int, _plane: int, packet: Packet, now: int) -> bool:
        return sender == 1 and packet.opcode == Opcode.TRANSPORT_ACK and now < 50_000

    pair = BackToBack(Lose(first_ack))
    source, target = filled(pair, 4096)
    pair.write(source, target)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.SUCCESS]
    probes = [(now, packet) for now, _, packet in packets_of(pair) if packet.opcode == Opcode.RELIABILITY_PROBE]
    assert len(probes) == 1
    answers = [packet for _, _, packet in packets_of(pair, 1) if packet.opcode == Opcode.SACK and packet.sack.pr]
    assert [answer.sack.ack_psn_offset for answer in answers] == [probes[0][1].probe.probe_id]


def test_a_tail_loss_is_repaired_by_the_timer() -> None:
    def last(sender: int, _plane: int, packet: Packet, _now: int) -> bool:
        return sender == 0 and packet.opcode == Opcode.WRITE_LAST and not packet.rtx

    pair = BackToBack(Lose(last))
    source, target = filled(pair, 5 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    assert max(now for now, _, _ in data_of(pair)) < RTO + 20_000


# ---- the end of a connection -------------------------------------------------------------------------------


def test_a_dead_peer_is_a_qp_error_after_7_linear_and_6_doubling_waits() -> None:
    pair = BackToBack(Lose(lambda *_: True))
    source, target = filled(pair, 3 * 4096)
    for wr_id in range(3):
        pair.write(source, target, wr_id=wr_id)
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (0, WCStatus.RETRY_EXC_ERR),
        (1, WCStatus.WR_FLUSH_ERR),
        (2, WCStatus.WR_FLUSH_ERR),
    ]
    assert pair.sides[0].qp.qp_state is QPState.ERR
    assert pair.now == (7 + 2 + 4 + 8 + 16 + 32 + 64) * RTO  # 17.4 ms


def test_work_posted_to_a_failed_qp_is_flushed() -> None:
    pair = BackToBack(Lose(lambda *_: True), linear_cnt=1, exp_cnt=0)
    source, target = filled(pair, 100)
    pair.write(source, target)
    pair.run()
    pair.sides[0].completions()
    pair.write(source, target, wr_id=77)
    pair.sides[0].qp.post_recv(RecvWR(78))
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (77, WCStatus.WR_FLUSH_ERR),
        (78, WCStatus.WR_FLUSH_ERR),
    ]


@pytest.mark.parametrize("case", ["rkey", "start", "end", "access", "closed"])
def test_a_write_outside_its_region_is_refused_and_touches_nothing(case: str) -> None:
    pair = BackToBack(constant_delay(DELAY))
    source = pair.region(0, 8192)
    source.write(b"\xee" * 8192)
    access = Access.LOCAL_WRITE if case == "access" else Access.LOCAL_WRITE | Access.REMOTE_WRITE
    target = pair.region(1, 8192, access)
    if case == "rkey":
        target.rkey += 1
    if case == "closed":
        target.close()
    shift = {"start": -1, "end": 4097}.get(case, 0)
    pair.write(source, target, shift=shift)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.REM_ACCESS_ERR]
    # Packets are placed one by one: the first, or the second, lies inside.
    written = {"start": 0, "end": 0}.get(case, 0)
    assert bytes(target.buf).count(0xEE) == written
    assert pair.sides[0].qp.qp_state is QPState.ERR and pair.sides[1].qp.qp_state is QPState.ERR


def test_an_immediate_without_a_posted_receive_fails_the_qp() -> None:
    """MRC has no RNR NAK."""
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 100)
    pair.write(source, target, imm=1)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.REM_OP_ERR]


def test_misuse_is_an_error_at_once() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 100)
    with pytest.raises(VerbsError, match="not inside a region"):
        pair.write(source, target, length=101)
    with pytest.raises(VerbsError, match="outside a region of 100 bytes"):
        source.write(b"12", 99)
    with pytest.raises(VerbsError, match="is in RTS, the step needs RESET"):
        pair.sides[0].qp.to_init(None)  # type: ignore[arg-type]


# ---- ports -------------------------------------------------------------------------------------------------


def test_a_port_that_goes_down_is_left_and_used_again_when_it_returns() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 3000 * 4096)
    pair.write(source, target)
    pair.run(until=60_000)
    pair.sides[0].nic.port_status(1, False, pair.now)
    pair.run(until=120_000)
    pair.sides[0].nic.port_status(1, True, pair.now)
    pair.run()
    assert target.buf == source.buf
    down = Counter(plane for now, plane, _ in data_of(pair) if 60_000 < now < 120_000)
    after = Counter(plane for now, plane, _ in data_of(pair) if now > 125_000)
    assert set(down) == {0, 2, 3} and set(after) == {0, 1, 2, 3}
    assert pair.sides[0].events == []  # a port of one's own that was down blames no path


def test_all_ports_down_fails_the_qp_in_bounded_time() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 100 * 4096)
    pair.write(source, target)
    pair.run(until=5_000)
    for plane in range(PLANES):
        pair.sides[0].nic.port_status(plane, False, pair.now)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.RETRY_EXC_ERR]
    assert pair.now < 18_000_000


# ---- any loss ----------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    lengths=st.lists(st.integers(0, 60_000), min_size=1, max_size=12),
    window=st.sampled_from([5_000, 50_000, 400_000]),
)
def test_whatever_is_lost_every_byte_arrives_and_every_work_request_completes_once(
    seed: int, loss: float, lengths: list[int], window: int
) -> None:
    rng = random.Random(seed)
    per_path: dict[tuple[int, int], int] = {}

    def verdict(sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        if rng.random() < loss:
            return None
        return per_path.setdefault((sender, parse(frame).envelope.ev), rng.randrange(500, 6000))

    pair = BackToBack(verdict, seed=seed, window=window, profile=EvProfile(16, 16), exp_cnt=25)
    total = max(1, sum(lengths))
    source, target = filled(pair, total, seed)
    pair.post_receives(1, len(lengths))
    offset = 0
    for index, length in enumerate(lengths):
        imm = index if index % 2 else None
        pair.write(source, target, wr_id=index, offset=offset, length=length, imm=imm)
        offset += length
    pair.run()
    assert target.buf[:offset] == source.buf[:offset]
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (index, WCStatus.SUCCESS) for index in range(len(lengths))
    ]
    assert [done.imm_data for done in pair.sides[1].completions()] == list(range(1, len(lengths), 2))
    requester = pair.sides[0].qp.core.requester
    assert requester is not None
    assert requester.in_flight == 0 and requester.deadline is None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_frame_raises_out_of_the_nic(data: st.DataObject) -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 20_000)
    pair.write(source, target)
    pair.run()
    frames = [frame for _, side, _, frame in pair.wire_log if side == 0]
    head, tail = data.draw(st.sampled_from(frames))
    raw = bytearray(head + tail)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(raw)))
    before = bytes(target.buf)
    nic = pair.sides[1].nic
    nic.receive(0, (bytes(raw[:cut]), b""), pair.now)
    nic.receive(0, (bytes(raw), b""), pair.now)
    nic.receive(0, (data.draw(st.binary(max_size=200)), b""), pair.now)
    assert bytes(target.buf) == before
    assert nic.counters.refused.total() >= 1
