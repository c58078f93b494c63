"""Operators against P4's arithmetic, computed here by its definition (P4_16 8.6, 8.8)."""

from hypothesis import example, given
from hypothesis import strategies as st

from tests.switch_model.support import forward, load

_DEVICE, _ = load("operators")

_U16 = st.integers(0, 0xFFFF)
_U8 = st.integers(0, 0xFF)
_S8 = st.integers(-128, 127)


def _wrapped(value: int) -> int:
    """As an int<8>."""
    return (value + 128) % 256 - 128


def _clamped(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _expected(a: int, b: int, n: int, s: int, t: int, wide: int) -> bytes:
    low, even = n < 8, a % 2 == 0
    compared = [a < b, a <= b, a > b, a >= b, a == b, a != b, low and even, low == even or not low]
    fields = [
        ((a + b) % 65536, 2),
        ((a - b) % 65536, 2),
        (a * b % 65536, 2),
        (a & b, 2),
        (a | b, 2),
        (a ^ b, 2),
        (65535 - a, 2),
        (_clamped(a + b, 0, 65535), 2),
        (_clamped(a - b, 0, 65535), 2),
        (a * 2**n % 65536, 2),
        (a // 2**n, 2),
        (a * 8 % 65536, 2),
        (a // 8, 2),
        (a * 65536 + b, 4),
        (a // 16 % 256, 1),
        (max(a, b), 2),
        (sum(bit << place for place, bit in enumerate(reversed(compared))), 1),
        (_wrapped(s + t), 1),
        (_clamped(s + t, -128, 127), 1),
        (_clamped(s - t, -128, 127), 1),
        (s >> 2, 1),
        (s, 2),
        (int(s < t), 1),
        (wide * 65536 % 2**128 | a, 16),
        (n % 16 * 16 + n // 16, 1),
    ]
    return b"".join((value % 256**size).to_bytes(size) for value, size in fields)


@given(a=_U16, b=_U16, n=_U8, s=_S8, t=_S8, wide=st.integers(0, 2**128 - 1))
@example(a=0, b=0, n=0, s=0, t=0, wide=0)
@example(a=0xFFFF, b=0xFFFF, n=255, s=-128, t=-128, wide=2**128 - 1)
@example(a=0, b=1, n=8, s=127, t=127, wide=1)
@example(a=0x8000, b=0x7FFF, n=7, s=-128, t=127, wide=2**127)
def test_every_operator(a: int, b: int, n: int, s: int, t: int, wide: int) -> None:
    frame = b"".join(
        (
            a.to_bytes(2),
            b.to_bytes(2),
            n.to_bytes(1),
            s.to_bytes(1, signed=True),
            t.to_bytes(1, signed=True),
            wide.to_bytes(16),
        )
    )
    assert forward(_DEVICE, frame + b"payload") == frame + _expected(a, b, n, s, t, wide) + b"payload"
