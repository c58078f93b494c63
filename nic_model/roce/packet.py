"""RoCEv2 packets of the RC service, over IPv6 (InfiniBand volume 1, chapter 9, and annex A17).

    WRITE    Eth | IPv6 | UDP | BTH | [RETH] | [ImmDt] | payload | ICRC
    ACK      Eth | IPv6 | UDP | BTH | AETH | ICRC
    CNP      Eth | IPv6 | UDP | BTH | 16 reserved bytes | ICRC

RETH is in a message's first packet only, ImmDt in its last.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from nic_model.headers import (
    AETH,
    ETHERTYPE_IPV6,
    IP_VERSION,
    NEXT_HEADER_UDP,
    RETH,
    TVER,
    UDP,
    Ecn,
    Ethernet,
    ImmDt,
    IPv6,
)
from nic_model.icrc import SIZE as ICRC_SIZE
from nic_model.icrc import icrc_after, is_intact
from nic_model.layout import U1, U2, U4, U6, U7, U8, U16, U24, Flag, Header, header, reader, writer
from nic_model.packet import DEFAULT_WIRE, WORD_SIZE, Encap, Frame, Malformed, MalformedError, Wire, read_frame


class Opcode(IntEnum):
    """BTH.opcode: the class 0b000xxxxx is RC's; CNP is alone."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    ACKNOWLEDGE = 0x11
    CNP = 0x81


FIRST_OPCODES = frozenset({Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM})
"""A message begins: RETH is there."""
LAST_OPCODES = frozenset({Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM})
"""A message ends."""
IMM_OPCODES = frozenset({Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM})
"""ImmDt is there."""
WRITE_OPCODES = FIRST_OPCODES | LAST_OPCODES | {Opcode.WRITE_MIDDLE}


def write_opcode(first: bool, last: bool, imm: bool) -> Opcode:
    """Of a WRITE's packet; `imm`: it is a WRITE with immediate."""
    if first and last:
        return Opcode.WRITE_ONLY_IMM if imm else Opcode.WRITE_ONLY
    if last:
        return Opcode.WRITE_LAST_IMM if imm else Opcode.WRITE_LAST
    return Opcode.WRITE_FIRST if first else Opcode.WRITE_MIDDLE


class Syndrome(IntEnum):
    """AETH.syndrome (InfiniBand 9.7.5.2.8)."""

    ACK = 0x1F
    """Without end-to-end credits, which count SENDs."""
    NAK_PSN_SEQUENCE_ERROR = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS_ERROR = 0x62
    NAK_REMOTE_OPERATIONAL_ERROR = 0x63


SYNDROME_TYPE_SHIFT = 5
SYNDROME_TYPE_ACK = 0b000
SYNDROME_TYPE_NAK = 0b011


@header
class BTH(Header):
    """Base Transport Header of RC; becn says that this is a CNP (InfiniBand 9.2 and annex A17)."""

    opcode: U8
    se: U1 = 0
    m: U1 = 0
    pad: U2 = 0
    tver: U4 = TVER
    pkey: U16
    fecn: Flag = False
    becn: Flag = False
    res0: U6 = 0
    dqpn: U24
    ack_req: Flag = False
    res1: U7 = 0
    psn: U24


CNP_RESERVED = bytes(16)
"""What follows BTH in a CNP."""


# ---- building ---------------------------------------------------------------------------------------------

_BTH = (BTH, "opcode pad pkey dqpn ack_req psn")
_write_bth = writer(_BTH)
_write_bth_reth = writer(_BTH, (RETH, "va rkey dma_len"))


def build_write(
    encap: Encap,
    *,
    opcode: int,
    dqpn: int,
    psn: int,
    ack_req: bool,
    reth: tuple[int, int, int],
    imm: int,
    payload: bytes | memoryview,
    ecn: int,
) -> Frame:
    """A packet of a WRITE. `reth` is (va, rkey, dma_len) of the message; it and `imm` go in where the opcode has them.

    ValueError names the header and the field whose value does not fit.
    """
    pad = -len(payload) % WORD_SIZE
    bth = (opcode, pad, encap.wire.pkey, dqpn, ack_req, psn)
    headers = _write_bth_reth(*bth, *reth) if opcode in FIRST_OPCODES else _write_bth(*bth)
    if opcode in IMM_OPCODES:
        headers += ImmDt(imm=imm).pack()
    udp_len = UDP.SIZE + len(headers) + len(payload) + pad + ICRC_SIZE
    prefix, crc = encap.prefix(udp_len, encap.wire.dscp.no_trim, ecn)
    padding = bytes(pad)
    return prefix + headers, b"".join((payload, padding, icrc_after(crc, headers, payload, padding)))


def build_ack(encap: Encap, *, dqpn: int, psn: int, syndrome: int, msn: int) -> Frame:
    """An ACK or NAK: `psn` is the last one acknowledged, or the one refused."""
    bth = BTH(opcode=Opcode.ACKNOWLEDGE, pkey=encap.wire.pkey, dqpn=dqpn, psn=psn)
    return _build_control(encap, bth, AETH(syndrome=syndrome, msn=msn).pack())


def build_cnp(encap: Encap, *, dqpn: int) -> Frame:
    """A Congestion Notification Packet to the QP whose packet was marked."""
    return _build_control(
        encap, BTH(opcode=Opcode.CNP, pkey=encap.wire.pkey, becn=True, dqpn=dqpn, psn=0), CNP_RESERVED
    )


def _build_control(encap: Encap, bth: BTH, extension: bytes) -> Frame:
    headers = bth.pack() + extension
    prefix, crc = encap.prefix(UDP.SIZE + len(headers) + ICRC_SIZE, encap.wire.dscp.control, Ecn.NOT_ECT)
    return b"".join((prefix, headers, icrc_after(crc, headers))), b""


# ---- parsing ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Packet:
    """A parsed packet. Addresses and payload are bytes."""

    eth_dst: bytes
    ecn: int
    src: bytes
    dst: bytes
    udp_sport: int
    opcode: int
    dqpn: int
    ack_req: bool
    psn: int
    # Where the opcode has them, else 0.
    va: int = 0
    rkey: int = 0
    dma_len: int = 0
    imm: int = 0
    syndrome: int = 0
    msn: int = 0
    payload: bytes = b""


_read_ip = reader((Ethernet, "dst ethertype"), (IPv6, "version ecn payload_len next_hdr src dst"))
_read_transport = reader((UDP, "src_port dst_port length"), (BTH, "opcode pad tver dqpn ack_req psn"))
_read_reth = reader((RETH, "va rkey dma_len"))
_read_imm = reader((ImmDt, "imm"))
_read_aeth = reader((AETH, "syndrome msn"))
_IP_END = Ethernet.SIZE + IPv6.SIZE
_EXTENSION_AT = _IP_END + UDP.SIZE + BTH.SIZE
_EXTENSION_SIZES: dict[int, int] = {
    **{code: RETH.SIZE * (code in FIRST_OPCODES) + ImmDt.SIZE * (code in IMM_OPCODES) for code in WRITE_OPCODES},
    Opcode.ACKNOWLEDGE: AETH.SIZE,
    Opcode.CNP: len(CNP_RESERVED),
}


def parse(frame: Frame, wire: Wire = DEFAULT_WIRE) -> Packet:
    """Check and read a frame, whatever its bytes and wherever head and tail meet.

    MalformedError says why it is not a packet of `wire`; nothing else is raised.
    """
    return read_frame(partial(_parse, wire), frame)


def _parse(wire: Wire, head: bytes, tail: bytes) -> Packet:
    """`parse` of a frame whose headers lie in the head; struct.error if they do not."""
    eth_dst, ethertype, version, ecn, ip_len, next_hdr, src, dst = _read_ip(head, 0)
    if ethertype != ETHERTYPE_IPV6:
        raise MalformedError(Malformed.ETHERTYPE, f"Ethernet.ethertype: {ethertype:#06x}")
    if version != IP_VERSION:
        raise MalformedError(Malformed.IP_VERSION, f"IPv6.version: {version}")
    if next_hdr != NEXT_HEADER_UDP:
        raise MalformedError(Malformed.NEXT_HEADER, f"IPv6.next_hdr: {next_hdr}")
    end = _IP_END + ip_len
    surplus = len(head) + len(tail) - end
    if surplus < 0:
        raise MalformedError(Malformed.TRUNCATED, f"IPv6.payload_len: {ip_len}, {-surplus} bytes missing")
    if surplus:  # Ethernet pads a short frame
        head, tail = head[:end], tail[: max(0, end - len(head))]

    udp_sport, udp_dport, udp_len, opcode, pad, tver, dqpn, ack_req, psn = _read_transport(head, _IP_END)
    if udp_dport != wire.udp_port:
        raise MalformedError(Malformed.UDP_PORT, f"UDP.dst_port: {udp_dport}")
    if udp_len != ip_len:
        raise MalformedError(Malformed.LENGTH, f"UDP.length: {udp_len}, {ip_len} bytes are there")
    if tver != TVER:
        raise MalformedError(Malformed.TVER, f"BTH.tver: {tver}")
    extension_size = _EXTENSION_SIZES.get(opcode)
    if extension_size is None:
        raise MalformedError(Malformed.OPCODE, f"BTH.opcode: {opcode:#04x}")
    payload_at = _EXTENSION_AT + extension_size
    payload_len = end - payload_at - pad - ICRC_SIZE
    if payload_len < 0 or udp_len % WORD_SIZE or (payload_len and opcode not in WRITE_OPCODES):
        raise MalformedError(Malformed.LENGTH, f"UDP.length: {udp_len} with opcode {opcode:#04x}")

    packet = Packet(eth_dst, ecn, src, dst, udp_sport, opcode, dqpn, ack_req, psn)
    if opcode == Opcode.ACKNOWLEDGE:
        packet.syndrome, packet.msn = _read_aeth(head, _EXTENSION_AT)
    if opcode in FIRST_OPCODES:
        packet.va, packet.rkey, packet.dma_len = _read_reth(head, _EXTENSION_AT)
    if opcode in IMM_OPCODES:
        (packet.imm,) = _read_imm(head, payload_at - ImmDt.SIZE)
    if not is_intact(head[Ethernet.SIZE :], tail):
        raise MalformedError(Malformed.ICRC, "the ICRC is not that of the bytes")
    if len(head) != payload_at:
        tail = (head + tail)[payload_at:]
    packet.payload = tail[:payload_len]
    return packet
