"""Packets that end anywhere, and any bytes: told, survived, and never an error of the script."""

from pathlib import Path
from random import Random

import pytest

from nic_model.headers import BTH, UDP, WRITE_OPCODES, Ethernet
from tests.wireshark.frames import shortened, trimmed, udp_at
from tests.wireshark.kinds import high, kinds, packed
from tests.wireshark.packets import DSCP, ECMP, SRV6, sack, write
from tests.wireshark.tshark import TShark, number, write_capture


@pytest.fixture(scope="module")
def one_of_each() -> list[bytes]:
    """A frame of every kind, with and without an outer IPv6 header."""
    return [
        packed(kind, encap, high, b"payload" if kind.opcode in WRITE_OPCODES else b"").frame
        for kind in kinds()
        for encap in (SRV6, ECMP)
    ]


def test_a_packet_may_end_anywhere(tshark: TShark, one_of_each: list[bytes], capture: Path) -> None:
    """Behind every byte of every kind: the opcode is enough to tell that it is MRC's, and what is wrong is told."""
    frames = [
        shortened(frame, size) for frame in one_of_each for size in range(udp_at(frame) + UDP.SIZE + 1, len(frame))
    ]
    faults = ["mrc.expert.end", "mrc.expert.length", "mrc.expert.icrc"]
    rows = tshark.rows(write_capture(capture, frames), ["mrc", "mrc.bth.psn", *faults])
    assert all(row["mrc"] and any(row[fault] for fault in faults) for row in rows)
    for frame, row in zip(frames, rows, strict=True):
        if len(frame) < udp_at(frame) + UDP.SIZE + BTH.SIZE:
            assert row["mrc.expert.end"] and not row["mrc.bth.psn"]


def test_a_packet_may_be_trimmed_anywhere(tshark: TShark, one_of_each: list[bytes], capture: Path) -> None:
    """Of data packets nothing but the trimming is told."""
    frames = [
        trimmed(frame, size, DSCP.trimmed)
        for frame in one_of_each
        for size in range(udp_at(frame) + UDP.SIZE + 1, len(frame))
    ]
    fields = ["mrc.bth.opcode", "mrc.expert.trimmed", "mrc.expert.end", "mrc.expert.length"]
    for row in tshark.rows(write_capture(capture, frames), fields):
        assert row["mrc.expert.trimmed"]
        if row["mrc.bth.opcode"] and number(row["mrc.bth.opcode"][0]) in WRITE_OPCODES:
            assert not row["mrc.expert.end"] and not row["mrc.expert.length"]


def test_a_capture_may_keep_the_first_bytes_only(tshark: TShark, capture: Path) -> None:
    frames = [write(), sack()]
    fields = ["mrc.bth.psn", "mrc.meth.msn", "mrc.reth.va", "mrc.sack.cack_psn", "mrc.icrc", "mrc.expert.not_captured"]
    data, control_packet = tshark.rows(write_capture(capture, frames, snap=120), fields)
    assert data["mrc.bth.psn"] == ["4000"] and data["mrc.meth.msn"] == ["9"] and not data["mrc.reth.va"]
    assert control_packet["mrc.bth.psn"] == ["5"] and not control_packet["mrc.sack.cack_psn"]
    for row in (data, control_packet):
        assert row["mrc.expert.not_captured"] and not row["mrc.icrc"]


def test_any_bytes_are_survived(tshark: TShark, one_of_each: list[bytes], capture: Path) -> None:
    """An error of the script would be told: `TShark.rows` looks for it."""
    random = Random(9)
    frames = []
    for frame in one_of_each * 8:
        damaged = bytearray(frame)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(Ethernet.SIZE, len(frame))] = random.randrange(256)
        frames.append(bytes(damaged[: random.randint(60, len(frame))]))
    rows = tshark.rows(write_capture(capture, frames), ["mrc"])
    assert sum(bool(row["mrc"]) for row in rows) > len(rows) // 4
