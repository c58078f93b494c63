"""Match-action tables: entries, and lookups by match kind.

The data plane looks up with two calls: `find` asks a dict, `miss` does what the dict can't. For an exact table the
dict is the table; for the others it remembers what `miss` found, until the entries change.
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from switch_model.ir import ActionCall, MatchKind, prefix_mask
from switch_model.ir import Table as TableSpec

MEMO_SIZE = 1 << 16
"""Lookups that a table remembers before it starts anew."""

NO_ACTION = -1
"""In place of an action's number: the entry has none of its own."""

Key: TypeAlias = int | tuple[int, ...]
"""What the data plane looks up: the field's value, or a tuple for several fields."""

Match: TypeAlias = tuple[tuple[int, int], ...]
"""An entry's condition, per key field: exact (value, 0), lpm (value, prefix length), ternary (value, mask), range
(low, high). Don't care is prefix length 0, mask 0 or the full range."""


class DuplicateError(ValueError):
    """An entry with this match (and priority) is there already."""


class TableFullError(ValueError):
    """The table holds as many entries as its size allows."""


class Choice:
    """What entries of a table with an action profile refer to: a packet takes one of the members."""

    __slots__ = ("members", "uses")

    def __init__(self, members: list[ActionCall]) -> None:
        self.members = members
        """Changes in place."""
        self.uses = 0  # entries

    def use(self) -> None:
        """One more entry refers to this."""
        self.uses += 1

    def release(self) -> None:
        """One entry less refers to this."""
        self.uses -= 1


class Entry:
    """What a match leads to, and the direct counter; `hit` is false for the default entry only.

    In a table without action profile that is an action with its arguments, else one of `members`. `cookie` is what
    the controller wants kept with the entry (P4Runtime's controller_metadata and metadata).
    """

    __slots__ = ("action", "args", "bytes", "choice", "cookie", "hit", "match", "members", "packets", "priority")

    def __init__(self, target: ActionCall | Choice, match: Match = (), priority: int = 0, *, hit: bool = True) -> None:
        self.choice: Choice | None = None
        self.assign(target)
        self.match = match
        self.priority = priority
        self.hit = hit
        self.packets = 0
        self.bytes = 0
        self.cookie: tuple[int, bytes] = (0, b"")

    def assign(self, target: ActionCall | Choice) -> None:
        self.release()
        if isinstance(target, ActionCall):
            self.action, self.args = target.action, target.args
            self.members = [target]
        else:
            target.use()
            self.action, self.args = NO_ACTION, ()
            self.choice, self.members = target, target.members

    def release(self) -> None:
        """The entry refers to nothing any more."""
        if self.choice is not None:
            self.choice.release()
            self.choice = None


class Table:
    """One table of one device. `find(key) or miss(key)` is the entry for a key, the default entry if none matches."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.entries: dict[tuple[Match, int], Entry] = {}
        self.default = Entry(spec.default, hit=False)
        self._index = _index(spec, self.default)
        self.find: Callable[[Key], Entry | None] = self._index.known.get
        self.miss: Callable[[Key], Entry] = self._index.miss
        for entry in spec.const_entries:
            self.insert(entry.match, entry.priority, entry.call)

    def __iter__(self) -> Iterator[Entry]:
        """Entries in the order of insertion, the default entry not among them."""
        return iter(self.entries.values())

    def get(self, match: Match, priority: int) -> Entry | None:
        return self.entries.get((match, priority))

    def insert(self, match: Match, priority: int, target: ActionCall | Choice) -> Entry:
        """Adds an entry. Raises DuplicateError or TableFullError."""
        if (match, priority) in self.entries:
            raise DuplicateError(f"table '{self.spec.name}' has this entry already")
        if len(self.entries) >= self.spec.size:
            raise TableFullError(f"table '{self.spec.name}' is full: {self.spec.size} entries")
        entry = Entry(target, match, priority)
        self.entries[match, priority] = entry
        self._index.add(entry)
        return entry

    def delete(self, entry: Entry) -> None:
        """Removes an entry of this table."""
        entry.release()
        del self.entries[entry.match, entry.priority]
        self._index.remove(entry)

    def reset_default(self) -> None:
        """The default action of the program again."""
        self.default.assign(self.spec.default)
        self.default.cookie = (0, b"")


class _Index(Protocol):
    known: dict[Key, Entry]

    def miss(self, key: Key) -> Entry: ...
    def add(self, entry: Entry) -> None: ...
    def remove(self, entry: Entry) -> None: ...


def _index(spec: TableSpec, default: Entry) -> _Index:
    match spec.match_type:
        case MatchKind.EXACT:
            return _Exact(default)
        case MatchKind.LPM:
            return _Lpm(spec, default)
    return _Prioritised(spec, default)


class _Exact:
    """`known` holds all entries, so that every miss is one of the table."""

    def __init__(self, default: Entry) -> None:
        self.known: dict[Key, Entry] = {}
        self._default = default

    def miss(self, _key: Key) -> Entry:
        return self._default

    def add(self, entry: Entry) -> None:
        self.known[self._key(entry)] = entry

    def remove(self, entry: Entry) -> None:
        del self.known[self._key(entry)]

    @staticmethod
    def _key(entry: Entry) -> Key:
        values = tuple(value for value, _ in entry.match)
        return values[0] if len(values) == 1 else values


class _Searched(ABC):
    """`known` remembers what was searched for, until an entry comes or goes."""

    def __init__(self, default: Entry) -> None:
        self.known: dict[Key, Entry] = {}
        self._default = default

    def miss(self, key: Key) -> Entry:
        entry = self._search(key if isinstance(key, tuple) else (key,)) or self._default
        if len(self.known) >= MEMO_SIZE:
            self.known.clear()
        self.known[key] = entry
        return entry

    def add(self, entry: Entry) -> None:
        self._add(entry)
        self.known.clear()

    def remove(self, entry: Entry) -> None:
        self._remove(entry)
        self.known.clear()

    @abstractmethod
    def _search(self, values: tuple[int, ...]) -> Entry | None: ...

    @abstractmethod
    def _add(self, entry: Entry) -> None: ...

    @abstractmethod
    def _remove(self, entry: Entry) -> None: ...


class _Lpm(_Searched):
    """One dict per prefix length, tried from the longest on. The other fields of the key are exact."""

    def __init__(self, spec: TableSpec, default: Entry) -> None:
        super().__init__(default)
        self._place = next(i for i, field in enumerate(spec.key) if field.kind is MatchKind.LPM)
        self._width = spec.key[self._place].width
        self._lengths: dict[int, dict[tuple[int, ...], Entry]] = {}

    def _add(self, entry: Entry) -> None:
        length, values = self._split(entry)
        if length not in self._lengths:
            self._lengths[length] = {}
            self._lengths = dict(sorted(self._lengths.items(), reverse=True))
        self._lengths[length][values] = entry

    def _remove(self, entry: Entry) -> None:
        length, values = self._split(entry)
        del self._lengths[length][values]
        if not self._lengths[length]:
            del self._lengths[length]

    def _split(self, entry: Entry) -> tuple[int, tuple[int, ...]]:
        return entry.match[self._place][1], tuple(value for value, _ in entry.match)

    def _search(self, values: tuple[int, ...]) -> Entry | None:
        masked = list(values)
        for length, entries in self._lengths.items():
            masked[self._place] = values[self._place] & prefix_mask(length, self._width)
            if entry := entries.get(tuple(masked)):
                return entry
        return None


class _Prioritised(_Searched):
    """Entries by falling priority; among equals the first inserted wins."""

    def __init__(self, spec: TableSpec, default: Entry) -> None:
        super().__init__(default)
        self._fields = [(field.kind, field.width) for field in spec.key]
        self._entries: list[Entry] = []

    def _add(self, entry: Entry) -> None:
        insort(self._entries, entry, key=lambda item: -item.priority)

    def _remove(self, entry: Entry) -> None:
        self._entries.remove(entry)

    def _search(self, values: tuple[int, ...]) -> Entry | None:
        return next((entry for entry in self._entries if self._matches(entry.match, values)), None)

    def _matches(self, match: Match, values: tuple[int, ...]) -> bool:
        return all(
            _field_matches(kind, width, condition, value)
            for (kind, width), condition, value in zip(self._fields, match, values, strict=True)
        )


def _field_matches(kind: MatchKind, width: int, condition: tuple[int, int], value: int) -> bool:
    first, second = condition
    match kind:
        case MatchKind.EXACT:
            return value == first
        case MatchKind.LPM:
            return value & prefix_mask(second, width) == first
        case MatchKind.TERNARY:
            return value & second == first
        case MatchKind.RANGE:
            return first <= value <= second
