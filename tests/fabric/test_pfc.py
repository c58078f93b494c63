"""Priority-based flow control: frames and times as IEEE 802.1Qbb has them, lossless with the right headroom, and its
price: a pause spreads to flows that have no part in the congestion."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.mac_control import MACControlClassBasedFlowControl
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapNgReader

from fabric.links import Frame
from fabric.nodes import NicNode
from fabric.pfc import (
    HEADROOM_FULL,
    IngressBuffer,
    LosslessNicNode,
    LosslessSwitchNode,
    PauseTimer,
    PfcLimits,
    headroom,
    pause_time,
    pfc_frame,
    quanta_of,
)
from fabric.run import Run
from nic_model.roce.packet import WRITE_OPCODES, parse
from tests.fabric.roce_runs import ACROSS, IN_ROW, PFC, PFC_ONLY, ROCE, VICTIM, execute, prepare

MAC = bytes.fromhex("020000002000")
WRITE = {"kind": "write", "pairs": [["nic0", "nic4"]], "bytes": 1_000_000}


# ---- frames, times, thresholds -----------------------------------------------------------------------------


@pytest.mark.parametrize("quanta", [0, 1, 65535])
def test_a_frame_is_scapys(quanta: int) -> None:
    packet = Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:20:00") / MACControlClassBasedFlowControl(
        c0_enabled=1, c0_pause_time=quanta
    )
    head, tail = pfc_frame(MAC, quanta)
    assert head + tail == bytes(packet) and len(head) == 60
    assert quanta_of((head, tail)) == quanta


def test_what_is_not_of_the_data_class_says_nothing_of_it() -> None:
    other = Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:20:00") / MACControlClassBasedFlowControl(
        c3_enabled=1, c3_pause_time=7
    )
    assert quanta_of((bytes(other), b"")) is None
    assert quanta_of((bytes(60), b"")) is None


@pytest.mark.parametrize(("rate", "quanta", "time"), [(400, 65535, 83_885), (100, 65535, 335_539), (100, 1, 5)])
def test_a_quantum_is_512_bit_times(rate: float, quanta: int, time: int) -> None:
    assert pause_time(quanta, rate) == time


def test_headroom_follows_from_rate_and_delay() -> None:
    """Two frames of 4262 bytes, a PFC frame of 84, and what the wire holds there and back."""
    assert headroom(400, 500) == 2 * 4262 + 84 + 2 * 500 * 50
    assert headroom(100, 500) == 2 * 4262 + 84 + 2 * 6250
    assert headroom(100, 0) == 2 * 4262 + 84


def test_thresholds() -> None:
    told: list[bool] = []
    buffer = IngressBuffer(PfcLimits(xoff=1000, xon=400, capacity=1500, quanta=65535, rate=100), told.append)
    buffer.take(600)
    buffer.take(400)
    assert told == []  # at XOFF is not above it
    buffer.take(1)
    buffer.take(499)
    assert told == [True] and not buffer.has_room(1)
    buffer.give(1099)
    assert told == [True] and buffer.held == 401
    buffer.give(1)
    assert told == [True, False]
    buffer.give(400)
    assert told == [True, False] and (buffer.held, buffer.peak) == (0, 1500)


def test_a_timer_counts_the_time_that_a_port_was_stopped() -> None:
    timer = PauseTimer()
    timer.set(200, now=100)
    assert timer.stopped(150) == 50
    timer.set(300, now=160)  # once more, before its end
    assert timer.stopped(1000) == 200
    timer.set(1100, now=1000)
    timer.set(1040, now=1040)  # let go on
    assert timer.stopped(2000) == 240


# ---- being stopped -----------------------------------------------------------------------------------------


class Watched:
    """nic0's frames as they leave, (time, is it data)."""

    def __init__(self, run: Run) -> None:
        self.left: list[tuple[int, bool]] = []
        self.node = run.fabric.nic("nic0")
        self.node.tap = self._tap

    def _tap(self, _plane: int, leaving: bool, frame: Frame) -> None:
        if leaving:
            self.left.append((self.node.now, parse(frame).opcode in WRITE_OPCODES))

    def data_between(self, start: int, end: int) -> list[int]:
        return [time for time, is_data in self.left if is_data and start < time < end]


def test_a_nic_sends_no_data_until_the_pause_ends_and_control_goes_on(tmp_path: Path) -> None:
    both_ways = {"kind": "write", "pairs": [["nic0", "nic4"], ["nic4", "nic0"]], "bytes": 1_000_000}
    run = prepare(tmp_path, workloads=[both_ways])
    watched = Watched(run)
    run.fabric.events.at(5_003, watched.node.arrive, 0, pfc_frame(MAC, 4000))
    run.execute()
    end = 5_003 + pause_time(4000, 400)
    assert watched.data_between(5_003, end) == []
    assert watched.data_between(end - 1, end + 1) == [end]  # it had a packet ready all the time
    assert [time for time, is_data in watched.left if not is_data and 5_003 < time < end]


def test_a_switch_sends_no_data_until_the_pause_ends_and_control_goes_on(tmp_path: Path) -> None:
    both_ways = {"kind": "write", "pairs": [["nic0", "nic4"], ["nic4", "nic0"]], "bytes": 1_000_000}
    run = prepare(tmp_path, workloads=[both_ways])
    arrived: list[tuple[int, bool]] = []
    nic4 = run.fabric.nic("nic4")
    nic4.tap = lambda _plane, leaving, frame: (
        None if leaving else arrived.append((nic4.now, parse(frame).opcode in WRITE_OPCODES))
    )
    to_nic4 = 1
    run.fabric.events.at(9_003, run.fabric.switch("p0t0-1").arrive, to_nic4, pfc_frame(MAC, 4000))
    run.execute()
    on_its_way, end = 9_003 + 500 + 85, 9_003 + pause_time(4000, 400)  # a full frame takes 85 ns, the wire 500
    assert [time for time, is_data in arrived if is_data and on_its_way < time <= end + 500] == []
    assert [time for time, is_data in arrived if not is_data and on_its_way < time <= end + 500]
    assert next(time for time, is_data in arrived if is_data and time > on_its_way) in range(end + 580, end + 590)


def test_a_later_frame_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    run = prepare(tmp_path, workloads=[WRITE])
    watched = Watched(run)
    for time, quanta in ((5_003, 1000), (5_500, 4000), (6_000, 0)):
        run.fabric.events.at(time, watched.node.arrive, 0, pfc_frame(MAC, quanta))
    run.execute()
    assert watched.data_between(5_003, 7_000)[0] == 6_000
    node = watched.node
    assert isinstance(node, LosslessNicNode)
    assert node.stopped(0) == 6_000 - 5_003 and node.frames_taken == [3]


def test_a_link_that_comes_back_has_forgotten_the_pause(tmp_path: Path) -> None:
    down = {"kind": "nic-port-down", "nic": "nic0", "plane": 0, "at_us": 6, "until_us": 7}
    run = prepare(tmp_path, workloads=[WRITE], faults=[down])
    watched = Watched(run)
    run.fabric.events.at(5_003, watched.node.arrive, 0, pfc_frame(MAC, 65535))
    run.execute()
    assert 7_000 <= watched.data_between(5_003, 1_000_000)[0] < 5_003 + pause_time(65535, 400)


# ---- lossless ----------------------------------------------------------------------------------------------


def switches(run: Run) -> Iterator[LosslessSwitchNode]:
    for node in run.fabric.switches.values():
        assert isinstance(node, LosslessSwitchNode)
        yield node


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("qp", [ROCE, PFC_ONLY, {**PFC_ONLY, "qps_per_peer": 4}], ids=str)
@pytest.mark.parametrize("work", [ACROSS, IN_ROW], ids=["across", "in row"])
def test_an_incast_loses_nothing(tmp_path: Path, work: dict[str, Any], qp: dict[str, Any], seed: int) -> None:
    run = prepare(tmp_path, workloads=[work], qp=qp, seed=seed)
    result = run.execute()
    assert result.errors == []
    assert (result.link_losses, result.switch_drops, result.retransmissions) == ({}, {}, 0)
    pfc = result.pfc
    assert pfc is not None and pfc.pauses > 0 and pfc.stopped > 0
    # Each pause is one frame and its end is another: none lasted until it had to be repeated.
    assert pfc.frames_sent == pfc.frames_taken == 2 * pfc.pauses
    assert PFC["xoff_bytes"] < pfc.peak_bytes <= PFC["xoff_bytes"] + headroom(400, 500)


def test_too_little_headroom_loses_and_go_back_n_makes_up_for_it(tmp_path: Path) -> None:
    result = execute(tmp_path, {**PFC, "headroom_bytes": 10_000}, workloads=[IN_ROW], qp=PFC_ONLY)
    assert result.errors == []
    assert list(result.switch_drops) == [HEADROOM_FULL] and result.switch_drops[HEADROOM_FULL] > 0
    assert result.roce is not None and result.roce.sequence_naks > 0 and result.retransmissions > 0


def test_without_pfc_the_queue_loses_and_go_back_n_makes_up_for_it(tmp_path: Path) -> None:
    result = execute(tmp_path, None, workloads=[IN_ROW], qp=PFC_ONLY)
    assert result.errors == [] and result.pfc is None
    assert list(result.switch_drops) == ["data_queue_full"]
    assert result.roce is not None and result.roce.sequence_naks > 0 and result.retransmissions > 0


def test_a_pause_is_repeated_before_it_ends(tmp_path: Path) -> None:
    """A pause of 400 quanta is 512 ns: shorter than an incast keeps a buffer full."""
    run = prepare(tmp_path, {**PFC, "pause_quanta": 400}, workloads=[IN_ROW], qp=PFC_ONLY)
    result = run.execute()
    assert result.errors == [] and (result.switch_drops, result.retransmissions) == ({}, 0)
    assert result.pfc is not None and result.pfc.frames_sent > 3 * result.pfc.pauses


# ---- what it costs -----------------------------------------------------------------------------------------


def stopped_ports(run: Run) -> dict[str, int]:
    """ns that each node's ports were stopped."""
    found = {name: node.pfc_counts().stopped for name, node in zip(run.fabric.switches, switches(run), strict=True)}
    for name, nic in run.fabric.nics.items():
        assert isinstance(nic, LosslessNicNode)
        found[name] = nic.stopped(0)
    return {name: stopped for name, stopped in found.items() if stopped}


def test_pauses_spread_from_the_last_hop_to_the_senders_and_hit_who_has_no_part_in_it(tmp_path: Path) -> None:
    """nic4, nic5 and nic6 write to nic0. nic7 writes to nic1, whose link is free, but its packets wait in the T1s and
    the T0 behind those for nic0: head-of-line blocking."""
    (tmp_path / "alone").mkdir()
    alone = {"kind": "write", "pairs": [["nic7", "nic1"]], "bytes": 600_000, "messages": 3}
    unharmed = execute(tmp_path / "alone", {"xoff_bytes": 20_000, "xon_bytes": 10_000}, workloads=[alone], qp=PFC_ONLY)
    run = prepare(tmp_path, {"xoff_bytes": 20_000, "xon_bytes": 10_000}, workloads=[VICTIM], qp=PFC_ONLY)
    result = run.execute()
    assert unharmed.errors == result.errors == []
    assert unharmed.pfc is not None and unharmed.pfc.pauses == 0
    stopped = stopped_ports(run)
    assert {name for name in stopped if name.startswith("p0t1")}, "T0-0 stops T1s"
    assert "p0t0-1" in stopped, "they stop T0-1"
    assert {"nic4", "nic5", "nic6"} & stopped.keys(), "which stops senders"
    assert not stopped.keys() & {"p0t0-0", "nic0", "nic1", "nic2", "nic3"}, "nobody stops who only receives"
    victim = result.phases[0].victim_goodput_gbps
    assert victim is not None and victim < 0.8 * unharmed.phases[0].goodput_gbps


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "flap", "link": ["nic4", "p0t0-1"], "at_us": 5, "period_us": 10, "down_us": 2, "count": 2},
        {"kind": "flap", "link": ["p0t0-0", "p0t1-1"], "at_us": 5, "period_us": 10, "down_us": 2, "count": 2},
        {"kind": "switch-down", "switch": "p0t1-1", "at_us": 5, "until_us": 20},
        {"kind": "switch-black-hole", "switch": "p0t0-0", "at_us": 5, "until_us": 20},
        {"kind": "loss", "link": ["p0t0-0", "p0t1-1"], "rate": 0.05},
    ],
    ids=lambda fault: "-".join(str(value) for value in fault.values()),
)
def test_whatever_happens_to_pfc_frames_every_byte_and_frame_is_accounted_for(
    tmp_path: Path, fault: dict[str, Any]
) -> None:
    run = prepare(tmp_path, workloads=[VICTIM], qp=ROCE, faults=[fault], control_latency_us=5)
    result = run.execute()
    assert result.errors == []
    assert result.pfc is not None and result.pfc.pauses > 0
    assert sum(node.held() for node in switches(run)) == 0


# ---- the capture -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[NicNode, Path]:
    directory = tmp_path_factory.mktemp("captured")
    run = prepare(directory, workloads=[IN_ROW], qp=PFC_ONLY, capture="nic1")
    assert run.execute(out=directory).errors == []
    return run.fabric.nic("nic1"), directory / "nic1.pcapng"


def test_pfc_frames_are_in_the_capture(captured: tuple[NicNode, Path]) -> None:
    node, path = captured
    assert isinstance(node, LosslessNicNode)
    with RawPcapNgReader(str(path)) as reader:
        found = [quanta for frame, _ in reader if (quanta := quanta_of((frame, b""))) is not None]
    assert len(found) == node.frames_taken[0] > 0
    assert found == [65535, 0] * (len(found) // 2)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_them(captured: tuple[NicNode, Path]) -> None:
    node, path = captured
    assert isinstance(node, LosslessNicNode)
    fields = ["eth.dst", "eth.src", "macc.opcode", "macc.cbfc.enbv", "macc.cbfc.pause_time.c0"]
    words = [word for name in fields for word in ("-e", name)]
    command = ["tshark", "-r", str(path), "-Y", "macc", "-T", "fields", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == node.frames_taken[0]
    assert {tuple(row[:4]) for row in rows} == {("01:80:c2:00:00:01", "02:00:00:00:20:00", "0x0101", "0x0001")}
    assert [int(row[4]) for row in rows[:2]] == [65535, 0]
