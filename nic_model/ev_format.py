"""How EV values are made: the formats and modes of an EV profile on the OCP MRC API (mrc_ctl), by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class EvFormat(Enum):
    """What an EV is on the wire, and its width in bits."""

    UDP_PORT = 16
    STEV = 32
    SRV6_USID = 128
    SRV6_USID_SRH = 256


class EvMode(Enum):
    """Where EV values come from: the NIC itself, a list, or a generator."""

    AUTO = "auto"
    EXPLICIT = "explicit"
    GENERATED = "generated"


class ProfileState(Enum):
    """A profile is written in INIT, complete in OFFLINE, and in use by QPs in ONLINE."""

    INIT = "init"
    OFFLINE = "offline"
    ONLINE = "online"


_STEPS = {
    (ProfileState.INIT, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.ONLINE),
    (ProfileState.ONLINE, ProfileState.OFFLINE),
    (ProfileState.OFFLINE, ProfileState.INIT),
}


def step(old: ProfileState, new: ProfileState) -> ProfileState:
    """The new state. Raises ValueError for a step that is none: INIT -> OFFLINE -> ONLINE, and back."""
    if (old, new) not in _STEPS:
        raise ValueError(f"an EV profile does not go from {old.name} to {new.name}")
    return new


@dataclass(frozen=True, slots=True)
class GeneratedField:
    """One field of a generated EV: `width` bits that start from `init_val`; EV bits fill those of `mask`.

    The value that the EV bits make is in `min`..`max`.
    """

    width: int
    init_val: int = 0
    min: int = 0
    max: int = 0
    mask: int = 0

    def __post_init__(self) -> None:
        limit = 1 << self.width
        if self.width < 1 or not 0 <= self.init_val < limit or not 0 <= self.mask < limit:
            raise ValueError(f"{self} does not fit into its width")
        if not 0 <= self.min <= self.max < 1 << self.ev_bits:
            raise ValueError(f"{self}: min and max must lie in what {self.ev_bits} bits of mask can hold")

    @property
    def ev_bits(self) -> int:
        """How many bits of the EV this field takes."""
        return self.mask.bit_count()

    @property
    def choices(self) -> int:
        """How many values it can have."""
        return self.max - self.min + 1

    def fill(self, value: int) -> int:
        """The field with the bits of `value`, the most significant first, laid over the mask's bits."""
        filled = self.init_val & ~self.mask
        left = self.ev_bits
        for bit in range(self.width - 1, -1, -1):
            if self.mask >> bit & 1:
                left -= 1
                filled |= (value >> left & 1) << bit
        return filled


def generate(fields: Sequence[GeneratedField], number: int) -> int:
    """EV `number` of a generated format, its fields concatenated, the first one most significant.

    `number` counts through all combinations of the fields' values, the last field fastest; it is taken modulo
    how many there are.
    """
    value, shift = 0, 0
    for field in reversed(fields):
        number, choice = divmod(number, field.choices)
        value |= field.fill(field.min + choice) << shift
        shift += field.width
    return value


def combinations(fields: Sequence[GeneratedField]) -> int:
    """How many different EVs a generated format has."""
    count = 1
    for field in fields:
        count *= field.choices
    return count
