"""Frames of the CPU port to PacketIn messages, and PacketOut messages to frames (P4Runtime 1.4, "Packet I/O")."""

from finsy.proto import p4r

from switch_model.messages import decode_bytes, encode_bytes, invalid
from switch_model.p4info import ControllerHeader


def decode_packet_in(header: ControllerHeader, frame: bytes) -> p4r.PacketIn | None:
    """What the controller gets for a frame that left through the CPU port; None if it is shorter than its header."""
    if len(frame) < header.size:
        return None
    bits, place = int.from_bytes(frame[: header.size]), header.size * 8
    message = p4r.PacketIn(payload=frame[header.size :])
    for field in header.fields:
        place -= field.width
        value = bits >> place & ((1 << field.width) - 1)
        message.metadata.add(metadata_id=field.id, value=encode_bytes(value))
    return message


def encode_packet_out(header: ControllerHeader, message: p4r.PacketOut) -> bytes:
    """The frame that enters on the CPU port; metadata that is left out is 0, as PI has it. Raises StatusError."""
    given = {item.metadata_id: item.value for item in message.metadata}
    bits, place = 0, header.size * 8
    for field in header.fields:
        place -= field.width
        value = given.pop(field.id, b"\0")
        bits |= decode_bytes(value, field.width, f"packet-out metadata '{field.name}': value") << place
    if given:
        invalid(f"the program's packet-out has no metadata with id {next(iter(given))}")
    return bits.to_bytes(header.size) + message.payload
