"""Lookups of every match kind against a plain reference that looks at all entries."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from finsy.proto import p4r, rpc_code
from hypothesis import given, settings
from hypothesis import strategies as st

from switch_model.entities import Config
from switch_model.ir import prefix_mask
from switch_model.messages import encode_bytes
from switch_model.status import StatusError
from tests.switch_model.support import (
    Ids,
    call,
    delete,
    exact,
    forward,
    insert,
    interval,
    load,
    lpm,
    optional,
    ternary,
)

# Small alphabets, so that keys and entries meet.
_K8 = st.sampled_from([0, 1, 0x0F, 0xF0, 0xFF])
_K16 = st.sampled_from([0, 1, 0x00FF, 0x0100, 0x0FFF, 0x8000, 0xFFFF])
_K32 = st.sampled_from([0, 1, 0x0A000001, 0x0A0000FF, 0x0A010000, 0x0AFFFFFF, 0x80000000, 0xFFFFFFFF])

_Keys = tuple[int, int, int]


@dataclass(frozen=True)
class _Condition:
    """A field of an entry: its message (None: don't care), whether it matches, and how long its prefix is."""

    message: p4r.FieldMatch | None
    matches: Callable[[int], bool]
    identity: tuple[int, ...]
    length: int = 0


def _exact(field: int, values: st.SearchStrategy[int]) -> st.SearchStrategy[_Condition]:
    return values.map(lambda v: _Condition(exact(field, encode_bytes(v)), lambda key: key == v, (v,)))


def _lpm(field: int, values: st.SearchStrategy[int], width: int) -> st.SearchStrategy[_Condition]:
    def build(value: int, length: int) -> _Condition:
        mask = prefix_mask(length, width)
        message = lpm(field, encode_bytes(value & mask), length) if length else None
        return _Condition(message, lambda key: key & mask == value & mask, (value & mask, length), length)

    return st.builds(build, values, st.sampled_from([0, 1, 8, 16, 24, 31, 32]))


def _ternary(field: int, values: st.SearchStrategy[int]) -> st.SearchStrategy[_Condition]:
    def build(value: int, mask: int) -> _Condition:
        message = ternary(field, encode_bytes(value & mask), encode_bytes(mask)) if mask else None
        return _Condition(message, lambda key: key & mask == value & mask, (value & mask, mask))

    return st.builds(build, values, values)


def _range(field: int, values: st.SearchStrategy[int], width: int) -> st.SearchStrategy[_Condition]:
    def build(first: int, second: int) -> _Condition:
        low, high = min(first, second), max(first, second)
        everything = (low, high) == (0, (1 << width) - 1)
        message = None if everything else interval(field, encode_bytes(low), encode_bytes(high))
        return _Condition(message, lambda key: low <= key <= high, (low, high))

    return st.builds(build, values, values)


def _optional(field: int, values: st.SearchStrategy[int]) -> st.SearchStrategy[_Condition]:
    def build(value: int, given: bool) -> _Condition:
        if not given:
            return _Condition(None, lambda _: True, ())
        return _Condition(optional(field, encode_bytes(value)), lambda key: key == value, (value,))

    return st.builds(build, values, st.booleans())


@dataclass(frozen=True)
class _Kind:
    table: str
    place: int  # of its result among the results
    keys: Callable[[_Keys], tuple[int, ...]]
    conditions: tuple[st.SearchStrategy[_Condition], ...]
    prioritised: bool


_KINDS = [
    _Kind("exact", 0, lambda k: (k[0], k[1]), (_exact(1, _K8), _exact(2, _K16)), False),
    _Kind("prefix", 1, lambda k: (k[2],), (_lpm(1, _K32, 32),), False),
    _Kind("exact_prefix", 2, lambda k: (k[0], k[2]), (_exact(1, _K8), _lpm(2, _K32, 32)), False),
    _Kind("masked", 3, lambda k: (k[1], k[0]), (_ternary(1, _K16), _ternary(2, _K8)), True),
    _Kind("range", 4, lambda k: (k[1], k[0]), (_range(1, _K16, 16), _exact(2, _K8)), True),
    _Kind("optional", 5, lambda k: (k[0], k[1]), (_optional(1, _K8), _optional(2, _K16)), True),
    _Kind(
        "mixed",
        6,
        lambda k: (k[0], k[2], k[1]),
        (_ternary(1, _K8), _lpm(2, _K32, 32), _range(3, _K16, 16)),
        True,
    ),
]


@dataclass(frozen=True)
class _Entry:
    conditions: tuple[_Condition, ...]
    priority: int
    result: int

    def matches(self, key: tuple[int, ...]) -> bool:
        return all(item.matches(value) for item, value in zip(self.conditions, key, strict=True))

    @property
    def rank(self) -> tuple[int, int]:
        """Priority first; where there is none, the longest prefix."""
        return self.priority, 0 if self.priority else sum(item.length for item in self.conditions)


def _message(config: Config, table: str, entry: _Entry) -> p4r.TableEntry:
    ids = Ids(config.message.p4info)
    return p4r.TableEntry(
        table_id=ids.table(f"TestIngress.{table}"),
        match=[item.message for item in entry.conditions if item.message is not None],
        priority=entry.priority,
        action=call(ids.action(f"set_{table}"), encode_bytes(entry.result)),
    )


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.table)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_lookup_is_that_of_the_reference(kind: _Kind, data: st.DataObject) -> None:
    device, config = load("match_kinds")
    drawn = data.draw(st.lists(st.tuples(*kind.conditions), max_size=4, unique_by=_identity))
    # Distinct priorities: among equals P4Runtime leaves the choice open.
    entries = [
        _Entry(conditions, place if kind.prioritised else 0, 100 + place) for place, conditions in enumerate(drawn, 1)
    ]
    for entry in data.draw(st.permutations(entries)):
        config.write(insert(_message(config, kind.table, entry)))
    keys = data.draw(st.lists(st.tuples(_K8, _K16, _K32), min_size=1, max_size=6))
    _check(kind, entries, keys, lambda key: _result(device, kind, key))
    if entries:
        config.write(delete(_message(config, kind.table, entries.pop())))
        _check(kind, entries, keys, lambda key: _result(device, kind, key))


def _identity(conditions: tuple[_Condition, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(item.identity for item in conditions)


def _check(kind: _Kind, entries: list[_Entry], keys: list[_Keys], result: Callable[[_Keys], int]) -> None:
    for key in keys:
        found = [entry for entry in entries if entry.matches(kind.keys(key))]
        expected = max(found, key=lambda entry: entry.rank).result if found else 0
        for _ in range(2):  # the second time from the table's memory
            assert result(key) == expected


def _result(device: object, kind: _Kind, key: _Keys) -> int:
    frame = key[0].to_bytes(1) + key[1].to_bytes(2) + key[2].to_bytes(4) + bytes(16)
    out = forward(device, frame)  # type: ignore[arg-type]
    assert out is not None
    assert out[:7] == frame[:7]
    return int.from_bytes(out[7 + 2 * kind.place : 9 + 2 * kind.place])


# TestIngress.constant of match_kinds.p4, from the most important entry on.
@pytest.mark.parametrize(
    ("key", "result"),
    [
        ((5, 0x1234, 0x0A000001), 11),
        ((6, 0x1234, 0x0A000001), 12),
        ((11, 0x1234, 0x0A000001), 13),  # beyond the range
        ((5, 0x0034, 0x0A000001), 13),
        ((5, 0x1234, 0x0B000001), 14),
        ((5, 0x1235, 0x0B000001), 0),
    ],
)
def test_constant_entries(key: _Keys, result: int) -> None:
    device, config = load("match_kinds")
    assert _result(device, _Kind("constant", 7, lambda _: (), (), True), key) == result
    selector = p4r.TableEntry(table_id=Ids(config.message.p4info).table("TestIngress.constant"))
    entries = [entity.table_entry for entity in config.read(p4r.Entity(table_entry=selector))]
    assert [entry.priority for entry in entries] == [4, 3, 2, 1]
    assert [match.field_id for match in entries[2].match] == [2]


def test_the_first_inserted_wins_among_equal_priorities() -> None:
    device, config = load("match_kinds")
    everything = _Condition(None, lambda _: True, ())
    one = _Condition(optional(1, b"\x01"), lambda key: key == 1, (1,))
    for conditions, result in (((one, everything), 7), ((everything, everything), 8)):
        config.write(insert(_message(config, "optional", _Entry(conditions, 5, result))))
    assert _result(device, _KINDS[5], (1, 0, 0)) == 7
    assert _result(device, _KINDS[5], (2, 0, 0)) == 8


def test_a_full_table_refuses_the_next_entry() -> None:
    _, config = load("match_kinds")
    everything = _Condition(None, lambda _: True, ())
    entries = [_Entry((everything,) * 3, priority, 1) for priority in range(1, 6)]
    for entry in entries[:4]:
        config.write(insert(_message(config, "mixed", entry)))
    with pytest.raises(StatusError, match=r"table 'TestIngress\.mixed' is full: 4 entries") as error:
        config.write(insert(_message(config, "mixed", entries[4])))
    assert error.value.code == rpc_code.RESOURCE_EXHAUSTED
