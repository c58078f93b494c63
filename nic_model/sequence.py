"""Serial numbers that wrap on the wire and grow without end inside."""


def unwrap(wire: int, near: int, bits: int) -> int:
    """The number congruent to `wire` modulo 2^bits that lies nearest to `near` (RFC 1982 in spirit).

    Half of the number space lies behind `near` and half ahead, so a 24-bit PSN tells the two sides of any
    window apart.
    """
    half = 1 << (bits - 1)
    return near + ((wire - near + half) & ((1 << bits) - 1)) - half
