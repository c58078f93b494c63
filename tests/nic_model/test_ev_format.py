"""Generated EV formats, worked out by hand (OCP MRC API: fields of width, init_val, min, max, mask)."""

from __future__ import annotations

import pytest

from nic_model.ev_format import GeneratedField, ProfileState, combinations, generate, step


def test_bits_are_laid_over_the_mask_most_significant_first() -> None:
    field = GeneratedField(width=8, init_val=0b1000_0001, mask=0b0110_0100, max=7)
    assert field.ev_bits == 3
    assert field.fill(0b101) == 0b1100_0101
    assert field.fill(0b010) == 0b1010_0001


def test_fields_are_concatenated() -> None:
    fields = [GeneratedField(16, 0x2000), GeneratedField(16, 0x4000, max=7, mask=0x0007), GeneratedField(16, 0x2001)]
    assert combinations(fields) == 8
    assert [generate(fields, n) for n in (0, 5, 8)] == [0x2000_4000_2001, 0x2000_4005_2001, 0x2000_4000_2001]


def test_an_srv6_profile_of_one_plane() -> None:
    """Plane 2 in init_val, the mask on the uplink bits of the T1's uSID: every path of the plane, and no other."""
    plane = 2 << 10
    fields = [
        GeneratedField(32, 0xFCBBBBBB),
        GeneratedField(16, 0x2000 | plane),
        GeneratedField(16, 0x4000 | plane, max=255, mask=0x00FF),
        GeneratedField(16, 0x2001 | plane),
        GeneratedField(16, 0xE003 | plane),
        GeneratedField(32),
    ]
    assert sum(field.width for field in fields) == 128
    assert {generate(fields, n) for n in range(256)} == {
        int(f"fcbbbbbb2800{0x4800 | n:04x}2801e80300000000", 16) for n in range(256)
    }


def test_min_and_max_bound_the_value() -> None:
    field = GeneratedField(8, mask=0x0F, min=3, max=5)
    assert [generate([field], n) for n in range(4)] == [3, 4, 5, 3]


@pytest.mark.parametrize(
    "bad", [{"width": 0}, {"width": 4, "init_val": 16}, {"width": 4, "mask": 3, "max": 4}, {"width": 4, "min": 1}]
)
def test_what_does_not_fit_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"fit|must lie"):
        GeneratedField(**bad)


def test_a_profiles_states() -> None:
    state = ProfileState.INIT
    for new in (ProfileState.OFFLINE, ProfileState.ONLINE, ProfileState.OFFLINE, ProfileState.INIT):
        state = step(state, new)
    with pytest.raises(ValueError, match="does not go from INIT to ONLINE"):
        step(state, ProfileState.ONLINE)
