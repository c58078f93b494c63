"""One packet of each kind, with any values in its fields, and the filters under which tshark shows them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

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
    CCState,
    Ecn,
    ImmDt,
    Opcode,
)
from nic_model.icrc import SIZE as ICRC_SIZE
from nic_model.icrc import icrc_after
from nic_model.layout import Field, Header
from nic_model.packet import WORD_SIZE, Encap
from tests.wireshark.packets import DSCP

PREFIXES: dict[type[Header], str] = {
    BTH: "mrc.bth",
    METH: "mrc.meth",
    TSETH: "mrc.tseth",
    RETH: "mrc.reth",
    ImmDt: "mrc.immdt",
    AETH: "mrc.aeth",
    SETH: "mrc.sack",
    CCState: "mrc.cc_state",
    NETH: "mrc.nack",
    PETH: "mrc.peth",
    ERTH: "mrc.erth",
    EETH: "mrc.eeth",
}
NAMES = {
    "ack_req": "a",
    "pkey": "p_key",
    "dma_len": "dmalen",
    "sack_offset": "offset",
    "sack_bitmap": "bitmap",
    "nack_psn": "psn",
}
"""Where the filter's last word is not the codec's name of the field."""


def filter_of(kind: type[Header], row: Field) -> str:
    return f"{PREFIXES[kind]}.{NAMES.get(row.name, row.name)}"


WIRE_FILTERS = [filter_of(kind, row) for kind in PREFIXES for row in kind.LAYOUT]
OCTET_FILTERS = {filter_of(kind, row) for kind in PREFIXES for row in kind.LAYOUT if row.type is bytes}


# ---- values ---------------------------------------------------------------------------------------------------

MakeValue = Callable[[Field], Any]


def low(row: Field) -> Any:
    if row.type is bytes:
        return bytes(row.width // 8)
    return row.type(-1 << row.width - 1 if row.signed else 0)


def high(row: Field) -> Any:
    if row.type is bytes:
        return b"\xff" * (row.width // 8)
    return row.type((1 << row.width - row.signed) - 1)


def any_value(random: Random) -> MakeValue:
    def make(row: Field) -> Any:
        if row.type is bytes:
            return random.randbytes(row.width // 8)
        return row.type(random.randint(low(row), high(row)))

    return make


# ---- packets --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of packet: what follows BTH."""

    opcode: Opcode
    headers: tuple[type[Header], ...]
    ts: bool = False


def kinds() -> Iterator[Kind]:
    for opcode in Opcode:
        if opcode in EXTENSIONS:
            yield Kind(opcode, EXTENSIONS[opcode])
        else:
            imm = (ImmDt,) if opcode in WRITE_IMM_OPCODES else ()
            yield Kind(opcode, (METH, RETH, *imm))
            yield Kind(opcode, (METH, TSETH, RETH, *imm), ts=True)


@dataclass(frozen=True)
class Packed:
    """A packet, and what it was packed from."""

    frame: bytes
    headers: list[Header]
    payload: bytes
    pad: int
    icrc: bytes

    def wire_values(self) -> dict[str, Any]:
        return {
            filter_of(type(header), row): getattr(header, row.name) for header in self.headers for row in header.LAYOUT
        }


def packed(kind: Kind, encap: Encap, value: MakeValue, payload: bytes) -> Packed:
    """A packet with `value(row)` in every field but those that say what it is."""
    pad = -len(payload) % WORD_SIZE
    fixed: dict[str, Any] = {"opcode": kind.opcode, "pad": pad, "ts": kind.ts}
    bth = {row.name: fixed[row.name] if row.name in fixed else value(row) for row in BTH.LAYOUT}
    headers: list[Header] = [BTH(**bth)]
    headers += [header(**{row.name: value(row) for row in header.LAYOUT}) for header in kind.headers]
    wire = b"".join(header.pack() for header in headers)
    prefix, crc = encap.prefix(UDP.SIZE + len(wire) + len(payload) + pad + ICRC_SIZE, DSCP.trimmable, Ecn.ECT0)
    icrc = icrc_after(crc, wire, payload, bytes(pad))
    return Packed(prefix + wire + payload + bytes(pad) + icrc, headers, payload, pad, icrc)
