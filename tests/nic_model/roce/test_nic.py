"""The NIC around its QPs: PFC, control before data, fairness, closing."""

from __future__ import annotations

import pytest

from nic_model.device import Device
from nic_model.roce import UNTIL_RESUMED, DcqcnParameters, RoceSettings
from nic_model.roce.packet import WRITE_OPCODES
from nic_model.verbs import SGE, QPAttr, SendWR, VerbsError, WCStatus, WROpcode
from tests.nic_model.roce.pair import RATE, Pair, deliver


def times(pair: Pair, side: int = 0) -> list[int]:
    return [now for now, sender, _, _ in pair.log if sender == side]


def test_it_is_a_device() -> None:
    device: Device = Pair(deliver).sides[0].nic
    assert device.name == "nic0"
    assert [port.plane for port in device.ports] == [0]


def test_a_paused_port_sends_no_data_until_the_time() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(20 * 4096)
    pair.write(source, target)
    nic = pair.sides[0].nic
    pair.at(1000, lambda: nic.pause(0, 9000, 1000))
    pair.run()
    assert [now for now in times(pair) if 1000 < now < 9000] == []
    assert 9000 in times(pair)
    assert target.buf == source.buf


def test_a_pause_without_end_waits_for_the_next_call() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(20 * 4096)
    pair.write(source, target)
    nic = pair.sides[0].nic
    nic.pause(0, UNTIL_RESUMED, 0)
    assert nic.ready == 0
    assert nic.next_deadline() is None
    pair.at(70_000, lambda: nic.pause(0, 70_000, 70_000))
    pair.run()
    assert times(pair)[0] == 70_000
    assert target.buf == source.buf


def test_a_new_pause_replaces_the_old_one() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(4096)
    pair.write(source, target)
    nic = pair.sides[0].nic
    nic.pause(0, 50_000, 0)
    pair.at(10_000, lambda: nic.pause(0, 20_000, 10_000))
    pair.run()
    assert times(pair) == [20_000]


def test_control_passes_a_paused_port() -> None:
    """ACK, NAK and CNP have a class of their own."""
    pair = Pair(deliver)
    source, target = pair.regions(20 * 4096)
    pair.write(source, target)
    pair.sides[1].nic.pause(0, UNTIL_RESUMED, 0)
    pair.run()
    assert [done.status for done in pair.sides[0].completions()] == [WCStatus.SUCCESS]


def test_a_rate_limited_qp_waits_out_a_pause_too() -> None:
    pair = Pair(deliver, settings=RoceSettings(DcqcnParameters.scaled(RATE), 64 * 4096))
    source, target = pair.regions(20 * 4096)
    pair.write(source, target)
    nic = pair.sides[0].nic
    limiter = pair.sides[0].core.requester
    assert limiter is not None
    pair.at(1000, lambda: limiter.on_cnp(1000))
    pair.at(2000, lambda: nic.pause(0, 30_000, 2000))
    pair.run()
    assert [now for now in times(pair) if 2000 < now < 30_000] == []
    assert target.buf == source.buf


def second_qp(pair: Pair) -> None:
    """Another pair of QPs beside the first, as the last of each NIC."""
    qps = [side.queue_pair() for side in pair.sides]
    for mine, theirs in ((0, 1), (1, 0)):
        attr = QPAttr(dest_qp_num=qps[theirs].qp_num, dgid=pair.sides[theirs].nic.ports[0].address)
        qps[mine].to_init(attr)
        qps[mine].to_rtr(attr)
        qps[mine].to_rts(attr)
    pair.qps = (*pair.qps, *qps)


def test_qps_take_turns_at_a_port() -> None:
    pair = Pair(deliver)
    second_qp(pair)
    source, target = pair.regions(20 * 4096)
    pair.write(source, target)
    pair.qps[2].post_send(
        SendWR(1, WROpcode.RDMA_WRITE, [SGE(source.addr, source.length, source.lkey)], target.addr, target.rkey)
    )
    pair.run()
    data = [packet.dqpn for packet in pair.sent(0) if packet.opcode in WRITE_OPCODES]
    first, second = (side_qp.qp_num for side_qp in (pair.qps[1], pair.qps[3]))
    assert data == [first, second] * 20


def test_a_closed_qp_is_gone() -> None:
    pair = Pair(deliver)
    source, target = pair.regions(100 * 4096)
    pair.write(source, target, wr_id=3)
    pair.at(2000, pair.qps[0].close)
    pair.run()
    assert [(done.wr_id, done.status) for done in pair.sides[0].completions()] == [(3, WCStatus.WR_FLUSH_ERR)]
    nic = pair.sides[0].nic
    assert (nic.queue_pairs(), nic.ready, nic.next_deadline()) == ([], 0, None)
    assert max(times(pair)) <= 2000
    pair.qps[0].close()
    assert pair.sides[0].queue_pair().qp_num == 17  # no number is used twice


def test_a_link_that_goes_down_ends_the_pause() -> None:
    pair = Pair(deliver)
    nic = pair.sides[0].nic
    source, target = pair.regions(4096)
    nic.pause(0, UNTIL_RESUMED, 0)
    pair.write(source, target)
    assert nic.ready == 0
    nic.port_status(0, False, 1000)
    nic.port_status(0, True, 2000)
    assert nic.ready == 1


def test_its_qps_are_not_mrcs() -> None:
    pair = Pair(deliver)
    with pytest.raises(VerbsError, match="QP 16 is not MRC's"):
        _ = pair.qps[0].core
