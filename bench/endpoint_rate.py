"""Data packets per second of wall time for one MRC QP between two NICs back to back: no switch, codec included.

    .venv/bin/python bench/endpoint_rate.py [--profile] [--rounds N]

Both endpoints run in one process, on one core: what is counted is building, parsing, ICRC, spraying, placing,
SACKs, congestion control and completions of both. Every round is MESSAGES messages of 1 MiB, in a ring of RING MiB
on either side; best, median and worst round are printed. `--profile` says where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import statistics
import time
from collections import deque

from nic_model.congestion import Nscc, NsccParameters
from nic_model.ev import EvProfile
from nic_model.nic import Nic
from nic_model.packet import Frame
from nic_model.paths import LocalNic, LocalPort, PathFile, Template, UsidKind, usid
from nic_model.verbs import CQ, MR, PD, QP, SGE, Access, Context, QPAttr, QPInitAttr, SendWR, WROpcode

PLANES = 8
UPLINKS = 32
RATE = 100  # Gb/s per port
DELAY = 2_000  # ns, one way
MTU = 4096
MESSAGE = 1 << 20
MESSAGES = 80  # a round
RING = 4  # messages
BLOCK = bytes.fromhex("fcbbbbbb")


def _prefix(row: int) -> bytes:
    return bytes.fromhex("fd006d726300") + row.to_bytes(2, "big")


def path_file(row: int) -> PathFile:
    """Row `row` of two rows with one NIC each. The other NIC is the gateway of each port: there is no switch."""
    t0 = [usid(UsidKind.T0, 0, index) for index in (0, 1)]
    nic = usid(UsidKind.NIC, 0, 0)
    macs = [[bytes([2, 1, 0, at, plane, 0]) for at in (0, 1)] for plane in range(PLANES)]
    ports = tuple(
        LocalPort(
            plane,
            _prefix(row) + plane.to_bytes(2, "big") + bytes(6),
            macs[plane][row],
            macs[plane][1 - row],
            usid(UsidKind.NIC, plane, 0),
        )
        for plane in range(PLANES)
    )
    far = (t0[row], usid(UsidKind.T1, 0, 0), t0[1 - row], nic)
    templates = (
        Template(row, _prefix(row), BLOCK, (t0[row], nic), PLANES, 0),
        Template(1 - row, _prefix(1 - row), BLOCK, far, PLANES, UPLINKS),
    )
    return PathFile(row, BLOCK, PLANES, UPLINKS, (LocalNic(f"nic{row}", 0, ports),), templates)


class Endpoint:
    """One NIC with one QP."""

    def __init__(self, row: int) -> None:
        parameters = NsccParameters.scaled(PLANES * RATE, 2 * DELAY + 1_000, MTU)
        self.nic = Nic(
            path_file(row),
            f"nic{row}",
            rng=random.Random(row),
            congestion=lambda _: Nscc(parameters),
            ev_profiles={0: EvProfile()},
        )
        context = Context(self.nic)
        self.pd = PD(context)
        self.cq = CQ(context)
        self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq))

    def connect(self, peer: Endpoint) -> None:
        """To RTS."""
        attr = QPAttr(dest_qp_num=peer.qp.qp_num, dgid=peer.nic.ports[0].address, path_mtu=MTU, mpr=64, mpr_dest=64)
        self.qp.to_init(attr)
        self.qp.to_rtr(attr)
        self.qp.to_rts(attr)


class Cable:
    """PLANES wires between two NICs, in virtual time: each sends at RATE and takes DELAY."""

    def __init__(self, nics: tuple[Nic, Nic]) -> None:
        self.now = 0
        self._nics = nics
        self._flying: deque[tuple[int, Nic, int, Frame]] = deque()
        self._slot = (MTU + 200) * 8 // RATE

    def slot(self) -> None:
        """The time of one full packet: everything that arrives, then one packet out of each port."""
        self.now = now = self.now + self._slot
        flying = self._flying
        while flying and flying[0][0] <= now:
            _, nic, plane, frame = flying.popleft()
            nic.receive(plane, frame, now)
        for sender, receiver in (self._nics, self._nics[::-1]):
            deadline = sender.next_deadline()
            if deadline is not None and deadline <= now:
                sender.poll(now)
            idle = (1 << PLANES) - 1
            while ready := sender.ready & idle:
                plane = ready.bit_length() - 1
                frame = sender.pull(plane, now)
                if frame is not None:
                    flying.append((now + DELAY, receiver, plane, frame))
                    if frame[1]:
                        idle ^= 1 << plane  # a packet with payload takes the slot, control packets are small


def rate(a: Endpoint, source: MR, target: MR, cable: Cable) -> float:
    """Packets per second of one round."""
    for number in range(MESSAGES):
        at = number % RING * MESSAGE
        sge = SGE(source.addr + at, MESSAGE, source.lkey)
        a.qp.post_send(SendWR(number, WROpcode.RDMA_WRITE, [sge], target.addr + at, target.rkey))
    completed = 0
    began = time.perf_counter()
    while completed < MESSAGES:
        cable.slot()
        completed += a.cq.poll(MESSAGES)[0]
    return MESSAGES * MESSAGE // MTU / (time.perf_counter() - began)


def main() -> None:
    """Print the rates, or the profile."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    a, b = Endpoint(0), Endpoint(1)
    a.connect(b)
    b.connect(a)
    cable = Cable((a.nic, b.nic))
    source = MR(a.pd, RING * MESSAGE, Access.LOCAL_WRITE)
    source.write(random.Random(1).randbytes(source.length))
    target = MR(b.pd, RING * MESSAGE, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    if arguments.profile:
        with cProfile.Profile() as profile:
            rate(a, source, target, cable)
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        return
    rates = sorted(rate(a, source, target, cable) for _ in range(arguments.rounds))
    if target.buf != source.buf:
        raise SystemExit("the bytes did not arrive as they were sent")
    print(
        f"data packets/s of one QP, both ends: best {rates[-1]:,.0f}, median {statistics.median(rates):,.0f}, "
        f"worst {rates[0]:,.0f}"
    )


if __name__ == "__main__":
    main()
