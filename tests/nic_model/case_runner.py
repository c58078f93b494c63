"""Our NIC as the device under test of the scripted cases: the only part of them that knows this implementation."""

from __future__ import annotations

import random

from nic_model.congestion import FixedWindow
from nic_model.ev import EvProfile, EvSet
from nic_model.nic import Nic
from nic_model.paths import LocalNic, LocalPort, PathFile, Template, UsidKind, usid
from nic_model.peer import Deny
from nic_model.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    Access,
    Context,
    QPAttr,
    QPInitAttr,
    RecvWR,
    SendWR,
    WROpcode,
)
from tests.cases import bench
from tests.cases.player import Done, initial
from tests.cases.schema import Case

NAME = "dut"
_BLOCK = bytes.fromhex("fcbbbbbb")
_SEED = 4791

REASONS = {
    "not mine": "not_mine",
    "no such QP": "no_such_qp",
    "QP in error": "qp_in_error",
    "not from the peer": "not_from_the_peer",
    "not an endpoint operation": "endpoint_opcode",
    "from no known NIC": "endpoint_unknown_nic",
    "unknown endpoint operation": "endpoint_unknown_op",
    "no such endpoint request": "endpoint_not_asked",
}
"""Our reasons for refusing a frame, as the cases name them; the others have the same name."""


REQUESTER_COUNTERS = frozenset({"retransmissions"})
"""Of the counters that the cases look at; the others are the responder's."""


def _path_file(case: Case) -> PathFile:
    planes = case.planes
    t0 = [usid(UsidKind.T0, 0, row) for row in (bench.DUT_ROW, bench.PEER_ROW)]
    t1, nic = usid(UsidKind.T1, 0, 0), usid(UsidKind.NIC, 0, 0)
    ports = tuple(
        LocalPort(
            plane,
            bench.address(bench.DUT_ROW, plane).to_bytes(16, "big"),
            bench.mac(bench.DUT_ROW, plane).to_bytes(6, "big"),
            bench.gateway(bench.DUT_ROW, plane).to_bytes(6, "big"),
            usid(UsidKind.NIC, plane, 0),
        )
        for plane in range(planes)
    )
    prefixes = [bench.address(row, 0).to_bytes(16, "big")[:8] for row in (bench.DUT_ROW, bench.PEER_ROW)]
    templates = (
        Template(bench.DUT_ROW, prefixes[0], _BLOCK, (t0[0], nic), planes, 0),
        Template(bench.PEER_ROW, prefixes[1], _BLOCK, (t0[0], t1, t0[1], nic), planes, bench.UPLINKS),
    )
    local = LocalNic(NAME, 0, ports)
    return PathFile(bench.DUT_ROW, _BLOCK, planes, bench.UPLINKS, (local,), templates, case.mode)


class NicUnderTest:
    """`tests.cases.player.DeviceUnderTest` on `nic_model.nic.Nic`."""

    def __init__(self, case: Case) -> None:
        self._nic = Nic(
            _path_file(case),
            NAME,
            rng=random.Random(_SEED),
            congestion=lambda _: FixedWindow(case.cwnd),
            ev_profiles={0: EvProfile(case.evs.active, case.evs.backup, case.evs.min_active)},
            first_qpn=bench.DUT_QPN,
        )
        context = Context(self._nic)
        own, other = PD(context), PD(context)
        self._regions: dict[str, MR] = {}
        for name, settings in case.regions.items():
            access = Access.LOCAL_WRITE | (Access.REMOTE_WRITE if settings.remote_write else Access(0))
            buffer = bytearray(initial(case, name))
            self._regions[name] = MR(own if settings.own_domain else other, settings.length, access, buffer)
        self._send_queue, self._receive_queue = CQ(context), CQ(context)
        self._qp = QP(own, QPInitAttr(self._send_queue, self._receive_queue))
        attr = QPAttr(
            dest_qp_num=bench.PEER_QPN,
            dgid=bench.address(bench.PEER_ROW, 0).to_bytes(16, "big"),
            **case.qp.model_dump(),
        )
        self._qp.to_init(attr)
        self._qp.to_rtr(attr)
        self._qp.to_rts(attr)

    def post_send(
        self, wr_id: int, region: str, offset: int, length: int, remote_addr: int, rkey: int, imm: int | None, now: int
    ) -> None:
        self._nic.poll(now)
        opcode = WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM
        mr = self._regions[region]
        pieces = [SGE(mr.addr + offset, length, mr.lkey)]
        self._qp.post_send(SendWR(wr_id, opcode, pieces, remote_addr, rkey, imm or 0))

    def post_recv(self, wr_id: int) -> None:
        self._qp.post_recv(RecvWR(wr_id))

    def deregister(self, region: str) -> None:
        self._regions[region].close()

    def port_status(self, plane: int, up: bool, now: int) -> None:
        self._nic.port_status(plane, up, now)

    def deny(self, rules: list[tuple[int, int | None]], now: int) -> None:
        self._nic.set_denylist([Deny(plane, uplink) for plane, uplink in rules], now)

    def host_penalty(self, value: int) -> None:
        self._nic.host_penalty.value = value

    def receive(self, port: int, frame: bytes, now: int) -> None:
        self._nic.receive(port, (frame, b""), now)

    def transmitted(self, now: int) -> list[tuple[int, bytes]]:
        frames = []
        while ready := self._nic.ready:
            for port in range(len(self._nic.ports)):
                if ready >> port & 1 and (frame := self._nic.pull(port, now)) is not None:
                    frames.append((port, b"".join(frame)))
        return frames

    def next_deadline(self) -> int | None:
        return self._nic.next_deadline()

    def poll(self, now: int) -> None:
        self._nic.poll(now)

    def completions(self) -> tuple[list[Done], list[Done]]:
        return _drain(self._send_queue), _drain(self._receive_queue)

    def memory(self, region: str) -> bytes:
        return bytes(self._regions[region].buf)

    def qp_state(self) -> str:
        return self._qp.qp_state.name

    def ev_state(self, value: int) -> str:
        requester = self._qp.core.requester
        if requester is None or not isinstance(requester.evs, EvSet):
            raise LookupError("the QP has no EVs")
        ev = requester.evs.find(value)
        if ev is None:
            raise LookupError(f"{value:#010x} is no EV of the QP")
        return ev.state.name

    def counter(self, name: str) -> int:
        requester, responder = self._qp.core.requester, self._qp.core.responder
        if requester is None or responder is None:
            raise LookupError("the QP is not in RTS")
        return int(getattr(requester.counters if name in REQUESTER_COUNTERS else responder.counters, name))

    def refused(self) -> dict[str, int]:
        return {REASONS.get(reason, str(reason)): count for reason, count in self._nic.counters.refused.items()}


def _drain(queue: CQ) -> list[Done]:
    return [_done(completion) for completion in queue.poll(queue.cqe)[1]]


def _done(completion: WC) -> Done:
    return Done(completion.wr_id, completion.status.name, completion.byte_len, completion.imm_data)
