"""Devices and the traffic manager."""

import pytest

from switch_model.device import Device
from switch_model.traffic import DROPPED, TrafficManager
from tests.switch_model.support import load

_FRAME = (bytes(5), b"payload")


def test_a_device_without_a_pipeline_drops_everything() -> None:
    device = Device(7, name="t0")
    assert device.ingress(1, _FRAME, 0) == DROPPED
    assert device.dequeue(1, 0) is None
    assert device.occupancy() == device.depth(1) == 0


def test_a_new_pipeline_empties_queues_tables_counters_and_registers() -> None:
    device, config = load("stateful")
    device.ingress(1, _FRAME, 0)
    device.ingress(1, (bytes([1, 0, 1, 0, 0]), b""), 0)
    assert device.depth(1) == 2
    device.load(config.pipeline.compiled)
    assert device.occupancy() == 0
    assert device.dequeue(1, 0) is None
    assert device.read_counter("commands", 0) == (0, 0)
    assert device.pipeline is not None
    assert device.pipeline.registers["shared_cells"] == [0] * 8


def test_devices_share_the_code_of_a_program() -> None:
    first, second = load("stateful")[1], load("stateful")[1]
    assert first.pipeline.compiled is second.pipeline.compiled
    assert first.pipeline.ingress.__code__ is second.pipeline.ingress.__code__


def test_depth_counts_one_port_and_occupancy_all() -> None:
    device, _ = load("stateful")
    device.ingress(1, _FRAME, 0)
    assert (device.depth(1), device.depth(2), device.occupancy()) == (1, 0, 1)


@pytest.mark.parametrize(("name", "index", "error"), [("commands", 16, IndexError), ("nothing", 0, KeyError)])
def test_an_unknown_counter_cell_is_an_error(name: str, index: int, error: type[Exception]) -> None:
    device, _ = load("stateful")
    with pytest.raises(error, match=name):
        device.read_counter(name, index)


def test_the_traffic_manager_serves_the_highest_priority_first() -> None:
    traffic = TrafficManager(3)
    for number, priority in enumerate((1, 0, 2, 1, 2)):
        assert traffic.enqueue(9, priority, (number,)) == 9
    assert traffic.enqueue(9, 3, ("no queue",)) == DROPPED
    assert [traffic.depth(9, priority) for priority in range(4)] == [1, 2, 2, 0]
    assert traffic.depth(9) == traffic.occupancy() == 5
    assert [traffic.dequeue(9) for _ in range(6)] == [(2,), (4,), (0,), (3,), (1,), None]
    assert traffic.occupancy() == 0
    assert traffic.dequeue(8) is None
