"""Every header against byte strings worked out by hand from its specification's table, and against scapy."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib import roce
from scapy.layers import inet, inet6, l2

from nic_model.headers import (
    AETH,
    BTH,
    EETH,
    ERTH,
    METH,
    NETH,
    PETH,
    RETH,
    SETH,
    TSETH,
    UDP,
    CCState,
    EndpointOp,
    Ethernet,
    ImmDt,
    IPv6,
    NackReason,
    Opcode,
    SackMark,
    ev_from,
    ev_to_ports,
)
from nic_model.layout import Field, Header

SIZES: dict[type[Header], int] = {
    Ethernet: 14,
    IPv6: 40,
    UDP: 8,
    BTH: 12,
    METH: 4,
    TSETH: 4,
    RETH: 16,
    ImmDt: 4,
    SETH: 28,
    CCState: 8,
    NETH: 20,
    PETH: 16,
    ERTH: 16,
    EETH: 36,
    AETH: 4,
}

SRC = bytes.fromhex("fd00 0000 0000 0000 0000 0000 0000 0001")
DST = bytes.fromhex("fcbb bbbb 0001 0002 0003 0000 0000 0000")

BY_HAND: list[tuple[Header, str]] = [
    (
        Ethernet(dst=bytes.fromhex("020000000001"), src=bytes.fromhex("020000000002")),
        "020000000001 020000000002 86dd",
    ),
    (  # class: dscp 46 and ECT(0) = 101110 10
        IPv6(dscp=46, ecn=2, flow_label=0xABCDE, payload_len=0x1234, next_hdr=17, hop_limit=64, src=SRC, dst=DST),
        "6 ba abcde 1234 11 40" + SRC.hex() + DST.hex(),
    ),
    (UDP(src_port=0xBEEF, dst_port=4791, length=0x1028), "beef 12b7 1028 0000"),
    (  # byte 1: SE, M, pad 2, tver 4 = 0 0 11 0000; byte 8: a, R, rtx, ts, 4 reserved = 1 0 1 1 0000
        BTH(opcode=Opcode.WRITE_MIDDLE, pad=3, dqpn=0x123456, ack_req=True, rtx=True, ts=True, psn=0xABCDEF),
        "c7 30 ffff 00 123456 b0 abcdef",
    ),
    (BTH(opcode=Opcode.SACK, pkey=0x8001, dqpn=2, ack_req=True, psn=1), "dc 00 8001 00 000002 80 000001"),
    (BTH(opcode=Opcode.WRITE_LAST, dqpn=2, rtx=True, psn=1), "c8 00 ffff 00 000002 20 000001"),
    (BTH(opcode=Opcode.WRITE_ONLY, dqpn=2, ts=True, psn=1), "ca 00 ffff 00 000002 10 000001"),
    (BTH(opcode=0, se=1, tver=1, dqpn=0, r=1, psn=0), "00 81 ffff 00 000000 40 000000"),
    (METH(rqmsn=0x0102, msn=0x0304), "0102 0304"),
    (TSETH(tx_timestamp=0xBEEF), "beef 0001"),
    (TSETH(tx_timestamp=0xBEEF, tsr=1), "beef 8001"),
    (RETH(va=0x0123456789ABCDEF, rkey=0xCAFEF00D, dma_len=0x00100000), "0123456789abcdef cafef00d 00100000"),
    (ImmDt(imm=0xDEADBEEF), "deadbeef"),
    (  # bytes 0-1: type 1010, nxt 10101, m 01, r 000, pr 1, r 0
        SETH(
            type=0xA,
            nxt=0x15,
            m=SackMark.SKIP_ONCE,
            pr=True,
            ack_psn_offset=-2,
            entropy=0x12345678,
            spdcid=0x1111,
            dpdcid=0x2222,
            cack_psn=0xFFFFFE,
            cc_type=1,
            cc_fl=2,
            mpr=8,
            sack_offset=-32768,
            sack_bitmap=0x8000000000000001,
        ),
        "aaa2 fffe 12345678 1111 2222 00 fffffe 12 08 8000 8000000000000001",
    ),
    (  # m 10 alone: bit 6 of byte 1
        SETH(
            m=SackMark.ALWAYS_SKIP,
            ack_psn_offset=0x7FFF,
            entropy=0,
            spdcid=0,
            dpdcid=0,
            cack_psn=0,
            sack_offset=1,
            sack_bitmap=0,
        ),
        "0040 7fff 00000000 0000 0000 00 000000 00 00 0001 0000000000000000",
    ),
    (  # restore_cwnd 1, rcv_cwnd_pen 0000101
        CCState(tx_timestamp=0xBEEF, ooo_count=0x7FFF, restore_cwnd=True, rcv_cwnd_pen=5, rcvd_bytes=0x010203),
        "beef 7fff 85 010203",
    ),
    (  # bytes 0-1: type 0011, nxt 00001, res 0000000
        NETH(
            type=3,
            nxt=1,
            reason=NackReason.PSN_OOR_WINDOW,
            vendor=7,
            entropy=0x12345678,
            spdcid=0x1111,
            dpdcid=0x2222,
            nack_psn=0x010203,
            cc_fl=5,
            tx_timestamp=0xBEEF,
        ),
        "3080 0b 07 12345678 1111 2222 00 010203 25 00 beef",
    ),
    (  # bytes 0-1: type 0001, nh 00010, res 0000000
        PETH(type=1, nh=2, vendor=7, probe_id=0x1234, spdcid=0x1111, dpdcid=0x2222, tx_timestamp=0xBEEF, tsr=1),
        "1100 00 07 1234 0000 1111 2222 beef 8001",
    ),
    (  # bytes 0-1: type 0001, nxt 00011, res 00000, op 01
        ERTH(type=1, nxt=3, op=EndpointOp.EV_PROBE, port_status_mask=0x0000000D, tx_timestamp=0xBEEF),
        "1181 00 00 0000000d 00000000 beef 0001",
    ),
    (  # op in bits 3:2 of byte 1
        EETH(op=EndpointOp.EV_PROBE, tx_timestamp=0xBEEF),
        "0004" + 26 * "00" + "beef" + 6 * "00",
    ),
    (AETH(syndrome=0x1F, msn=0x000102), "1f 000102"),
]


@pytest.mark.parametrize(("header", "text"), BY_HAND, ids=lambda value: type(value).__name__)
def test_bytes_worked_out_by_hand(header: Header, text: str) -> None:
    wire = bytes.fromhex(text.replace(" ", ""))
    assert header.pack() == wire
    assert type(header).unpack(wire) == header


@pytest.mark.parametrize("kind", SIZES)
def test_size(kind: type[Header]) -> None:
    assert SIZES[kind] == kind.SIZE


def any_value(row: Field) -> st.SearchStrategy[Any]:
    if row.type is bytes:
        return st.binary(min_size=row.width // 8, max_size=row.width // 8)
    if row.type is bool:
        return st.booleans()
    low = -1 << row.width - 1 if row.signed else 0
    return st.integers(low, low + (1 << row.width) - 1)


ANY_HEADER = st.sampled_from(list(SIZES)).flatmap(
    lambda kind: st.builds(kind, **{row.name: any_value(row) for row in kind.LAYOUT})
)


@given(header=ANY_HEADER, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_round_trip_at_any_offset(header: Header, before: bytes, after: bytes) -> None:
    data = before + header.pack() + after
    assert type(header).unpack(data, len(before)) == header
    assert type(header).unpack(memoryview(data), len(before)) == header


@given(data=st.data())
def test_every_bit_of_every_header_is_kept(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(SIZES)))
    wire = data.draw(st.binary(min_size=kind.SIZE, max_size=kind.SIZE))
    assert kind.unpack(wire).pack() == wire


@pytest.mark.parametrize(
    ("kind", "row"),
    [(kind, row) for kind in SIZES for row in kind.LAYOUT],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_field_owns_exactly_the_bits_that_its_row_says(kind: type[Header], row: Field) -> None:
    rows = list(kind.LAYOUT)
    after = sum(other.width for other in rows[rows.index(row) + 1 :])
    mask = (1 << row.width) - 1 << after
    header = kind.unpack(mask.to_bytes(kind.SIZE, "big"))
    for other in rows:
        full: Any = (
            b"\xff" * (other.width // 8) if other.type is bytes else -1 if other.signed else (1 << other.width) - 1
        )
        empty: Any = bytes(other.width // 8) if other.type is bytes else 0
        assert getattr(header, other.name) == (full if other is row else empty)


@pytest.mark.parametrize(
    ("kind", "row"),
    [(kind, row) for kind in SIZES for row in kind.LAYOUT],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_value_out_of_range_is_refused_by_name(kind: type[Header], row: Field) -> None:
    low = -1 << row.width - 1 if row.signed else 0
    too_much: list[Any] = (
        [bytes(row.width // 8 - 1), bytes(row.width // 8 + 1)]
        if row.type is bytes
        else [low - 1, low + (1 << row.width)]
    )
    for value in too_much:
        header = kind.unpack(bytes(kind.SIZE))
        setattr(header, row.name, value)
        with pytest.raises(ValueError, match=rf"^{kind.__name__}\.{row.name}: "):
            header.pack()


@pytest.mark.parametrize("kind", SIZES)
def test_too_few_bytes_are_refused_by_name(kind: type[Header]) -> None:
    data = bytes(kind.SIZE + 2)
    for length in range(kind.SIZE):
        with pytest.raises(ValueError, match=f"^{kind.__name__}: {length} bytes, not {kind.SIZE}$"):
            kind.unpack(data[:length])
    with pytest.raises(ValueError, match=f"^{kind.__name__}: {kind.SIZE - 1} bytes, not {kind.SIZE}$"):
        kind.unpack(data, 3)


@given(ev=st.integers(0, (1 << 32) - 1))
def test_an_ev_is_striped_over_source_port_and_flow_label(ev: int) -> None:
    udp_sport, flow_label = ev_to_ports(ev)
    assert (udp_sport, flow_label) == (ev >> 16, ev & 0xFFFF)
    assert ev_from(udp_sport, flow_label) == ev


def test_the_top_bits_of_a_flow_label_are_no_part_of_an_ev() -> None:
    assert ev_from(0x1234, 0xF5678) == 0x12345678


def test_mrc_opcodes_are_a_class_of_their_own() -> None:
    assert {opcode >> 5 for opcode in Opcode} == {0b110}


# ---- scapy ------------------------------------------------------------------------------------------------


def test_ethernet_ipv6_and_udp_are_scapys() -> None:
    ethernet = Ethernet(dst=bytes.fromhex("020000000001"), src=bytes.fromhex("020000000002"))
    assert ethernet.pack() == bytes(l2.Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02", type=0x86DD))
    ip = IPv6(dscp=46, ecn=2, flow_label=0xABCDE, payload_len=8, next_hdr=17, hop_limit=64, src=SRC, dst=DST)
    udp = UDP(src_port=0xBEEF, dst_port=4791, length=8)
    scapy = inet6.IPv6(tc=0xBA, fl=0xABCDE, plen=8, hlim=64, src="fd00::1", dst="fcbb:bbbb:1:2:3::") / inet.UDP(
        sport=0xBEEF, dport=4791, len=8, chksum=0
    )
    assert ip.pack() + udp.pack() == bytes(scapy)


@given(
    opcode=st.sampled_from([0x06, 0x0A, 0x11, *Opcode]),
    pad=st.integers(0, 3),
    dqpn=st.integers(0, (1 << 24) - 1),
    ack_req=st.booleans(),
    rtx=st.booleans(),
    ts=st.booleans(),
    psn=st.integers(0, (1 << 24) - 1),
)
def test_bth_is_scapys(opcode: int, pad: int, dqpn: int, ack_req: bool, rtx: bool, ts: bool, psn: int) -> None:
    ours = BTH(opcode=opcode, pad=pad, dqpn=dqpn, ack_req=ack_req, rtx=rtx, ts=ts, psn=psn)
    # scapy knows InfiniBand's BTH: the bits after AckReq are one reserved field.
    scapy = roce.BTH(opcode=opcode, padcount=pad, dqpn=dqpn, ackreq=ack_req, resv7=rtx << 5 | ts << 4, psn=psn, icrc=0)
    assert ours.pack() == bytes(scapy)[: BTH.SIZE]


def test_aeth_is_scapys() -> None:
    assert AETH(syndrome=0x1F, msn=0x010203).pack() == bytes(roce.AETH(syndrome=0x1F, msn=0x010203))
