"""Several QPs that look like one: which bytes go where, and when a message is complete."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nic_model.roce import StripedQP, connect_striped
from nic_model.roce.packet import WRITE_OPCODES, Packet
from nic_model.verbs import MR, SGE, QPAttr, QPCap, QPInitAttr, RecvWR, SendWR, VerbsError, WCStatus, WROpcode
from tests.nic_model.back_to_back import Verdict
from tests.nic_model.roce.pair import DELAY, Wires, deliver, write_wr


class StripedPair(Wires):
    """A striped QP at each side."""

    def __init__(self, verdict: Verdict, count: int, planes: int = 1, cap: QPCap | None = None) -> None:
        super().__init__(verdict, planes=planes)
        one, other = (StripedQP(side.pd, QPInitAttr(side.cq, side.cq, cap or QPCap()), count) for side in self.sides)
        connect_striped(one, other, QPAttr(), random.Random(1))
        self.qps = (one, other)

    def regions(self, length: int) -> tuple[MR, MR]:
        source, target = self.sides[0].region(length), self.sides[1].region(length)
        source.write(random.Random(7).randbytes(length))
        return source, target

    def data(self) -> list[tuple[int, Packet]]:
        """(plane, packet)"""
        return [(plane, p) for _, side, plane, p in self.log if side == 0 and p.opcode in WRITE_OPCODES]


def test_a_message_is_cut_into_equal_stripes() -> None:
    pair = StripedPair(deliver, 4)
    source, target = pair.regions(40_000)
    pair.qps[0].post_send(write_wr(source, target, wr_id=5))
    pair.run()
    assert target.buf == source.buf
    # A quarter is 10,000 bytes, in multiples of 128: 10,112.
    assert [(p.va - target.addr, p.dma_len) for _, p in pair.data() if p.dma_len] == [
        (0, 10_112), (10_112, 10_112), (20_224, 10_112), (30_336, 9_664),
    ]  # fmt: skip
    (done,) = pair.sides[0].completions()
    assert (done.wr_id, done.status, done.byte_len, done.qp_num) == (5, WCStatus.SUCCESS, 40_000, pair.qps[0].qp_num)
    assert len({p.udp_sport for _, p in pair.data()}) == 4


def test_qp_i_uses_the_port_of_plane_i_mod_planes() -> None:
    pair = StripedPair(deliver, 6, planes=4)
    source, target = pair.regions(6 * 40_960)
    pair.qps[0].post_send(write_wr(source, target))
    pair.run()
    assert target.buf == source.buf
    planes = {p.dqpn: plane for plane, p in pair.data()}
    assert [planes[qp.qp_num] for qp in pair.qps[1].stripes] == [0, 1, 2, 3, 0, 1]
    assert [port.payload_bytes for port in pair.sides[1].nic.ports] == [81_920, 81_920, 40_960, 40_960]


def test_an_immediate_is_received_when_every_stripe_is() -> None:
    slow = 50_000
    pair = StripedPair(lambda _sender, plane, _frame, _now: slow if plane == 2 else DELAY, 4, planes=4)
    source, target = pair.regions(40_000)
    pair.qps[1].post_recv(RecvWR(3))
    at: list[int] = []
    pair.sides[1].cq.channel = lambda _cq: at.append(pair.now)
    pair.qps[0].post_send(write_wr(source, target, imm=77))
    pair.run()
    (received,) = pair.sides[1].completions()
    assert (received.wr_id, received.imm_data, received.byte_len) == (3, 77, 40_000)
    assert at[0] > slow


def test_few_bytes_use_few_qps_but_an_immediate_uses_all() -> None:
    pair = StripedPair(deliver, 4)
    source, target = pair.regions(200)
    pair.qps[0].post_send(write_wr(source, target))
    pair.run()
    assert [p.dma_len for _, p in pair.data()] == [128, 72]
    pair.qps[1].post_recv(RecvWR(0))
    pair.qps[0].post_send(write_wr(source, target, imm=1))
    pair.qps[0].post_send(write_wr(source, target, length=0))
    pair.run()
    assert [p.dma_len for _, p in pair.data()[2:6]] == [128, 72, 0, 0]
    assert [p.dma_len for _, p in pair.data()[6:]] == [0]
    assert len(pair.sides[0].completions()) == 3


def test_a_gather_list_is_cut_where_the_stripes_are() -> None:
    pair = StripedPair(deliver, 3)
    source, target = pair.regions(1000)
    pieces = [SGE(source.addr + 600, 400, source.lkey), SGE(source.addr, 600, source.lkey)]
    pair.qps[0].post_send(SendWR(1, WROpcode.RDMA_WRITE, pieces, target.addr, target.rkey))
    pair.run()
    assert target.read(1000) == source.read(400, 600) + source.read(600)


def test_completions_keep_the_order_of_posting() -> None:
    """The second message is on the first QP only, whose stripe of the first is done long before the others'."""
    pair = StripedPair(lambda _sender, plane, _frame, _now: 30_000 if plane else DELAY, 2, planes=2)
    source, target = pair.regions(20_000)
    pair.qps[0].post_send(write_wr(source, target, wr_id=1))
    pair.qps[0].post_send(write_wr(source, target, wr_id=2, length=100))
    pair.run()
    assert [done.wr_id for done in pair.sides[0].completions()] == [1, 2]


def test_a_plane_that_is_lost_fails_what_has_a_stripe_in_it() -> None:
    pair = StripedPair(lambda _sender, plane, _frame, _now: None if plane == 1 else DELAY, 2, planes=2)
    source, target = pair.regions(20_000)
    for wr_id in range(3):
        pair.qps[0].post_send(write_wr(source, target, wr_id=wr_id, length=100 if wr_id == 1 else 20_000))
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [
        (0, WCStatus.RETRY_EXC_ERR),
        (1, WCStatus.SUCCESS),
        (2, WCStatus.WR_FLUSH_ERR),
    ]


def test_misuse_raises_before_anything_is_posted() -> None:
    pair = StripedPair(deliver, 2, cap=QPCap(2, 2))
    source, target = pair.regions(1000)
    with pytest.raises(VerbsError, match="not inside a region"):
        pair.qps[0].post_send(write_wr(source, target, length=1001))
    for wr_id in range(2):
        pair.qps[0].post_send(write_wr(source, target, wr_id=wr_id))
        pair.qps[1].post_recv(RecvWR(wr_id))
    with pytest.raises(VerbsError, match="send queue of QP 16 is full"):
        pair.qps[0].post_send(write_wr(source, target))
    with pytest.raises(VerbsError, match="receive queue of QP 16 is full"):
        pair.qps[1].post_recv(RecvWR(2))
    pair.run()
    assert [done.wr_id for done in pair.sides[0].completions()] == [0, 1]
    with pytest.raises(VerbsError, match="at least 1 QP"):
        StripedQP(pair.sides[0].pd, QPInitAttr(pair.sides[0].cq, pair.sides[0].cq), 0)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.integers(1, 5),
    lengths=st.lists(st.integers(0, 30_000), min_size=1, max_size=6),
    with_imm=st.integers(0, 63),
)
def test_any_schedule_ends_with_the_same_memory_and_each_completion_once(
    seed: int, count: int, lengths: list[int], with_imm: int
) -> None:
    rng = random.Random(seed)
    pair = StripedPair(
        lambda _sender, _plane, _frame, now: (
            None if now < 400_000 and rng.random() < 0.1 else DELAY + rng.randrange(600)
        ),
        count,
        planes=2,
    )
    source, target = pair.regions(sum(lengths) or 1)
    offset = 0
    for index, length in enumerate(lengths):
        pair.qps[1].post_recv(RecvWR(index))
        imm = index if with_imm >> index & 1 else None
        pair.qps[0].post_send(write_wr(source, target, wr_id=index, offset=offset, length=length, imm=imm))
        offset += length
    pair.run()
    done = pair.sides[0].completions()
    assert [(d.wr_id, d.status, d.byte_len) for d in done] == [(i, WCStatus.SUCCESS, n) for i, n in enumerate(lengths)]
    received = [(d.imm_data, d.byte_len) for d in pair.sides[1].completions()]
    assert received == [(i, n) for i, n in enumerate(lengths) if with_imm >> i & 1]
    assert target.buf[:offset] == source.buf[:offset]
