"""Whole packets: built and parsed back, against scapy, trimmed, truncated, corrupted."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib import roce
from scapy.layers import inet, inet6, l2
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from nic_model.headers import (
    AETH,
    BTH,
    EETH,
    ERTH,
    EXTENSIONS,
    METH,
    NETH,
    PETH,
    RETH,
    SETH,
    TSETH,
    UDP,
    WRITE_IMM_OPCODES,
    WRITE_OPCODES,
    CCState,
    DscpPlan,
    Ecn,
    EndpointOp,
    Ethernet,
    ImmDt,
    IPv6,
    NackReason,
    Opcode,
)
from nic_model.icrc import icrc
from nic_model.layout import Header
from nic_model.packet import (
    Encap,
    Frame,
    Malformed,
    MalformedError,
    Wire,
    build_control,
    build_data,
    nominal_data_size,
    parse,
)

ETH_DST, ETH_SRC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
OUTER_SRC, OUTER_DST = bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fcbbbbbb0001000200030000" + "00" * 4)
INNER_SRC, INNER_DST = bytes.fromhex("fd00" + "00" * 13 + "02"), bytes.fromhex("fd00" + "00" * 13 + "03")
EV = 0x8123_4567
DSCP = DscpPlan()
SRV6 = Encap(
    eth_dst=ETH_DST,
    eth_src=ETH_SRC,
    outer_src=OUTER_SRC,
    outer_dst=OUTER_DST,
    inner_src=INNER_SRC,
    inner_dst=INNER_DST,
    ev=EV,
)
ECMP = Encap(
    eth_dst=ETH_DST, eth_src=ETH_SRC, outer_src=None, outer_dst=None, inner_src=INNER_SRC, inner_dst=INNER_DST, ev=EV
)
MODES = pytest.mark.parametrize("encap", [SRV6, ECMP], ids=["srv6", "ecmp"])

FIELDS: dict[str, Any] = {
    "opcode": Opcode.WRITE_MIDDLE,
    "dqpn": 0x123456,
    "psn": 0xABCDEF,
    "ack_req": True,
    "rtx": False,
    "msn": 0x0304,
    "rqmsn": 0x0102,
    "va": 0x0123456789ABCDEF,
    "rkey": 0xCAFEF00D,
    "dma_len": 0x00100000,
    "payload": bytes(range(64)),
    "tseth": (0xBEEF, 1),
    "imm": None,
    "dscp": DSCP.trimmable,
    "ecn": Ecn.ECT0,
}


def data(encap: Encap = SRV6, **changed: Any) -> Frame:
    return build_data(encap, **(FIELDS | changed))


EXTENSION_HEADERS: dict[Opcode, tuple[Header, ...]] = {
    Opcode.TRANSPORT_ACK: (AETH(syndrome=0x1F, msn=7),),
    Opcode.ENDPOINT_REQUEST: (ERTH(op=EndpointOp.PORT_STATUS_UPDATE, port_status_mask=0b1101, tx_timestamp=9),),
    Opcode.ENDPOINT_RESPONSE: (EETH(op=EndpointOp.EV_PROBE, tx_timestamp=9),),
    Opcode.SACK: (
        SETH(ack_psn_offset=-3, entropy=EV, spdcid=1, dpdcid=2, cack_psn=0xABCDEE, sack_offset=1, sack_bitmap=1 << 63),
        CCState(tx_timestamp=9, ooo_count=2, rcvd_bytes=17),
    ),
    Opcode.NACK: (NETH(reason=NackReason.TRIMMED, entropy=EV, spdcid=1, dpdcid=2, nack_psn=0xABCDEF, tx_timestamp=9),),
    Opcode.RELIABILITY_PROBE: (PETH(probe_id=5, spdcid=1, dpdcid=2, tx_timestamp=9),),
}


def control(opcode: Opcode, encap: Encap = SRV6, **changed: Any) -> Frame:
    extension = b"".join(header.pack() for header in EXTENSION_HEADERS[opcode])
    fields: dict[str, Any] = {"dqpn": 2, "psn": 5, "extension": extension}
    return build_control(encap, opcode=opcode, **(fields | changed))


def whole(frame: Frame) -> bytes:
    return frame[0] + frame[1]


def reason(frame: Frame | bytes, wire: Wire | None = None) -> Malformed:
    """Why a frame is refused."""
    with pytest.raises(MalformedError) as refused:
        parse((frame, b"") if isinstance(frame, bytes) else frame, wire or Wire())
    return refused.value.reason


# ---- exact bytes ------------------------------------------------------------------------------------------

DATA_BY_HAND = bytes.fromhex(
    "020000000001 020000000002 86dd"  # Ethernet
    "6 12 04567 0064 29 40"  # outer IPv6: DSCP 4 and ECT(0), the EV's low half, next header 41
    "fd000000000000000000000000000001 fcbbbbbb000100020003000000000000"
    "6 12 04567 003c 11 40"  # inner IPv6: 8 + 12 + 4 + 4 + 16 + 4 + 8 + 4 bytes
    "fd000000000000000000000000000002 fd000000000000000000000000000003"
    "8123 12b7 003c 0000"  # UDP: the EV's high half, 4791
    "cb 30 ffff 00 123456 b0 abcdef"  # BTH: pad 3; AckReq, rtx, ts
    "0102 0304"  # METH
    "beef 8001"  # TSETH
    "0123456789abcdef cafef00d 00000005"  # RETH
    "deadbeef"  # ImmDt
    "68656c6c6f 000000".replace(" ", "")  # payload and pad
)


def test_a_data_packet_byte_for_byte() -> None:
    head, tail = data(opcode=Opcode.WRITE_ONLY_IMM, payload=b"hello", imm=0xDEADBEEF, dma_len=5, rtx=True)
    assert (head + tail)[:-4] == DATA_BY_HAND
    assert tail[:-4] == b"hello\0\0\0"
    assert tail[-4:] == icrc(DATA_BY_HAND[54:])


def test_a_control_packet_byte_for_byte() -> None:
    body = bytes.fromhex(
        "020000000001 020000000002 86dd"
        "6 b8 04567 001c 11 40"  # DSCP 46, not ECN-capable
        "fd000000000000000000000000000002 fd000000000000000000000000000003"
        "8123 12b7 001c 0000"
        "d1 00 ffff 00 000002 00 000005"
        "1f 000007".replace(" ", "")
    )
    assert control(Opcode.TRANSPORT_ACK, ECMP) == (body + icrc(body[14:]), b"")


def test_the_sizes_of_a_full_packet() -> None:
    # OCP MRC: 14+40+40+8+12+4+4+16+4 bytes round 4096.
    head, tail = data(payload=bytes(4096))
    assert (len(head), len(tail)) == (14 + 40 + 40 + 8 + 12 + 4 + 4 + 16, 4096 + 4)
    packet = parse((head, tail))
    assert (
        packet.envelope.nominal_size == nominal_data_size(4096, ts=True, imm=False) == 12 + 4 + 4 + 16 + 4096 + 4 + 40
    )


def by_scapy(encap: Encap, dscp: int, ecn: int, bth: ScapyPacket, rest: bytes) -> bytes:
    tc, fl = dscp << 2 | ecn, EV & 0xFFFF
    inner = inet6.IPv6(src="fd00::2", dst="fd00::3", tc=tc, fl=fl, hlim=64)
    packet = inner / inet.UDP(sport=EV >> 16, dport=4791, chksum=0) / bth / Raw(rest)
    if encap is SRV6:
        packet = inet6.IPv6(src="fd00::1", dst="fcbb:bbbb:1:2:3::", tc=tc, fl=fl, hlim=64) / packet
    return bytes(l2.Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02") / packet)


@MODES
@pytest.mark.parametrize("opcode", sorted(WRITE_OPCODES))
@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(255))])
def test_a_data_packet_is_scapys(encap: Encap, opcode: Opcode, payload: bytes) -> None:
    imm = 0xDEADBEEF if opcode in WRITE_IMM_OPCODES else None
    pad = -len(payload) % 4
    bth = roce.BTH(opcode=opcode, padcount=pad, dqpn=0x123456, ackreq=1, resv7=0b0010000, psn=0xABCDEF)
    rest = METH(rqmsn=0x0102, msn=0x0304).pack() + TSETH(tx_timestamp=0xBEEF, tsr=1).pack()
    rest += RETH(va=FIELDS["va"], rkey=FIELDS["rkey"], dma_len=FIELDS["dma_len"]).pack()
    rest += (b"" if imm is None else ImmDt(imm=imm).pack()) + payload + bytes(pad)
    ours = whole(data(encap, opcode=opcode, payload=payload, imm=imm))
    assert ours == by_scapy(encap, DSCP.trimmable, Ecn.ECT0, bth, rest)


@MODES
@pytest.mark.parametrize("opcode", EXTENSION_HEADERS)
def test_a_control_packet_is_scapys(encap: Encap, opcode: Opcode) -> None:
    bth = roce.BTH(opcode=opcode, dqpn=2, psn=5)
    rest = b"".join(header.pack() for header in EXTENSION_HEADERS[opcode])
    assert whole(control(opcode, encap)) == by_scapy(encap, DSCP.control, Ecn.NOT_ECT, bth, rest)


# ---- round trips ------------------------------------------------------------------------------------------


def uint(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


ADDRESS = st.binary(min_size=16, max_size=16)
MAC = st.binary(min_size=6, max_size=6)
ENCAP = st.builds(
    lambda outer, **rest: Encap(outer_src=outer[0], outer_dst=outer[1], **rest),
    st.one_of(st.just((None, None)), st.tuples(ADDRESS, ADDRESS)),
    eth_dst=MAC,
    eth_src=MAC,
    inner_src=ADDRESS,
    inner_dst=ADDRESS,
    ev=uint(32),
    wire=st.builds(Wire, udp_port=st.sampled_from([4791, 4971]), hop_limit=uint(8), pkey=uint(16)),
)
DATA_FIELDS = st.fixed_dictionaries(
    {
        "dqpn": uint(24),
        "psn": uint(24),
        "ack_req": st.booleans(),
        "rtx": st.booleans(),
        "msn": uint(16),
        "rqmsn": uint(16),
        "va": uint(64),
        "rkey": uint(32),
        "dma_len": uint(32),
        "payload": st.binary(max_size=300),
        "tseth": st.one_of(st.none(), st.tuples(uint(16), uint(1))),
        "dscp": st.sampled_from([DSCP.no_trim, DSCP.trimmable, DSCP.trimmable_retx]),
        "ecn": st.sampled_from(Ecn),
    }
)


@given(
    encap=ENCAP,
    fields=DATA_FIELDS,
    opcode=st.sampled_from(sorted(WRITE_OPCODES)),
    imm=uint(32),
    view=st.booleans(),
)
def test_a_data_packet_comes_back(encap: Encap, fields: dict[str, Any], opcode: Opcode, imm: int, view: bool) -> None:
    with_imm = imm if opcode in WRITE_IMM_OPCODES else None
    payload = fields["payload"]
    given_payload = memoryview(payload) if view else payload
    frame = build_data(encap, opcode=opcode, imm=with_imm, **(fields | {"payload": given_payload}))
    assert len(whole(frame)) % 4 == 2  # Ethernet's 14 bytes, then words
    packet = parse(frame, encap.wire)
    tseth = fields.pop("tseth")
    for name, value in fields.items():
        assert getattr(packet.envelope if name in ("dscp", "ecn") else packet, name) == value, name
    assert (packet.opcode, packet.imm, packet.envelope.ev) == (opcode, with_imm, encap.ev)
    assert (packet.ts, packet.tx_timestamp, packet.tsr) == ((True, *tseth) if tseth else (False, 0, 0))
    assert (packet.payload_len, packet.pad) == (len(payload), -len(payload) % 4)
    assert (packet.envelope.eth_dst, packet.envelope.outer_dst, packet.envelope.src, packet.envelope.dst) == (
        encap.eth_dst,
        encap.outer_dst,
        encap.inner_src,
        encap.inner_dst,
    )
    assert (packet.envelope.outer, packet.envelope.udp_dport) == (encap.outer_dst is not None, encap.wire.udp_port)
    assert (packet.envelope.trimmed, packet.envelope.lasthop, packet.envelope.cut, packet.ext) == (
        False,
        False,
        False,
        (),
    )
    assert packet.envelope.nominal_size == nominal_data_size(
        len(payload), ts=tseth is not None, imm=with_imm is not None
    )


@given(encap=ENCAP, opcode=st.sampled_from(list(EXTENSION_HEADERS)), flags=st.tuples(st.booleans(), st.booleans()))
def test_a_control_packet_comes_back(encap: Encap, opcode: Opcode, flags: tuple[bool, bool]) -> None:
    frame = control(opcode, encap, ack_req=flags[0], rtx=flags[1])
    packet = parse(frame, encap.wire)
    assert packet.ext == EXTENSION_HEADERS[opcode]
    assert (packet.opcode, packet.dqpn, packet.psn, packet.envelope.ev) == (opcode, 2, 5, encap.ev)
    assert (packet.ack_req, packet.rtx, packet.ts) == (*flags, False)
    assert (packet.envelope.dscp, packet.envelope.ecn, packet.payload) == (DSCP.control, Ecn.NOT_ECT, b"")


def test_a_control_packets_headers_by_name() -> None:
    sack = parse(control(Opcode.SACK))
    assert (sack.sack, sack.cc) == EXTENSION_HEADERS[Opcode.SACK]
    assert (parse(control(Opcode.NACK)).nack,) == EXTENSION_HEADERS[Opcode.NACK]
    assert (parse(control(Opcode.RELIABILITY_PROBE)).probe,) == EXTENSION_HEADERS[Opcode.RELIABILITY_PROBE]
    assert (parse(control(Opcode.TRANSPORT_ACK)).aeth,) == EXTENSION_HEADERS[Opcode.TRANSPORT_ACK]
    for opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE):
        assert (parse(control(opcode)).endpoint,) == EXTENSION_HEADERS[opcode]
    with pytest.raises(AttributeError, match="a packet of opcode 0xdc has no NETH"):
        _ = sack.nack


def test_every_control_opcode_is_covered() -> None:
    assert set(EXTENSION_HEADERS) == set(EXTENSIONS)
    assert WRITE_OPCODES | set(EXTENSIONS) == set(Opcode)


def test_a_path_serves_any_mixture_of_lengths() -> None:
    for length in [*range(40), *range(40)]:
        payload = bytes(range(length))
        assert parse(data(payload=payload)).payload == payload
        assert parse(control(Opcode.NACK)).ext == EXTENSION_HEADERS[Opcode.NACK]


@pytest.mark.parametrize(
    "frame", [data(), data(ECMP, payload=b"odd"), control(Opcode.SACK)], ids=["srv6", "ecmp", "sack"]
)
def test_head_and_tail_meet_anywhere(frame: Frame) -> None:
    packet, frame_bytes = parse(frame), whole(frame)
    for at in range(len(frame_bytes) + 1):
        assert parse((frame_bytes[:at], frame_bytes[at:])) == packet


@pytest.mark.parametrize(
    "frame", [data(), data(ECMP, payload=b"odd"), control(Opcode.SACK)], ids=["srv6", "ecmp", "sack"]
)
def test_ethernet_padding_is_no_part_of_the_packet(frame: Frame) -> None:
    packet = parse(frame)
    for padding in (b"\0", bytes(46), b"\xff" * 7):
        assert parse((frame[0], frame[1] + padding)) == packet
        assert parse((whole(frame) + padding, b"")) == packet
        assert parse((whole(frame), padding)) == packet


# ---- what a network changes -------------------------------------------------------------------------------


class Rewrite(NamedTuple):
    """A switch's rewrite of the outermost IPv6 header: the frame cut to `length` bytes, DSCP and ECN."""

    length: int
    dscp: int
    ecn: int = Ecn.ECT0

    def __call__(self, frame: Frame) -> Frame:
        kept = whole(frame)[: self.length]
        ip = IPv6.unpack(kept, Ethernet.SIZE)
        ip.dscp, ip.ecn, ip.payload_len = self.dscp, self.ecn, len(kept) - Ethernet.SIZE - IPv6.SIZE
        ip.hop_limit -= 3
        return kept[: Ethernet.SIZE] + ip.pack() + kept[Ethernet.SIZE + IPv6.SIZE :], b""


def test_ce_is_taken_from_the_outermost_header() -> None:
    assert parse(Rewrite(9999, DSCP.trimmable, Ecn.CE)(data())).envelope.ecn == Ecn.CE
    assert parse(Rewrite(9999, DSCP.trimmable, Ecn.CE)(data(ECMP))).envelope.ecn == Ecn.CE


@pytest.mark.parametrize(("encap", "smallest"), [(SRV6, 128), (ECMP, 82)], ids=["srv6", "ecmp"])
@pytest.mark.parametrize(("dscp", "lasthop"), [(DSCP.trimmed, False), (DSCP.trimmed_lasthop, True)])
def test_a_cut_packet(encap: Encap, smallest: int, dscp: int, lasthop: bool) -> None:
    frame = data(encap, payload=bytes(4096))
    for length in (smallest, smallest + 1, 256, len(whole(frame)) - 1):
        packet = parse(Rewrite(length, dscp)(frame))
        assert (packet.envelope.trimmed, packet.envelope.lasthop, packet.envelope.cut) == (True, lasthop, True)
        assert (packet.dqpn, packet.psn, packet.msn, packet.rqmsn) == (0x123456, 0xABCDEF, 0x0304, 0x0102)
        assert (packet.tx_timestamp, packet.tsr, packet.envelope.ev) == (0xBEEF, 1, EV)
        assert (packet.va, packet.rkey, packet.dma_len, packet.imm, packet.payload) == (0, 0, 0, None, b"")
        assert (packet.payload_len, packet.envelope.nominal_size) == (4096, nominal_data_size(4096, ts=True, imm=False))


def test_a_cut_packet_without_timestamp() -> None:
    packet = parse(Rewrite(128, DSCP.trimmed)(data(opcode=Opcode.WRITE_LAST_IMM, imm=7, tseth=None)))
    assert (packet.envelope.cut, packet.ts, packet.tx_timestamp, packet.imm, packet.payload_len) == (
        True,
        False,
        0,
        None,
        64,
    )


@MODES
def test_a_cut_packet_must_reach_the_end_of_tseth(encap: Encap) -> None:
    frame = data(encap)
    end = len(frame[0]) - RETH.SIZE
    assert parse(Rewrite(end, DSCP.trimmed)(frame)).envelope.cut
    for length in range(Ethernet.SIZE + IPv6.SIZE, end):
        assert reason(Rewrite(length, DSCP.trimmed)(frame)) == Malformed.TRUNCATED


def test_padding_is_not_taken_for_a_cut_packets_headers() -> None:
    cut = Rewrite(120, DSCP.trimmed)(data())
    assert reason((cut[0], bytes(20))) == Malformed.TRUNCATED


@MODES
def test_a_trimmed_packet_that_is_whole_is_data(encap: Encap) -> None:
    frame = Rewrite(9999, DSCP.trimmed)(data(encap))
    packet = parse(frame)
    assert (packet.envelope.trimmed, packet.envelope.cut, packet.payload) == (True, False, FIELDS["payload"])
    corrupted = frame[0][:-9] + b"\xee" + frame[0][-8:]
    assert reason(corrupted) == Malformed.ICRC


def test_a_cut_packet_needs_the_trimmed_dscp() -> None:
    assert reason(Rewrite(128, DSCP.trimmable)(data())) == Malformed.LENGTH
    plan = Wire(dscp=DscpPlan(trimmed=5))
    assert reason(Rewrite(128, DSCP.trimmed)(data()), plan) == Malformed.LENGTH
    assert parse(Rewrite(128, 5)(data()), plan).envelope.cut


def test_control_is_never_cut() -> None:
    assert reason(Rewrite(128, DSCP.trimmed)(control(Opcode.SACK))) == Malformed.LENGTH


# ---- what is refused --------------------------------------------------------------------------------------


def edited(frame: Frame, kind: type[Header], at: int, **values: int) -> bytes:
    """The frame with fields of the header at `at` changed and the ICRC made right again."""
    frame_bytes = whole(frame)
    header = kind.unpack(frame_bytes, at)
    for name, value in values.items():
        setattr(header, name, value)
    body = frame_bytes[:at] + header.pack() + frame_bytes[at + kind.SIZE : -4]
    return body + icrc(body[54:])


OUTER_AT, INNER_AT, UDP_AT, BTH_AT = 14, 54, 94, 102


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (edited(data(), Ethernet, 0, ethertype=0x0800), Malformed.ETHERTYPE),
        (edited(data(), IPv6, OUTER_AT, version=4), Malformed.IP_VERSION),
        (edited(data(), IPv6, INNER_AT, version=4), Malformed.IP_VERSION),
        (edited(data(), IPv6, OUTER_AT, next_hdr=43), Malformed.NEXT_HEADER),
        (edited(data(), IPv6, INNER_AT, next_hdr=6), Malformed.NEXT_HEADER),
        (edited(data(), IPv6, INNER_AT, next_hdr=41), Malformed.NEXT_HEADER),
        (edited(data(), IPv6, OUTER_AT, payload_len=153), Malformed.TRUNCATED),
        (edited(data(), IPv6, OUTER_AT, payload_len=151), Malformed.LENGTH),
        (edited(data(), IPv6, OUTER_AT, payload_len=30), Malformed.TRUNCATED),
        (edited(data(), IPv6, INNER_AT, payload_len=113), Malformed.LENGTH),
        (edited(data(), UDP, UDP_AT, length=113), Malformed.LENGTH),
        (edited(data(), UDP, UDP_AT, length=111), Malformed.LENGTH),
        (edited(data(), UDP, UDP_AT, dst_port=4790), Malformed.UDP_PORT),
        (edited(data(), BTH, BTH_AT, tver=1), Malformed.TVER),
        (edited(data(), BTH, BTH_AT, opcode=0x0A), Malformed.OPCODE),
        (edited(data(), BTH, BTH_AT, opcode=0xD0), Malformed.OPCODE),
        (edited(data(payload=b""), BTH, BTH_AT, pad=1), Malformed.LENGTH),
        (edited(data(payload=b""), BTH, BTH_AT, opcode=Opcode.WRITE_LAST_IMM), Malformed.LENGTH),
        (edited(control(Opcode.SACK), BTH, BTH_AT, opcode=Opcode.NACK), Malformed.LENGTH),
        (edited(control(Opcode.NACK), BTH, BTH_AT, opcode=Opcode.WRITE_ONLY, ts=1), Malformed.LENGTH),
        (whole(data())[:-1] + bytes([whole(data())[-1] ^ 1]), Malformed.ICRC),
        (whole(control(Opcode.SACK))[:-1] + b"?", Malformed.ICRC),
        (b"", Malformed.TRUNCATED),
    ],
)
def test_the_reason_of_a_refusal(frame: bytes, expected: Malformed) -> None:
    assert reason(frame) == expected


def test_a_length_that_is_no_multiple_of_a_word_is_refused() -> None:
    body = whole(data())[:-4] + b"!"
    for kind, at, name in ((IPv6, OUTER_AT, "payload_len"), (IPv6, INNER_AT, "payload_len"), (UDP, UDP_AT, "length")):
        header = kind.unpack(body, at)
        setattr(header, name, getattr(header, name) + 1)
        body = body[:at] + header.pack() + body[at + kind.SIZE :]
    assert reason(body + icrc(body[INNER_AT:])) == Malformed.LENGTH


def test_a_refusal_says_what_was_found() -> None:
    with pytest.raises(MalformedError, match=r"^UDP\.dst_port: 4790$"):
        parse((edited(data(), UDP, UDP_AT, dst_port=4790), b""))


def test_both_udp_ports_are_accepted_and_a_third_where_set() -> None:
    for port in (4791, 4971):
        assert parse((edited(data(), UDP, UDP_AT, dst_port=port), b"")).envelope.udp_dport == port
    other = edited(data(), UDP, UDP_AT, dst_port=5000)
    assert reason(other) == Malformed.UDP_PORT
    assert parse((other, b""), Wire(udp_port=5000)).envelope.udp_dport == 5000


def test_reserved_bits_are_ignored() -> None:
    frame = edited(data(), BTH, BTH_AT, se=1, m=1, res0=0xFF, r=1, res1=0xF)
    assert parse((frame, b"")).payload == FIELDS["payload"]


FRAMES = {
    "srv6": data(payload=b"odd length."),
    "ecmp": data(ECMP),
    "imm": data(opcode=Opcode.WRITE_LAST_IMM, imm=1, tseth=None),
    **{opcode.name: control(opcode) for opcode in EXTENSION_HEADERS},
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_truncation_is_refused(frame: Frame) -> None:
    frame_bytes = whole(frame)
    for length in range(len(frame_bytes)):
        assert reason(frame_bytes[:length]) == Malformed.TRUNCATED
        assert reason((frame_bytes[: length // 2], frame_bytes[length // 2 : length])) == Malformed.TRUNCATED


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_every_flipped_bit_that_the_icrc_covers_is_caught(frame: Frame) -> None:
    head = frame[0]
    frame_bytes = whole(frame)
    inner_at = OUTER_AT if frame is FRAMES["ecmp"] else INNER_AT
    bits = len(frame_bytes) * 8
    for bit in range(bits):
        flipped = (int.from_bytes(frame_bytes, "big") ^ 1 << bits - 1 - bit).to_bytes(len(frame_bytes), "big")
        corrupted = flipped[: len(head)], flipped[len(head) :]
        if bit < inner_at * 8 or may_change(bit - inner_at * 8):
            try:
                assert parse(corrupted).psn == parse(frame).psn
            except MalformedError as refused:
                assert refused.reason != Malformed.ICRC
        else:
            reason(corrupted)


def may_change(bit: int) -> bool:
    """InfiniBand annex A17: traffic class and flow label, hop limit, UDP checksum, BTH byte 4."""
    return 4 <= bit < 32 or 56 <= bit < 64 or 46 * 8 <= bit < 48 * 8 or 52 * 8 <= bit < 53 * 8


@given(head=st.binary(max_size=200), tail=st.binary(max_size=50))
def test_no_bytes_raise_anything_else(head: bytes, tail: bytes) -> None:
    reason((head, tail))


@given(
    frame=st.sampled_from(list(FRAMES.values())),
    edits=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=4)), max_size=6),
    cut=st.integers(0, 250),
    split=st.integers(0, 250),
)
def test_no_edit_of_a_frame_raises_anything_else(
    frame: Frame, edits: list[tuple[int, bytes]], cut: int, split: int
) -> None:
    edited_bytes = bytearray(whole(frame))
    for at, replacement in edits:
        edited_bytes[at : at + len(replacement)] = replacement
    kept = bytes(edited_bytes[:cut])
    try:
        packet = parse((kept[:split], kept[split:]))
    except MalformedError:
        return
    assert packet.opcode in Opcode.__members__.values()


# ---- what is not built ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"psn": 1 << 24}, r"^BTH\.psn: 16777216 is not in 0\.\.16777215$"),
        ({"dqpn": -1}, r"^BTH\.dqpn: -1 "),
        ({"va": 1 << 64}, r"^RETH\.va: "),
        ({"tseth": (1 << 16, 0)}, r"^TSETH\.tx_timestamp: 65536 "),
        ({"tseth": None, "msn": 1 << 16}, r"^METH\.msn: 65536 "),
        ({"dscp": 64}, r"^IPv6\.dscp: 64 "),
        ({"ecn": 4}, r"^IPv6\.ecn: 4 "),
        ({"imm": 1}, r"^BTH\.opcode: 0xc7 in a data packet with immediate 1$"),
        ({"opcode": Opcode.WRITE_ONLY_IMM}, r"^BTH\.opcode: 0xcb in a data packet with immediate None$"),
        ({"opcode": Opcode.WRITE_ONLY_IMM, "imm": 1 << 32}, r"^ImmDt\.imm: "),
        ({"opcode": Opcode.SACK}, r"^BTH\.opcode: 0xdc in a data packet"),
        ({"payload": bytes(1 << 16)}, r"^IPv6\.payload_len: "),
    ],
)
def test_a_data_packet_that_cannot_be(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data(**changed)


def test_a_control_packet_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"^opcode 0xdd: not an extension of 4 bytes$"):
        control(Opcode.NACK, extension=bytes(4))
    with pytest.raises(ValueError, match=r"^opcode 0xca: not an extension of 4 bytes$"):
        build_control(SRV6, opcode=Opcode.WRITE_ONLY, dqpn=2, psn=5, extension=bytes(4))


def test_a_path_that_cannot_be() -> None:
    fields: dict[str, Any] = {
        "eth_dst": ETH_DST,
        "eth_src": ETH_SRC,
        "outer_src": OUTER_SRC,
        "outer_dst": OUTER_DST,
        "inner_src": INNER_SRC,
        "inner_dst": INNER_DST,
        "ev": EV,
    }
    with pytest.raises(ValueError, match=r"^Encap: outer_src and outer_dst go together"):
        Encap(**(fields | {"outer_src": None}))
    with pytest.raises(ValueError, match=r"^IPv6\.dst: 15 bytes, not 16$"):
        data(Encap(**(fields | {"outer_dst": OUTER_DST[:15]})))
    with pytest.raises(ValueError, match=r"^UDP\.src_port: 65536 "):
        data(Encap(**(fields | {"ev": 1 << 32})))
