"""The invariant CRC of RoCEv2 over IPv6 (InfiniBand annex A17), which MRC keeps.

CRC-32 over 8 bytes of ones (in place of an LRH), the inner IPv6, UDP, BTH and all that follows, where the
traffic class, flow label, hop limit, UDP checksum and BTH's byte 4 count as ones. It is sent little-endian.
"""

from functools import cache

from isal.isal_zlib import crc32  # zlib's, nine times as fast

from nic_model.layout import Buffer

SIZE = 4
"""Bytes."""

# What the ICRC takes as it is sent, in IPv6 (from byte 0), UDP (from 40) and BTH (from 48).
_LENGTH_AND_NEXT_HEADER = slice(4, 7)
_ADDRESSES_PORTS_AND_LENGTH = slice(8, 46)
_OPCODE_FLAGS_AND_PKEY = slice(48, 52)
_FROM_DQPN = slice(53, None)
# The same in BTH alone.
_BTH_OPCODE_FLAGS_AND_PKEY = slice(0, 4)
_BTH_FROM_DQPN = slice(5, None)
# And what stands for the rest.
_LRH_VERSION_CLASS_AND_LABEL = b"\xff" * 8 + b"\x6f\xff\xff\xff"
_HOP_LIMIT = b"\xff"
_CHECKSUM = b"\xff\xff"
_BTH_BYTE_4 = b"\xff"

_RESIDUE = crc32(crc32(b"").to_bytes(SIZE, "little"))
"""The CRC-32 of any bytes followed by their own CRC-32, little-endian."""


def icrc(ip_udp_bth: Buffer, *rest: Buffer) -> bytes:
    """The ICRC, 4 bytes as sent, of a packet in pieces; the first holds at least IPv6, UDP and BTH."""
    return _crc(ip_udp_bth, *rest).to_bytes(SIZE, "little")


def is_intact(ip_udp_bth: Buffer, *rest: Buffer) -> bool:
    """Whether a packet in pieces, its ICRC at the end, is as it was sent; the pieces are those of `icrc`."""
    return _crc(ip_udp_bth, *rest) == _RESIDUE


def _crc(ip_udp_bth: Buffer, *rest: Buffer) -> int:
    invariant = (
        _LRH_VERSION_CLASS_AND_LABEL,
        ip_udp_bth[_LENGTH_AND_NEXT_HEADER],
        _HOP_LIMIT,
        ip_udp_bth[_ADDRESSES_PORTS_AND_LENGTH],
        _CHECKSUM,
        ip_udp_bth[_OPCODE_FLAGS_AND_PKEY],
        _BTH_BYTE_4,
        ip_udp_bth[_FROM_DQPN],
    )
    crc = crc32(b"".join(invariant))
    for piece in rest:
        crc = crc32(piece, crc)
    return crc


def ip_udp_crc(ip_udp: Buffer) -> int:
    """What `icrc_after` needs of IPv6 and UDP: the same for all packets of one path and length."""
    invariant = (
        _LRH_VERSION_CLASS_AND_LABEL,
        ip_udp[_LENGTH_AND_NEXT_HEADER],
        _HOP_LIMIT,
        ip_udp[_ADDRESSES_PORTS_AND_LENGTH],
        _CHECKSUM,
    )
    return crc32(b"".join(invariant))


@cache
def byte_4_fix(length: int) -> int:
    """What it changes in a CRC over BTH (byte 4 of which is 0) and `length` bytes in all that byte 4 counts as ones.

    A CRC is linear: two inputs of one length that differ in the same bits have CRCs that differ in the same bits.
    """
    after = bytes(length - 5)
    return crc32(b"\xff" + after) ^ crc32(b"\0" + after)


def icrc_after(crc: int, bth: Buffer, payload: Buffer = b"", padding: Buffer = b"") -> bytes:
    """`icrc` from `ip_udp_crc` and what follows: `bth` is BTH and all headers after it."""
    if bth[4]:
        crc = crc32(payload, _masked(crc, bth))
        return crc32(padding, crc).to_bytes(SIZE, "little")
    length = len(bth) + len(payload) + len(padding)
    crc = crc32(payload, crc32(bth, crc))
    return ((crc32(padding, crc) if padding else crc) ^ byte_4_fix(length)).to_bytes(SIZE, "little")


def is_intact_after(crc: int, residue: int, bth: Buffer, rest: Buffer = b"") -> bool:
    """`is_intact` from `ip_udp_crc` and `residue_of` and what follows, in two pieces: the first holds at least BTH."""
    if bth[4]:
        return crc32(rest, _masked(crc, bth)) == _RESIDUE
    return crc32(rest, crc32(bth, crc)) == residue


def residue_of(length: int) -> int:
    """The CRC of `length` bytes that begin with BTH, byte 4 of which is 0, and end with a right ICRC."""
    return _RESIDUE ^ byte_4_fix(length) if length > 5 else _RESIDUE


def _masked(crc: int, bth: Buffer) -> int:
    crc = crc32(_BTH_BYTE_4, crc32(bth[_BTH_OPCODE_FLAGS_AND_PKEY], crc))
    return crc32(bth[_BTH_FROM_DQPN], crc)
