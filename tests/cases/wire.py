"""MRC packets, field by field: a codec of the cases' own, shared with no implementation.

Source: OCP MRC 1.0, InfiniBand (BTH, RETH, ImmDt, AETH), RFC 8200, RFC 768. One table says where each field is; a
packet is a flat mapping of field names to numbers, because within one packet no name stands twice. The outer IPv6
header's fields begin with `outer_`. A `-` is reserved: 0 when sent, ignored when received.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal
from zlib import crc32

Fields = dict[str, int]

Kind = Literal[
    "write_first", "write_middle", "write_last", "write_last_imm", "write_only", "write_only_imm",
    "transport_ack", "endpoint_request", "endpoint_response", "sack", "nack", "probe",
]  # fmt: skip

OPCODES: dict[Kind, int] = {
    "write_first": 0xC6,
    "write_middle": 0xC7,
    "write_last": 0xC8,
    "write_last_imm": 0xC9,
    "write_only": 0xCA,
    "write_only_imm": 0xCB,
    "transport_ack": 0xD1,
    "endpoint_request": 0xD8,
    "endpoint_response": 0xD9,
    "sack": 0xDC,
    "nack": 0xDD,
    "probe": 0xDE,
}
KINDS: dict[int, Kind] = {opcode: kind for kind, opcode in OPCODES.items()}

_LAYOUT_TEXT = {
    "Ethernet": "eth_dst:48 eth_src:48 ethertype:16",
    "outer": """outer_version:4 outer_dscp:6 outer_ecn:2 outer_flow_label:20 outer_payload_len:16
        outer_next_hdr:8 outer_hop_limit:8 outer_src:128 outer_dst:128""",
    "IPv6": "version:4 dscp:6 ecn:2 flow_label:20 payload_len:16 next_hdr:8 hop_limit:8 src:128 dst:128",
    "UDP": "udp_sport:16 udp_dport:16 udp_len:16 udp_checksum:16",
    "BTH": """opcode:8 se:1 mig:1 pad:2 tver:4 p_key:16 -:8 dqpn:24
        a:1 r:1 rtx:1 ts:1 -:4 psn:24""",
    "METH": "rqmsn:16 msn:16",
    "TSETH": "tx_timestamp:16 tsr:1 -:11 ftype:4",
    "RETH": "va:64 rkey:32 dmalen:32",
    "ImmDt": "imm:32",
    "SETH": """type:4 nxt:5 m:2 -:3 pr:1 -:1 ack_psn_offset:s16 entropy:32 spdcid:16 dpdcid:16 -:8 cack_psn:24
        cc_type:4 cc_fl:4 mpr:8 sack_offset:s16 sack_bitmap:64""",
    "CC_STATE": "tx_timestamp:16 -:1 ooo_count:15 restore_cwnd:1 rcv_cwnd_pen:7 rcvd_bytes:24",
    "NETH": """type:4 nxt:5 -:7 reason:8 vendor:8 entropy:32 spdcid:16 dpdcid:16 -:8 nack_psn:24
        cc_type:4 cc_fl:4 -:8 tx_timestamp:16""",
    "PETH": """type:4 nh:5 -:7 -:8 vendor:8 probe_id:16 -:16 spdcid:16 dpdcid:16
        tx_timestamp:16 tsr:1 -:11 ftype:4""",
    "ERTH": """type:4 nxt:5 -:5 op:2 -:8 vendor:8 port_status_mask:32 -:32
        tx_timestamp:16 tsr:1 -:11 ftype:4""",
    "EETH": "type:4 nxt:5 -:3 op:2 -:2 -:208 tx_timestamp:16 -:48",
    "AETH": "syndrome:8 msn:24",
}

Row = tuple[str, int, bool]
"""(name, width in bits, signed)"""


def _rows(text: str) -> tuple[Row, ...]:
    rows = []
    for item in text.split():
        name, width = item.split(":")
        rows.append((name, int(width.removeprefix("s")), width.startswith("s")))
    return tuple(rows)


LAYOUTS = {name: _rows(text) for name, text in _LAYOUT_TEXT.items()}
SIZES = {name: sum(width for _, width, _ in rows) // 8 for name, rows in LAYOUTS.items()}

_EXTENSIONS: dict[Kind, tuple[str, ...]] = {
    "transport_ack": ("AETH",),
    "endpoint_request": ("ERTH",),
    "endpoint_response": ("EETH",),
    "sack": ("SETH", "CC_STATE"),
    "nack": ("NETH",),
    "probe": ("PETH",),
}
_NETWORK = ("Ethernet", "outer", "IPv6", "UDP", "BTH")
ICRC_SIZE = 4
_WORD = 4


def is_data(kind: Kind) -> bool:
    """Is it an RDMA WRITE packet?"""
    return kind not in _EXTENSIONS


def headers_after_bth(kind: Kind, ts: bool) -> tuple[str, ...]:
    """The headers between BTH and payload; `ts` is BTH's."""
    if not is_data(kind):
        return _EXTENSIONS[kind]
    imm = ("ImmDt",) if kind.endswith("_imm") else ()
    return ("METH", *(("TSETH",) if ts else ()), "RETH", *imm)


@cache
def field_names(kind: Kind, ts: bool = True) -> tuple[str, ...]:
    """All fields that a packet of this kind can have, in wire order, and `icrc`; `ts` is BTH's."""
    stacks = (*_NETWORK, *headers_after_bth(kind, ts))
    return (*(name for stack in stacks for name, _, _ in LAYOUTS[stack] if name != "-"), "icrc")


def _pack(header: str, fields: Mapping[str, int]) -> bytes:
    value = 0
    for name, width, signed in LAYOUTS[header]:
        field = 0 if name == "-" else fields[name]
        low = -(1 << width - 1) if signed else 0
        if not low <= field < low + (1 << width):
            raise ValueError(f"{header}.{name}: {field:#x} does not fit into {width} bits")
        value = value << width | field & (1 << width) - 1
    return value.to_bytes(SIZES[header], "big")


def _unpack(header: str, data: bytes) -> Fields:
    value = int.from_bytes(data, "big")
    shift = len(data) * 8
    fields = {}
    for name, width, signed in LAYOUTS[header]:
        shift -= width
        field = value >> shift & (1 << width) - 1
        if name != "-":
            fields[name] = field - (1 << width) if signed and field >> width - 1 else field
        elif field:
            raise WireError(f"{header}: a reserved field is not 0")
    return fields


def icrc(packet: bytes) -> int:
    """The ICRC of the bytes from the inner IPv6 header to the last one before it (InfiniBand annex A17).

    CRC-32 over 8 bytes of ones and the packet, in which traffic class, flow label, hop limit, UDP checksum and BTH
    byte 4 are ones. It stands in the packet little-endian.
    """
    masked = bytearray(packet)
    masked[0:4] = b"\x6f\xff\xff\xff"
    masked[7] = masked[46] = masked[47] = masked[52] = 0xFF
    return crc32(b"\xff" * 8 + masked)


def encode(kind: Kind, given: Mapping[str, int], payload: bytes = b"") -> tuple[bytes, Fields]:
    """A frame without FCS, and all its fields. Without `outer_dst` it has no outer header.

    Lengths, pad, next headers and ICRC follow from the rest, unless `given` has them: a hostile packet may lie.
    ValueError names a field whose value does not fit, KeyError one that is missing.
    """
    stacks = headers_after_bth(kind, bool(given.get("ts")))
    pad = given.get("pad", -len(payload) % _WORD)
    body_size = sum(SIZES[stack] for stack in ("UDP", "BTH", *stacks)) + len(payload) + pad + ICRC_SIZE
    udp_len = given.get("udp_len", body_size)
    fields: Fields = {
        "ethertype": 0x86DD,
        "version": 6,
        "payload_len": udp_len,
        "next_hdr": 17,
        "udp_len": udp_len,
        "opcode": OPCODES[kind],
        "pad": pad,
        **given,
    }
    outer = b""
    if "outer_dst" in given:
        payload_len = SIZES["IPv6"] + body_size
        fields = {"outer_version": 6, "outer_payload_len": payload_len, "outer_next_hdr": 41, **fields}
        outer = _pack("outer", fields)
    inner = b"".join(_pack(stack, fields) for stack in ("IPv6", "UDP", "BTH", *stacks)) + payload + bytes(pad)
    fields.setdefault("icrc", icrc(inner))
    frame = _pack("Ethernet", fields) + outer + inner + fields["icrc"].to_bytes(ICRC_SIZE, "little")
    return frame, {name: fields[name] for name in field_names(kind, bool(given.get("ts"))) if name in fields}


class WireError(Exception):
    """A frame that the DUT must not send. The text says what is wrong with it."""


def decode(frame: bytes) -> tuple[Kind, Fields, bytes]:
    """Kind, fields and payload of a frame that the DUT has sent. Raises WireError for any defect."""
    fields: Fields = {}
    at = 0

    def take(header: str) -> None:
        nonlocal at
        if at + SIZES[header] > len(frame):
            raise WireError(f"{len(frame)} bytes end inside {header}")
        fields.update(_unpack(header, frame[at : at + SIZES[header]]))
        at += SIZES[header]

    take("Ethernet")
    inner_at = at
    if frame[at + 6 : at + 7] == b"\x29":  # the next header is IPv6
        take("outer")
        inner_at = at
        _require(fields["outer_version"] == 6, "the outer IPv6 version is not 6")
        _require(fields["outer_payload_len"] == len(frame) - at, "outer IPv6 payload length")
    take("IPv6")
    _require(fields["ethertype"] == 0x86DD and fields["version"] == 6, "it is not IPv6")
    _require(fields["next_hdr"] == 17, "the next header is not UDP")
    _require(fields["payload_len"] == len(frame) - at, "IPv6 payload length")
    take("UDP")
    _require(fields["udp_len"] == fields["payload_len"], "UDP length")
    take("BTH")
    kind = KINDS.get(fields["opcode"])
    if kind is None:
        raise WireError(f"opcode {fields['opcode']:#04x} is none of MRC's")
    for header in headers_after_bth(kind, bool(fields["ts"])):
        take(header)
    end = len(frame) - ICRC_SIZE
    payload = frame[at : end - fields["pad"]]
    _require(at + len(payload) + fields["pad"] == end and not any(frame[at + len(payload) : end]), "payload and pad")
    _require((len(payload) + fields["pad"]) % _WORD == 0, "the pad does not fill up a word")
    _require(not payload or is_data(kind), "a control packet has a payload")
    fields["icrc"] = int.from_bytes(frame[end:], "little")
    _require(fields["icrc"] == icrc(frame[inner_at:end]), "the ICRC is wrong")
    return kind, fields, payload


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise WireError(text)
