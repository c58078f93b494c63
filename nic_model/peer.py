"""The NIC at the other end: its addresses, which of its ports can be reached, and the headers that lead there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nic_model.congestion import Window
from nic_model.ev import EV_BITS, EV_PLANE_SHIFT, Ev, EvListener, EvProfile, EvSet, SprayPolicy
from nic_model.ev_format import EvFormat, EvMode, combinations, generate
from nic_model.packet import Encap
from nic_model.paths import MAX_INDEX, srv6_ev
from nic_model.sequence import unwrap
from nic_model.spray import STATELESS, Spray

if TYPE_CHECKING:
    from nic_model.nic import Nic
    from nic_model.queue_pair import QueuePair

ENCAPS_KEPT = 4096
"""A peer chooses the EVs that are answered, and may not make us remember without end."""


@dataclass(frozen=True, slots=True)
class Deny:
    """What a denylist forbids: a plane, or in it the paths over one T1 (`uplink`), or of those the ones to one row.

    So a T1 is (plane, its number), a link between it and a remote T0 is (plane, its number, that T0's row), and a link
    between it and the own T0 is the T1 itself, seen from here.
    """

    plane: int
    uplink: int | None = None
    row: int | None = None


class Peer:
    """One other NIC, shared by all QPs to it."""

    def __init__(self, nic: Nic, address: bytes) -> None:
        """`address` is any of its port addresses. Raises KeyError if the path file has no way to it."""
        self._nic = nic
        self._template = nic.paths.template_for(address)
        self._row = address[:8]
        self._index = address[14:16]
        self.addresses = tuple(self._address(port.plane) for port in nic.ports)
        """Of its ports, by plane; it may send from any of them."""
        if address not in self.addresses or int.from_bytes(self._index, "big") > MAX_INDEX:
            raise KeyError(address)
        self._encaps: dict[int, Encap] = {}
        self._windows: dict[int, Window] = {}
        self.queue_pairs: list[QueuePair] = []
        """All QPs to this NIC."""
        self.ports_up = (1 << len(nic.ports)) - 1
        """Bit p is set if its port p can be reached, as its last PORT_STATUS_UPDATE said."""
        self._newest_update = 0
        self._newest_update_at: int | None = None

    def _address(self, plane: int) -> bytes:
        """Of a port: the row's /64, the plane in 16 bits, zeros, the NIC in 16 bits."""
        return self._row + plane.to_bytes(2, "big") + bytes(4) + self._index

    def is_overtaken(self, request_id: int, lifetime: int, now: int) -> bool:
        """Has a PORT_STATUS_UPDATE with a later id come before this one? Paths differ in delay.

        Ids wrap at 2^16, and a peer that begins anew counts anew, so only an update that came less than `lifetime` ns
        ago can have overtaken another.
        """
        newest, newest_at = self._newest_update, self._newest_update_at
        if newest_at is not None and now - newest_at < lifetime and unwrap(request_id, newest, 16) < newest:
            return True
        self._newest_update, self._newest_update_at = request_id, now
        return False

    def window(self, cc_profile_id: int) -> Window:
        """The congestion context of this destination, one for each profile."""
        if cc_profile_id not in self._windows:
            self._windows[cc_profile_id] = Window(self._nic.congestion(cc_profile_id))
        return self._windows[cc_profile_id]

    def encap(self, plane: int, ev: int) -> Encap:
        """The addresses of a packet that leaves through port `plane` on path `ev`."""
        encap = self._encaps.get(ev)
        if encap is None:
            port, srv6 = self._nic.ports[plane], self._nic.srv6
            encap = Encap(
                eth_dst=port.gateway,
                eth_src=port.mac,
                outer_src=port.address if srv6 else None,
                outer_dst=self._template.outer_da(ev, int.from_bytes(self._index, "big")) if srv6 else None,
                inner_src=port.address,
                inner_dst=self.addresses[plane],
                ev=ev,
                wire=self._nic.wire,
            )
            if len(self._encaps) >= ENCAPS_KEPT:
                self._encaps.clear()
            self._encaps[ev] = encap
        return encap

    def reply_ev(self, plane: int, ev: int) -> int:
        """The path, from port `plane`, of a control packet that answers one which came on `ev`.

        In SRv6 mode it is over the same T1: what a path brought shows that it works, and a link that fails, fails in
        both directions. A peer's EV that is none of ours gives the plane's first path. In ECMP mode the same value
        is hashed to some path of the plane.
        """
        if not self._nic.srv6:
            return plane << EV_PLANE_SHIFT | ev & (1 << EV_PLANE_SHIFT) - 1
        uplink = ev >> 19 & 0x3FF
        reply = srv6_ev(plane, uplink if uplink < self._template.paths else 0)
        return self.any_ev(plane) if self.is_denied(plane, reply) else reply

    def any_path(self) -> tuple[int, int] | None:
        """(plane, EV) of some path between ports that are up, one that is not denied if there is such."""
        up = self._nic.planes_up & self.ports_up
        planes = [port.plane for port in self._nic.ports if up >> port.plane & 1]
        if not planes:
            return None
        if self._nic.denylist:
            planes = [plane for plane in planes if self._allowed(plane)] or planes
        plane = self._nic.rng.choice(planes)
        return plane, self.any_ev(plane)

    def any_ev(self, plane: int) -> int:
        """A random path in a plane, one that is not denied if there is such."""
        if not self._nic.denylist:
            return self._random_evs(plane, 1)[0]
        allowed = self._allowed(plane)
        return self._nic.rng.choice(allowed) if allowed else self._random_evs(plane, 1)[0]

    def _allowed(self, plane: int) -> Sequence[int]:
        """The paths in a plane that no denylist covers. In ECMP mode nobody knows which T1 an EV takes."""
        if not self._nic.srv6:
            return () if self.is_denied(plane, plane << EV_PLANE_SHIFT) else self._random_evs(plane, 1)
        evs = (srv6_ev(plane, uplink) for uplink in range(self._template.paths))
        return [ev for ev in evs if not self.is_denied(plane, ev)]

    def is_denied(self, plane: int, ev: int) -> bool:
        """Does the NIC's denylist cover this path to the peer?"""
        denylist = self._nic.denylist
        return bool(denylist) and any(self.denies(plane, ev, rule) for rule in denylist)

    def _random_evs(self, plane: int, count: int, ev_format: EvFormat = EvFormat.STEV) -> list[int]:
        rng = self._nic.rng
        if self._nic.srv6:
            return [srv6_ev(plane, uplink) for uplink in rng.sample(range(self._template.paths), count)]
        step = 1 << (EV_BITS - ev_format.value if ev_format is EvFormat.UDP_PORT else 0)
        return [plane << EV_PLANE_SHIFT | value for value in rng.sample(range(0, 1 << EV_PLANE_SHIFT, step), count)]

    def spray(self, profile: EvProfile, listener: EvListener) -> Spray:
        """The EVs of a new QP: the same number in each plane, without coordination between senders."""
        planes = len(self._nic.ports)
        active: list[Ev] = []
        backup: list[Ev] = []
        for plane in range(planes):
            evs = self._candidates(profile, plane)
            count, _ = profile.per_plane(planes, len(evs))
            active += evs[:count]
            backup += evs[count:]
        values = Counter(ev.value for ev in active + backup)
        if values.total() > len(values):  # feedback names an EV by its value
            raise ValueError(f"EV {values.most_common(1)[0][0]:#010x} stands for several paths")
        if profile.policy is SprayPolicy.MRC:
            return EvSet(planes, active, backup, profile.min_active, listener)
        return STATELESS[profile.policy](active + backup, self._nic.rng, planes)

    def _candidates(self, profile: EvProfile, plane: int) -> list[Ev]:
        """The EVs that a QP gets in one plane, those to be active first."""
        if profile.mode is EvMode.EXPLICIT:
            values = [value for at, value in profile.explicit if at == plane]
        elif profile.mode is EvMode.GENERATED:
            return self._generated(profile, plane)
        else:
            # In ECMP mode switches hash and an EV is not known to be a path of its own: as many as asked for.
            paths = self._template.paths if self._nic.srv6 else profile.active + profile.backup
            values = self._random_evs(plane, sum(profile.per_plane(len(self._nic.ports), paths)), profile.format)
        return [Ev(plane, value, self.encap(plane, value)) for value in values]

    def _generated(self, profile: EvProfile, plane: int) -> list[Ev]:
        if plane >= len(profile.generated):
            raise ValueError(f"nothing is generated for plane {plane}")
        fields = profile.generated[plane]
        count = combinations(fields)
        chosen = self._nic.rng.sample(range(count), sum(profile.per_plane(len(self._nic.ports), count)))
        if profile.format is not EvFormat.SRV6_USID:
            shift = EV_BITS - profile.format.value  # the UDP source port is an EV's high half
            values = [generate(fields, number) << shift for number in chosen]
            return [Ev(plane, value, self.encap(plane, value)) for value in values]
        evs = []
        for number in chosen:  # the number stands for the path where an EV has 32 bits
            value = srv6_ev(plane, number)
            outer_dst = generate(fields, number).to_bytes(16, "big")
            evs.append(Ev(plane, value, replace(self.encap(plane, value), outer_dst=outer_dst)))
        return evs

    def denies(self, plane: int, ev: int, rule: Deny) -> bool:
        """Does a denylist's rule cover this path to the peer?"""
        if plane != rule.plane or (rule.row is not None and rule.row != self._template.row):
            return False
        return rule.uplink is None or (self._nic.srv6 and (ev >> 19 & 0x3FF) == rule.uplink)
