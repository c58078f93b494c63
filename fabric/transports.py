"""What a run's NICs speak: MRC, or RoCEv2 to compare it with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from controller.topology import Topology
from fabric.links import FULL_FRAME
from fabric.scenario import MrcQp, RoceQp
from nic_model.congestion import CongestionControl, FixedWindow, Nscc, NsccParameters
from nic_model.device import Device
from nic_model.ev import EvProfile
from nic_model.events import Event
from nic_model.nic import Nic
from nic_model.paths import PathFile
from nic_model.roce import RoceNic, RoceSettings

CONTROL_FRAME = 178
"""Bytes of a SACK with its SRv6 headers and WIRE_OVERHEAD."""


class Transport(Protocol):
    """Makes NICs. `rng` is the NIC's own."""

    def nic(self, paths: PathFile, name: str, rng: random.Random) -> Device:
        """The NIC of this name in the path file of its row."""
        ...


@dataclass(frozen=True, slots=True)
class MrcTransport:
    """MRC over the EVs of `ev_profile`; `congestion` makes the controller of a QP from its cc_profile_id."""

    ev_profile: EvProfile
    congestion: Callable[[int], CongestionControl]
    log: Callable[[str, Event], None] | None = None
    log_windows: bool = False

    def nic(self, paths: PathFile, name: str, rng: random.Random) -> Nic:
        """See Transport."""
        return Nic(
            paths,
            name,
            rng=rng,
            congestion=self.congestion,
            ev_profiles={0: self.ev_profile},
            log=partial(self.log, name) if self.log else None,
            log_windows=self.log_windows,
        )


@dataclass(frozen=True, slots=True)
class RoceTransport:
    """RoCEv2 RC."""

    settings: RoceSettings

    def nic(self, paths: PathFile, name: str, rng: random.Random) -> RoceNic:
        """See Transport."""
        return RoceNic(paths, name, rng=rng, settings=self.settings)


def mrc_transport(qp: MrcQp, topo: Topology, log: Callable[[str, Event], None], *, log_windows: bool) -> MrcTransport:
    """As a scenario has it, its congestion control scaled to the fabric."""
    nscc = NsccParameters.scaled(line_rate(topo), base_rtt(topo), qp.path_mtu)

    def congestion(_profile: int) -> CongestionControl:
        if qp.congestion == "nscc":
            return Nscc(nscc)
        return FixedWindow(qp.window_bytes or nscc.max_cwnd)

    return MrcTransport(EvProfile(qp.active_evs, qp.backup_evs, policy=qp.spray), congestion, log, log_windows)


def roce_settings(qp: RoceQp, topo: Topology) -> RoceSettings:
    """As a scenario has them, scaled to the NICs' ports: a QP has one path, and with it one port."""
    settings = RoceSettings.scaled(topo.model.links.nic.rate_gbps, base_rtt(topo))
    return settings if qp.congestion == "dcqcn" else replace(settings, dcqcn=None)


def base_rtt(topo: Topology) -> int:
    """ns from a full packet's first bit to the last bit of its SACK, across T1, with every queue empty."""
    links = topo.model.links
    total = 0.0
    for link in (links.nic, links.fabric, links.fabric, links.nic):
        total += 2 * link.delay_ns + (FULL_FRAME + CONTROL_FRAME) * 8 / link.rate_gbps
    return round(total)


def line_rate(topo: Topology) -> float:
    """Gb/s of a NIC: all its ports together."""
    return topo.planes * topo.model.links.nic.rate_gbps
