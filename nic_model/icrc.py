"""The invariant CRC of RoCEv2 over IPv6 (InfiniBand annex A17), which MRC keeps.

CRC-32 over 8 bytes of ones (in place of an LRH), the inner IPv6, UDP, BTH and all that follows, where the
traffic class, flow label, hop limit, UDP checksum and BTH's byte 4 count as ones. It is sent little-endian.
"""

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


def icrc_after(crc: int, bth: Buffer, payload: Buffer = b"", padding: Buffer = b"") -> bytes:
    """`icrc` from `ip_udp_crc` and what follows: `bth` is BTH and all headers after it."""
    crc = crc32(bth[_BTH_FROM_DQPN], crc32(_BTH_BYTE_4, crc32(bth[_BTH_OPCODE_FLAGS_AND_PKEY], crc)))
    crc = crc32(payload, crc)
    return (crc32(padding, crc) if padding else crc).to_bytes(SIZE, "little")


def is_intact_after(crc: int, bth: Buffer, rest: Buffer = b"") -> bool:
    """`is_intact` from `ip_udp_crc` and what follows, in two pieces: the first holds at least BTH."""
    crc = crc32(bth[_BTH_FROM_DQPN], crc32(_BTH_BYTE_4, crc32(bth[_BTH_OPCODE_FLAGS_AND_PKEY], crc)))
    return crc32(rest, crc) == _RESIDUE
