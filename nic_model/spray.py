"""Which path the next packet takes: MRC's own way (`ev.EvSet`), and others to compare it with.

| policy      | the next packet's EV                                                    | feedback              |
|-------------|-------------------------------------------------------------------------|-----------------------|
| mrc         | the next GOOD one in rotation, planes in turn                            | skip once, retire      |
| round_robin | the next one in rotation, planes in turn                                | none                  |
| random      | any                                                                      | none                  |
| reps        | the oldest that came back unmarked, else any (arXiv 2407.21625)          | recycles, freezes      |
| single_path | always the same one, as a 5-tuple is hashed                             | none                  |
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from nic_model.ev import Ev, SprayPolicy


class Spray(Protocol):
    """What a requester asks of the paths of its QP, and what it tells them. `now` in ns."""

    replaced: list[int]
    """EVs that a backup of their plane has replaced, by plane."""

    def __iter__(self) -> Iterator[Ev]: ...

    def find(self, value: int) -> Ev | None:
        """The EV that a peer's feedback names, if it is one of ours."""
        ...

    def upcoming(self, planes_up: int, now: int, avoid: Ev | None = None) -> Ev | None:
        """The EV of the next packet: the same one until it is taken. `avoid` lost this packet before."""
        ...

    def take(self, ev: Ev) -> None:
        """The upcoming EV has been used."""
        ...

    def pass_turn(self) -> None:
        """The upcoming EV has been used for something that is no data packet."""
        ...

    def on_ack(self, ev: Ev, marked: bool, now: int) -> None:
        """A SACK reflected this EV; `marked`: its packet was ECN-marked."""
        ...

    def skip_once(self, ev: Ev, reason: str, now: int) -> None:
        """The path is congested."""
        ...

    def assume_bad(self, ev: Ev, reason: str, now: int) -> None:
        """The path lost a packet that was not trimmed."""
        ...

    def restore(self, ev: Ev, reason: str, now: int) -> None:
        """A path that was given up works again."""
        ...

    def deny(self, ev: Ev, reason: str, now: int) -> None:
        """The administrator forbids the path."""
        ...

    def allow(self, ev: Ev, reason: str, now: int) -> None:
        """The administrator allows it again."""
        ...

    def on_timeout(self, now: int) -> None:
        """Nothing was heard for an ACK timeout."""
        ...


class _Stateless:
    """The common part of the policies that keep no EV state. `evs` are all that they use."""

    def __init__(self, evs: Iterable[Ev], rng: random.Random, planes: int) -> None:
        self._evs = list(evs)
        self._by_value = {ev.value: ev for ev in self._evs}
        self._rng = rng
        self._upcoming: Ev | None = None
        self._unavoidable: Ev | None = None
        self.replaced = [0] * planes

    def __iter__(self) -> Iterator[Ev]:
        return iter(self._evs)

    def find(self, value: int) -> Ev | None:
        """See Spray."""
        return self._by_value.get(value)

    def upcoming(self, planes_up: int, now: int, avoid: Ev | None = None) -> Ev | None:
        """See Spray."""
        ev = self._upcoming
        if ev is None or not planes_up >> ev.plane & 1:
            ev = self._choose(planes_up, now)
        if ev is not None and ev is avoid and ev is not self._unavoidable:
            ev = self._choose(planes_up, now)
            self._unavoidable = ev if ev is avoid else None  # one more draw, or the announced port would not stay
        self._upcoming = ev
        return ev

    def _choose(self, planes_up: int, now: int) -> Ev | None:
        raise NotImplementedError

    def take(self, ev: Ev) -> None:
        """See Spray."""
        ev.packets += 1
        self.pass_turn()

    def pass_turn(self) -> None:
        """See Spray."""
        self._upcoming = None
        self._unavoidable = None

    def _any(self, planes_up: int) -> Ev | None:
        usable = [ev for ev in self._evs if planes_up >> ev.plane & 1]
        return self._rng.choice(usable) if usable else None

    def on_ack(self, ev: Ev, marked: bool, now: int) -> None:
        """Nothing to learn."""

    def skip_once(self, ev: Ev, reason: str, now: int) -> None:
        """No EV state."""

    def assume_bad(self, ev: Ev, reason: str, now: int) -> None:
        """No EV state."""

    def restore(self, ev: Ev, reason: str, now: int) -> None:
        """No EV state."""

    def deny(self, ev: Ev, reason: str, now: int) -> None:
        """No EV state."""

    def allow(self, ev: Ev, reason: str, now: int) -> None:
        """No EV state."""

    def on_timeout(self, now: int) -> None:
        """No EV state."""


class RoundRobin(_Stateless):
    """Planes in turn, and the EVs of a plane in turn, whatever becomes of the packets."""

    def __init__(self, evs: Iterable[Ev], rng: random.Random, planes: int) -> None:
        super().__init__(evs, rng, planes)
        by_plane = [[ev for ev in self._evs if ev.plane == plane] for plane in range(planes)]
        longest = max(map(len, by_plane))
        self._order = deque(ev for turn in range(longest) for evs_ in by_plane for ev in evs_[turn : turn + 1])

    def _choose(self, planes_up: int, now: int) -> Ev | None:  # noqa: ARG002
        for _ in range(len(self._order)):
            ev = self._order[0]
            self._order.rotate(-1)
            if planes_up >> ev.plane & 1:
                return ev
        return None


class RandomSpray(_Stateless):
    """A random EV for every packet."""

    def _choose(self, planes_up: int, now: int) -> Ev | None:  # noqa: ARG002
        return self._any(planes_up)


class SinglePath(_Stateless):
    """One random EV for all packets, as long as its port is up: what ECMP makes of a QP's 5-tuple."""

    def __init__(self, evs: Iterable[Ev], rng: random.Random, planes: int) -> None:
        super().__init__(evs, rng, planes)
        self._chosen = rng.choice(self._evs)

    def _choose(self, planes_up: int, now: int) -> Ev | None:  # noqa: ARG002
        if not planes_up >> self._chosen.plane & 1:
            self._chosen = self._any(planes_up) or self._chosen
        return self._chosen if planes_up >> self._chosen.plane & 1 else None


REPS_BUFFER = 8
"""EVs that REPS remembers."""
REPS_FREEZE = 100_000
"""ns that it stays frozen after a timeout (the figure scripts of the REPS artifact)."""


class Reps(_Stateless):
    """Recycled entropies (arXiv 2407.21625): what came back unmarked is used once more, else a random EV.

    After a timeout it freezes: for a while it only uses what it remembers, again and again, for that has worked.
    """

    def __init__(self, evs: Iterable[Ev], rng: random.Random, planes: int) -> None:
        super().__init__(evs, rng, planes)
        self._fresh: deque[Ev] = deque(maxlen=REPS_BUFFER)
        self._known: deque[Ev] = deque(maxlen=REPS_BUFFER)
        self._frozen_until = 0

    def on_ack(self, ev: Ev, marked: bool, now: int) -> None:  # noqa: ARG002
        """See Spray."""
        if not marked:
            self._fresh.append(ev)
            self._known.append(ev)

    def on_timeout(self, now: int) -> None:
        """See Spray."""
        self._frozen_until = now + REPS_FREEZE

    def _choose(self, planes_up: int, now: int) -> Ev | None:
        while self._fresh:
            ev = self._fresh.popleft()
            if planes_up >> ev.plane & 1:
                return ev
        if now < self._frozen_until:
            for _ in range(len(self._known)):
                ev = self._known[0]
                self._known.rotate(-1)
                if planes_up >> ev.plane & 1:
                    return ev
        return self._any(planes_up)


STATELESS: dict[SprayPolicy, type[_Stateless]] = {
    SprayPolicy.ROUND_ROBIN: RoundRobin,
    SprayPolicy.RANDOM: RandomSpray,
    SprayPolicy.REPS: Reps,
    SprayPolicy.SINGLE_PATH: SinglePath,
}
