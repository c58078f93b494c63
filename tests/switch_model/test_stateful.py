"""Registers, counters, hashes, random numbers, exit, hit and miss, and the traffic manager's metadata."""

import json
from zlib import crc32

from finsy.proto import p4r

from switch_model.codegen import compile_program
from switch_model.device import Device
from switch_model.hashes import crc16, identity
from switch_model.traffic import DROPPED
from tests.switch_model.support import PROGRAMS, Ids, call, exact, forward, insert, load

_ACCUMULATE, _DRAW, _CRC32, _CRC16, _IDENTITY, _EXIT, _PRIORITY, _DROP, _TABLES, _QUEUE = range(1, 11)
_DROP_IN_EGRESS, _READ_IN_EGRESS = 11, 12


def _command(code: int, argument: int = 0) -> bytes:
    return bytes([code]) + argument.to_bytes(2) + b"\x00\x00"


def _result(device: Device, code: int, argument: int = 0) -> int:
    frame = forward(device, _command(code, argument) + b"payload")
    assert frame is not None
    assert frame[:3] + frame[5:] == _command(code, argument)[:3] + b"payload"
    return int.from_bytes(frame[3:5])


def test_a_register_keeps_state_and_an_action_branches_on_it() -> None:
    device, _ = load("stateful")
    assert [_result(device, _ACCUMULATE, 7) for _ in range(5)] == [1, 2, 3, 0xFFFF, 1]
    assert _result(device, _ACCUMULATE, 0) == 1, "cells are separate"


def test_ingress_and_egress_share_a_register() -> None:
    device, _ = load("stateful")
    _result(device, _ACCUMULATE, 5)
    _result(device, _ACCUMULATE, 5)
    assert _result(device, _READ_IN_EGRESS, 5) == 2
    assert _result(device, _READ_IN_EGRESS, 4) == 0


def test_a_register_index_beyond_the_end_reads_and_writes_nothing() -> None:
    device, config = load("stateful")
    assert _result(device, _ACCUMULATE, 8) == 1
    assert _result(device, _ACCUMULATE, 8) == 1
    assert config.pipeline.registers["shared_cells"] == [0] * 8
    assert _result(device, _READ_IN_EGRESS, 8) == 0, "the field keeps its value"


def test_state_is_of_one_device() -> None:
    first, _ = load("stateful")
    second, _ = load("stateful")
    assert _result(first, _ACCUMULATE, 1) == 1
    assert _result(second, _ACCUMULATE, 1) == 1


def test_random_numbers_depend_on_the_seed_only_and_stay_within_bounds() -> None:
    first, _ = load("stateful")
    drawn = [_result(first, _DRAW, 12) for _ in range(200)]
    again, _ = load("stateful")
    assert [_result(again, _DRAW, 12) for _ in range(200)] == drawn
    assert set(drawn) == {10, 11, 12}
    other = Device(1, seed=2)
    other.load(load("stateful")[1].pipeline.compiled)
    assert [_result(other, _DRAW, 12) for _ in range(200)] != drawn


def test_random_with_low_above_high_writes_nothing() -> None:
    device, _ = load("stateful")
    assert _result(device, _DRAW, 9) == 0


def test_hashes_are_those_of_bmv2() -> None:
    device, _ = load("stateful")
    data = bytes([_CRC32]) + (0xBEEF).to_bytes(2)
    assert _result(device, _CRC32, 0xBEEF) == 100 + crc32(data) % 1000
    # {argument, 4w5, code}: 28 bits, padded with zeros behind
    packed = (0xBEEF << 16 | 5 << 12 | _CRC16 << 4).to_bytes(4)
    assert _result(device, _CRC16, 0xBEEF) == crc16(packed)
    assert _result(device, _IDENTITY, 0xBEEF) == 0xBEEF


def test_crc16_is_arc() -> None:
    # The check value of CRC-16/ARC in the catalogue of parametrised CRC algorithms.
    assert crc16(b"123456789") == 0xBB3D


def test_identity_takes_eight_bytes() -> None:
    assert identity(bytes(range(1, 11))) == 0x0102030405060708
    assert identity(b"\x01\x02") == 0x0102


def test_exit_ends_the_pipeline() -> None:
    device, _ = load("stateful")
    assert _result(device, _EXIT) == 1


def test_mark_to_drop() -> None:
    device, _ = load("stateful")
    assert device.ingress(1, (_command(_DROP), b""), 0) == DROPPED
    assert device.occupancy() == 0


def test_egress_drops_and_goes_on_with_the_next_packet() -> None:
    device, _ = load("stateful")
    device.ingress(1, (_command(_DROP_IN_EGRESS), b""), 0)
    device.ingress(1, (_command(0), b"next"), 0)
    assert device.depth(1) == 2
    assert device.dequeue(1, 0) == (_command(0), b"next")
    device.ingress(1, (_command(_DROP_IN_EGRESS), b""), 0)
    assert device.dequeue(1, 0) is None
    assert device.occupancy() == 0


def test_higher_priorities_leave_first_and_each_in_order() -> None:
    device, _ = load("stateful")
    for priority, mark in ((0, b"a"), (7, b"b"), (3, b"c"), (7, b"d"), (0, b"e")):
        device.ingress(1, (_command(_PRIORITY, priority), mark), 0)
    tails = []
    while (out := device.dequeue(1, 0)) is not None:
        tails.append(out[1])
    assert tails == [b"b", b"d", b"c", b"a", b"e"]


def test_a_priority_without_a_queue_is_dropped() -> None:
    device = Device(1, priority_queues=4)
    device.load(load("stateful")[1].pipeline.compiled)
    assert device.ingress(1, (_command(_PRIORITY, 3), b""), 0) == 1
    assert device.ingress(1, (_command(_PRIORITY, 4), b""), 0) == DROPPED
    assert device.occupancy() == 1


def test_counters_count_packets_and_bytes_on_arrival() -> None:
    device, _ = load("stateful")
    device.ingress(1, (_command(_ACCUMULATE), b"12345"), 0)
    device.ingress(1, (_command(_ACCUMULATE) + b"678", b""), 0)
    device.ingress(1, (_command(_DROP), b""), 0)
    assert device.read_counter("commands", _ACCUMULATE) == (2, 18)
    assert device.read_counter("TestIngress.commands", _DROP) == (1, 5)
    assert device.read_counter("commands", _DRAW) == (0, 0)
    device.ingress(1, (_command(16), b""), 0)  # beyond the end: not counted, not an error


def test_hit_miss_and_action_run() -> None:
    device, config = load("stateful")
    ids = Ids(config.message.p4info)
    assert _result(device, _TABLES, 1) == (0xDEAD + 0x1000) & 0xFFFF
    for argument, value in ((1, 100), (2, 200), (3, 300), (4, 50)):
        config.write(
            insert(
                p4r.TableEntry(
                    table_id=ids.table("known_arguments"),
                    match=[exact(1, bytes([argument]))],
                    action=call(ids.action("known"), value.to_bytes(2)),
                )
            )
        )
    for value, action in ((100, "one"), (200, "two"), (50, "stop")):
        config.write(
            insert(
                p4r.TableEntry(
                    table_id=ids.table("choose"),
                    match=[exact(1, bytes([value]))],
                    action=call(ids.action(action)),
                )
            )
        )
    assert [_result(device, _TABLES, argument) for argument in (1, 2, 3, 4, 5)] == [
        101,
        202,
        300 + 0x1000,
        50,  # exit: the arm behind the action is not reached
        (0xDEAD + 0x1000) & 0xFFFF,
    ]


def test_the_queue_depth_without_priorities() -> None:
    document = json.loads((PROGRAMS / "stateful.json").read_text())
    action = next(item for item in document["actions"] if item["name"] == "TestIngress.set_priority")
    action["primitives"] = []
    device = Device(1)
    device.load(compile_program(json.dumps(document).encode()))
    for _ in range(2):
        device.ingress(1, (_command(_QUEUE), b""), 0)
    depths = []
    while (out := device.dequeue(1, 0)) is not None:
        depths.append((int.from_bytes(out[0][10:13]), int.from_bytes(out[0][17:20])))
    assert depths == [(0, 1), (1, 0)]  # ahead of it when it came, behind it when it left


def test_queue_metadata_and_timestamps() -> None:
    device, _ = load("stateful")
    milliseconds = 1_000_000
    for _ in range(2):
        device.ingress(1, (_command(0), b""), 3 * milliseconds)
    device.ingress(1, (_command(_QUEUE), b"end"), 5 * milliseconds + 999)
    device.ingress(1, (_command(0), b""), 6 * milliseconds)
    for _ in range(2):
        device.dequeue(1, 7 * milliseconds)
    out = device.dequeue(1, 9 * milliseconds + 1)
    assert out is not None
    queue = out[0][5:]
    fields = [int.from_bytes(queue[start:end]) for start, end in ((0, 1), (1, 5), (5, 8), (8, 12), (12, 15))]
    # egress port, enqueued at (us), packets before it, waited (us), packets behind it
    assert fields == [1, 5000, 2, 4000, 1]
    assert int.from_bytes(queue[15:21]) == 5000
    assert int.from_bytes(queue[21:27]) == 9000
    assert out[1] == b"end"
