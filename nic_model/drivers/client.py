"""What one asks of a NIC that serves: to take bytes into its memory, and to answer on every path."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address

from nic_model.drivers.control import Channel, Connect, Connected, ControlError, Digest, Digested
from nic_model.drivers.host import TAKEN, Host, HostError
from nic_model.events import Event, EvEvent
from nic_model.paths import srv6_ev
from nic_model.peer import Peer
from nic_model.verbs import MR, QP, SGE, Access, SendWR, WCStatus, WROpcode

MESSAGE_SIZE = 1 << 20
"""Bytes in one WRITE of a larger transfer."""
MESSAGES_AT_ONCE = 16
PROBES_AT_ONCE = 4
"""In each plane: more would wait for each other in the switches, and tell so as round-trip time."""

_FAILURES = {
    WCStatus.RETRY_EXC_ERR: "the peer does not answer on any path",
    WCStatus.REM_ACCESS_ERR: "the peer's memory refused it",
}

Progress = Callable[[int], None]
"""Called with how many bytes are complete."""


@dataclass(frozen=True, slots=True)
class PlaneShare:
    """Data packets of one plane; retransmissions are among them. `share` of all, 0 to 1."""

    plane: int
    packets: int
    retransmissions: int
    share: float


@dataclass(slots=True)
class WriteResult:
    """A transfer. `seconds` from the first packet to the last completion; `error` in one line, "" if none.

    `losses` are packets by why they were taken for lost; `ev_events` have their time in ns from the beginning.
    """

    peer: str
    payload_bytes: int
    sha256: str
    peer_sha256: str = ""
    seconds: float = 0.0
    packets: int = 0
    retransmissions: int = 0
    timeouts: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    planes: list[PlaneShare] = field(default_factory=list)
    ev_events: list[EvEvent] = field(default_factory=list)
    error: str = ""

    @property
    def verified(self) -> bool:
        """The peer has the same bytes."""
        return not self.error and self.sha256 == self.peer_sha256

    @property
    def goodput_mbps(self) -> float:
        """Mb/s of payload."""
        return self.payload_bytes * 8 / 1e6 / self.seconds if self.seconds else 0.0


async def write(host: Host, channel: Channel, data: bytearray, until: float, progress: Progress) -> WriteResult:
    """Move `data` into the memory of the NIC at the other end of `channel`, and compare; by `until`, the loop's time.

    Raises ControlError or HostError if the two do not get connected; what goes wrong later is told in the result.
    """
    with contextlib.ExitStack() as held:
        source = MR(host.pd, len(data), Access.LOCAL_WRITE, data)
        held.callback(source.close)
        qp, psn = host.new_qp()
        held.callback(qp.close)
        request = Connect(
            address=host.address,
            qpn=qp.qp_num,
            psn=psn,
            mpr=TAKEN.mpr_dest,
            max_wimm=TAKEN.max_wimm_dest,
            path_mtu=host.path_mtu,
            length=len(data),
        )
        target = await channel.ask(request, Connected, until)
        host.connect(qp, psn, target, host.path_mtu)
        result = WriteResult(str(target.address), len(data), hashlib.sha256(data).hexdigest())
        started = host.driver.now()
        before = host.nic.log

        def listen(event: Event) -> None:
            if before is not None:
                before(event)
            if isinstance(event, EvEvent):
                result.ev_events.append(replace(event, time=event.time - started))

        host.nic.log = listen
        try:
            async with asyncio.timeout_at(until):
                await _move(host, qp, source, target, progress)
            result.seconds = (host.driver.now() - started) / 1e9
            result.peer_sha256 = (await channel.ask(Digest(), Digested, until)).sha256
            if not result.verified:
                result.error = "the peer has other bytes"
        except TimeoutError:
            result.error = "not done in time"
        except (ControlError, _QpError) as error:
            result.error = str(error)
        _count(result, qp)
        return result


class _QpError(Exception):
    """The QP failed."""


async def _move(host: Host, qp: QP, source: MR, target: Connected, progress: Progress) -> None:
    posted = completed = 0
    while completed < source.length:
        while posted < source.length and posted - completed < MESSAGES_AT_ONCE * MESSAGE_SIZE:
            length = min(MESSAGE_SIZE, source.length - posted)
            sge = SGE(source.addr + posted, length, source.lkey)
            qp.post_send(SendWR(posted, WROpcode.RDMA_WRITE, [sge], target.va + posted, target.rkey))
            posted += length
        host.driver.attend()
        completion = await host.completion()
        if completion.status is not WCStatus.SUCCESS:
            raise _QpError(_FAILURES.get(completion.status, f"the QP failed: {completion.status.name}"))
        completed += completion.byte_len
        progress(completed)


def _count(result: WriteResult, qp: QP) -> None:
    requester = qp.core.requester
    if requester is None:
        raise AssertionError("a connected QP without a requester")
    counters = requester.counters
    result.packets = counters.packets
    result.retransmissions = counters.retransmissions
    result.timeouts = counters.timeouts
    result.losses = {reason.value: count for reason, count in requester.losses.items() if count}
    for plane in sorted({ev.plane for ev in requester.evs}):
        evs = [ev for ev in requester.evs if ev.plane == plane]
        packets = sum(ev.packets for ev in evs)
        retransmissions = sum(ev.retransmissions for ev in evs)
        result.planes.append(PlaneShare(plane, packets, retransmissions, packets / max(1, counters.packets)))


# ---- probe ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PathResult:
    """One path, probed `sent` times; `rtts` are those of the probes that were answered, ns."""

    plane: int
    uplink: int
    sent: int = 0
    rtts: list[int] = field(default_factory=list)


async def probe(host: Host, address: IPv6Address, count: int, patience: float) -> list[PathResult]:
    """Send `count` EV_PROBEs on every path to the NIC with this address, each with `patience` seconds to be answered.

    Raises HostError if there is no path to name.
    """
    peer = host.peer(address)
    if not host.nic.srv6:
        raise HostError("in ECMP mode switches choose the paths: none can be probed by name")
    uplinks = host.nic.paths.template_for(address.packed).paths
    paths = [PathResult(port.plane, uplink) for port in host.nic.ports for uplink in range(uplinks)]
    turns = {port.plane: asyncio.Semaphore(PROBES_AT_ONCE) for port in host.nic.ports}

    async def probe_path(path: PathResult) -> None:
        async with turns[path.plane]:
            for _ in range(count):
                path.sent += 1
                rtt = await _probe_once(host, peer, path, patience)
                if rtt is not None:
                    path.rtts.append(rtt)

    await asyncio.gather(*map(probe_path, paths))
    return paths


async def _probe_once(host: Host, peer: Peer, path: PathResult, patience: float) -> int | None:
    outcome: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def answered(rtt: int | None, _now: int) -> None:
        if not outcome.done():  # it is if the whole probe was cancelled
            outcome.set_result(rtt)

    ev = srv6_ev(path.plane, path.uplink)
    host.nic.endpoint.probe(peer, path.plane, ev, round(patience * 1e9), answered, host.driver.now())
    host.driver.attend()
    return await outcome
