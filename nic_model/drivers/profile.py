"""Named settings of a NIC and its QPs for a kind of network."""

from __future__ import annotations

import random
from dataclasses import dataclass

from nic_model.congestion import Nscc, NsccParameters
from nic_model.device import FIRST_QPN
from nic_model.ev import EvProfile
from nic_model.events import Log
from nic_model.headers import BTH, METH, RETH, TSETH, UDP, Ethernet, IPv6
from nic_model.icrc import SIZE as ICRC_SIZE
from nic_model.nic import Nic
from nic_model.packet import Wire
from nic_model.paths import PathFile
from nic_model.retry import TIMEOUT_UNIT

HEADERS = 2 * IPv6.SIZE + UDP.SIZE + BTH.SIZE + METH.SIZE + TSETH.SIZE + RETH.SIZE + ICRC_SIZE
"""Bytes of an IP packet around a WRITE's payload, in SRv6 mode; an immediate takes 4 more."""
MAX_QPN = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Profile:
    """`packet_rate` in packets/s of each port, of which at most `burst` go back to back; `base_rtt` and
    `late_tolerance` (see `Nic`) in ns.

    `timeout`, `linear_cnt`, `exp_cnt` are those of `verbs.QPAttr`; `tsr` is TSETH's.
    """

    name: str
    packet_rate: int
    burst: int
    base_rtt: int
    timeout: int
    linear_cnt: int
    exp_cnt: int
    late_tolerance: int
    tsr: int
    ev_profile: EvProfile

    def nscc(self, planes: int, path_mtu: int) -> NsccParameters:
        """NSCC's parameters, from what all ports of a NIC may send together."""
        bits_per_packet = 8 * (Ethernet.SIZE + HEADERS + path_mtu)
        rate_gbps = planes * self.packet_rate * bits_per_packet / 1e9
        return NsccParameters.scaled(rate_gbps, self.base_rtt, path_mtu)

    def nic(
        self,
        paths: PathFile,
        name: str,
        path_mtu: int,
        rng: random.Random,
        log: Log | None = None,
    ) -> Nic:
        """The NIC `name` of a path file. Raises KeyError if there is none.

        Its QP numbers begin at a random place, so that processes which share the ports of one NIC keep apart.
        """
        parameters = self.nscc(paths.planes, path_mtu)
        return Nic(
            paths,
            name,
            rng=rng,
            congestion=lambda _: Nscc(parameters),
            ev_profiles={0: self.ev_profile},
            wire=Wire(dscp=paths.dscp, tsr=self.tsr),
            log=log,
            log_windows=log is not None,
            first_qpn=rng.randrange(FIRST_QPN, MAX_QPN // 2),
            answer_timeout=TIMEOUT_UNIT << self.timeout,
            late_tolerance=self.late_tolerance,
        )


BMV2 = Profile(
    name="bmv2",
    packet_rate=4_000,
    burst=16,
    base_rtt=2_000_000,
    timeout=17,
    linear_cnt=7,
    exp_cnt=4,
    late_tolerance=20_000_000,
    tsr=1,
    ev_profile=EvProfile(active=128, backup=0),
)
"""Software switches on one machine: a hop takes 14 us of CPU, and a burst of more than 32 frames is lost before the
pipeline sees it, which MRC would read as a failed path. A dead peer is found after 5 s."""
PROFILES = {profile.name: profile for profile in (BMV2,)}
