"""The packets that the script sends to the DUT: from the short form in a case to whole frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.cases import bench
from tests.cases.names import Names, named, part, piece
from tests.cases.schema import Arrival, ArrivingMessage, Case
from tests.cases.wire import Fields, Kind, encode, field_names, is_data

ENDPOINT_QPN = 2
HOP_LIMIT, OUTER_HOP_LIMIT = 64, 61
"""Three switches have counted the outer one down."""
P_KEY = 0xFFFF
UDP_PORT = 4791
FTYPE = 1
_PSN_MASK = 0xFFFFFF
_OUTER_LENGTH = slice(18, 20)
_OUTERMOST_END = 54


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that arrives at a port of the DUT; `fields` are empty if it was given raw."""

    port: int
    data: bytes
    fields: Fields


@dataclass(frozen=True, slots=True)
class _Packet:
    kind: Kind
    fields: Fields
    payload: bytes


def frames(arrival: Arrival, names: Names, case: Case) -> list[Frame]:
    """What arrives, in order. It gets its name, if it is to have one."""
    if arrival.raw is not None:
        return [Frame(0, bytes.fromhex(arrival.raw), {})] * arrival.copies
    made = [_frame(packet, arrival, case) for packet in _packets(arrival, names, case)]
    names.bind(arrival.bind, [named(frame.fields, frame.fields["ev"], frame.port) for frame in made])
    return [frame for frame in made for _ in range(arrival.copies)]


def _packets(arrival: Arrival, names: Names, case: Case) -> Iterator[_Packet]:
    given = names.numbers(arrival.fields)
    if arrival.message is not None:
        yield from _cut(arrival.message, given, names, case.qp.path_mtu)
    elif arrival.kind is not None:
        reflected = {} if arrival.answers is None else reflection(arrival.kind, names.packet(arrival.answers), given)
        yield _Packet(arrival.kind, reflected | given, piece(arrival.payload))


def _cut(message: ArrivingMessage, given: Fields, names: Names, mtu: int) -> Iterator[_Packet]:
    """A message as packets: the first, the middle ones and the last, or the only one."""
    data = piece(message.data)
    packets = max(1, -(-len(data) // mtu))
    numbers = [(nth, index) for nth in range(message.count) for index in part(message.part, packets)]
    for nth, index in numbers:
        kind = data_kind(index, packets, message.imm is not None)
        fields = {
            "psn": (message.psn + nth * packets + index) & _PSN_MASK,
            "a": int(index == packets - 1),
            "msn": (message.msn + nth) & 0xFFFF,
            "rqmsn": (message.rqmsn + (0 if message.imm is None else nth)) & 0xFFFF,
            "va": names.number(message.to, "va") + index * mtu,
            "rkey": names.number(message.to if message.rkey is None else message.rkey, "rkey"),
            "dmalen": len(data),
        }
        if kind.endswith("_imm"):
            fields["imm"] = message.imm or 0
        yield _Packet(kind, fields | given, data[index * mtu : (index + 1) * mtu])


def data_kind(index: int, count: int, imm: bool) -> Kind:
    """The kind of packet `index` of a message of `count` packets."""
    if index < count - 1:
        return "write_middle" if index else "write_first"
    if count == 1:
        return "write_only_imm" if imm else "write_only"
    return "write_last_imm" if imm else "write_last"


def reflection(kind: Kind, cause: Fields, given: Fields) -> Fields:
    """The fields of an answer that come from the packet that it answers, whoever of the two answers."""
    if kind == "sack":
        probe = "probe_id" in cause
        offset = cause["probe_id"] if probe else cause["psn"] - given["cack_psn"]
        bits = 16 if probe else 24
        return {
            "pr": int(probe),
            "ack_psn_offset": (offset + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1),
            "entropy": cause["ev"],
            "tx_timestamp": cause["tx_timestamp"],
        }
    if kind == "nack":
        return {"nack_psn": cause["psn"], "entropy": cause["ev"], "tx_timestamp": cause["tx_timestamp"]}
    return {"psn": cause["psn"], "op": cause["op"], "tx_timestamp": cause["tx_timestamp"]}  # endpoint_response


def _frame(packet: _Packet, arrival: Arrival, case: Case) -> Frame:
    kind, given = packet.kind, packet.fields
    ev = given.get("ev", 0)
    port = bench.ev_plane(ev)
    defaults = {name: 0 for name in field_names(kind) if name not in _DERIVED} | _defaults(kind, given, ev, port)
    if arrival.cut_to is not None:
        defaults["outer_dscp" if case.mode == "srv6" else "dscp"] = 12
    if case.mode == "ecmp":
        defaults = {name: value for name, value in defaults.items() if not name.startswith("outer_")}
    data, fields = encode(kind, defaults | given, packet.payload)
    return Frame(port, _on_the_way(data, arrival), fields | {"ev": ev})


_DERIVED = frozenset(
    {"outer_version", "outer_payload_len", "outer_next_hdr", "version", "payload_len", "next_hdr"}
    | {"ethertype", "udp_len", "opcode", "pad", "icrc"}
)
"""Fields that `wire.encode` finds out."""


def _defaults(kind: Kind, given: Fields, ev: int, port: int) -> Fields:
    """Of a packet that the peer sends on a path, when the last switch has handed it over."""
    data = is_data(kind)
    dscp = given.get("dscp", (8 if given.get("rtx") else 4) if data else 46)
    ecn = given.get("ecn", 2 if data else 0)
    endpoint = kind.startswith("endpoint")
    common = {
        "eth_dst": bench.mac(bench.DUT_ROW, port),
        "eth_src": bench.gateway(bench.DUT_ROW, port),
        "outer_dscp": dscp,
        "outer_ecn": ecn,
        "outer_flow_label": ev & 0xFFFF,
        "outer_hop_limit": OUTER_HOP_LIMIT,
        "outer_src": bench.address(bench.PEER_ROW, port),
        "outer_dst": bench.arriving_da(port),
        "dscp": dscp,
        "ecn": ecn,
        "flow_label": ev & 0xFFFF,
        "hop_limit": HOP_LIMIT,
        "src": bench.address(bench.PEER_ROW, port),
        "dst": bench.address(bench.DUT_ROW, port),
        "udp_sport": ev >> 16,
        "udp_dport": UDP_PORT,
        "p_key": P_KEY,
        "dqpn": ENDPOINT_QPN if endpoint else bench.DUT_QPN,
        "ftype": FTYPE,
    }
    if data:
        return common | {"ts": 1, "tx_timestamp": (0x1000 + given["psn"]) & 0xFFFF}
    identifiers = {"spdcid": bench.PEER_QPN & 0xFFFF, "dpdcid": bench.DUT_QPN & 0xFFFF}
    own = {
        "sack": {"psn": given.get("cack_psn", 0), "sack_offset": 1},
        "nack": {"psn": given.get("nack_psn", 0), "cc_type": 2},
        "transport_ack": {"syndrome": 0x1F},
        "probe": {"tx_timestamp": 0x1000},
        "endpoint_request": {"tx_timestamp": 0x1000},
    }
    return common | identifiers | own.get(kind, {})


def _on_the_way(data: bytes, arrival: Arrival) -> bytes:
    """What the network does to a frame: cut it, or damage it."""
    raw = bytearray(data)
    if arrival.cut_to is not None and arrival.cut_to < len(raw):
        length = min(int.from_bytes(raw[_OUTER_LENGTH], "big"), arrival.cut_to - _OUTERMOST_END)
        raw[_OUTER_LENGTH] = length.to_bytes(2, "big")
        del raw[arrival.cut_to :]
    for offset in arrival.flip:
        raw[offset] ^= 0xFF
    return bytes(raw)
