"""Whole MRC packets: encapsulation for a path, building, and parsing with every check (OCP MRC 1.0).

    Data     Eth | [outer IPv6] | inner IPv6 | UDP | BTH | METH | [TSETH] | RETH | [ImmDt] | payload | ICRC
    Control  Eth | [outer IPv6] | inner IPv6 | UDP | BTH | one extension | ICRC

The outer IPv6 is there in SRv6 mode, its destination a list of uSIDs, and absent in ECMP mode. A data packet
goes out without an object for any of its headers and comes in as one `Packet`: both are on the hot path.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from nic_model.headers import (
    AETH,
    BTH,
    EETH,
    ERTH,
    ETHERTYPE_IPV6,
    EXTENSIONS,
    IP_VERSION,
    METH,
    NETH,
    NEXT_HEADER_IPV6,
    NEXT_HEADER_UDP,
    PETH,
    RETH,
    SETH,
    TSETH,
    TVER,
    UDP,
    UDP_PORT,
    UDP_PORT_OCP,
    WRITE_IMM_OPCODES,
    WRITE_OPCODES,
    CCState,
    DscpPlan,
    Ecn,
    Ethernet,
    ImmDt,
    IPv6,
    Opcode,
    ev_from,
    ev_to_ports,
)
from nic_model.icrc import SIZE as ICRC_SIZE
from nic_model.icrc import icrc_after, ip_udp_crc, is_intact_after, residue_of
from nic_model.layout import H, Header, reader, writer

P = TypeVar("P")

Frame = tuple[bytes, bytes]
"""An Ethernet frame without FCS, in two pieces: its bytes are head + tail."""

NOMINAL_HDRSIZE = 40
"""Bytes that congestion control adds to each UDP payload's length (OCP MRC nominal_hdrsize)."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The settings that all packets of a NIC share."""

    udp_port: int = UDP_PORT
    """The UDP destination port sent; 4791 and 4971 are accepted besides."""
    dscp: DscpPlan = field(default_factory=DscpPlan)
    hop_limit: int = 64
    pkey: int = 0xFFFF
    tsr: int = 0
    """Resolution of the timestamps sent: ticks of 128 ns (0), which wrap at 8.4 ms, or of 1 us (1), at 65.5 ms."""

    tick: int = field(init=False)
    """ns in a tick of the timestamps."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tick", _TSR_TICKS[self.tsr])

    def timestamp(self, now: int) -> int:
        """`now` (ns) as a tx_timestamp of 16 bits."""
        return now // self.tick & 0xFFFF


_TSR_TICKS = (128, 1000)
"""ns in a tick, by tsr (OCP MRC, TSETH)."""
DEFAULT_WIRE = Wire()


# ---- building ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Encap:
    """All that the packets of one path have in common. MAC addresses are 6 bytes, IPv6 addresses 16.

    outer_src and outer_dst are None in ECMP mode. ev: 32 bits. ValueError from building names what does not fit.
    """

    eth_dst: bytes
    eth_src: bytes
    outer_src: bytes | None
    outer_dst: bytes | None
    inner_src: bytes
    inner_dst: bytes
    ev: int
    wire: Wire = DEFAULT_WIRE
    _prefixes: dict[tuple[int, int, int], tuple[bytes, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if (self.outer_src is None) != (self.outer_dst is None):
            raise ValueError("Encap: outer_src and outer_dst go together, both None in ECMP mode")

    def prefix(self, udp_len: int, dscp: int, ecn: int) -> tuple[bytes, int]:
        """The headers up to UDP for a UDP length (bytes, UDP included), and their part of the ICRC."""
        key = (udp_len, dscp, ecn)
        found = self._prefixes.get(key)
        if found is None:
            if len(self._prefixes) >= _PREFIXES_KEPT:
                self._prefixes.clear()
            found = self._prefixes[key] = self._make_prefix(udp_len, dscp, ecn)
        return found

    def _make_prefix(self, udp_len: int, dscp: int, ecn: int) -> tuple[bytes, int]:
        udp_sport, flow_label = ev_to_ports(self.ev)
        inner = IPv6(
            dscp=dscp,
            ecn=ecn,
            flow_label=flow_label,
            payload_len=udp_len,
            next_hdr=NEXT_HEADER_UDP,
            hop_limit=self.wire.hop_limit,
            src=self.inner_src,
            dst=self.inner_dst,
        ).pack()
        udp = UDP(src_port=udp_sport, dst_port=self.wire.udp_port, length=udp_len).pack()
        outer = b""
        if self.outer_src is not None and self.outer_dst is not None:
            outer = IPv6(
                dscp=dscp,
                ecn=ecn,
                flow_label=flow_label,
                payload_len=IPv6.SIZE + udp_len,
                next_hdr=NEXT_HEADER_IPV6,
                hop_limit=self.wire.hop_limit,
                src=self.outer_src,
                dst=self.outer_dst,
            ).pack()
        ethernet = Ethernet(dst=self.eth_dst, src=self.eth_src).pack()
        return ethernet + outer + inner + udp, ip_udp_crc(inner + udp)


_PREFIXES_KEPT = 8
"""A path sees few lengths: a full packet, messages' ends, and each kind of control packet."""

_BTH = (BTH, "opcode pad pkey dqpn ack_req rtx ts psn")
_METH = (METH, "rqmsn msn")
_TSETH = (TSETH, "tx_timestamp tsr")
_RETH = (RETH, "va rkey dma_len")
_write_data = writer(_BTH, _METH, _RETH)
_write_data_ts = writer(_BTH, _METH, _TSETH, _RETH)
_write_bth = writer((BTH, "opcode pkey dqpn ack_req rtx psn"))
write_sack = writer(
    (SETH, "m pr ack_psn_offset entropy spdcid dpdcid cack_psn mpr sack_offset sack_bitmap"),
    (CCState, "tx_timestamp ooo_count restore_cwnd rcv_cwnd_pen rcvd_bytes"),
)
"""A SACK's extension for `build_control`, of those fields."""
_WRITE_PLAIN_OPCODES = WRITE_OPCODES - WRITE_IMM_OPCODES
WORD_SIZE = 4
"""Bytes: BTH.pad fills the payload up to a multiple of this."""
_PAD = (b"", b"\0", b"\0\0", b"\0\0\0")


def build_data(
    encap: Encap,
    opcode: int,
    dqpn: int,
    psn: int,
    ack_req: bool,
    rtx: bool,
    msn: int,
    rqmsn: int,
    va: int,
    rkey: int,
    dma_len: int,
    payload: bytes | memoryview,
    tseth: tuple[int, int] | None,
    imm: int | None,
    dscp: int,
    ecn: int,
) -> Frame:
    """A data packet: all headers, then payload, pad and ICRC. `tseth` is (tx_timestamp, tsr).

    ValueError names the header and the field whose value does not fit.
    """
    length = len(payload)
    pad = -length % WORD_SIZE
    pkey = encap.wire.pkey
    if tseth is None:
        headers = _write_data(opcode, pad, pkey, dqpn, ack_req, rtx, False, psn, rqmsn, msn, va, rkey, dma_len)
    else:
        tx_timestamp, tsr = tseth
        headers = _write_data_ts(
            opcode, pad, pkey, dqpn, ack_req, rtx, True, psn, rqmsn, msn, tx_timestamp, tsr, va, rkey, dma_len
        )
    if imm is not None:
        headers += ImmDt(imm=imm).pack()
    if opcode not in (_WRITE_PLAIN_OPCODES if imm is None else WRITE_IMM_OPCODES):
        raise ValueError(f"BTH.opcode: {opcode:#x} in a data packet with immediate {imm}")
    prefix, crc = encap.prefix(UDP.SIZE + len(headers) + length + pad + ICRC_SIZE, dscp, ecn)
    padding = _PAD[pad]
    return prefix + headers, b"".join((payload, padding, icrc_after(crc, headers, payload, padding)))


def build_control(
    encap: Encap,
    *,
    opcode: int,
    dqpn: int,
    psn: int,
    extension: bytes,
    ack_req: bool = False,
    rtx: bool = False,
) -> Frame:
    """A control packet in the Control class, not ECN-capable; `extension` is what follows BTH, packed.

    ValueError if the extension is not the opcode's, or names the field whose value does not fit.
    """
    if len(extension) != _EXTENSION_SIZES.get(opcode):
        raise ValueError(f"opcode {opcode:#x}: not an extension of {len(extension)} bytes")
    wire = encap.wire
    headers = _write_bth(opcode, wire.pkey, dqpn, ack_req, rtx, psn) + extension
    prefix, crc = encap.prefix(UDP.SIZE + len(headers) + ICRC_SIZE, wire.dscp.control, Ecn.NOT_ECT)
    return b"".join((prefix, headers, icrc_after(crc, headers))), b""


_EXTENSION_SIZES: dict[int, int] = {opcode: sum(kind.SIZE for kind in kinds) for opcode, kinds in EXTENSIONS.items()}


# ---- parsing ----------------------------------------------------------------------------------------------


class Malformed(StrEnum):
    """Why a frame is not an MRC packet."""

    TRUNCATED = "truncated"
    """It ends before its headers or before what its IPv6 length says."""
    LENGTH = "length"
    """Its lengths contradict each other."""
    ETHERTYPE = "ethertype"
    IP_VERSION = "ip_version"
    NEXT_HEADER = "next_header"
    UDP_PORT = "udp_port"
    TVER = "tver"
    PKEY = "pkey"
    OPCODE = "opcode"
    ICRC = "icrc"


class MalformedError(Exception):
    """A frame that is not an MRC packet; the text says what was found."""

    def __init__(self, reason: Malformed, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a received packet has around its BTH, read and checked: the same for all packets of one path and size.

    Addresses are bytes, lengths are in bytes. dscp and ecn are the outermost IPv6 header's: only that one does the
    network rewrite.
    """

    eth_dst: bytes
    outer_dst: bytes | None
    """None in ECMP mode."""
    dscp: int
    ecn: int
    src: bytes
    dst: bytes
    udp_dport: int
    udp_len: int
    """UDP's own length; in a cut packet it is still the one sent."""
    nominal_size: int
    """The packet's size for congestion control: UDP payload and nominal_hdrsize (OCP MRC)."""
    ev: int
    trimmed: bool
    """Its DSCP is TRIMMED or TRIMMED_LASTHOP; a short packet is trimmed without being cut."""
    lasthop: bool
    cut: bool
    bth_at: int
    """Where BTH begins in the frame."""
    end: int
    """Where the frame ends, if Ethernet has not padded it."""
    crc: int
    residue: int
    """What `is_intact_after` needs of the headers up to here."""

    @property
    def outer(self) -> bool:
        """Whether it came with an outer IPv6 header (SRv6 mode)."""
        return self.outer_dst is not None


@dataclass(slots=True)
class Packet:
    """A parsed packet. A cut one was trimmed on its way: no ICRC protects it, and RETH, ImmDt and payload are missing
    (OCP MRC, trimming)."""

    envelope: Envelope
    opcode: int
    pad: int
    dqpn: int
    ack_req: bool
    rtx: bool
    ts: bool
    psn: int
    # Data packets only. tx_timestamp and tsr are 0 without TSETH, imm is None without ImmDt.
    rqmsn: int = 0
    msn: int = 0
    tx_timestamp: int = 0
    tsr: int = 0
    va: int = 0
    rkey: int = 0
    dma_len: int = 0
    imm: int | None = None
    payload: bytes = b""
    payload_len: int = 0
    """Bytes; in a cut packet, of the payload that was sent."""
    # Control packets only.
    ext: tuple[Header, ...] = ()
    """What follows BTH."""

    # A control packet's headers: AttributeError if the opcode has none such.

    @property
    def sack(self) -> SETH:
        return self._extension(SETH)

    @property
    def cc(self) -> CCState:
        return self._extension(CCState)

    @property
    def nack(self) -> NETH:
        return self._extension(NETH)

    @property
    def probe(self) -> PETH:
        return self._extension(PETH)

    @property
    def aeth(self) -> AETH:
        return self._extension(AETH)

    @property
    def endpoint(self) -> ERTH | EETH:
        return self._extension(ERTH) if self.opcode == Opcode.ENDPOINT_REQUEST else self._extension(EETH)

    def _extension(self, kind: type[H]) -> H:
        for header in self.ext:
            if isinstance(header, kind):
                return header
        raise AttributeError(f"a packet of opcode {self.opcode:#x} has no {kind.__name__}")


def nominal_data_size(payload_len: int, *, ts: bool, imm: bool) -> int:
    """`Envelope.nominal_size` of the data packet that is to carry `payload_len` bytes, with TSETH, with ImmDt."""
    headers = BTH.SIZE + METH.SIZE + TSETH.SIZE * ts + RETH.SIZE + ImmDt.SIZE * imm
    return headers + payload_len + -payload_len % WORD_SIZE + ICRC_SIZE + NOMINAL_HDRSIZE


_read_outermost = reader(
    (Ethernet, "dst ethertype"),
    (IPv6, "version dscp ecn flow_label payload_len next_hdr src dst"),
)
_read_inner = reader((IPv6, "version flow_label payload_len next_hdr src dst"))
_read_udp = reader((UDP, "src_port dst_port length"))
_BTH_READ = (BTH, "opcode pad tver pkey dqpn ack_req rtx ts psn")
_read_bth = reader(_BTH_READ)
_read_data = reader(_METH, _RETH)
_read_data_ts = reader(_BTH_READ, _METH, _TSETH, _RETH)
_read_meth = reader(_METH)
_read_tseth = reader(_TSETH)
_read_imm = reader((ImmDt, "imm"))
_UDP_PORTS = frozenset({UDP_PORT, UDP_PORT_OCP})
_IP_SIZE = IPv6.SIZE
_IP_END = Ethernet.SIZE + IPv6.SIZE
_NEXT_HEADER_AT = Ethernet.SIZE + 6
_ENVELOPE_SIZE = _IP_END + UDP.SIZE
_ENVELOPE_SIZE_OUTER = _IP_END + IPv6.SIZE + UDP.SIZE
# Where RETH ends, from BTH's first byte, without and with TSETH.
_RETH_END = (BTH.SIZE + METH.SIZE + RETH.SIZE, BTH.SIZE + METH.SIZE + TSETH.SIZE + RETH.SIZE)
# The bit ts of BTH.
_TS_AT, _TS = 8, 0x10
ICRC_IS_WRONG = "the ICRC is not that of the bytes"
ENVELOPES_KEPT = 4096
"""A sender chooses them, and may not make us remember without end."""


class Parser:
    """Reads the frames that come to one NIC. It keeps the envelopes it has read: the next packet has one of them."""

    def __init__(self, wire: Wire = DEFAULT_WIRE) -> None:
        self._wire = wire
        self._pkey = wire.pkey
        self._envelopes: dict[bytes, Envelope] = {}

    def parse(self, frame: Frame) -> Packet:
        """Decapsulate, check and read a frame, whatever its bytes and wherever head and tail meet.

        MalformedError says why it is not a packet of the wire; nothing else is raised. It is fastest when the head
        is the headers and the tail the rest, as `build_data` makes it.
        """
        head, tail = frame
        try:
            return self._read(head, tail)
        except (struct.error, IndexError):
            return read_frame(self._read, (head + tail, b""))

    def _read(self, head: bytes, tail: bytes) -> Packet:
        """`parse` of a frame whose headers lie in the head; struct.error or IndexError if they do not."""
        outer = head[_NEXT_HEADER_AT] == NEXT_HEADER_IPV6
        key = head[: _ENVELOPE_SIZE_OUTER if outer else _ENVELOPE_SIZE]
        envelope = self._envelopes.get(key)
        if envelope is None:
            envelope = _read_envelope(head, len(head) + len(tail), self._wire)
            if len(self._envelopes) >= ENVELOPES_KEPT:
                self._envelopes.clear()
            self._envelopes[key] = envelope

        end = envelope.end
        size = len(head) + len(tail)
        if size != end:
            _check_size(size, end)
            # Ethernet pads a short frame.
            head, tail = head[:end], tail[: max(0, end - len(head))]
        if envelope.cut:
            return _read_cut(envelope, head, self._pkey)
        if head[envelope.bth_at] in WRITE_OPCODES:
            return _read_data_packet(envelope, head, tail, self._pkey)
        return _read_control_packet(envelope, head + tail, self._pkey)


def parse(frame: Frame, wire: Wire = DEFAULT_WIRE) -> Packet:
    """`Parser.parse` for a single frame."""
    return Parser(wire).parse(frame)


def read_frame(read: Callable[[bytes, bytes], P], frame: Frame) -> P:
    """`read` (head, tail) if the head holds all headers, else again with the tail joined to it.

    `read` raises struct.error or IndexError where the head is too short for what it says. MalformedError if the tail
    does not help.
    """
    head, tail = frame
    try:
        return read(head, tail)
    except (struct.error, IndexError):
        pass
    if tail:
        return read_frame(read, (head + tail, b""))
    raise MalformedError(Malformed.TRUNCATED, f"{len(head)} bytes end inside the headers")


def _check_size(size: int, end: int) -> None:
    if size < end:
        raise MalformedError(Malformed.TRUNCATED, f"IPv6.payload_len: {end - size} bytes are missing")


def _read_envelope(head: bytes, size: int, wire: Wire) -> Envelope:
    """Everything up to UDP, of a frame of `size` bytes."""
    eth_dst, ethertype, version, dscp, ecn, flow_label, ip_len, next_hdr, src, dst = _read_outermost(head, 0)
    if ethertype != ETHERTYPE_IPV6:
        raise MalformedError(Malformed.ETHERTYPE, f"Ethernet.ethertype: {ethertype:#06x}")
    if version != IP_VERSION:
        raise MalformedError(Malformed.IP_VERSION, f"IPv6.version: {version}")
    at = _IP_END
    end = at + ip_len
    _check_size(size, end)
    head = head[:end]
    outer_dst = None
    if next_hdr == NEXT_HEADER_IPV6:
        outer_dst = dst
        version, flow_label, ip_len, next_hdr, src, dst = _read_inner(head, at)
        if version != IP_VERSION:
            raise MalformedError(Malformed.IP_VERSION, f"inner IPv6.version: {version}")
        at += _IP_SIZE
    if next_hdr != NEXT_HEADER_UDP:
        raise MalformedError(Malformed.NEXT_HEADER, f"IPv6.next_hdr: {next_hdr}")

    udp_sport, udp_dport, udp_len = _read_udp(head, at)
    if udp_dport not in _UDP_PORTS and udp_dport != wire.udp_port:
        raise MalformedError(Malformed.UDP_PORT, f"UDP.dst_port: {udp_dport}")
    lasthop = dscp == wire.dscp.trimmed_lasthop
    trimmed = lasthop or dscp == wire.dscp.trimmed
    present = end - at
    cut = trimmed and udp_len > present
    if udp_len != present and not cut:
        raise MalformedError(Malformed.LENGTH, f"UDP.length: {udp_len}, {present} bytes are there")
    if outer_dst is not None and ip_len != udp_len:  # trimming rewrites the outermost length only
        raise MalformedError(Malformed.LENGTH, f"inner IPv6.payload_len: {ip_len}, UDP.length: {udp_len}")
    return Envelope(
        eth_dst=eth_dst,
        outer_dst=outer_dst,
        dscp=dscp,
        ecn=ecn,
        src=src,
        dst=dst,
        udp_dport=udp_dport,
        udp_len=udp_len,
        nominal_size=udp_len - UDP.SIZE + NOMINAL_HDRSIZE,
        ev=ev_from(udp_sport, flow_label),
        trimmed=trimmed,
        lasthop=lasthop,
        cut=cut,
        bth_at=at + UDP.SIZE,
        end=end,
        crc=ip_udp_crc(head[at - _IP_SIZE : at + UDP.SIZE]),
        residue=residue_of(present - UDP.SIZE),
    )


FULL_MEMBER = 1 << 15


def pkeys_match(one: int, other: int) -> bool:
    """Are these of one partition, and at least one of them a full member's (InfiniBand 10.9.3)?"""
    return not (one ^ other) & ~FULL_MEMBER and bool((one | other) & FULL_MEMBER)


def _read_data_packet(envelope: Envelope, head: bytes, tail: bytes, own_pkey: int) -> Packet:
    bth_at = envelope.bth_at
    if head[bth_at + _TS_AT] & _TS:
        (
            opcode, pad, tver, pkey, dqpn, ack_req, rtx, ts, psn, rqmsn, msn, tx_timestamp, tsr, va, rkey, dma_len,
        ) = _read_data_ts(head, bth_at)  # fmt: skip
    else:
        opcode, pad, tver, pkey, dqpn, ack_req, rtx, ts, psn = _read_bth(head, bth_at)
        rqmsn, msn, va, rkey, dma_len = _read_data(head, bth_at + BTH.SIZE)
        tx_timestamp = tsr = 0
    if tver != TVER:
        raise MalformedError(Malformed.TVER, f"BTH.tver: {tver}")
    if pkey != own_pkey and not pkeys_match(pkey, own_pkey):
        raise MalformedError(Malformed.PKEY, f"BTH.pkey: {pkey:#06x}")
    payload_at = bth_at + _RETH_END[ts]
    imm = None
    if opcode in WRITE_IMM_OPCODES:
        (imm,) = _read_imm(head, payload_at)
        payload_at += ImmDt.SIZE
    payload_len = envelope.end - payload_at - pad - ICRC_SIZE
    if payload_len < 0 or envelope.udp_len % WORD_SIZE:
        raise MalformedError(Malformed.LENGTH, f"UDP.length: {envelope.udp_len} in a data packet")
    if not is_intact_after(envelope.crc, envelope.residue, head[bth_at:], tail):
        raise MalformedError(Malformed.ICRC, ICRC_IS_WRONG)
    if len(head) != payload_at:
        tail = (head + tail)[payload_at:]
    return Packet(
        envelope, opcode, pad, dqpn, ack_req, rtx, ts, psn,
        rqmsn, msn, tx_timestamp, tsr, va, rkey, dma_len, imm, tail[:payload_len], payload_len,
    )  # fmt: skip


def _read_cut(envelope: Envelope, head: bytes, own_pkey: int) -> Packet:
    """A packet of which trimming has left METH and TSETH at least; RETH, ImmDt and payload are missing."""
    bth_at = envelope.bth_at
    opcode, pad, tver, pkey, dqpn, ack_req, rtx, ts, psn = _read_bth(head, bth_at)
    if tver != TVER:
        raise MalformedError(Malformed.TVER, f"BTH.tver: {tver}")
    if pkey != own_pkey and not pkeys_match(pkey, own_pkey):
        raise MalformedError(Malformed.PKEY, f"BTH.pkey: {pkey:#06x}")
    if opcode in EXTENSIONS:
        raise MalformedError(Malformed.LENGTH, f"opcode {opcode:#04x}: a control packet is never cut")
    if opcode not in WRITE_OPCODES:
        raise MalformedError(Malformed.OPCODE, f"BTH.opcode: {opcode:#04x}")
    payload_at = bth_at + _RETH_END[ts] + ImmDt.SIZE * (opcode in WRITE_IMM_OPCODES)
    packet = Packet(envelope, opcode, pad, dqpn, ack_req, rtx, ts, psn)
    packet.payload_len = bth_at - UDP.SIZE + envelope.udp_len - payload_at - pad - ICRC_SIZE
    if packet.payload_len < 0 or envelope.udp_len % WORD_SIZE:
        raise MalformedError(Malformed.LENGTH, f"UDP.length: {envelope.udp_len} in a data packet")
    meth_at = bth_at + BTH.SIZE
    packet.rqmsn, packet.msn = _read_meth(head, meth_at)
    if ts:
        packet.tx_timestamp, packet.tsr = _read_tseth(head, meth_at + METH.SIZE)
    return packet


def _read_control_packet(envelope: Envelope, data: bytes, own_pkey: int) -> Packet:
    opcode, pad, tver, pkey, dqpn, ack_req, rtx, ts, psn = _read_bth(data, envelope.bth_at)
    if tver != TVER:
        raise MalformedError(Malformed.TVER, f"BTH.tver: {tver}")
    if pkey != own_pkey and not pkeys_match(pkey, own_pkey):
        raise MalformedError(Malformed.PKEY, f"BTH.pkey: {pkey:#06x}")
    if opcode not in EXTENSIONS:
        raise MalformedError(Malformed.OPCODE, f"BTH.opcode: {opcode:#04x}")
    sent = UDP.SIZE + BTH.SIZE + _EXTENSION_SIZES[opcode] + ICRC_SIZE
    if envelope.udp_len != sent:
        raise MalformedError(Malformed.LENGTH, f"UDP.length: {envelope.udp_len}, opcode {opcode:#04x} has {sent}")
    if not is_intact_after(envelope.crc, envelope.residue, data[envelope.bth_at :]):
        raise MalformedError(Malformed.ICRC, ICRC_IS_WRONG)
    packet = Packet(envelope, opcode, pad, dqpn, ack_req, rtx, ts, psn)
    at = envelope.bth_at + BTH.SIZE
    extension = []
    for kind in EXTENSIONS[opcode]:
        extension.append(kind.unpack(data, at))
        at += kind.SIZE
    packet.ext = tuple(extension)
    return packet
