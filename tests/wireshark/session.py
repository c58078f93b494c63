"""A short session with a packet of every kind, as the receiving NIC's ports see it: docs/wireshark/sample.pcap.

nic0 (row 0) writes to nic4 (row 1) over four planes of eight uplinks. A packet is trimmed, another ECN-marked; a
probe, port states and an EV probe are exchanged; a write is refused. To write the file again:

    python -m tests.wireshark.session docs/wireshark/sample.pcap
"""

import sys
from collections.abc import Iterator
from ipaddress import IPv6Address
from pathlib import Path

from nic_model.headers import (
    AETH,
    EETH,
    ENDPOINT_DQPN,
    ERTH,
    NETH,
    PETH,
    SETH,
    CCState,
    DscpPlan,
    Ecn,
    EndpointOp,
    NackReason,
    Opcode,
    SackMark,
)
from nic_model.layout import Header
from nic_model.packet import Encap, build_control, build_data
from nic_model.paths import UsidKind, srv6_ev, usid
from tests.wireshark.frames import forwarded, trimmed, whole
from tests.wireshark.tshark import write_capture

_DSCP = DscpPlan()
_NIC0, _NIC4 = (IPv6Address(text).packed for text in ("fd00:6d72:6300::", "fd00:6d72:6300:1::"))
_NIC0_QPN, _NIC4_QPN = 0x11, 0x24
_HOPS, _TRIM_SIZE = 3, 128
_FIRST_PSN = 100
_PAYLOAD = bytes(range(256))
_VA, _RKEY = 0x7F00_0000_0000, 0x1234_5678
_ACK, _NAK_REMOTE_ACCESS = 0x1F, 0x62
_BLOCK = bytes.fromhex("fcbbbbbb")
_PORT_MAC, _SWITCH_MAC = bytes.fromhex("020000000400"), bytes.fromhex("020000010001")


def _to_nic4(plane: int, uplink: int) -> Encap:
    """A path at its end: of the uSID list the NIC's own is left."""
    outer_dst = _usids(usid(UsidKind.NIC, plane, 0))
    return Encap(
        eth_dst=_PORT_MAC,
        eth_src=_SWITCH_MAC,
        outer_src=_NIC0,
        outer_dst=outer_dst,
        inner_src=_NIC0,
        inner_dst=_NIC4,
        ev=srv6_ev(plane, uplink),
    )


def _to_nic0(plane: int, uplink: int) -> Encap:
    """A path at its beginning: T0 of row 1, T1, T0 of row 0, NIC."""
    outer_dst = _usids(
        usid(UsidKind.T0, plane, 1),
        usid(UsidKind.T1, plane, uplink),
        usid(UsidKind.T0, plane, 0),
        usid(UsidKind.NIC, plane, 0),
    )
    return Encap(
        eth_dst=_SWITCH_MAC,
        eth_src=_PORT_MAC,
        outer_src=_NIC4,
        outer_dst=outer_dst,
        inner_src=_NIC4,
        inner_dst=_NIC0,
        ev=srv6_ev(plane, uplink),
    )


def _usids(*values: int) -> bytes:
    return (_BLOCK + b"".join(value.to_bytes(2) for value in values)).ljust(16, b"\0")


def _write(
    path: Encap,
    opcode: Opcode,
    psn: int,
    *,
    msn: int,
    packets: int,
    index: int = 0,
    rtx: bool = False,
    rqmsn: int = 0,
    imm: int | None = None,
) -> bytes:
    """Packet `index` of a message of `packets` packets, as it arrives."""
    frame = build_data(
        path,
        opcode=opcode,
        dqpn=_NIC4_QPN,
        psn=psn,
        ack_req=index == packets - 1,
        rtx=rtx,
        msn=msn,
        rqmsn=rqmsn,
        va=_VA + index * len(_PAYLOAD),
        rkey=_RKEY,
        dma_len=packets * len(_PAYLOAD),
        payload=_PAYLOAD,
        tseth=(psn, 0),
        imm=imm,
        dscp=_DSCP.trimmable_retx if rtx else _DSCP.trimmable,
        ecn=Ecn.ECT0,
    )
    return forwarded(whole(frame), hops=_HOPS)


def _control(path: Encap, opcode: Opcode, psn: int, *headers: Header, dqpn: int = _NIC0_QPN) -> bytes:
    extension = b"".join(header.pack() for header in headers)
    return whole(build_control(path, opcode=opcode, dqpn=dqpn, psn=psn, extension=extension))


def _sack(
    path: Encap, cack_psn: int, cause: int, ev: int, *, bitmap: int = 0, probe: bool = False, marked: bool = False
) -> bytes:
    """Caused by PSN `cause`, or by the probe of that id, which came on `ev`."""
    seth = SETH(
        m=SackMark.SKIP_ONCE if marked else SackMark.NONE,
        pr=probe,
        ack_psn_offset=cause if probe else cause - cack_psn,
        entropy=ev,
        spdcid=_NIC4_QPN,
        dpdcid=_NIC0_QPN,
        cack_psn=cack_psn,
        sack_offset=1,
        sack_bitmap=bitmap,
    )
    cc_state = CCState(tx_timestamp=cause, ooo_count=bitmap.bit_count(), rcvd_bytes=cack_psn - _FIRST_PSN + 1)
    return _control(path, Opcode.SACK, cack_psn, seth, cc_state)


def _nack(path: Encap, reason: NackReason, psn: int, ev: int) -> bytes:
    neth = NETH(reason=reason, entropy=ev, spdcid=_NIC4_QPN, dpdcid=_NIC0_QPN, nack_psn=psn, tx_timestamp=psn)
    return _control(path, Opcode.NACK, psn, neth)


def _transport_ack(path: Encap, psn: int, msn: int, syndrome: int = _ACK) -> bytes:
    return _control(path, Opcode.TRANSPORT_ACK, psn, AETH(syndrome=syndrome, msn=msn))


def _probe(path: Encap, probe_id: int) -> bytes:
    peth = PETH(probe_id=probe_id, spdcid=_NIC0_QPN, dpdcid=_NIC4_QPN, tx_timestamp=probe_id)
    return forwarded(_control(path, Opcode.RELIABILITY_PROBE, 0, peth, dqpn=_NIC4_QPN), hops=_HOPS)


def _request(path: Encap, request_id: int, erth: ERTH) -> bytes:
    return _control(path, Opcode.ENDPOINT_REQUEST, request_id, erth, dqpn=ENDPOINT_DQPN)


def _response(path: Encap, request_id: int, erth: ERTH) -> bytes:
    eeth = EETH(op=erth.op, tx_timestamp=erth.tx_timestamp)
    return forwarded(_control(path, Opcode.ENDPOINT_RESPONSE, request_id, eeth, dqpn=ENDPOINT_DQPN), hops=_HOPS)


def _one_message() -> Iterator[bytes]:
    """Four packets, of which the second is trimmed and the third ECN-marked."""
    yield _write(_to_nic4(0, 3), Opcode.WRITE_FIRST, 100, msn=1, packets=4)
    second = _write(_to_nic4(1, 5), Opcode.WRITE_MIDDLE, 101, msn=1, packets=4, index=1)
    yield trimmed(second, _TRIM_SIZE, _DSCP.trimmed)
    yield _nack(_to_nic0(1, 2), NackReason.TRIMMED, 101, srv6_ev(1, 5))
    third = _write(_to_nic4(2, 0), Opcode.WRITE_MIDDLE, 102, msn=1, packets=4, index=2)
    yield forwarded(third, ecn=Ecn.CE)
    yield _sack(_to_nic0(2, 2), 100, 102, srv6_ev(2, 0), bitmap=0b10, marked=True)
    yield _write(_to_nic4(3, 7), Opcode.WRITE_LAST, 103, msn=1, packets=4, index=3)
    yield _sack(_to_nic0(3, 2), 100, 103, srv6_ev(3, 7), bitmap=0b110)
    yield _write(_to_nic4(0, 6), Opcode.WRITE_MIDDLE, 101, msn=1, packets=4, index=1, rtx=True)
    yield _sack(_to_nic0(0, 2), 103, 101, srv6_ev(0, 6))
    yield _transport_ack(_to_nic0(0, 2), 103, 1)


def _two_with_immediate() -> Iterator[bytes]:
    """One for whose answer a probe asks, and one of two packets that is refused."""
    yield _write(_to_nic4(1, 1), Opcode.WRITE_ONLY_IMM, 104, msn=2, packets=1, rqmsn=1, imm=0xCAFE)
    yield _probe(_to_nic4(2, 4), 7)
    yield _sack(_to_nic0(2, 2), 104, 7, srv6_ev(2, 4), probe=True)
    yield _transport_ack(_to_nic0(2, 2), 104, 2)
    yield _write(_to_nic4(2, 1), Opcode.WRITE_FIRST, 105, msn=3, packets=2, rqmsn=2)
    yield _write(_to_nic4(3, 1), Opcode.WRITE_LAST_IMM, 106, msn=3, packets=2, index=1, rqmsn=2, imm=0xBEEF)
    yield _sack(_to_nic0(3, 2), 106, 106, srv6_ev(3, 1))
    yield _transport_ack(_to_nic0(3, 2), 106, 3, _NAK_REMOTE_ACCESS)


def _between_endpoints() -> Iterator[bytes]:
    """nic4's port in plane 1 has gone down; then nic4 probes a path of plane 3."""
    status = ERTH(op=EndpointOp.PORT_STATUS_UPDATE, port_status_mask=0b1101, tx_timestamp=9)
    yield _request(_to_nic0(0, 2), 1, status)
    yield _response(_to_nic4(0, 0), 1, status)
    probe = ERTH(op=EndpointOp.EV_PROBE, tx_timestamp=12)
    yield _request(_to_nic0(3, 5), 2, probe)
    yield _response(_to_nic4(3, 5), 2, probe)


def _incast() -> Iterator[bytes]:
    """A packet is trimmed on its last hop."""
    only = _write(_to_nic4(0, 7), Opcode.WRITE_ONLY, 107, msn=4, packets=1, rqmsn=2)
    yield trimmed(only, _TRIM_SIZE, _DSCP.trimmed_lasthop)
    yield _nack(_to_nic0(0, 2), NackReason.TRIMMED_LASTHOP, 107, srv6_ev(0, 7))


def session() -> list[bytes]:
    """The frames in the order in which they arrive and leave."""
    return [*_one_message(), *_two_with_immediate(), *_between_endpoints(), *_incast()]


if __name__ == "__main__":
    write_capture(Path(sys.argv[1]), session())
