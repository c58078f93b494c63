"""Rules of the specification that an audit found broken, or kept but without a test."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from nic_model.congestion import FixedWindow, Window
from nic_model.device import CONTROL_QUEUE
from nic_model.endpoint import EndpointOperations
from nic_model.ev import EvProfile
from nic_model.ev_format import EvMode, ProfileState
from nic_model.events import EvEvent, EvState, LossReason
from nic_model.headers import (
    AETH,
    EETH,
    ENDPOINT_DQPN,
    ERTH,
    NETH,
    PETH,
    SETH,
    CCState,
    EndpointOp,
    NackReason,
    Opcode,
    SackMark,
)
from nic_model.packet import Encap, Frame, Packet, Wire, build_control, build_data, parse
from nic_model.paths import srv6_ev
from nic_model.peer import Deny
from nic_model.requester import Requester
from nic_model.responder import Responder
from nic_model.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    Access,
    QPAttr,
    QPInitAttr,
    QPState,
    SendWR,
    VerbsError,
    WCStatus,
    WROpcode,
)
from tests.nic_model.back_to_back import PLANES, BackToBack, constant_delay
from tests.nic_model.test_ev import make_set, take

DELAY = 2000
RTO = 1024 << 7
LIFETIME = 133 * RTO
"""ns: 7 linear and 6 doubling waits."""
FIRST_PSN = 0xFFFFF0
QPN = 16


def filled(pair: BackToBack, packets: int) -> tuple[MR, MR]:
    source, target = pair.region(0, packets * 4096), pair.region(1, packets * 4096)
    source.write(random.Random(7).randbytes(packets * 4096))
    return source, target


def halves(pair: BackToBack) -> tuple[Requester, Responder]:
    """Side 0's requester and side 1's responder."""
    requester, responder = pair.sides[0].qp.core.requester, pair.sides[1].qp.core.responder
    assert requester is not None and responder is not None
    return requester, responder


def sent_by(pair: BackToBack, side: int, *opcodes: Opcode) -> list[tuple[int, int, Packet]]:
    packets = [(now, plane, parse(frame)) for now, sender, plane, frame in pair.wire_log if sender == side]
    return [entry for entry in packets if not opcodes or entry[2].opcode in opcodes]


def encap_to(pair: BackToBack, side: int, plane: int = 0, source: bytes | None = None) -> Encap:
    """Of a packet that comes to `side` from the other side, on the plane's first path."""
    to, other = pair.sides[side].nic.ports[plane], pair.sides[1 - side].nic.ports[plane]
    inner = other.address if source is None else source
    return Encap(
        eth_dst=to.mac,
        eth_src=other.mac,
        outer_src=inner,
        outer_dst=bytes(16),
        inner_src=inner,
        inner_dst=to.address,
        ev=srv6_ev(plane, 0),
    )


def inject(pair: BackToBack, side: int, frame: Frame, plane: int = 0) -> None:
    pair.sides[side].nic.receive(plane, frame, pair.now)


def control(
    pair: BackToBack, side: int, opcode: Opcode, extension: bytes, *, dqpn: int = QPN, psn: int = 0, **encap: Any
) -> Frame:
    return build_control(encap_to(pair, side, **encap), opcode=opcode, dqpn=dqpn, psn=psn, extension=extension)


def data(pair: BackToBack, target: MR, **fields: Any) -> Frame:
    """A WRITE Only of 8 bytes to side 1, PSN and MSN the first ones, but for what `fields` say."""
    packet = {
        "opcode": Opcode.WRITE_ONLY,
        "dqpn": QPN,
        "psn": FIRST_PSN,
        "ack_req": False,
        "rtx": False,
        "msn": 1,
        "rqmsn": 0,
        "va": target.addr,
        "rkey": target.rkey,
        "dma_len": 8,
        "payload": b"\xee" * 8,
        "tseth": (77, 0),
        "imm": None,
        "dscp": 4,
        "ecn": 2,
    } | fields
    return build_data(encap_to(pair, 1), **packet)  # type: ignore[arg-type]


def sack(**fields: Any) -> bytes:
    """A SACK of the first PSN, which went out on the first path of plane 0, but for what `fields` say."""
    seth = {
        "ack_psn_offset": 0,
        "entropy": srv6_ev(0, 0),
        "spdcid": QPN,
        "dpdcid": QPN,
        "cack_psn": FIRST_PSN,
        "sack_offset": 1,
        "sack_bitmap": 0,
    } | fields
    return SETH(**seth).pack() + CCState(tx_timestamp=0, ooo_count=0, rcvd_bytes=0).pack()


# ---- hostile and senseless packets --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["srv6", "ecmp"])
@pytest.mark.parametrize("low", [1024, 0xFFFF])
def test_an_endpoint_request_from_an_impossible_nic_is_refused(mode: Any, low: int) -> None:
    """A NIC's index has 10 bits; the source address has room for 16."""
    pair = BackToBack(constant_delay(DELAY), mode=mode)
    nic = pair.sides[1].nic
    source = pair.sides[0].nic.ports[0].address[:14] + low.to_bytes(2, "big")
    request = ERTH(op=EndpointOp.EV_PROBE, tx_timestamp=0).pack()
    inject(pair, 1, control(pair, 1, Opcode.ENDPOINT_REQUEST, request, dqpn=ENDPOINT_DQPN, source=source))
    assert nic.counters.refused == {"from no known NIC": 1}
    assert nic.peer(source) is None


def test_only_port_addresses_are_a_peers() -> None:
    """Address: the row's /64, the plane in 16 bits, zeros, the NIC in 16 bits."""
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    address = pair.sides[0].nic.ports[0].address
    for middle in (PLANES.to_bytes(2, "big") + bytes(4), bytes(5) + b"\1"):
        frame = build_control(
            encap_to(pair, 1, source=address[:8] + middle + address[14:]),
            opcode=Opcode.RELIABILITY_PROBE,
            dqpn=QPN,
            psn=0,
            extension=PETH(probe_id=1, spdcid=QPN, dpdcid=QPN, tx_timestamp=0).pack(),
        )
        inject(pair, 1, frame)
    assert pair.sides[1].nic.counters.refused == {"not from the peer": 2}
    assert target.buf == bytes(4096)


def test_a_flood_fills_no_queue_without_bound() -> None:
    """Each duplicate asks for two control packets: what the port can't send is dropped and counted."""
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    frame = data(pair, target)
    for _ in range(CONTROL_QUEUE):
        inject(pair, 1, frame)
    port = pair.sides[1].nic.ports[0]
    assert len(port.control) == CONTROL_QUEUE
    assert port.control_dropped == 2 * CONTROL_QUEUE - 1 - CONTROL_QUEUE  # the first asks for a Transport ACK only


def test_packets_that_a_qp_does_not_take_are_counted() -> None:
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    nic = pair.sides[1].nic
    response = EETH(op=EndpointOp.EV_PROBE, tx_timestamp=0).pack()
    inject(pair, 1, control(pair, 1, Opcode.ENDPOINT_RESPONSE, response))
    assert nic.counters.refused == {"endpoint operation to a QP": 1}
    inject(pair, 1, data(pair, target, rkey=1))  # the QP fails
    inject(pair, 1, data(pair, target, psn=FIRST_PSN + 1, msn=2))
    assert nic.counters.refused == {"endpoint operation to a QP": 1, "QP in error": 1}


def test_feedback_that_contradicts_the_send_record_moves_no_ev() -> None:
    """Feedback is matched through the PSN's send record, and the echoed EV is checked against it."""
    pair = BackToBack(lambda *_: None)
    source, target = filled(pair, 8)
    pair.write(source, target)
    pair.run(until=RTO // 2)
    requester, _ = halves(pair)
    (_, _, first), (_, _, second), *_ = sent_by(pair, 0)
    inject(pair, 0, control(pair, 0, Opcode.SACK, sack(entropy=second.envelope.ev, m=SackMark.ALWAYS_SKIP)))
    assert requester.counters.unexpected == 1 and pair.sides[0].events == []
    assert {ev.state for ev in requester.evs} == {EvState.GOOD}
    # the reserved mark says nothing
    inject(pair, 0, control(pair, 0, Opcode.SACK, sack(entropy=first.envelope.ev, m=3)))
    assert pair.sides[0].events == []
    inject(pair, 0, control(pair, 0, Opcode.SACK, sack(entropy=first.envelope.ev, m=SackMark.ALWAYS_SKIP)))
    assert [(event.value, event.new) for event in pair.sides[0].events] == [(first.envelope.ev, EvState.ASSUMED_BAD)]


def test_a_responder_that_refuses_for_ever_is_a_qp_error() -> None:
    """A NACK for want of resources is no progress: the retries are counted on."""
    pair = BackToBack(lambda sender, *_: None if sender else DELAY, linear_cnt=7, exp_cnt=0)
    source, target = filled(pair, 1)
    pair.write(source, target, length=8)
    nacked = 0
    while pair.sides[0].qp.qp_state is QPState.RTS and pair.now < LIFETIME:
        pair.run(until=pair.now + RTO // 3)
        pair.now += RTO // 3
        packets = sent_by(pair, 0)
        if len(packets) > nacked:
            nacked = len(packets)
            neth = NETH(
                reason=NackReason.NO_RESOURCE,
                entropy=packets[-1][2].envelope.ev,
                spdcid=QPN,
                dpdcid=QPN,
                nack_psn=FIRST_PSN,
                tx_timestamp=0,
            )
            inject(pair, 0, control(pair, 0, Opcode.NACK, neth.pack()))
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.RETRY_EXC_ERR]


# ---- the end of work --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["own ports", "peer's ports", "denylist"])
def test_work_that_finds_no_path_ends_in_bounded_time(cause: str) -> None:
    """With no path left a QP is in error after 17.4 ms, whether or not anything was under way."""
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 1)
    mine = pair.sides[0].nic
    if cause == "own ports":
        for plane in range(PLANES):
            mine.port_status(plane, False, pair.now)
    elif cause == "peer's ports":
        peer = mine.peer(pair.sides[1].nic.ports[0].address)
        assert peer is not None
        mine.peer_ports(peer, 0, pair.now)
    else:
        mine.set_denylist([Deny(plane) for plane in range(PLANES)], pair.now)
    pair.write(source, target, wr_id=1)
    pair.write(source, target, wr_id=2)
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (1, WCStatus.RETRY_EXC_ERR),
        (2, WCStatus.WR_FLUSH_ERR),
    ]
    assert pair.now <= LIFETIME + RTO and sent_by(pair, 0, Opcode.WRITE_ONLY) == []


def test_work_that_waits_for_a_path_goes_on_when_it_is_back() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 40)
    mine = pair.sides[0].nic
    for plane in range(PLANES):
        mine.port_status(plane, False, 0)
    pair.write(source, target)
    pair.run(until=20 * RTO)
    pair.now = 20 * RTO
    for plane in range(PLANES):
        mine.port_status(plane, True, pair.now)
    pair.run()
    assert target.buf == source.buf
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.SUCCESS]


def second_pair(pair: BackToBack) -> list[QP]:
    """Another QP between the two NICs."""
    qps = [QP(side.pd, QPInitAttr(side.cq, side.cq)) for side in pair.sides]
    for mine, other in ((0, 1), (1, 0)):
        attr = QPAttr(dest_qp_num=qps[other].qp_num, dgid=pair.sides[other].nic.ports[0].address)
        qps[mine].to_init(attr)
        qps[mine].to_rtr(attr)
        qps[mine].to_rts(attr)
    return qps


def test_a_qp_that_is_closed_leaves_the_window_to_the_others() -> None:
    pair = BackToBack(lambda _s, _p, frame, _n: None if parse(frame).dqpn == QPN else DELAY, window=10_000)
    qp = second_pair(pair)[0]
    source, target = filled(pair, 10)
    pair.write(source, target)
    pair.run(until=1_000)
    qp.post_send(SendWR(9, WROpcode.RDMA_WRITE, [SGE(source.addr, 8, source.lkey)], target.addr, target.rkey))
    pair.run(until=2_000)
    pair.sides[0].qp.close()
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (0, WCStatus.WR_FLUSH_ERR),
        (9, WCStatus.SUCCESS),
    ]


def test_an_application_may_close_and_make_qps_when_work_completes() -> None:
    """The completion channel runs inside the NIC's timers."""
    pair = BackToBack(lambda *_: None, linear_cnt=1, exp_cnt=0)
    side = pair.sides[0]
    made: list[QP] = []

    def on_completion(cq: CQ) -> None:
        for done in cq.poll(8)[1]:
            assert done.status is WCStatus.RETRY_EXC_ERR
            side.qp.close()
            made.append(QP(side.pd, QPInitAttr(side.cq, side.cq)))

    side.cq.channel = on_completion
    source, target = filled(pair, 1)
    second_pair(pair)
    pair.write(source, target)
    pair.run()
    assert len(made) == 1 and side.qp.core not in side.nic.queue_pairs()


def test_a_failing_responder_blames_no_work_of_its_own_side() -> None:
    """A peer's bad WRITE ends the QP: what this side was sending is flushed (InfiniBand)."""
    pair = BackToBack(lambda sender, *_: None if sender else DELAY)
    _, target = filled(pair, 1)
    back, there = pair.region(1, 4096), pair.region(0, 4096)
    pair.write(back, there, side=1, wr_id=5)
    inject(pair, 1, data(pair, target, rkey=1))
    assert [(done.wr_id, done.status) for done in pair.sides[1].completions()] == [(5, WCStatus.WR_FLUSH_ERR)]


def test_a_refusal_names_its_own_message() -> None:
    """Messages end in send order: what was sent before the refused one completes, and that one gets the error."""
    slow: list[int] = []

    def verdict(sender: int, _plane: int, frame: Frame, _now: int) -> int:
        packet = parse(frame)
        if not sender and packet.opcode <= Opcode.WRITE_ONLY_IMM and packet.msn == 1:
            slow.append(packet.psn)
            return 20_000
        return DELAY

    pair = BackToBack(verdict)
    source, target = filled(pair, 1)
    pair.write(source, target, wr_id=1, length=8)
    pair.write(source, target, wr_id=2, length=8, offset=16, shift=8192)
    pair.write(source, target, wr_id=3, length=8, offset=32)
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.REM_ACCESS_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
    ]
    assert slow and target.buf[:8] == source.buf[:8]


def test_a_lost_transport_nak_is_made_up_for() -> None:
    """A retransmission or a probe repeats the newest Transport ACK, and that may be a NAK."""

    def first_control_lost(sender: int, _plane: int, _frame: Frame, now: int) -> int | None:
        return None if sender and now < RTO // 2 else DELAY

    pair = BackToBack(first_control_lost)
    source, target = filled(pair, 1)
    pair.write(source, target, shift=1)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.REM_ACCESS_ERR]
    assert pair.now < 2 * RTO


# ---- probes -----------------------------------------------------------------------------------------------------


def test_a_probes_answer_reflects_its_timestamp() -> None:
    pair = BackToBack(constant_delay(DELAY))
    probe = PETH(probe_id=0xFFFE, spdcid=QPN, dpdcid=QPN, tx_timestamp=0xBEEF).pack()
    inject(pair, 1, control(pair, 1, Opcode.RELIABILITY_PROBE, probe))
    pair.run()
    ((_, _, answer), *_) = sent_by(pair, 1, Opcode.SACK)
    assert answer.sack.pr and answer.sack.ack_psn_offset == -2
    assert answer.cc.tx_timestamp == 0xBEEF


def test_reliability_probes_go_out_on_different_paths() -> None:
    """One that is lost is not repeated on the path that lost it: a plane that died must not end the QP."""
    dead: list[int] = []

    def plane_of_the_first_probe(sender: int, plane: int, frame: Frame, now: int) -> int | None:
        packet = parse(frame)
        if sender and packet.opcode == Opcode.TRANSPORT_ACK and now < RTO // 2:
            return None
        if packet.opcode == Opcode.RELIABILITY_PROBE and not dead:
            dead.append(plane)
        return None if plane in dead else DELAY

    pair = BackToBack(plane_of_the_first_probe)
    source, target = filled(pair, 1)
    pair.write(source, target)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.SUCCESS]
    probes = sent_by(pair, 0, Opcode.RELIABILITY_PROBE)
    assert [plane == dead[0] for _, plane, _ in probes] == [True, False]
    assert sum(ev.packets for ev in halves(pair)[0].evs) == 1  # probes are no data


def test_a_restored_path_wakes_its_qp() -> None:
    """The only path is dead and heals: data goes on as soon as three probes were answered, not at the next timeout."""

    def outage(sender: int, _plane: int, _frame: Frame, now: int) -> int | None:
        return None if not sender and now < 200_000 else DELAY

    pair = BackToBack(outage, profile=EvProfile(4, 0, 1), timeout=9, window=1 << 30)
    nic = pair.sides[0].nic
    requester, _ = halves(pair)
    (ev,) = [ev for ev in requester.evs if ev.plane == 0]
    requester.evs.assume_bad(ev, "test", 0)
    for plane in (1, 2, 3):
        nic.port_status(plane, False, 0)
    source, target = filled(pair, 400)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    back = next(e.time for e in pair.sides[0].events if e.new is EvState.GOOD)
    assert min(now for now, _, p in sent_by(pair, 0) if p.opcode < Opcode.TRANSPORT_ACK) <= back + 500


@pytest.mark.parametrize("delay", [DELAY, 30_000])
def test_a_path_slower_than_the_probe_interval_is_trusted_again(delay: int) -> None:
    """Whoever answers within the ACK timeout has answered."""
    dead: list[int] = []

    def until_200_us(sender: int, _plane: int, frame: Frame, now: int) -> int | None:
        packet = parse(frame)
        if sender == 0 and not dead and now > 70_000:
            dead.append(packet.envelope.ev)
        return None if sender == 0 and dead and packet.envelope.ev == dead[0] and now < 200_000 else delay

    pair = BackToBack(until_200_us, profile=EvProfile(16, 0), window=1 << 20)
    source, target = filled(pair, 8000)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    back = [event.time for event in pair.sides[0].events if event.value == dead[0] and event.new is EvState.GOOD]
    assert len(back) == 1 and back[0] < 200_000 + 4 * RTO // 8 + 3 * delay


def test_an_answer_out_of_the_row_of_probes_begins_it_anew() -> None:
    """Three in a row: one that is lost between them does not count as if it had never been."""
    lost = 0
    dead: list[int] = []

    def every_third_probe(sender: int, _plane: int, frame: Frame, now: int) -> int | None:
        nonlocal lost
        packet = parse(frame)
        if sender == 0 and not dead and now > 20_000:
            dead.append(packet.envelope.ev)
        if sender or not dead or packet.envelope.ev != dead[0]:
            return DELAY
        if packet.opcode == Opcode.ENDPOINT_REQUEST:
            lost += 1
            return DELAY if lost % 3 and lost > 3 else None
        return None

    pair = BackToBack(every_third_probe, profile=EvProfile(16, 0))
    source, target = filled(pair, 4000)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf and lost > 9
    assert [event.new for event in pair.sides[0].events if event.value == dead[0]] == [EvState.ASSUMED_BAD]


def test_request_ids_in_use_are_not_used_again() -> None:
    """Every question gets its answer, exactly once, however many are open."""
    pair = BackToBack(lambda *_: None)
    nic = pair.sides[0].nic
    peer = nic.peer(pair.sides[1].nic.ports[0].address)
    assert peer is not None
    endpoint: EndpointOperations = nic.endpoint
    outcomes: list[int] = []

    def failed(number: int, rtt: int | None, _now: int) -> None:
        assert rtt is None
        outcomes.append(number)

    for number in range((1 << 16) + 10):
        endpoint.probe(peer, 0, srv6_ev(0, 0), 1_000, partial(failed, number), 0)
    endpoint.on_timer(2_000)
    assert sorted(outcomes) == list(range((1 << 16) + 10))
    assert endpoint.deadline is None


# ---- ports ------------------------------------------------------------------------------------------------------


def test_an_overtaken_port_status_update_does_not_undo_the_newer_one() -> None:
    """Down and up again within a moment: the two updates take different planes, and the second comes first."""
    order: list[int] = []

    def first_is_slow(_sender: int, _plane: int, frame: Frame, _now: int) -> int:
        if parse(frame).opcode == Opcode.ENDPOINT_REQUEST:
            order.append(1)
            return 40_000 if len(order) == 1 else DELAY
        return DELAY

    pair = BackToBack(first_is_slow)
    nic = pair.sides[1].nic
    nic.port_status(1, False, 0)
    pair.run(until=1_000)
    pair.now = 1_000
    nic.port_status(1, True, 1_000)
    pair.run()
    assert pair.sides[0].qp.core.planes_up == 0b1111


def test_a_peer_that_begins_anew_is_believed() -> None:
    """Its request ids begin again too: an old id is an overtaken update only for as long as one can be on its way."""
    pair = BackToBack(constant_delay(DELAY))
    update = ERTH(op=EndpointOp.PORT_STATUS_UPDATE, port_status_mask=0b1101, tx_timestamp=0).pack()
    nic = pair.sides[1].nic

    def told(request_id: int, mask: int, now: int) -> int:
        body = ERTH(op=EndpointOp.PORT_STATUS_UPDATE, port_status_mask=mask, tx_timestamp=0).pack()
        pair.now = now
        inject(pair, 1, control(pair, 1, Opcode.ENDPOINT_REQUEST, body, dqpn=ENDPOINT_DQPN, psn=request_id))
        return pair.sides[1].qp.core.planes_up

    assert len(update) == 16
    assert told(500, 0b1101, 0) == 0b1101
    assert told(499, 0b1111, 1_000) == 0b1101  # overtaken
    assert told(1, 0b0111, 10 * RTO) == 0b0111
    assert told(0xFFFF, 0b1110, 10 * RTO + 1) == 0b0111  # the ids wrap
    assert told(2, 0b1110, 10 * RTO + 2) == 0b1110
    assert nic.counters.refused == {}


# ---- EVs --------------------------------------------------------------------------------------------------------


def test_an_upcoming_ev_that_is_marked_is_skipped_once_and_its_plane_keeps_its_turn() -> None:
    evs = make_set(active=2, backup=0, planes=2)
    first = evs.upcoming(0b11, 0)
    assert first is not None and first.plane == 0
    evs.skip_once(first, "ECN", 0)
    lap = [take(evs, 0b11) for _ in range(6)]
    assert [ev.plane for ev in lap] == [0, 1, 0, 1, 0, 1]
    other = lap[0]
    assert other is not first and [ev for ev in lap if ev.plane == 0] == [other, first, other]


def test_an_upcoming_ev_that_is_given_up_leaves_the_turn_to_its_plane() -> None:
    evs = make_set(active=2, backup=0, planes=2)
    first = evs.upcoming(0b11, 0)
    assert first is not None
    evs.assume_bad(first, "loss", 0)
    assert [take(evs, 0b11).plane for _ in range(4)] == [0, 1, 0, 1]


def test_what_a_dead_path_at_the_floor_lost_is_not_kept_for_ever() -> None:
    """The floor keeps a dead EV in use: each of its packets is sent again elsewhere, and nothing of it stays."""
    dead = {srv6_ev(plane, uplink) for plane in range(PLANES) for uplink in range(8) if plane}

    def only_plane_0(sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        packet = parse(frame)
        return None if not sender and packet.envelope.ev in dead and packet.opcode < Opcode.TRANSPORT_ACK else DELAY

    pair = BackToBack(only_plane_0, profile=EvProfile(4, 0, min_active=4), window=100_000)
    source, target = filled(pair, 1000)
    pair.write(source, target)
    pair.run()
    assert target.buf == source.buf
    requester, _ = halves(pair)
    assert sum(requester.losses[reason] for reason in (LossReason.LATE, LossReason.TIMER, LossReason.PROBE)) > 500
    assert sum(len(ev.sent) for ev in requester.evs) < 200


def test_a_packet_sent_a_moment_ago_is_not_what_timed_out() -> None:
    """ACK timeout -> ASSUMED_BAD is about the path of a packet that has had the time to be answered."""
    pair = BackToBack(lambda *_: None)
    source, target = filled(pair, 1)
    pair.write(source, target)
    pair.run(until=RTO - 3_000)
    first = sent_by(pair, 0)[-1][2]
    nack = NETH(
        reason=NackReason.NO_PKT_BUFFER,
        entropy=first.envelope.ev,
        spdcid=QPN,
        dpdcid=QPN,
        nack_psn=FIRST_PSN,
        tx_timestamp=0,
    )
    pair.now = RTO - 3_000
    inject(pair, 0, control(pair, 0, Opcode.NACK, nack.pack()))
    pair.run(until=RTO + 1_000)
    assert len(sent_by(pair, 0)) == 2  # once, and again after the NACK
    assert pair.sides[0].events == []
    pair.run(until=2 * RTO + 1_000)
    assert [event.new for event in pair.sides[0].events] == [EvState.ASSUMED_BAD]


def test_a_denylist_that_repeats_a_rule_moves_nothing() -> None:
    pair = BackToBack(constant_delay(DELAY), profile=EvProfile(16, 8))
    requester, _ = halves(pair)
    nic = pair.sides[0].nic
    nic.set_denylist([Deny(2)], 10)
    events, replaced = len(pair.sides[0].events), list(requester.evs.replaced)
    nic.set_denylist([Deny(2), Deny(1, 100)], 20)
    assert len(pair.sides[0].events) == events and requester.evs.replaced == replaced


def test_a_new_qp_reports_its_denied_evs_with_the_time() -> None:
    pair = BackToBack(constant_delay(DELAY))
    source, target = filled(pair, 1)
    pair.write(source, target)
    pair.run()
    pair.sides[0].nic.set_denylist([Deny(3)], pair.now)
    pair.sides[0].events.clear()
    second_pair(pair)
    events: list[EvEvent] = pair.sides[0].events
    assert events and {(event.time, event.new) for event in events} == {(pair.now, EvState.DENIED)}


@pytest.mark.parametrize(
    ("explicit", "message"),
    [
        ([(0, srv6_ev(1, 0))], "plane 0: EV 0x20000000 is of plane 1"),
        ([(0, srv6_ev(0, 2)), (0, srv6_ev(0, 2))], "EV 0x00100000 stands there twice"),
        ([(0, 1 << 32)], "plane 0: EV 0x100000000 is not 32 bits"),
    ],
)
def test_explicit_evs_that_make_no_sense_are_refused(explicit: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvProfile(mode=EvMode.EXPLICIT, explicit=tuple(explicit))


def test_an_explicit_ev_that_is_no_path_is_misuse() -> None:
    profile = EvProfile(mode=EvMode.EXPLICIT, explicit=((0, srv6_ev(0, 900)),))
    with pytest.raises(VerbsError, match="EV 0x1c200000 is no path to row 1"):
        BackToBack(constant_delay(DELAY), profile=profile)


# ---- the verbs --------------------------------------------------------------------------------------------------


def test_the_responders_limits_are_those_of_rtr_and_the_requesters_those_of_rts() -> None:
    """OCP MRC API: *_dest is what a QP takes as responder, without it what it sends at most as requester."""
    pair = BackToBack(constant_delay(DELAY), mpr_dest=9, mpr=10, max_wimm_dest=33, max_wimm=34)
    requester, responder = halves(pair)
    assert (responder._mpr, responder._max_wimm) == (9 * 128, 33)
    assert (requester._mpr, requester._max_wimm) == (10 * 128, 34)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"remote_addr": -1}, "remote_addr"),
        ({"remote_addr": (1 << 64) - 7}, "remote_addr"),
        ({"rkey": 1 << 32}, "rkey"),
        ({"imm_data": 1 << 32}, "imm_data"),
        ({"imm_data": -1}, "imm_data"),
        ({"sg": [SGE(0, -1, 0)]}, "sg"),
    ],
)
def test_a_work_request_that_no_packet_can_carry_is_misuse(changed: dict[str, Any], message: str) -> None:
    """It must not come to light when the packet is built, in the driver's hands."""
    request = SendWR(1, WROpcode.RDMA_WRITE_WITH_IMM, [SGE(0, 8, 0)], 0, 0, 0)
    with pytest.raises(VerbsError, match=f"work request 1: {message}"):
        replace(request, **changed)


# ---- windows and wraps ------------------------------------------------------------------------------------------


def test_a_stale_sack_does_not_widen_the_window() -> None:
    """Dynamic MPR: an overtaken SACK does not take back what a newer one said."""
    pair = BackToBack(lambda *_: None, window=1 << 30, mpr=16)
    source, target = filled(pair, 20)
    pair.write(source, target)
    pair.run(until=RTO // 2)
    requester, _ = halves(pair)
    inject(pair, 0, control(pair, 0, Opcode.SACK, sack(cack_psn=FIRST_PSN + 5, mpr=8)))
    inject(pair, 0, control(pair, 0, Opcode.SACK, sack(cack_psn=FIRST_PSN + 4, mpr=16)))
    assert requester._mpr == 8 * 128


def test_psn_msn_and_rqmsn_wrap() -> None:
    """MSN and RQMSN wrap at 2^16, a PSN at 2^24, AETH.MSN at 2^24: all of them under loss."""
    rng = random.Random(5)
    pair = BackToBack(lambda *_: None if rng.random() < 0.05 else DELAY, sq_psn=0xFFFFE0, exp_cnt=25)
    requester, responder = halves(pair)
    for half in (requester, responder):
        half._msn, half._rqmsn = 0xFFFF_C0, 0xFFC0
    source, target = filled(pair, 1)
    pair.post_receives(1, 200)
    for wr_id in range(300):
        pair.write(source, target, wr_id=wr_id, length=1, offset=wr_id, imm=wr_id if wr_id % 3 else None)
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (wr_id, WCStatus.SUCCESS) for wr_id in range(300)
    ]
    assert [done.imm_data for done in pair.sides[1].completions()] == [n for n in range(300) if n % 3]
    assert target.buf[:300] == source.buf[:300]
    numbers = {(p.psn >> 23, p.msn >> 15, p.rqmsn >> 15) for _, _, p in sent_by(pair, 0, Opcode.WRITE_ONLY)}
    assert {psn for psn, _, _ in numbers} == {msn for _, msn, _ in numbers} == {n for _, _, n in numbers} == {0, 1}


@pytest.mark.parametrize("offset", [0, 1, 63, 64, 65, 1000])
def test_the_bitmap_covers_the_newest_64(offset: int) -> None:
    """Base: cack + 1, or max_rcv_psn - 63 when the newest would not fit."""
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    inject(pair, 1, data(pair, target, psn=FIRST_PSN + offset & 0xFFFFFF, msn=1 + offset, ack_req=True))
    pair.run(until=10)
    ((_, _, answer),) = sent_by(pair, 1, Opcode.SACK)
    cack = FIRST_PSN - 1 if offset else FIRST_PSN
    base = max(cack + 1, FIRST_PSN + offset - 63)
    assert answer.sack.cack_psn == cack
    assert answer.sack.sack_offset == base - cack
    assert answer.sack.sack_bitmap == (1 << FIRST_PSN + offset - base if offset else 0)
    assert answer.sack.ack_psn_offset == FIRST_PSN + offset - cack
    assert answer.cc.ooo_count == bool(offset)


def test_the_window_ends_at_cack_plus_mpr() -> None:
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    last = FIRST_PSN - 1 + 1024
    inject(pair, 1, data(pair, target, psn=last & 0xFFFFFF, msn=2))
    inject(pair, 1, data(pair, target, psn=last + 1 & 0xFFFFFF, msn=3))
    pair.run(until=10)
    ((_, _, nack),) = sent_by(pair, 1, Opcode.NACK)
    assert (nack.nack.reason, nack.nack.nack_psn) == (NackReason.PSN_OOR_WINDOW, last + 1 & 0xFFFFFF)
    assert halves(pair)[1].counters.packets == 1


def test_more_immediates_than_allowed_fail_the_responder() -> None:
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    fields = {"opcode": Opcode.WRITE_ONLY_IMM, "imm": 1}
    inject(pair, 1, data(pair, target, psn=FIRST_PSN + 1, msn=2, rqmsn=32, **fields))
    assert halves(pair)[1].counters.refused == 0
    inject(pair, 1, data(pair, target, psn=FIRST_PSN + 2, msn=3, rqmsn=33, **fields))
    assert pair.sides[1].qp.qp_state is QPState.ERR
    pair.run(until=10)
    ((_, _, nak),) = sent_by(pair, 1, Opcode.TRANSPORT_ACK)
    assert (nak.aeth.syndrome, nak.aeth.msn) == (0x61, 0)


@pytest.mark.parametrize("syndrome", [0x60, 0x61, 0x62, 0x63, 0x64, 0x7F])
def test_any_nak_ends_the_qp_with_every_work_request_completed_once(syndrome: int) -> None:
    pair = BackToBack(lambda *_: None)
    source, target = filled(pair, 4)
    for wr_id in range(4):
        pair.write(source, target, wr_id=wr_id)
    pair.run(until=100)
    nak = AETH(syndrome=syndrome, msn=0).pack()
    for _ in range(2):
        inject(pair, 0, control(pair, 0, Opcode.TRANSPORT_ACK, nak))
    first, *rest = [(done.wr_id, done.status) for done in pair.sides[0].completions()]
    expected = {0x62: WCStatus.REM_ACCESS_ERR, 0x63: WCStatus.REM_OP_ERR}.get(syndrome, WCStatus.REM_INV_REQ_ERR)
    assert first == (0, expected) and rest == [(n, WCStatus.WR_FLUSH_ERR) for n in (1, 2, 3)]
    window: Window = pair.sides[0].qp.core.peer.window(0)  # type: ignore[union-attr]
    assert window.in_flight == 0 and pair.sides[0].nic.next_deadline() is None


def test_the_window_is_exact_after_a_qp_failed() -> None:
    """What a QP had in flight leaves the shared window once, whatever state its packets were in."""
    rng = random.Random(3)
    pair = BackToBack(lambda *_: None if rng.random() < 0.4 else DELAY, linear_cnt=1, exp_cnt=0)
    second = second_pair(pair)[0]
    source, target = filled(pair, 400)
    pair.write(source, target)
    sge = SGE(source.addr, 100 * 4096, source.lkey)
    second.post_send(SendWR(9, WROpcode.RDMA_WRITE, [sge], target.addr, target.rkey))
    for step in range(1, 40):
        pair.run(until=step * 2_000)
        requesters = [qp.requester for qp in pair.sides[0].nic.queue_pairs()]
        window = pair.sides[0].qp.core.peer.window(0)  # type: ignore[union-attr]
        assert window.in_flight == sum(requester.in_flight for requester in requesters if requester is not None) >= 0
    pair.sides[0].qp.close()
    pair.run()
    assert window.in_flight == 0


# ---- rules that no other test names -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "acknowledged"),
    [({}, False), ({"ack_req": True}, True), ({"ecn": 3}, True), ({"rtx": True}, True)],
    ids=["none", "ack_req", "ce", "rtx"],
)
def test_what_triggers_a_sack(fields: dict[str, Any], acknowledged: bool) -> None:
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    inject(pair, 1, data(pair, target, dma_len=16, **fields))
    pair.run(until=10)
    sacks = [(p.psn, p.sack.cack_psn, p.sack.m, p.cc.tx_timestamp) for _, _, p in sent_by(pair, 1, Opcode.SACK)]
    assert sacks == ([(FIRST_PSN, FIRST_PSN, int(fields.get("ecn") == 3), 77)] if acknowledged else [])


def test_a_small_packet_counts_1024_bytes_towards_the_next_sack() -> None:
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    for n in range(17):  # 16 x 1024 is not yet more than the threshold of 16,384
        assert halves(pair)[1].counters.sacks == 0
        inject(pair, 1, data(pair, target, psn=FIRST_PSN + n & 0xFFFFFF, msn=1 + n))
    assert halves(pair)[1].counters.sacks == 1


def test_rcvd_bytes_counts_new_nominal_bytes_rounded_up() -> None:
    """In units of 256 B, of all bytes so far: 12 + 4 + 4 + 16 + 8 + 4 of UDP payload, and 40, are 88 a packet."""
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    for n in (0, 0, 1, 2, 2):
        inject(pair, 1, data(pair, target, psn=FIRST_PSN + n, msn=1 + n, ack_req=True))
    pair.run(until=10_000)
    assert [p.cc.rcvd_bytes for _, _, p in sent_by(pair, 1, Opcode.SACK)] == [1, 1, 1, 2, 2]
    assert halves(pair)[1].counters.duplicates == 2


def test_a_peer_may_send_from_any_of_its_ports() -> None:
    pair = BackToBack(constant_delay(DELAY))
    _, target = filled(pair, 1)
    frame = build_data(
        encap_to(pair, 1, source=pair.sides[0].nic.ports[2].address),
        opcode=Opcode.WRITE_ONLY,
        dqpn=QPN,
        psn=FIRST_PSN,
        ack_req=False,
        rtx=False,
        msn=1,
        rqmsn=0,
        va=target.addr,
        rkey=target.rkey,
        dma_len=8,
        payload=b"\xee" * 8,
        tseth=None,
        imm=None,
        dscp=4,
        ecn=2,
    )
    inject(pair, 1, frame)
    assert target.buf[:8] == b"\xee" * 8


def test_an_endpoint_response_goes_back_with_id_and_timestamp() -> None:
    pair = BackToBack(constant_delay(DELAY))
    request = ERTH(op=EndpointOp.EV_PROBE, tx_timestamp=0xABCD).pack()
    inject(pair, 1, control(pair, 1, Opcode.ENDPOINT_REQUEST, request, dqpn=ENDPOINT_DQPN, psn=0x1234, plane=2), 2)
    pair.run(until=10)
    ((_, plane, answer),) = sent_by(pair, 1)
    assert (answer.opcode, answer.dqpn, answer.psn) == (Opcode.ENDPOINT_RESPONSE, 2, 0x1234)
    assert (answer.endpoint.op, answer.endpoint.tx_timestamp) == (EndpointOp.EV_PROBE, 0xABCD)
    assert (plane, answer.envelope.ev, answer.envelope.dscp, answer.envelope.ecn) == (2, srv6_ev(2, 0), 46, 0)


@pytest.mark.parametrize("case", ["deregistered in use", "of another PD"])
def test_memory_that_the_qp_may_not_write(case: str) -> None:
    pair = BackToBack(constant_delay(DELAY), window=20_000)
    source, target = filled(pair, 100)
    if case == "of another PD":
        target = MR(PD(pair.sides[1].context), target.length, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    pair.write(source, target)
    pair.run(until=30_000)
    if case == "deregistered in use":
        assert any(target.buf)
        target.close()
    before = bytes(target.buf)
    pair.run()
    assert bytes(target.buf) == before
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.REM_ACCESS_ERR]


def under_way(packets: int = 8, **settings: Any) -> BackToBack:
    """A WRITE of which everything was sent and nothing has been heard."""
    pair = BackToBack(lambda *_: None, **settings)
    source, target = filled(pair, packets)
    pair.write(source, target)
    pair.run(until=RTO // 2)
    return pair


def test_a_sack_acknowledges_its_trigger_wherever_the_bitmap_lies() -> None:
    """cack + ack_psn_offset has arrived, and what an earlier SACK said stays said."""
    pair = under_way()
    requester, _ = halves(pair)
    nothing = {"cack_psn": FIRST_PSN - 1, "sack_offset": 1, "sack_bitmap": 0}
    for offset in (4, 6):
        ev = sent_by(pair, 0)[offset - 1][2].envelope.ev
        inject(pair, 0, control(pair, 0, Opcode.SACK, sack(ack_psn_offset=offset, entropy=ev, **nothing)))
    assert sorted(set(range(8)) - {psn - FIRST_PSN for psn in requester._records}) == [3, 5]
    assert requester.in_flight == 6 * requester._full_packet


def test_unexp_event_ends_the_qp() -> None:
    pair = under_way()
    nack = NETH(reason=NackReason.UNEXP_EVENT, entropy=0, spdcid=QPN, dpdcid=QPN, nack_psn=0, tx_timestamp=0)
    inject(pair, 0, control(pair, 0, Opcode.NACK, nack.pack()))
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.FATAL_ERR]


@pytest.mark.parametrize(
    "reason",
    [
        NackReason.TRIMMED_LASTHOP,
        NackReason.NO_BITMAP,
        NackReason.NO_PKT_BUFFER,
        NackReason.NO_RESOURCE,
        NackReason.PSN_OOR_WINDOW,
    ],
)
def test_a_nack_that_says_nothing_of_the_path(reason: NackReason) -> None:
    """The packet goes again at once, on another EV, and the EV stays GOOD."""
    pair = under_way()
    requester, _ = halves(pair)
    lost = sent_by(pair, 0)[2][2]
    nack = NETH(reason=reason, entropy=lost.envelope.ev, spdcid=QPN, dpdcid=QPN, nack_psn=lost.psn, tx_timestamp=0)
    for _ in range(2):  # one NACK, one retransmission
        inject(pair, 0, control(pair, 0, Opcode.NACK, nack.pack()))
    pair.run(until=RTO // 2 + 1_000)
    (again,) = [packet for _, _, packet in sent_by(pair, 0) if packet.rtx]
    assert again.psn == lost.psn and again.envelope.ev != lost.envelope.ev
    assert pair.sides[0].events == [] and {ev.state for ev in requester.evs} == {EvState.GOOD}


class Listening(FixedWindow):
    """Keeps the RTT samples that it is given."""

    def __init__(self, cwnd: int) -> None:
        super().__init__(cwnd)
        self.samples: list[int | None] = []

    def on_sack(self, newly: int, rtt: int | None, marked: bool, in_flight: int, now: int) -> str:
        self.samples.append(rtt)
        return super().on_sack(newly, rtt, marked, in_flight, now)


def test_an_rtt_sample_counts_only_where_a_retransmission_leaves_no_doubt() -> None:
    """The full RTT comes from the send record, the echoed time says which transmission arrived."""
    pair = under_way(1)
    peer = pair.sides[0].qp.core.peer
    assert peer is not None
    control_ = Listening(400_000)
    peer.window(0).control = control_
    pair.run(until=RTO + 10_000)
    pair.now = RTO + 10_000
    first, again = [(now, packet) for now, _, packet in sent_by(pair, 0, Opcode.WRITE_ONLY)]
    assert again[1].rtx and first[1].tx_timestamp != again[1].tx_timestamp
    for packet in (first[1], again[1]):
        seth = SETH(
            ack_psn_offset=1,
            entropy=packet.envelope.ev,
            spdcid=QPN,
            dpdcid=QPN,
            cack_psn=FIRST_PSN - 1,
            sack_offset=1,
            sack_bitmap=0,
        )
        state = CCState(tx_timestamp=packet.tx_timestamp, ooo_count=0, rcvd_bytes=0)
        requester, _ = halves(pair)
        record = next(iter(requester._records.values()))
        inject(pair, 0, control(pair, 0, Opcode.SACK, seth.pack() + state.pack()))
        requester._records[record.psn] = record  # for the second one
    assert control_.samples == [None, pair.now - again[0]]


@pytest.mark.parametrize(("tsr", "tick"), [(0, 128), (1, 1000)])
def test_timestamps_are_in_ticks_and_wrap(tsr: int, tick: int) -> None:
    wire = Wire(tsr=tsr)
    assert [wire.timestamp(n * tick + tick - 1) for n in (0, 1, 0xFFFF, 0x10000)] == [0, 1, 0xFFFF, 0]


def test_the_oldest_gap_is_filled_first() -> None:
    pair = under_way()
    for psn in (5, 3, 4):
        lost = sent_by(pair, 0)[psn][2]
        nack = NETH(
            reason=NackReason.TRIMMED,
            entropy=lost.envelope.ev,
            spdcid=QPN,
            dpdcid=QPN,
            nack_psn=lost.psn,
            tx_timestamp=0,
        )
        inject(pair, 0, control(pair, 0, Opcode.NACK, nack.pack()))
    pair.run(until=pair.now + 2_000)
    assert [packet.psn - FIRST_PSN for _, _, packet in sent_by(pair, 0) if packet.rtx] == [3, 4, 5]


def test_only_what_is_lost_is_sent_again() -> None:
    lost: list[int] = []

    def every_seventh(sender: int, _plane: int, frame: Frame, _now: int) -> int | None:
        packet = parse(frame)
        if not sender and packet.opcode < Opcode.TRANSPORT_ACK and not packet.rtx and packet.psn % 7 == 3:
            lost.append(packet.psn)
            return None
        return DELAY

    pair = BackToBack(every_seventh, sq_psn=0, profile=EvProfile(32, 0), window=1 << 20)
    source, target = filled(pair, 200)
    pair.write(source, target)
    pair.run()
    again = [packet.psn for _, _, packet in sent_by(pair, 0) if packet.rtx]
    assert target.buf == source.buf and sorted(again) == lost and len(lost) == 29


def test_a_full_window_asks_for_a_sack() -> None:
    """AckReq: on a message's last packet, and on the one after which the window lets none go."""
    pair = under_way(20, window=5 * 4176)
    assert [packet.ack_req for _, _, packet in sent_by(pair, 0)] == [False] * 4 + [True]


def test_a_message_longer_than_the_mpr_keeps_to_it() -> None:
    pair = under_way(3000, window=1 << 30, timeout=14)
    assert len(sent_by(pair, 0)) < 1024  # 64 us at 4 x 100 Gb/s
    pair.run(until=1_000_000)
    packets = sent_by(pair, 0)
    assert len(packets) == 1024 and packets[-1][2].ack_req and not packets[-2][2].ack_req


@pytest.mark.parametrize(
    "wrong",
    [
        {"mpr": 7},
        {"mpr": 256},
        {"mpr_dest": 7},
        {"max_wimm": 31},
        {"max_wimm_dest": 31},
        {"timeout": 25},
        {"linear_cnt": 8},
        {"exp_cnt": 26},
        {"sq_psn": 1 << 24},
        {"path_mtu": 9000},
    ],
)
def test_attributes_out_of_range_are_misuse(wrong: dict[str, int]) -> None:
    with pytest.raises(VerbsError, match=f"QPAttr.{next(iter(wrong))}"):
        QPAttr(**wrong)  # type: ignore[arg-type]


def test_a_nack_of_another_transmission_is_ignored() -> None:
    """It names an EV that the packet's newest transmission did not take."""
    pair = under_way()
    (_, _, first), (_, _, second), *_ = sent_by(pair, 0)
    nack = NETH(
        reason=NackReason.TRIMMED,
        entropy=second.envelope.ev,
        spdcid=QPN,
        dpdcid=QPN,
        nack_psn=first.psn,
        tx_timestamp=0,
    )
    inject(pair, 0, control(pair, 0, Opcode.NACK, nack.pack()))
    assert halves(pair)[0].losses[LossReason.TRIMMED] == 0 and pair.sides[0].events == []


def test_control_leaves_before_data() -> None:
    pair = BackToBack(constant_delay(DELAY), profile=EvProfile(4, 0))
    source, target = filled(pair, 40)
    nic = pair.sides[0].nic
    pair.write(source, target)
    plane = next(plane for plane in range(PLANES) if nic.ready >> plane & 1)
    request = ERTH(op=EndpointOp.EV_PROBE, tx_timestamp=0).pack()
    frame = control(pair, 0, Opcode.ENDPOINT_REQUEST, request, dqpn=ENDPOINT_DQPN, plane=plane)
    inject(pair, 0, frame, plane)
    pulled = [nic.pull(plane, 0), nic.pull(plane, 0)]
    assert [parse(frame).opcode for frame in pulled if frame is not None] == [
        Opcode.ENDPOINT_RESPONSE,
        Opcode.WRITE_FIRST,
    ]


@pytest.mark.parametrize("state", [ProfileState.INIT, ProfileState.OFFLINE])
def test_a_qp_uses_only_a_profile_that_is_online(state: ProfileState) -> None:
    with pytest.raises(VerbsError, match="no EV profile 0 that is ONLINE"):
        BackToBack(constant_delay(DELAY), profile=EvProfile(16, 0, state=state))
