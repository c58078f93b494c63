"""From a scenario's description of work to the workload that does it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from controller.topology import Topology, UnknownNodeError
from controller.yaml_file import KeyPath
from fabric.host import Host
from fabric.scenario import Incast, Permutation, RingAllReduce, Work, Writes
from fabric.workloads import RingAllReduceWorkload, Transfer, TransfersWorkload, Workload
from nic_model.verbs import QPAttr


class PhaseError(Exception):
    """Work that this fabric cannot do. `key` is where in its description the reason stands; str() is one line."""

    def __init__(self, key: KeyPath, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def workload(work: Work, topo: Topology, hosts: dict[str, Host], attr: QPAttr, rng: random.Random) -> Workload:
    """Raises PhaseError."""
    if isinstance(work, RingAllReduce):
        if len(hosts) < 2:
            raise PhaseError(("kind",), "an all-reduce needs at least 2 NICs")
        return RingAllReduceWorkload([hosts[name] for name in ring(topo)], work.bytes, attr, rng)
    if isinstance(work, Writes):
        transfers = _writes(work, topo)
    elif isinstance(work, Permutation):
        transfers = _permutation(work, list(hosts), rng)
    else:
        transfers = _incast(work, topo)
    return TransfersWorkload(hosts, list(transfers), attr, rng)


def ring(topo: Topology) -> list[str]:
    """All NICs in an order in which neighbours are in different rows, if there are two rows or more."""
    return [nic.name for nic in sorted(topo.nics(), key=lambda nic: (nic.index, nic.row))]


def _writes(work: Writes, topo: Topology) -> Iterator[Transfer]:
    for index, pair in enumerate(work.pairs):
        _check(topo, ("pairs", index), pair)
        yield Transfer(*pair, work.bytes, work.messages)


def _permutation(work: Permutation, names: list[str], rng: random.Random) -> Iterator[Transfer]:
    """Everyone writes to the next in a random order of all: one cycle, so that nobody writes to itself."""
    if len(names) < 2:
        raise PhaseError(("kind",), "a permutation needs at least 2 NICs")
    order = rng.sample(names, len(names))
    for source, target in zip(order, order[1:] + order[:1], strict=True):
        yield Transfer(source, target, work.bytes, work.messages)


def _incast(work: Incast, topo: Topology) -> Iterator[Transfer]:
    victim = work.victim or ()
    if work.victim is not None:
        _check(topo, ("victim",), work.victim)
    _check(topo, ("target",), (work.target,))
    senders = work.senders
    if senders is None:
        senders = [nic.name for nic in topo.nics() if nic.name not in (work.target, *victim)]
    for index, sender in enumerate(senders):
        _check(topo, ("senders", index), (sender, work.target))
        yield Transfer(sender, work.target, work.bytes)
    if work.victim is not None:
        yield Transfer(*work.victim, work.bytes, len(senders), is_victim=True)


def _check(topo: Topology, key: KeyPath, names: Iterable[str]) -> None:
    names = list(names)
    for name in names:
        try:
            topo.nic(name)
        except UnknownNodeError as error:
            raise PhaseError(key, str(error)) from None
    if len(set(names)) < len(names):
        raise PhaseError(key, f"{names[0]} would write to itself")
