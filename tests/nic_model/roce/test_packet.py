"""RC packets: built and parsed back, against scapy, truncated, corrupted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib import roce
from scapy.layers import inet, inet6, l2
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from nic_model.headers import DscpPlan, Ecn, ev_from
from nic_model.packet import Encap, Frame, Malformed, MalformedError, Wire
from nic_model.roce.packet import (
    FIRST_OPCODES,
    IMM_OPCODES,
    WRITE_OPCODES,
    Opcode,
    Packet,
    Syndrome,
    build_ack,
    build_cnp,
    build_write,
    parse,
    write_opcode,
)

ETH_DST, ETH_SRC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
SRC, DST = bytes.fromhex("fd00" + "00" * 13 + "02"), bytes.fromhex("fd00" + "00" * 13 + "03")
UDP_SPORT = 0xC123
VA, RKEY, DMA_LEN = 0x0123456789ABCDEF, 0x89ABCDEF, 0x00012345
IMM = 0xDEADBEEF
DSCP = DscpPlan()
ENCAP = Encap(
    eth_dst=ETH_DST,
    eth_src=ETH_SRC,
    outer_src=None,
    outer_dst=None,
    inner_src=SRC,
    inner_dst=DST,
    ev=ev_from(UDP_SPORT, 0),
)


def write(opcode: int, payload: bytes = b"x" * 64, psn: int = 0xABCDEF, ack_req: bool = False) -> Frame:
    return build_write(
        ENCAP,
        opcode=opcode,
        dqpn=0x123456,
        psn=psn,
        ack_req=ack_req,
        reth=(VA, RKEY, DMA_LEN),
        imm=IMM,
        payload=payload,
        ecn=Ecn.ECT0,
    )


def in_scapy(bth: ScapyPacket, dscp: int, ecn: int) -> bytes:
    packet = (
        l2.Ether(dst=ETH_DST.hex(":"), src=ETH_SRC.hex(":"))
        / inet6.IPv6(src="fd00::2", dst="fd00::3", tc=dscp << 2 | ecn, fl=0, hlim=64)
        / inet.UDP(sport=UDP_SPORT, dport=4791, chksum=0)
        / bth
    )
    return bytes(packet)


OPERATIONS = {
    Opcode.WRITE_FIRST: "RDMA_WRITE_FIRST",
    Opcode.WRITE_MIDDLE: "RDMA_WRITE_MIDDLE",
    Opcode.WRITE_LAST: "RDMA_WRITE_LAST",
    Opcode.WRITE_LAST_IMM: "RDMA_WRITE_LAST_WITH_IMMEDIATE",
    Opcode.WRITE_ONLY: "RDMA_WRITE_ONLY",
    Opcode.WRITE_ONLY_IMM: "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
    Opcode.ACKNOWLEDGE: "ACKNOWLEDGE",
}


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_opcodes_are_those_of_rc_in_scapy(opcode: Opcode) -> None:
    assert roce.opcode("RC", OPERATIONS[opcode])[0] == opcode


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 63, 4096])
@pytest.mark.parametrize("ack_req", [False, True])
@pytest.mark.parametrize("opcode", sorted(WRITE_OPCODES))
def test_write_equals_scapys(opcode: int, ack_req: bool, length: int) -> None:
    payload = random.Random(length).randbytes(length)
    pad = -length % 4
    rest = b""
    if opcode in FIRST_OPCODES:
        rest += VA.to_bytes(8, "big") + RKEY.to_bytes(4, "big") + DMA_LEN.to_bytes(4, "big")
    if opcode in IMM_OPCODES:
        rest += IMM.to_bytes(4, "big")
    rest += payload + bytes(pad)
    bth = roce.BTH(opcode=opcode, padcount=pad, dqpn=0x123456, ackreq=ack_req, psn=0xABCDEF)
    expected = in_scapy(bth / Raw(rest) if rest else bth, DSCP.no_trim, Ecn.ECT0)
    assert b"".join(write(opcode, payload, ack_req=ack_req)) == expected


@pytest.mark.parametrize("syndrome", list(Syndrome))
def test_ack_and_nak_equal_scapys(syndrome: Syndrome) -> None:
    frame = build_ack(ENCAP, dqpn=0x123456, psn=0x000001, syndrome=syndrome, msn=0xFFFFFE)
    bth = roce.BTH(opcode=roce.opcode("RC", "ACKNOWLEDGE")[0], dqpn=0x123456, psn=1)
    expected = in_scapy(bth / roce.AETH(syndrome=syndrome, msn=0xFFFFFE), DSCP.control, Ecn.NOT_ECT)
    assert b"".join(frame) == expected


def test_cnp_equals_scapys() -> None:
    assert b"".join(build_cnp(ENCAP, dqpn=0x654321)) == in_scapy(roce.cnp(0x654321), DSCP.control, Ecn.NOT_ECT)


def test_syndromes_are_those_of_infiniband() -> None:
    """AETH.syndrome: ACK 000 with credits invalid 11111, NAK 011 with the code."""
    assert {syndrome.name: syndrome.value for syndrome in Syndrome} == {
        "ACK": 0b000_11111,
        "NAK_PSN_SEQUENCE_ERROR": 0b011_00000,
        "NAK_INVALID_REQUEST": 0b011_00001,
        "NAK_REMOTE_ACCESS_ERROR": 0b011_00010,
        "NAK_REMOTE_OPERATIONAL_ERROR": 0b011_00011,
    }


@pytest.mark.parametrize(
    ("first", "last", "imm", "opcode"),
    [
        (True, False, False, Opcode.WRITE_FIRST),
        (True, False, True, Opcode.WRITE_FIRST),
        (False, False, True, Opcode.WRITE_MIDDLE),
        (False, True, False, Opcode.WRITE_LAST),
        (False, True, True, Opcode.WRITE_LAST_IMM),
        (True, True, False, Opcode.WRITE_ONLY),
        (True, True, True, Opcode.WRITE_ONLY_IMM),
    ],
)
def test_the_opcode_says_where_a_packet_stands(first: bool, last: bool, imm: bool, opcode: Opcode) -> None:
    assert write_opcode(first, last, imm) == opcode


@pytest.mark.parametrize("split", [0, 10, 54, 62, 70, 74, 80, 90, 94, 100, 1000])
@pytest.mark.parametrize("opcode", sorted(WRITE_OPCODES))
def test_parse_takes_what_was_built_wherever_the_pieces_meet(opcode: int, split: int) -> None:
    payload = bytes(range(61))
    whole = b"".join(write(opcode, payload, ack_req=True))
    packet = parse((whole[:split], whole[split:]))
    reth = (VA, RKEY, DMA_LEN) if opcode in FIRST_OPCODES else (0, 0, 0)
    assert packet == Packet(
        eth_dst=ETH_DST,
        ecn=Ecn.ECT0,
        src=SRC,
        dst=DST,
        udp_sport=UDP_SPORT,
        opcode=opcode,
        dqpn=0x123456,
        ack_req=True,
        psn=0xABCDEF,
        va=reth[0],
        rkey=reth[1],
        dma_len=reth[2],
        imm=IMM if opcode in IMM_OPCODES else 0,
        payload=payload,
    )


def test_parse_takes_acknowledgements_and_cnps() -> None:
    ack = parse(build_ack(ENCAP, dqpn=5, psn=6, syndrome=0x1F, msn=7))
    assert (ack.opcode, ack.dqpn, ack.psn, ack.syndrome, ack.msn) == (Opcode.ACKNOWLEDGE, 5, 6, 0x1F, 7)
    cnp = parse(build_cnp(ENCAP, dqpn=8))
    assert (cnp.opcode, cnp.dqpn) == (Opcode.CNP, 8)


def test_parse_ignores_ethernet_padding() -> None:
    head, tail = write(Opcode.WRITE_MIDDLE, b"")
    assert parse((head, tail + bytes(20))).payload == b""


def changed(frame: Frame, at: int, value: int, size: int = 1) -> Frame:
    whole = bytearray(b"".join(frame))
    whole[at : at + size] = value.to_bytes(size, "big")
    return bytes(whole), b""


@pytest.mark.parametrize(
    ("at", "value", "size", "reason"),
    [
        (12, 0x0800, 2, Malformed.ETHERTYPE),
        (14, 0x45, 1, Malformed.IP_VERSION),
        (18, 0xFFFF, 2, Malformed.TRUNCATED),
        (20, 6, 1, Malformed.NEXT_HEADER),
        (56, 4971, 2, Malformed.UDP_PORT),
        (58, 80, 2, Malformed.LENGTH),
        (62, 0x04, 1, Malformed.OPCODE),
        (62, Opcode.ACKNOWLEDGE, 1, Malformed.LENGTH),
        (63, 0x01, 1, Malformed.TVER),
        (66, 0xFF, 1, None),  # FECN, BECN and reserved bits may change on the way
        (67, 0x12, 1, None),
        (67, 0x13, 1, Malformed.ICRC),
        (80, 0x00, 1, Malformed.ICRC),
    ],
)
def test_malformed(at: int, value: int, size: int, reason: Malformed | None) -> None:
    frame = changed(write(Opcode.WRITE_ONLY), at, value, size)
    if reason is None:
        parse(frame)
        return
    with pytest.raises(MalformedError) as error:
        parse(frame)
    assert error.value.reason == reason


def test_every_truncation_is_told() -> None:
    for frame in (write(Opcode.WRITE_ONLY_IMM), build_ack(ENCAP, dqpn=1, psn=1, syndrome=0x1F, msn=1)):
        whole = b"".join(frame)
        for length in range(len(whole)):
            with pytest.raises(MalformedError) as error:
                parse((whole[:length], b""))
            assert error.value.reason == Malformed.TRUNCATED


def test_another_udp_port_is_a_setting() -> None:
    wire = Wire(udp_port=5000)
    with pytest.raises(MalformedError):
        parse(write(Opcode.WRITE_ONLY), wire)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(head: bytes, tail: bytes) -> None:
    with pytest.raises(MalformedError):
        parse((head, tail))


@given(st.sampled_from([*sorted(WRITE_OPCODES), Opcode.ACKNOWLEDGE, Opcode.CNP]), st.data())
def test_a_flipped_bit_is_told_or_means_nothing(opcode: int, data: Any) -> None:
    if opcode in WRITE_OPCODES:
        frame = write(opcode)
    elif opcode == Opcode.ACKNOWLEDGE:
        frame = build_ack(ENCAP, dqpn=1, psn=1, syndrome=0x1F, msn=1)
    else:
        frame = build_cnp(ENCAP, dqpn=1)
    whole = bytearray(b"".join(frame))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit >> 3] ^= 0x80 >> (bit & 7)
    original = parse(frame)
    try:
        packet = parse((bytes(whole), b""))
    except MalformedError:
        return
    # Only Ethernet, ECN and what the ICRC leaves out may differ.
    packet.eth_dst, packet.ecn = original.eth_dst, original.ecn
    assert packet == original
