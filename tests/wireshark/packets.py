"""Packets to decode, most of them from the codec; all are bytes of whole frames."""

from dataclasses import replace
from typing import Any

from scapy.contrib import roce
from scapy.layers import inet, inet6, l2
from scapy.packet import Raw

from nic_model.headers import NETH, SETH, UDP_PORT, CCState, DscpPlan, Ecn, Opcode
from nic_model.layout import Header
from nic_model.packet import Encap, build_control, build_data
from nic_model.paths import srv6_ev
from tests.wireshark.frames import whole

DSCP = DscpPlan()
EV, OTHER_EV = srv6_ev(5, 777), srv6_ev(2, 3)
SRV6 = Encap(
    eth_dst=bytes.fromhex("020000000001"),
    eth_src=bytes.fromhex("020000000002"),
    outer_src=bytes.fromhex("fd00" + "00" * 13 + "01"),
    outer_dst=bytes.fromhex("fcbbbbbb0001000200030000" + "00" * 4),
    inner_src=bytes.fromhex("fd00" + "00" * 13 + "02"),
    inner_dst=bytes.fromhex("fd00" + "00" * 13 + "03"),
    ev=EV,
)
ECMP_EV = 0xC123_4567
ECMP = replace(SRV6, outer_src=None, outer_dst=None, ev=ECMP_EV)


def write(encap: Encap = SRV6, **changed: Any) -> bytes:
    """A packet of 4096 bytes of a longer message; any argument of `build_data` may differ."""
    fields: dict[str, Any] = {
        "opcode": Opcode.WRITE_MIDDLE,
        "dqpn": 0x123456,
        "psn": 4000,
        "ack_req": False,
        "rtx": False,
        "msn": 9,
        "rqmsn": 0,
        "va": 0x10000,
        "rkey": 1,
        "dma_len": 1 << 20,
        "payload": bytes(4096),
        "tseth": (0xBEEF, 1),
        "imm": None,
        "dscp": DSCP.trimmable,
        "ecn": Ecn.ECT0,
    }
    return whole(build_data(encap, **(fields | changed)))


def control(opcode: Opcode, *headers: Header, encap: Encap = SRV6, psn: int = 5) -> bytes:
    extension = b"".join(header.pack() for header in headers)
    return whole(build_control(encap, opcode=opcode, dqpn=0x11, psn=psn, extension=extension))


def sack(encap: Encap = SRV6, **changed: Any) -> bytes:
    """A SACK up to PSN 100; any field of SETH may differ."""
    fields: dict[str, Any] = {
        "ack_psn_offset": 0,
        "entropy": OTHER_EV,
        "spdcid": 1,
        "dpdcid": 2,
        "cack_psn": 100,
        "sack_offset": 1,
        "sack_bitmap": 0,
    }
    seth, cc_state = SETH(**(fields | changed)), CCState(tx_timestamp=0, ooo_count=0, rcvd_bytes=0)
    return control(Opcode.SACK, seth, cc_state, encap=encap)


def nack(reason: int) -> bytes:
    neth = NETH(reason=reason, entropy=OTHER_EV, spdcid=1, dpdcid=2, nack_psn=77, tx_timestamp=0)
    return control(Opcode.NACK, neth)


def endpoint(opcode: Opcode, header: Header) -> bytes:
    """An Endpoint Request or Response: its request id is the PSN's low 16 bits."""
    return control(opcode, header, psn=0x12_0034)


def scapy_frame(opcode: int, body: bytes) -> bytes:
    """BTH, `body` and an ICRC, all of scapy's making."""
    return bytes(
        l2.Ether(dst=ECMP.eth_dst, src=ECMP.eth_src)
        / inet6.IPv6(tc=46 << 2, fl=0x4567, hlim=9, src="fd00::1", dst="fd00::2")
        / inet.UDP(sport=40000, dport=UDP_PORT, chksum=0x1234)
        / roce.BTH(opcode=opcode, dqpn=3, psn=4, fecn=1)
        / Raw(body)
    )


def over_ipv4(udp_payload: bytes) -> bytes:
    """A frame without an IPv6 header."""
    return bytes(
        l2.Ether(dst=ECMP.eth_dst, src=ECMP.eth_src)
        / inet.IP(src="10.0.0.1", dst="10.0.0.2")
        / inet.UDP(sport=40000, dport=UDP_PORT)
        / Raw(udp_payload)
    )
