"""Entropy values (EVs): the paths that a QP sprays over, their states, and the rotation over them.

Source: OCP MRC 1.0 (EV state machine) and Araujo et al., arXiv 2605.04333, section 3.

| from -> to            | on                                                        |
|-----------------------|-----------------------------------------------------------|
| GOOD -> SKIP          | a SACK that says SKIP_ONCE, a NACK TRIMMED                 |
| SKIP -> GOOD          | the EV's next turn, which is thereby used up               |
| any -> ASSUMED_BAD    | an untrimmed loss, an ACK timeout, a SACK that says ALWAYS_SKIP |
| any <-> DENIED        | the administrator                                          |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nic_model.ev_format import EvFormat, EvMode, GeneratedField, ProfileState
from nic_model.events import EvState
from nic_model.packet import Encap

EV_BITS = 32
EV_PLANE_SHIFT = 29
"""In both modes an EV's top bits are the plane; in ECMP mode all others are random."""


class SprayPolicy(StrEnum):
    """How a QP chooses its next EV: MRC's way, or one of `nic_model.spray` to compare it with."""

    MRC = "mrc"
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    REPS = "reps"
    SINGLE_PATH = "single_path"


@dataclass(slots=True, eq=False)
class Ev:
    """One path of one QP: the NIC port (= plane) it leaves through and its 32-bit value."""

    plane: int
    value: int
    encap: Encap
    state: EvState = EvState.GOOD
    packets: int = field(default=0, init=False)
    retransmissions: int = field(default=0, init=False)
    losses: int = field(default=0, init=False)
    rtt: int | None = field(default=None, init=False)
    """ns from sending to being acknowledged, of the newest packet on this path that was; None before any."""
    rtt_sent_at: int = field(default=0, init=False)
    """When that packet was sent, ns."""
    sent: deque[tuple[int, Any]] = field(default_factory=deque, init=False)
    """The requester's own: (order, record) of the transmissions on this path that feedback may still be about."""


@dataclass(frozen=True, slots=True)
class EvProfile:
    """How many EVs a QP uses, over all planes, each with the same share, and where their values come from.

    `active` carry data in rotation and `backup` replace them. Where a plane has fewer paths than asked for,
    backups come first and at least one path is active. Below `min_active` active EVs none is given up any
    more; None means a quarter of the active ones.

    AUTO: random paths. EXPLICIT: `explicit` lists (plane, EV) in the order of use. GENERATED: `generated` has the
    fields of each plane, which make the UDP source port alone (UDP_PORT), a 32-bit EV (STEV), or the outer destination
    address (SRV6_USID). With UDP_PORT the flow label is 0, for switches that hash ports and nothing else.
    """

    active: int = 128
    backup: int = 16
    min_active: int | None = None
    policy: SprayPolicy = SprayPolicy.MRC
    mode: EvMode = EvMode.AUTO
    format: EvFormat = EvFormat.STEV
    explicit: tuple[tuple[int, int], ...] = ()
    generated: tuple[tuple[GeneratedField, ...], ...] = ()
    state: ProfileState = ProfileState.ONLINE

    def __post_init__(self) -> None:
        if self.mode is EvMode.GENERATED:
            if self.format is EvFormat.SRV6_USID_SRH:
                raise ValueError("EVs of format SRV6_USID_SRH are not generated: uN paths here need no SRH")
            for plane, fields in enumerate(self.generated):
                if sum(field.width for field in fields) != self.format.value:
                    raise ValueError(f"plane {plane}: the generated fields are not {self.format.value} bits wide")
        if self.mode is EvMode.EXPLICIT:
            self._check_explicit()
        if self.active < 1 or self.backup < 0 or (self.min_active is not None and self.min_active < 1):
            raise ValueError(f"an EV profile needs active >= 1, backup >= 0, min_active >= 1: {self}")

    def _check_explicit(self) -> None:
        seen: set[int] = set()
        for plane, value in self.explicit:
            if value >> EV_BITS:
                raise ValueError(f"plane {plane}: EV {value:#x} is not {EV_BITS} bits")
            if value >> EV_PLANE_SHIFT != plane:
                raise ValueError(f"plane {plane}: EV {value:#010x} is of plane {value >> EV_PLANE_SHIFT}")
            if value in seen:
                raise ValueError(f"EV {value:#010x} stands there twice")
            seen.add(value)

    def per_plane(self, planes: int, paths: int) -> tuple[int, int]:
        """(active, backup) EVs in each of `planes` planes that have `paths` paths each."""
        wanted_backup = self.backup // planes
        active = max(1, min(self.active // planes, paths - wanted_backup))
        return active, min(wanted_backup, paths - active)


EvListener = Callable[[int, Ev, EvState, EvState, str], None]
"""Called with (time in ns, EV, old state, new state, reason)."""


class EvSet:
    """The EVs of one QP: per plane a ring of active ones and a queue of backups.

    Every packet takes another EV; planes take turns, so that each usable plane carries an equal share.
    """

    def __init__(
        self, planes: int, active: Iterable[Ev], backup: Iterable[Ev], min_active: int | None, listener: EvListener
    ) -> None:
        self._rings: list[deque[Ev]] = [deque() for _ in range(planes)]
        self._backups: list[deque[Ev]] = [deque() for _ in range(planes)]
        self._by_value: dict[int, Ev] = {}
        self._listener = listener
        self._turn = 0
        self._upcoming: Ev | None = None
        self._planes_up = (1 << planes) - 1  # when an EV was last asked for
        self.active_count = 0
        self.replaced = [0] * planes
        """EVs that a backup of their plane has replaced, by plane."""
        for ev in active:
            self._rings[ev.plane].append(ev)
            self._by_value[ev.value] = ev
            self.active_count += 1
        for ev in backup:
            self._backups[ev.plane].append(ev)
            self._by_value[ev.value] = ev
        self._active_per_plane = max(len(ring) for ring in self._rings)
        self._min_active = min_active if min_active is not None else max(1, self.active_count // 4)

    def __iter__(self) -> Iterator[Ev]:
        return iter(self._by_value.values())

    def find(self, value: int) -> Ev | None:
        """The EV that a peer's feedback names, if it is one of ours."""
        return self._by_value.get(value)

    def upcoming(self, planes_up: int, now: int, avoid: Ev | None = None) -> Ev | None:
        """The EV of the next packet, None if no usable plane has one.

        `planes_up` has bit p set if port p can send. `avoid` is the EV that lost this packet before: another
        one is taken if there is any (OCP MRC: a retransmission goes out on another EV).
        """
        ev = self._upcoming
        self._planes_up = planes_up
        if ev is not None and not planes_up >> ev.plane & 1:
            ev = None
        elif ev is not None and ev.state is not EvState.GOOD:
            # This was its turn: a mark is thereby used up, and another of its plane goes, so that planes stay even.
            if ev.state is EvState.SKIP:
                self._move(ev, EvState.GOOD, "skipped once", now)
            ev = self._next_in_ring(ev.plane, now)
        if ev is None:
            ev = self._next_in_rotation(planes_up, now)
        if ev is not None and ev is avoid:
            ev = self._next_in_ring(ev.plane, now)
            if ev is avoid:
                ev = self._next_in_rotation(planes_up, now) or ev
        self._upcoming = ev
        return ev

    def take(self, ev: Ev) -> None:
        """The upcoming EV has been used: the next packet takes the next one."""
        ev.packets += 1
        self._upcoming = None

    def pass_turn(self) -> None:
        """The upcoming EV has been used for something that is no data packet."""
        self._upcoming = None

    def on_ack(self, ev: Ev, marked: bool, now: int) -> None:
        """A SACK reflected this EV: what matters of it comes as `skip_once`."""

    def on_timeout(self, now: int) -> None:
        """An ACK timer ran out: what matters of it comes as `assume_bad`."""

    def _next_in_rotation(self, planes_up: int, now: int) -> Ev | None:
        planes = len(self._rings)
        for _ in range(planes):
            plane = self._turn
            self._turn = (plane + 1) % planes
            if not planes_up >> plane & 1:
                continue
            ring = self._rings[plane]
            if ring and ring[0].state is EvState.GOOD:
                ring.rotate(-1)
                return ring[-1]
            ev = self._next_in_ring(plane, now)
            if ev is not None:
                return ev
        return None

    def _next_in_ring(self, plane: int, now: int) -> Ev | None:
        ring = self._rings[plane]
        # After one lap no EV is in SKIP any more, so that a second lap always finds one.
        for _ in range(2 * len(ring)):
            ev = ring[0]
            ring.rotate(-1)
            if ev.state is EvState.GOOD:
                return ev
            self._move(ev, EvState.GOOD, "skipped once", now)
        return None

    def skip_once(self, ev: Ev, reason: str, now: int) -> None:
        """Pass over the EV at its next turn. Feedback that repeats itself does not skip it twice."""
        if ev.state is EvState.GOOD:
            self._move(ev, EvState.SKIP, reason, now)

    def assume_bad(self, ev: Ev, reason: str, now: int) -> None:
        """Retire the EV and let a backup of the same plane take its place.

        Without a backup, the floor of active EVs holds: at or below it the EV stays in use.
        """
        if ev.state not in (EvState.GOOD, EvState.SKIP):
            return
        if ev not in self._rings[ev.plane] or (not self._backups[ev.plane] and self._usable() <= self._min_active):
            return
        self._leave_rotation(ev)
        self._move(ev, EvState.ASSUMED_BAD, reason, now)

    def _usable(self) -> int:
        """Active EVs on planes that are up: those of others are no path."""
        return sum(len(ring) for plane, ring in enumerate(self._rings) if self._planes_up >> plane & 1)

    def _leave_rotation(self, ev: Ev) -> None:
        """A backup of its plane takes the EV's place, if there is one."""
        ring, backups = self._rings[ev.plane], self._backups[ev.plane]
        ring.remove(ev)
        if backups:
            ring.append(backups.popleft())
            self.replaced[ev.plane] += 1
        else:
            self.active_count -= 1

    def deny(self, ev: Ev, reason: str, now: int) -> None:
        """The administrator forbids the path: out of use, whatever the floor, until `allow`."""
        if ev.state is EvState.DENIED:
            return
        if ev in self._rings[ev.plane]:
            self._leave_rotation(ev)
        elif ev in self._backups[ev.plane]:
            self._backups[ev.plane].remove(ev)
        self._move(ev, EvState.DENIED, reason, now)

    def allow(self, ev: Ev, reason: str, now: int) -> None:
        """The administrator allows it again."""
        if ev.state is EvState.DENIED:
            self._return(ev, reason, now)

    def restore(self, ev: Ev, reason: str, now: int) -> None:
        """A retired EV works again: back into the rotation if its plane has a place free, else among the backups."""
        if ev.state is EvState.ASSUMED_BAD:
            self._return(ev, reason, now)

    def _return(self, ev: Ev, reason: str, now: int) -> None:
        ring = self._rings[ev.plane]
        if len(ring) < self._active_per_plane:
            ring.append(ev)
            self.active_count += 1
        else:
            self._backups[ev.plane].append(ev)
        ev.rtt = None  # what was known of the path is old
        self._move(ev, EvState.GOOD, reason, now)

    def _move(self, ev: Ev, state: EvState, reason: str, now: int) -> None:
        old, ev.state = ev.state, state
        self._listener(now, ev, old, state, reason)
