"""Hash algorithms as BMv2 computes them (behavioral-model src/bm_sim/calculations.cpp)."""

from collections.abc import Callable
from zlib import crc32


def _crc16_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)  # 0x8005 reflected
        table.append(value)
    return tuple(table)


_CRC16 = _crc16_table()


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005 reflected, initial value and final xor 0."""
    crc = 0
    for byte in data:
        crc = crc >> 8 ^ _CRC16[(crc ^ byte) & 0xFF]
    return crc


def identity(data: bytes) -> int:
    """The first eight bytes as an integer."""
    return int.from_bytes(data[:8])


ALGORITHMS: dict[str, Callable[[bytes], int]] = {"crc32": crc32, "crc16": crc16, "identity": identity}

HASH_BITS = {"crc32": 32, "crc16": 16, "identity": 64}
"""Width of each result."""
