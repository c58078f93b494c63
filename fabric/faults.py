"""Faults on a schedule."""

from __future__ import annotations

from collections.abc import Iterable

from fabric.links import Link
from fabric.network import Fabric
from fabric.scenario import Fault, LinkDown


def schedule(fabric: Fabric, faults: Iterable[Fault]) -> None:
    """Put every fault on the fabric's event list. Raises UnknownLinkError."""
    for fault in faults:
        link = fabric.link(*fault.link)
        start, end = _ns(fault.at_us), None if fault.until_us is None else _ns(fault.until_us)
        if isinstance(fault, LinkDown):
            fabric.events.at(start, link.set_up, False)
            if end is not None:
                fabric.events.at(end, link.set_up, True)
        else:
            fabric.events.at(start, _set_loss, link, fault.rate)
            if end is not None:
                fabric.events.at(end, _set_loss, link, 0.0)


def _ns(us: float) -> int:
    return round(us * 1000)


def _set_loss(link: Link, rate: float) -> None:
    link.state.loss = rate
