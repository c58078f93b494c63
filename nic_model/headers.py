"""Every header of an MRC packet, bit by bit, with the numbers that stand in them.

Sources: IEEE 802.3, RFC 8200, RFC 768, InfiniBand (BTH, RETH, ImmDt, AETH) and OCP MRC 1.0 (the rest). Fields
are in wire order and big-endian, the most significant bit first. A field is named as its specification names
it; reserved bits are `res`, 0 when sent and ignored when received.
"""

from dataclasses import dataclass
from enum import IntEnum

from nic_model.layout import (
    S16,
    U1,
    U2,
    U3,
    U4,
    U5,
    U6,
    U7,
    U8,
    U11,
    U15,
    U16,
    U20,
    U24,
    U32,
    U64,
    Flag,
    Header,
    Octets6,
    Octets16,
    Octets26,
    header,
)

ETHERTYPE_IPV6 = 0x86DD
IP_VERSION = 6
NEXT_HEADER_UDP = 17
NEXT_HEADER_IPV6 = 41
UDP_PORT = 4791
"""RoCEv2's UDP destination port."""
UDP_PORT_OCP = 4971
"""The UDP destination port that the OCP text prints: accepted, not sent by default."""
TVER = 0
"""BTH.tver of every packet."""
ENDPOINT_DQPN = 0x2
"""BTH.dqpn of Endpoint Requests and Responses: reserved, they are connectionless."""
FTYPE = 1
"""The ftype that follows a timestamp."""
NACK_CC_TYPE = 2
"""NETH.cc_type."""


class Opcode(IntEnum):
    """BTH.opcode: MRC's are the class 0b110xxxxx, so none is an opcode of RC."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    TRANSPORT_ACK = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    RELIABILITY_PROBE = 0xDE


class SackMark(IntEnum):
    """SETH.m: what the responder says of the EV that it reflects."""

    NONE = 0b00
    SKIP_ONCE = 0b01
    """The packet was ECN-marked."""
    ALWAYS_SKIP = 0b10


class NackReason(IntEnum):
    """NETH.reason (the UET PDS numbering)."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class EndpointOp(IntEnum):
    """ERTH.op and EETH.op."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


class Ecn(IntEnum):
    """The ECN field (RFC 3168)."""

    NOT_ECT = 0b00
    ECT1 = 0b01
    ECT0 = 0b10
    CE = 0b11


@dataclass(frozen=True, slots=True)
class DscpPlan:
    """The DSCP of each role (OCP MRC names the roles; the numbers are a deployment's choice)."""

    no_trim: int = 0
    trimmable: int = 4
    trimmable_retx: int = 8
    trimmed: int = 12
    trimmed_lasthop: int = 16
    control: int = 46


def ev_to_ports(ev: int) -> tuple[int, int]:
    """The UDP source port and the IPv6 flow label that carry a 32-bit EV: its high and its low 16 bits."""
    return ev >> 16, ev & 0xFFFF


def ev_from(udp_sport: int, flow_label: int) -> int:
    """The 32-bit EV that a UDP source port and the low 16 bits of a flow label carry."""
    return udp_sport << 16 | flow_label & 0xFFFF


# ---- Ethernet, IPv6, UDP ----------------------------------------------------------------------------------


@header
class Ethernet(Header):
    """Ethernet without FCS (IEEE 802.3)."""

    dst: Octets6
    src: Octets6
    ethertype: U16 = ETHERTYPE_IPV6


@header
class IPv6(Header):
    """RFC 8200 section 3; the traffic class is DSCP and ECN (RFC 2474, RFC 3168). payload_len in bytes."""

    version: U4 = IP_VERSION
    dscp: U6
    ecn: U2
    flow_label: U20
    payload_len: U16
    next_hdr: U8
    hop_limit: U8
    src: Octets16
    dst: Octets16


@header
class UDP(Header):
    """RFC 768. length in bytes, this header included; the checksum is 0, as RoCEv2 sends it."""

    src_port: U16
    dst_port: U16
    length: U16
    checksum: U16 = 0


# ---- in every MRC packet ----------------------------------------------------------------------------------


@header
class BTH(Header):
    """Base Transport Header. ack_req is the bit a; rtx: a retransmission; ts: TSETH is there."""

    opcode: U8
    se: U1 = 0
    m: U1 = 0
    pad: U2 = 0
    tver: U4 = TVER
    pkey: U16 = 0xFFFF
    res0: U8 = 0
    dqpn: U24
    ack_req: Flag = False
    r: U1 = 0
    rtx: Flag = False
    ts: Flag = False
    res1: U4 = 0
    psn: U24


# ---- data packets -----------------------------------------------------------------------------------------


@header
class METH(Header):
    """MRC Extended Transport Header: message numbers. rqmsn counts messages with immediate."""

    rqmsn: U16
    msn: U16


@header
class TSETH(Header):
    """Timestamp. tx_timestamp in ticks of 128 ns (tsr 0) or 1 us (tsr 1)."""

    tx_timestamp: U16
    tsr: U1 = 0
    res: U11 = 0
    ftype: U4 = FTYPE


@header
class RETH(Header):
    """RDMA. va is this packet's own, dma_len (bytes) the whole message's."""

    va: U64
    rkey: U32
    dma_len: U32


@header
class ImmDt(Header):
    """Immediate data."""

    imm: U32


# ---- control packets --------------------------------------------------------------------------------------


@header
class SETH(Header):
    """SACK. With pr = 1 it answers a probe and ack_psn_offset holds the probe_id.

    mpr in units of 128 PSNs, 0 if Dynamic MPR is off. Bit i of sack_bitmap says that PSN
    cack_psn + sack_offset + i has arrived.
    """

    type: U4 = 0
    nxt: U5 = 0
    m: U2 = SackMark.NONE
    res0: U3 = 0
    pr: Flag = False
    res1: U1 = 0
    ack_psn_offset: S16
    entropy: U32
    spdcid: U16
    dpdcid: U16
    res2: U8 = 0
    cack_psn: U24
    cc_type: U4 = 0
    cc_fl: U4 = 0
    mpr: U8 = 0
    sack_offset: S16
    sack_bitmap: U64


@header
class CCState(Header):
    """CC_STATE, which follows SETH. tx_timestamp is reflected; rcvd_bytes in units of 256 B, rounded up."""

    tx_timestamp: U16
    res: U1 = 0
    ooo_count: U15
    restore_cwnd: Flag = False
    rcv_cwnd_pen: U7 = 0
    rcvd_bytes: U24


@header
class NETH(Header):
    """NACK of one packet."""

    type: U4 = 0
    nxt: U5 = 0
    res0: U7 = 0
    reason: U8
    vendor: U8 = 0
    entropy: U32
    spdcid: U16
    dpdcid: U16
    res1: U8 = 0
    nack_psn: U24
    cc_type: U4 = NACK_CC_TYPE
    cc_fl: U4 = 0
    res2: U8 = 0
    tx_timestamp: U16


@header
class PETH(Header):
    """Reliability Probe Request. The answer is a SACK with pr = 1."""

    type: U4 = 0
    nh: U5 = 0
    res0: U7 = 0
    res1: U8 = 0
    vendor: U8 = 0
    probe_id: U16
    res2: U16 = 0
    spdcid: U16
    dpdcid: U16
    tx_timestamp: U16
    tsr: U1 = 0
    res3: U11 = 0
    ftype: U4 = FTYPE


@header
class ERTH(Header):
    """Endpoint Request. Bit p of port_status_mask: port p is reachable. The request id is BTH.psn[15:0]."""

    type: U4 = 0
    nxt: U5 = 0
    res0: U5 = 0
    op: U2
    res1: U8 = 0
    vendor: U8 = 0
    port_status_mask: U32 = 0
    res2: U32 = 0
    tx_timestamp: U16
    tsr: U1 = 0
    res3: U11 = 0
    ftype: U4 = FTYPE


@header
class EETH(Header):
    """Endpoint Response: as long as SETH and CC_STATE, with tx_timestamp, reflected, in CC_STATE's place."""

    type: U4 = 0
    nxt: U5 = 0
    res0: U3 = 0
    op: U2
    res1: U2 = 0
    res2: Octets26 = bytes(26)
    tx_timestamp: U16
    res3: Octets6 = bytes(6)


@header
class AETH(Header):
    """ACK of messages (semantic): the Transport ACK."""

    syndrome: U8
    msn: U24


WRITE_IMM_OPCODES = frozenset({Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM})
"""Data packets that carry ImmDt."""
WRITE_OPCODES = WRITE_IMM_OPCODES | {
    Opcode.WRITE_FIRST,
    Opcode.WRITE_MIDDLE,
    Opcode.WRITE_LAST,
    Opcode.WRITE_ONLY,
}
"""Data packets."""
EXTENSIONS: dict[int, tuple[type[Header], ...]] = {
    Opcode.TRANSPORT_ACK: (AETH,),
    Opcode.ENDPOINT_REQUEST: (ERTH,),
    Opcode.ENDPOINT_RESPONSE: (EETH,),
    Opcode.SACK: (SETH, CCState),
    Opcode.NACK: (NETH,),
    Opcode.RELIABILITY_PROBE: (PETH,),
}
"""Control packets: what follows BTH."""
