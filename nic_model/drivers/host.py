"""An application's side of a NIC in real time: protection domain, completions, QPs from what a peer told."""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address

from nic_model.drivers.control import Connect, Connected
from nic_model.drivers.profile import Profile
from nic_model.drivers.raw import RawDriver
from nic_model.peer import Peer
from nic_model.verbs import CQ, PD, QP, WC, Context, QPAttr, QPInitAttr

_POLL_BATCH = 64
_PSN_BITS = 24
TAKEN = QPAttr()
"""What a QP takes as responder, `mpr_dest` and `max_wimm_dest`: the defaults."""


class HostError(Exception):
    """Something that was asked for can't be done. str() is one line."""


class Host:
    """One NIC's application; `path_mtu` in bytes is the largest payload of a packet that its ports carry."""

    def __init__(self, driver: RawDriver, profile: Profile, path_mtu: int) -> None:
        self.driver = driver
        self.nic = driver.nic
        self.path_mtu = path_mtu
        self.pd = PD(Context(driver.nic))
        self.address = IPv6Address(driver.nic.ports[0].address)
        """By which peers know the NIC."""
        self._profile = profile
        self._completions: asyncio.Queue[WC] = asyncio.Queue()
        self._cq = CQ(self.pd.context, channel=self._on_completion)

    def _on_completion(self, cq: CQ) -> None:
        for completion in cq.poll(_POLL_BATCH)[1]:
            self._completions.put_nowait(completion)

    async def completion(self) -> WC:
        """The next completion of any QP."""
        return await self._completions.get()

    def new_qp(self) -> tuple[QP, int]:
        """A QP in RESET, and the PSN that it is to begin with."""
        return QP(self.pd, QPInitAttr(self._cq, self._cq)), self.nic.rng.getrandbits(_PSN_BITS)

    def peer(self, address: IPv6Address) -> Peer:
        """The NIC that has this port address. Raises HostError."""
        peer = self.nic.peer(address.packed)
        if peer is None:
            raise HostError(f"the path file of {self.nic.name} has no way to {address}")
        return peer

    def connect(self, qp: QP, psn: int, peer: Connect | Connected, path_mtu: int) -> None:
        """Take a QP from RESET to RTS, with what the peer told of its own. Raises HostError."""
        self.peer(peer.address)
        attr = QPAttr(
            dgid=peer.address.packed,
            dest_qp_num=peer.qpn,
            rq_psn=peer.psn,
            sq_psn=psn,
            path_mtu=path_mtu,
            mpr=peer.mpr,
            max_wimm=peer.max_wimm,
            timeout=self._profile.timeout,
            linear_cnt=self._profile.linear_cnt,
            exp_cnt=self._profile.exp_cnt,
        )
        qp.to_init(attr)
        qp.to_rtr(attr)
        qp.to_rts(attr)
