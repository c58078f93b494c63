"""Every field of every header: what tshark shows is what was packed."""

from pathlib import Path
from random import Random

from nic_model.headers import EETH, ERTH, WRITE_OPCODES, EndpointOp, NackReason, Opcode, SackMark
from tests.wireshark.kinds import OCTET_FILTERS, WIRE_FILTERS, any_value, high, kinds, low, packed
from tests.wireshark.packets import ECMP, SRV6, endpoint, nack, sack
from tests.wireshark.tshark import TShark, number, write_capture


def test_every_field_is_what_was_packed(tshark: TShark, capture: Path) -> None:
    """The lowest, the highest and any values, with either encapsulation; no field is shown that is not there."""
    random = Random(7)
    packets = []
    for kind in kinds():
        for value in (low, high, any_value(random), any_value(random)):
            payload = random.randbytes(random.randrange(20)) if kind.opcode in WRITE_OPCODES else b""
            packets.append(packed(kind, random.choice([SRV6, ECMP]), value, payload))
    fields = [*WIRE_FILTERS, "mrc.payload", "mrc.pad", "mrc.icrc", "mrc.icrc.status"]
    rows = tshark.rows(write_capture(capture, [packet.frame for packet in packets]), fields)
    for packet, row in zip(packets, rows, strict=True):
        expected = packet.wire_values() | {"mrc.icrc": int.from_bytes(packet.icrc, "little"), "mrc.icrc.status": GOOD}
        if packet.payload:
            expected["mrc.payload"] = packet.payload
        if packet.pad:
            expected["mrc.pad"] = bytes(packet.pad)
        assert {name: value_of(name, texts) for name, texts in row.items() if texts} == expected


GOOD = 1


def value_of(name: str, texts: list[str]) -> int | bytes:
    (text,) = texts
    if name in OCTET_FILTERS or name in ("mrc.payload", "mrc.pad"):
        return bytes.fromhex(text.replace(":", ""))
    return number(text)


def test_enumerations_have_the_names_of_the_specification(tshark: TShark, capture: Path) -> None:
    frames, names = [], []
    for mark in SackMark:
        frames.append(sack(m=mark))
        names.append(f"Mark (m): {mark.name} ({mark})")
    for reason in NackReason:
        frames.append(nack(reason))
        names.append(f"Reason: {reason.name} ({reason:#04x})")
    for op in EndpointOp:
        frames.append(endpoint(Opcode.ENDPOINT_REQUEST, ERTH(op=op, tx_timestamp=0)))
        frames.append(endpoint(Opcode.ENDPOINT_RESPONSE, EETH(op=op, tx_timestamp=0)))
        names += [f"Operation (op): {op.name} ({op})"] * 2
    shown = tshark.run("-n", "-r", str(write_capture(capture, frames)), "-O", "mrc").split("\nFrame ")
    for name, text in zip(names, shown, strict=True):
        assert name in text
