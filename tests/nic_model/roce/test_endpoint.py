"""Two RoCE NICs back to back: what arrives in memory, which packets are sent, how work requests end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nic_model.device import CONTROL_QUEUE
from nic_model.packet import Encap, Frame
from nic_model.roce.packet import WRITE_OPCODES, Opcode, Packet, Syndrome, build_cnp, parse
from nic_model.roce.requester import Requester
from nic_model.roce.responder import Responder
from nic_model.verbs import Access, QPAttr, QPState, RecvWR, VerbsError, WCOpcode, WCStatus
from tests.nic_model.back_to_back import Verdict
from tests.nic_model.roce.pair import DELAY, Lose, Pair, Side, deliver, write_wr

RTO = 1024 << 7
FIRST = 0xFFFFF0
"""The first PSN."""


def psn(index: int) -> int:
    return FIRST + index & 0xFFFFFF


def data_of(pair: Pair) -> list[Packet]:
    return [packet for packet in pair.sent(0) if packet.opcode in WRITE_OPCODES]


def indices(pair: Pair) -> list[int]:
    """Which packets were sent, counted from 0."""
    return [packet.psn - FIRST & 0xFFFFFF for packet in data_of(pair)]


def requester(side: Side) -> Requester:
    found = side.core.requester
    assert found is not None
    return found


def responder(side: Side) -> Responder:
    found = side.core.responder
    assert found is not None
    return found


def packet_of(opcode: Opcode, number: int = FIRST, **fields: Any) -> Packet:
    """A packet as the parser gives it, made by hand."""
    return Packet(b"", 0, b"", b"", 0, opcode, 0, True, number, **fields)


def syndrome_sent(pair: Pair) -> int:
    """Of the newest control packet that waits at side 1."""
    return parse(pair.sides[1].nic.ports[0].control[-1]).syndrome


def once(index: int, opcodes: frozenset[Opcode] = WRITE_OPCODES) -> Lose:
    """Loses the first transmission of one packet."""
    lost: list[Packet] = []

    def which(_sender: int, packet: Packet, _now: int) -> bool:
        if packet.opcode in opcodes and packet.psn == psn(index) and not lost:
            lost.append(packet)
            return True
        return False

    return Lose(which)


# ---- transfer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 3, 4, 4095, 4096, 4097, 8192, 100_001, 1_500_000])
def test_write_delivers_every_byte(length: int) -> None:
    pair = Pair(deliver)
    source, target = pair.regions(length)
    pair.write(source, target, wr_id=9)
    pair.run()
    assert target.buf == source.buf
    (done,) = pair.sides[0].completions()
    assert (done.wr_id, done.status, done.opcode, done.byte_len) == (9, WCStatus.SUCCESS, WCOpcode.RDMA_WRITE, length)
    counters = requester(pair.sides[0]).counters
    assert (counters.packets, counters.payload_bytes, counters.retransmissions) == (-(-length // 4096), length, 0)
    assert pair.sides[1].nic.ports[0].payload_bytes == length


def test_packets_of_a_message() -> None:
    """RETH in the first packet, ImmDt in the last, AckReq on the last, PSNs that wrap."""
    pair = Pair(deliver, sq_psn=0xFFFFFF)
    source, target = pair.regions(10_000)
    pair.post_receives(1)
    pair.write(source, target, imm=0xCAFE)
    pair.run()
    sent = pair.sent(0)
    assert [p.opcode for p in sent] == [Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST_IMM]
    assert [p.psn for p in sent] == [0xFFFFFF, 0, 1]
    assert [(p.va, p.rkey, p.dma_len) for p in sent] == [(target.addr, target.rkey, 10_000), (0, 0, 0), (0, 0, 0)]
    assert [p.ack_req for p in sent] == [False, False, True]
    assert [len(p.payload) for p in sent] == [4096, 4096, 1808]
    assert sent[2].imm == 0xCAFE
    (ack,) = pair.sent(1)
    assert (ack.opcode, ack.psn, ack.syndrome, ack.msn) == (Opcode.ACKNOWLEDGE, 1, Syndrome.ACK, 1)
    (received,) = pair.sides[1].completions()
    assert (received.opcode, received.imm_data, received.byte_len) == (WCOpcode.RECV_RDMA_WITH_IMM, 0xCAFE, 10_000)


def test_zero_length_write_with_immediate() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(16)
    pair.post_receives(1)
    pair.write(source, target, length=0, imm=5)
    pair.run()
    assert [p.opcode for p in pair.sent(0)] == [Opcode.WRITE_ONLY_IMM]
    assert pair.sides[1].completions()[0].imm_data == 5
    assert pair.sides[0].completions()[0].status is WCStatus.SUCCESS


def test_a_qp_is_one_five_tuple_and_each_has_its_own() -> None:
    pair = Pair(deliver, planes=4)
    source, target = pair.regions(200_000)
    pair.write(source, target)
    pair.run()
    assert {(plane, p.src, p.dst, p.udp_sport) for _, side, plane, p in pair.log if side == 0} == {
        (0, pair.sides[0].nic.ports[0].address, pair.sides[1].nic.ports[0].address, pair.sides[0].core.udp_sport)
    }
    side = pair.sides[0]
    for _ in range(20):
        side.queue_pair()
    ports = [qp.udp_sport for qp in side.nic.queue_pairs()]
    assert len(set(ports)) == 21 and all(0xC000 <= port <= 0xFFFF for port in ports)


def test_many_messages_complete_in_order_over_one_connection() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(400_000)
    pair.post_receives(100)
    for index in range(100):
        pair.write(source, target, wr_id=index, offset=index * 4000, length=4000, imm=index if index % 3 else None)
    pair.run()
    assert [done.wr_id for done in pair.sides[0].completions()] == list(range(100))
    assert [done.imm_data for done in pair.sides[1].completions()] == [n for n in range(100) if n % 3]
    assert target.buf == source.buf


def test_acks_are_coalesced() -> None:
    """One for every 16 packets and one for the last."""
    pair = Pair(deliver)
    source, target = pair.regions(40 * 4096)
    pair.write(source, target)
    pair.run()
    assert [index for index, p in zip(indices(pair), data_of(pair), strict=True) if p.ack_req] == [15, 31, 39]
    assert [p.psn for p in pair.sent(1)] == [psn(15), psn(31), psn(39)]


def test_the_window_closes_and_opens() -> None:
    """32 packets may be outstanding; the one that closes the window asks for an ACK."""
    pair = Pair(Lose(lambda sender, _packet, _now: sender == 1))  # no ACK arrives
    source, target = pair.regions(100 * 4096)
    pair.write(source, target)
    pair.run(RTO)
    assert indices(pair) == list(range(32))
    assert data_of(pair)[31].ack_req
    assert requester(pair.sides[0]).in_flight == 32


def test_nothing_is_left_waiting_when_the_work_is_done() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100_000)
    pair.write(source, target)
    pair.run()
    assert pair.now < 1_000_000
    assert [side.nic.next_deadline() for side in pair.sides] == [None, None]
    assert [side.nic.ready for side in pair.sides] == [0, 0]


# ---- go-back-N ---------------------------------------------------------------------------------------------


def test_one_lost_packet_is_sent_again_with_everything_behind_it() -> None:
    pair = Pair(once(10))
    source, target = pair.regions(30 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    sent = indices(pair)
    # The NAK comes one packet, two delays and its own length later; by then 0 .. turn - 1 have been sent.
    turn = sent.index(10, 11)
    assert sent == [*range(turn), *range(10, 30)]
    assert turn > 20
    naks = [p for p in pair.sent(1) if p.syndrome == Syndrome.NAK_PSN_SEQUENCE_ERROR]
    assert [p.psn for p in naks] == [psn(10)]  # one only, though many packets were out of order
    assert data_of(pair)[turn].ack_req
    counters = requester(pair.sides[0]).counters
    assert (counters.retransmissions, counters.sequence_naks, counters.timeouts) == (turn - 10, 1, 0)
    assert responder(pair.sides[1]).counters.out_of_order == turn - 11


def test_a_nak_acknowledges_what_was_before_it() -> None:
    pair = Pair(once(10))
    source, target = pair.regions(12 * 4096)
    for index in range(12):
        pair.write(source, target, wr_id=index, offset=index * 4096, length=4096)
    arrivals: list[tuple[int, int]] = []
    pair.sides[0].cq.channel = lambda cq: arrivals.append((pair.now, cq.poll()[1][0].wr_id))
    pair.run()
    assert [wr_id for _, wr_id in arrivals] == list(range(12))
    assert indices(pair) == [*range(12), 10, 11]


def test_reordering_causes_a_nak_and_a_resend() -> None:
    """RC takes nothing out of order: a packet that others overtake makes all behind it come again."""
    held: list[int] = []

    def verdict(_sender: int, _plane: int, frame: Frame, _now: int) -> int:
        packet = parse(frame)
        if packet.opcode in WRITE_OPCODES and packet.psn == psn(5) and not held:
            held.append(packet.psn)
            return DELAY + 1000  # three packets' time: 6 and 7 overtake it
        return DELAY

    pair = Pair(verdict)
    source, target = pair.regions(40 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    sent = indices(pair)
    turn = sent.index(5, 6)
    # 5 comes after all: then 6 is missing, and the second NAK says so before the first resend has got far.
    assert sent == [*range(turn), 5, 6, *range(6, 40)]
    assert [p.psn for p in pair.sent(1) if p.syndrome == Syndrome.NAK_PSN_SEQUENCE_ERROR] == [psn(5), psn(6)]
    assert responder(pair.sides[1]).counters.duplicates == 2  # 5, and 6 the second time
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.SUCCESS]


def test_a_nak_is_repeated_only_after_progress() -> None:
    """The resent packet is lost too: no second NAK for it, the timer finds out."""
    lost: list[int] = []

    def which(_sender: int, packet: Packet, _now: int) -> bool:
        if packet.opcode in WRITE_OPCODES and packet.psn == psn(3) and len(lost) < 2:
            lost.append(packet.psn)
            return True
        return False

    pair = Pair(Lose(which))
    source, target = pair.regions(8 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    assert indices(pair) == [*range(8), *range(3, 8), *range(3, 8)]
    counters = requester(pair.sides[0]).counters
    assert (counters.sequence_naks, counters.timeouts) == (1, 1)


def test_a_lost_tail_is_found_by_the_timer() -> None:
    pair = Pair(once(7))
    source, target = pair.regions(8 * 4096)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    assert indices(pair) == [*range(8), *range(8)]  # nothing had been acknowledged
    assert requester(pair.sides[0]).counters.timeouts == 1
    assert responder(pair.sides[1]).counters.duplicates == 7
    resent = pair.log[[entry[1] for entry in pair.log].index(0, 8)][0]
    # The 8th packet started the timer: it left after one of 4214 bytes on the wire, with RETH, and six of 4198.
    assert resent == 337 + 6 * 336 + RTO


def test_a_lost_ack_is_made_up_for_by_a_later_one() -> None:
    pair = Pair(once(15, frozenset({Opcode.ACKNOWLEDGE})))
    source, target = pair.regions(30 * 4096)
    pair.write(source, target)
    pair.run()
    assert indices(pair) == list(range(30))


def test_a_lost_last_ack_is_asked_for_again() -> None:
    pair = Pair(once(2, frozenset({Opcode.ACKNOWLEDGE})))
    source, target = pair.regions(3 * 4096)
    pair.write(source, target)
    pair.run()
    assert indices(pair) == [0, 1, 2, 0, 1, 2]
    assert pair.sides[1].nic.ports[0].payload_bytes == source.length  # each byte once
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.SUCCESS]


def test_an_immediate_is_received_once() -> None:
    pair = Pair(once(0, frozenset({Opcode.ACKNOWLEDGE})))
    source, target = pair.regions(100)
    pair.post_receives(2)
    pair.write(source, target, imm=1)
    pair.run()
    assert indices(pair) == [0, 0]
    assert [done.imm_data for done in pair.sides[1].completions()] == [1]


# ---- errors ------------------------------------------------------------------------------------------------


def statuses(side: Side) -> list[tuple[int, WCStatus]]:
    return [(done.wr_id, done.status) for done in side.completions()]


def test_a_dead_peer_is_an_error_after_the_retries() -> None:
    """Seven waits of the timeout, six doubling ones: 133 timeouts, 17.4 ms."""
    pair = Pair(lambda *_: None)
    source, target = pair.regions(3 * 4096)
    for wr_id in range(3):
        pair.write(source, target, wr_id=wr_id, offset=wr_id * 4096, length=4096)
    pair.run()
    assert statuses(pair.sides[0]) == [
        (0, WCStatus.RETRY_EXC_ERR),
        (1, WCStatus.WR_FLUSH_ERR),
        (2, WCStatus.WR_FLUSH_ERR),
    ]
    assert pair.now == 133 * RTO
    assert pair.qps[0].qp_state is QPState.ERR
    assert requester(pair.sides[0]).in_flight == 0
    pair.write(source, target, wr_id=4)
    assert statuses(pair.sides[0]) == [(4, WCStatus.WR_FLUSH_ERR)]


def test_a_peer_that_never_takes_a_packet_is_an_error_too() -> None:
    """Each resend loses its first packet: NAK after NAK without progress counts as retries."""
    pair = Pair(Lose(lambda _sender, packet, _now: packet.opcode in WRITE_OPCODES and packet.psn == FIRST))
    source, target = pair.regions(8 * 4096)
    pair.write(source, target)
    pair.run()
    assert statuses(pair.sides[0]) == [(0, WCStatus.RETRY_EXC_ERR)]
    assert pair.now <= 134 * RTO


def test_a_port_that_stays_down_is_an_error() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100)
    pair.sides[0].nic.port_status(0, False, 0)
    pair.write(source, target)
    pair.run()
    assert statuses(pair.sides[0]) == [(0, WCStatus.RETRY_EXC_ERR)]
    assert pair.now == 133 * RTO
    assert pair.log == []


def test_a_port_that_comes_back_in_time_is_none() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100 * 4096)
    pair.write(source, target)
    nic = pair.sides[0].nic
    pair.at(3000, lambda: nic.port_status(0, False, pair.now))
    pair.at(3 * RTO, lambda: nic.port_status(0, True, pair.now))
    pair.run()
    assert target.buf == source.buf
    assert statuses(pair.sides[0]) == [(0, WCStatus.SUCCESS)]
    assert not [now for now, side, _, _ in pair.log if side == 0 and 3000 < now < 3 * RTO]


@pytest.mark.parametrize("case", ["rkey", "bounds", "before", "access", "pd"])
def test_remote_access_errors(case: str) -> None:
    """The first packet's RETH is checked for the whole message: nothing is written."""
    pair = Pair(deliver)
    source, target = pair.regions(3 * 4096)
    shift = {"bounds": 1, "before": -1}.get(case, 0)
    wr = write_wr(source, target, wr_id=7, shift=shift)
    if case == "rkey":
        wr.rkey += 1
    elif case == "access":
        wr.rkey = pair.sides[1].region(3 * 4096, Access.LOCAL_WRITE).rkey
    elif case == "pd":
        stranger = Side(1, 1, 1, pair.sides[1].nic.settings)
        stranger.pd.context = pair.sides[1].pd.context
        wr.rkey = stranger.region(3 * 4096).rkey
    pair.qps[0].post_send(wr)
    pair.write(source, target, wr_id=8)
    pair.qps[1].post_recv(RecvWR(9))
    pair.run()
    assert target.buf == bytes(3 * 4096)
    assert statuses(pair.sides[0]) == [(7, WCStatus.REM_ACCESS_ERR), (8, WCStatus.WR_FLUSH_ERR)]
    assert statuses(pair.sides[1]) == [(9, WCStatus.WR_FLUSH_ERR)]
    (nak,) = pair.sent(1)
    assert (nak.psn, nak.syndrome) == (FIRST, Syndrome.NAK_REMOTE_ACCESS_ERROR)
    assert [qp.qp_state for qp in pair.qps] == [QPState.ERR, QPState.ERR]


def test_a_region_that_is_deregistered_in_use_is_a_remote_access_error() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100 * 4096)
    pair.write(source, target)
    pair.at(10_000, target.close)
    pair.run()
    assert statuses(pair.sides[0]) == [(0, WCStatus.REM_ACCESS_ERR)]
    placed = pair.sides[1].nic.ports[0].payload_bytes
    assert 0 < placed < source.length
    assert target.buf[:placed] == source.buf[:placed] and not any(target.buf[placed:])


def test_an_immediate_without_a_receive_is_a_remote_operational_error() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100)
    pair.write(source, target, imm=1)
    pair.run()
    assert statuses(pair.sides[0]) == [(0, WCStatus.REM_OP_ERR)]


@pytest.mark.parametrize(
    ("opcode", "length", "dma_len"),
    [
        (Opcode.WRITE_FIRST, 4095, 8192),  # not full
        (Opcode.WRITE_FIRST, 4096, 4096),  # nothing is left for a last one
        (Opcode.WRITE_ONLY, 4095, 4096),
        (Opcode.WRITE_ONLY, 4096, 4095),
        (Opcode.WRITE_ONLY, 4100, 4100),  # more than the path MTU
        (Opcode.WRITE_ONLY_IMM, 0, 1),
    ],
)
def test_a_packet_of_a_wrong_length_is_an_invalid_request(opcode: Opcode, length: int, dma_len: int) -> None:
    """InfiniBand 9.7.4.1.7: all packets are full but a message's last, and together they are dma_len."""
    pair = Pair(deliver)
    target = pair.sides[1].region(8192)
    packet = packet_of(opcode, va=target.addr, rkey=target.rkey, dma_len=dma_len, payload=b"x" * length)
    assert responder(pair.sides[1]).on_data(packet, 0) == 0
    assert syndrome_sent(pair) == Syndrome.NAK_INVALID_REQUEST
    assert target.buf == bytes(8192)


@pytest.mark.parametrize("length", [0, 4095, 4097])
def test_a_last_packet_of_a_wrong_length_is_an_invalid_request(length: int) -> None:
    pair = Pair(deliver)
    target = pair.sides[1].region(16384)
    first = packet_of(Opcode.WRITE_FIRST, va=target.addr, rkey=target.rkey, dma_len=8192, payload=bytes(4096))
    assert responder(pair.sides[1]).on_data(first, 0) == 4096
    last = packet_of(Opcode.WRITE_LAST, number=psn(1), payload=bytes(length))
    assert responder(pair.sides[1]).on_data(last, 0) == 0
    assert syndrome_sent(pair) == Syndrome.NAK_INVALID_REQUEST


@pytest.mark.parametrize("opcode", [Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM])
def test_a_message_that_has_not_begun_is_an_invalid_request(opcode: Opcode) -> None:
    pair = Pair(deliver)
    assert responder(pair.sides[1]).on_data(packet_of(opcode, payload=bytes(4096)), 0) == 0
    assert syndrome_sent(pair) == Syndrome.NAK_INVALID_REQUEST
    assert pair.qps[1].qp_state is QPState.ERR


def test_a_second_beginning_is_an_invalid_request() -> None:
    pair = Pair(deliver)
    target = pair.sides[1].region(8192)
    first = packet_of(Opcode.WRITE_FIRST, va=target.addr, rkey=target.rkey, dma_len=8192, payload=bytes(4096))
    assert responder(pair.sides[1]).on_data(first, 0) == 4096
    first.psn = psn(1)
    assert responder(pair.sides[1]).on_data(first, 0) == 0
    assert syndrome_sent(pair) == Syndrome.NAK_INVALID_REQUEST


def test_unknown_and_impossible_acknowledgements_are_counted_and_change_nothing() -> None:
    pair = Pair(Lose(lambda sender, _packet, _now: sender == 1))
    source, target = pair.regions(8 * 4096)
    pair.write(source, target)
    pair.run(10_000)
    sender = requester(pair.sides[0])
    for number, syndrome in ((8, Syndrome.ACK), (100, Syndrome.NAK_PSN_SEQUENCE_ERROR), (0, 0x20), (0, 0xE0)):
        sender.on_acknowledge(packet_of(Opcode.ACKNOWLEDGE, number=psn(number), syndrome=syndrome), 10_000)
    assert sender.counters.unexpected == 4
    assert sender.in_flight == 8
    stale = packet_of(Opcode.ACKNOWLEDGE, number=psn(-3), syndrome=Syndrome.NAK_PSN_SEQUENCE_ERROR)
    sender.on_acknowledge(stale, 10_000)
    assert (sender.in_flight, sender.counters.sequence_naks) == (8, 0)


def test_an_unknown_nak_code_ends_the_request() -> None:
    pair = Pair(Lose(lambda sender, _packet, _now: sender == 1))
    source, target = pair.regions(100)
    pair.write(source, target)
    pair.run(10_000)
    requester(pair.sides[0]).on_acknowledge(packet_of(Opcode.ACKNOWLEDGE, syndrome=0x7F), 10_000)
    assert statuses(pair.sides[0]) == [(0, WCStatus.REM_INV_REQ_ERR)]


def test_frames_that_are_not_for_a_qp_are_counted_by_reason() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100)
    pair.write(source, target)
    nic, peer = pair.sides[0].nic, pair.sides[1].nic
    head, tail = nic.pull(0, 0) or (b"", b"")
    mine = peer.ports[0].mac + head[6:]
    peer.receive(0, (head, tail), 0)
    assert peer.counters.refused["not mine"] == 1  # still the gateway's MAC
    peer.receive(0, (mine[:-1], tail), 0)
    assert peer.counters.refused["truncated"] == 1
    peer.receive(0, (mine, bytes([tail[0] ^ 1]) + tail[1:]), 0)
    assert peer.counters.refused["icrc"] == 1
    pair.qps[1].close()
    peer.receive(0, (mine, tail), 0)
    assert peer.counters.refused["no such QP"] == 1
    assert peer.ports[0].packets_in == 4
    assert target.buf == bytes(100)


def test_a_stranger_is_refused() -> None:
    pair = Pair(deliver)
    pair.sides[1].core.peer_address = bytes(16)
    source, target = pair.regions(100)
    pair.write(source, target)
    pair.run(10_000)
    assert pair.sides[1].nic.counters.refused == {"not from the peer": 1}


def test_a_flood_fills_no_queue_without_bound() -> None:
    """Each duplicate asks for an ACK: what the port can't send is dropped and counted."""
    pair = Pair(deliver)
    duplicate = packet_of(Opcode.WRITE_ONLY, number=psn(-1))
    for _ in range(CONTROL_QUEUE + 10):
        responder(pair.sides[1]).on_data(duplicate, 0)
    port = pair.sides[1].nic.ports[0]
    assert (len(port.control), port.control_dropped) == (CONTROL_QUEUE, 10)


def test_packets_that_a_qp_does_not_take_are_counted() -> None:
    pair = Pair(deliver)
    side = pair.sides[1]
    silent = side.queue_pair()
    silent.to_init(pair_attr(pair))
    silent.to_rtr(QPAttr(dest_qp_num=16, dgid=pair.sides[0].nic.ports[0].address))
    encap = Encap(
        eth_dst=side.nic.ports[0].mac,
        eth_src=bytes(6),
        outer_src=None,
        outer_dst=None,
        inner_src=pair.sides[0].nic.ports[0].address,
        inner_dst=side.nic.ports[0].address,
        ev=0,
    )
    side.nic.receive(0, build_cnp(encap, dqpn=silent.qp_num), 0)
    assert side.nic.counters.refused == {"QP does not send": 1}
    source, target = pair.regions(100)
    pair.write(source, target, imm=1)  # no receive is posted: the QP fails
    pair.write(source, target)
    pair.run()
    assert side.nic.counters.refused == {"QP does not send": 1, "QP in error": 1}


def test_verbs_misuse_raises() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100)
    with pytest.raises(VerbsError, match="is in RTS, the step needs RESET"):
        pair.qps[0].to_init(pair_attr(pair))
    with pytest.raises(VerbsError, match="not inside a region"):
        pair.write(source, target, length=101)
    fresh = pair.sides[0].queue_pair()
    with pytest.raises(VerbsError, match="sending needs RTS"):
        fresh.post_send(write_wr(source, target))
    fresh.to_init(pair_attr(pair))
    peer = pair.sides[1].nic.ports[0].address
    for address in (bytes(16), peer[:8] + b"\0\7" + bytes(6), peer[:15], b""):
        with pytest.raises(VerbsError, match="is no address that this NIC has a path to"):
            fresh.to_rtr(pair_attr(pair, address))


def pair_attr(pair: Pair, dgid: bytes | None = None) -> QPAttr:
    return QPAttr(dest_qp_num=16, dgid=pair.sides[1].nic.ports[0].address if dgid is None else dgid)


# ---- any schedule ------------------------------------------------------------------------------------------


class Chaos:
    """Loses, delays, duplicates by seed until `heals`; then it delivers."""

    def __init__(self, seed: int, loss: float, jitter: int, heals: int) -> None:
        self.rng = random.Random(seed)
        self.loss = loss
        self.jitter = jitter
        self.heals = heals

    def __call__(self, _sender: int, _plane: int, frame: Frame, now: int) -> int | tuple[int, Frame] | None:
        if now >= self.heals:
            return DELAY
        if self.rng.random() < self.loss:
            return None
        if self.rng.random() < self.loss:  # damaged
            position = self.rng.randrange(len(frame[0]))
            head = bytearray(frame[0])
            head[position] ^= 1 << self.rng.randrange(8)
            return DELAY, (bytes(head), frame[1])
        return DELAY + self.rng.randrange(self.jitter + 1)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    jitter=st.sampled_from([0, 500, 5000]),
    lengths=st.lists(st.integers(0, 30_000), min_size=1, max_size=8),
    with_imm=st.integers(0, 255),
)
def test_any_schedule_ends_with_the_same_memory_and_each_completion_once(
    seed: int, loss: float, jitter: int, lengths: list[int], with_imm: int
) -> None:
    verdict: Verdict = Chaos(seed, loss, jitter, heals=800_000)
    pair = Pair(verdict, seed=seed, exp_cnt=25)
    source, target = pair.regions(sum(lengths) or 1)
    pair.post_receives(len(lengths))
    offset = 0
    for index, length in enumerate(lengths):
        imm = index if with_imm >> index & 1 else None
        pair.write(source, target, wr_id=index, offset=offset, length=length, imm=imm)
        offset += length
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (index, WCStatus.SUCCESS) for index in range(len(lengths))
    ]
    assert [done.imm_data for done in pair.sides[1].completions()] == [
        index for index in range(len(lengths)) if with_imm >> index & 1
    ]
    assert target.buf[:offset] == source.buf[:offset]
    assert pair.sides[1].nic.ports[0].payload_bytes == offset
    assert requester(pair.sides[0]).in_flight == 0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 30), dies=st.integers(0, 400_000))
def test_without_a_path_every_request_ends_once_and_in_bounded_time(seed: int, dies: int) -> None:
    rng = random.Random(seed)
    pair = Pair(lambda _sender, _plane, _frame, now: None if now >= dies or rng.random() < 0.1 else DELAY)
    source, target = pair.regions(60 * 4096)
    for index in range(60):
        pair.write(source, target, wr_id=index, offset=index * 4096, length=4096)
    pair.run()
    ends = [(done.wr_id, done.status) for done in pair.sides[0].completions()]
    assert [wr_id for wr_id, _ in ends] == list(range(60))
    failed = [status for _, status in ends if status is not WCStatus.SUCCESS]
    assert failed in ([], [WCStatus.RETRY_EXC_ERR, *[WCStatus.WR_FLUSH_ERR] * (len(failed) - 1)])
    assert pair.now <= dies + 266 * RTO
