"""Every state of every EV over time, from the NICs' own events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nic_model.ev import Ev
from nic_model.events import EvEvent, EvState
from nic_model.paths import MAX_INDEX, UsidKind

_SEVERITY = {EvState.GOOD: 0, EvState.SKIP: 1, EvState.ASSUMED_BAD: 2, EvState.DENIED: 2}


class Path(NamedTuple):
    """What the EVs of many QPs have in common. By `order` they stand in their plane."""

    plane: int
    order: int
    name: str

    @classmethod
    def of(cls, ev: Ev) -> Path:
        """In SRv6 mode the T1 that it leads over; in ECMP mode switches hash, and each EV stands for itself."""
        destination = ev.encap.outer_dst
        if destination is None:
            return cls(ev.plane, 0, f"{ev.value:#010x}")
        second_usid = int.from_bytes(destination[6:8], "big")
        if second_usid >> 13 == UsidKind.NIC:
            return cls(ev.plane, -1, "own T0")
        index = second_usid & MAX_INDEX
        return cls(ev.plane, index, f"T1-{index}")


@dataclass(slots=True)
class _Watched:
    """One EV of one QP, from the QP's first moment to its last (ns), and its transitions."""

    ev: Ev
    since: int
    until: int | None = None
    states: list[tuple[int, EvState]] = field(default_factory=list)
    packets_when_left: int | None = None  # what it had carried when it ceased to be GOOD


@dataclass(frozen=True, slots=True)
class HealthMap:
    """For each path (row) and interval (column) the share, 0..1, of the EVs on it that were at any time in SKIP, and
    those that were ASSUMED_BAD; NaN where no QP had it."""

    paths: list[Path]
    skipped: NDArray[np.float64]
    bad: NDArray[np.float64]


class EvHealth:
    """Listens to all NICs. A QP's EVs are watched from `begin`, after it was made, to `end`."""

    def __init__(self) -> None:
        self._watched: dict[tuple[str, int, int], _Watched] = {}
        self._violations: list[str] = []

    def begin(self, evs: Iterable[tuple[str, int, Ev]], now: int) -> None:
        """Watch all that are new, each given with its NIC and its QP's number."""
        for name, qpn, ev in evs:
            self._watched.setdefault((name, qpn, ev.value), _Watched(ev, now))

    def end(self, now: int) -> None:
        """The work of all QPs so far is done."""
        for watched in self._watched.values():
            if watched.until is None:
                watched.until = now

    def on_event(self, nic: str, event: EvEvent) -> None:
        """A transition that a NIC tells of."""
        key = (nic, event.qpn, event.value)
        watched = self._watched[key]
        watched.states.append((event.time, event.new))
        if event.old is EvState.GOOD:
            watched.packets_when_left = watched.ev.packets
        else:
            self._check(key, watched)
            if event.new is EvState.GOOD:
                watched.packets_when_left = None

    def violations(self) -> list[str]:
        """One line for each time that data went out on an EV that was not GOOD."""
        for key, watched in self._watched.items():
            self._check(key, watched)
        return self._violations

    def _check(self, key: tuple[str, int, int], watched: _Watched) -> None:
        before, now = watched.packets_when_left, watched.ev.packets
        if before is not None and now != before:
            nic, qpn, value = key
            self._violations.append(
                f"{nic}: QP {qpn}: {now - before} data packets went out on EV {value:#010x} while it was not GOOD"
            )
            watched.packets_when_left = now

    def map(self, interval: int, columns: int) -> HealthMap:
        """The health, of the QPs that sent anything, of every path in `columns` intervals of `interval` ns."""
        used = {key[:2] for key, watched in self._watched.items() if watched.ev.packets}
        senders = [watched for key, watched in self._watched.items() if key[:2] in used]
        paths = sorted(dict.fromkeys(Path.of(watched.ev) for watched in senders), key=lambda path: path[:2])
        rows = {path: row for row, path in enumerate(paths)}
        counts = np.zeros((3, len(paths), columns))  # by severity, the worst in each interval
        for watched in senders:
            row = rows[Path.of(watched.ev)]
            first = watched.since // interval
            worst = _worst_by_interval(watched.states, interval, columns)
            last = columns if watched.until is None else min(columns, watched.until // interval + 1)
            for column in range(first, last):
                counts[worst[column], row, column] += 1
        with np.errstate(invalid="ignore"):
            shares = counts / counts.sum(axis=0)
        return HealthMap(paths, shares[1], shares[2])


def _worst_by_interval(states: Sequence[tuple[int, EvState]], interval: int, columns: int) -> NDArray[np.int64]:
    worst = np.zeros(columns, dtype=np.int64)
    for index, (time, state) in enumerate(states):
        first = time // interval
        last = states[index + 1][0] // interval if index + 1 < len(states) else columns - 1
        span = worst[first : last + 1]
        np.maximum(span, _SEVERITY[state], out=span)
    return worst
