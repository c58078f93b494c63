"""Faults on a schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fabric.links import Impairment, Link, LinkLoss
from fabric.network import Fabric
from fabric.scenario import Corrupt, Fault, Flap, LinkDown, Loss, NicPortDown, SwitchBlackHole, SwitchDown

Effect = tuple[Callable[[], None], Callable[[], None]]
"""What begins a fault, and what ends it."""


def schedule(fabric: Fabric, fault: Fault, on_return: Callable[[str], None]) -> None:
    """Put a fault on the fabric's event list. `on_return` is called with the name of a switch that has come back empty.

    Raises UnknownNodeError and UnknownLinkError.
    """
    begin, end = _effect(fabric, fault, on_return)
    for span in fault.spans():
        fabric.events.at(span.start, begin)
        if span.end is not None:
            fabric.events.at(span.end, end)


def plane(fabric: Fabric, fault: Fault) -> int:
    """In which plane it is."""
    if isinstance(fault, NicPortDown):
        return fault.plane
    if isinstance(fault, SwitchBlackHole | SwitchDown):
        return fabric.switch(fault.switch).plane
    return fabric.link(*fault.link).plane


def _effect(fabric: Fabric, fault: Fault, on_return: Callable[[str], None]) -> Effect:
    if isinstance(fault, LinkDown | Flap):
        return _down(fabric.link(*fault.link))
    if isinstance(fault, NicPortDown):
        return _down(fabric.nic_link(fault.nic, fault.plane))
    if isinstance(fault, Loss):
        return _impaired(fabric.link(*fault.link), Impairment(fault.rate, LinkLoss.RANDOM))
    if isinstance(fault, Corrupt):
        loss = None if fault.undetected else LinkLoss.FCS
        return _impaired(fabric.link(*fault.link), Impairment(fault.rate, loss))
    node = fabric.switch(fault.switch)
    if isinstance(fault, SwitchBlackHole):
        return node.open_black_hole, node.close_black_hole
    return partial(_power_off, fabric, fault.switch), partial(_power_on, fabric, fault.switch, on_return)


def _down(link: Link) -> Effect:
    return link.cut, link.mend


def _impaired(link: Link, impairment: Impairment) -> Effect:
    return partial(link.impair, impairment), partial(link.relieve, impairment)


def _power_off(fabric: Fabric, switch: str) -> None:
    for link in fabric.links_of(switch):
        link.cut()
    fabric.switch(switch).power_off()


def _power_on(fabric: Fabric, switch: str, on_return: Callable[[str], None]) -> None:
    fabric.switch(switch).power_on()
    for link in fabric.links_of(switch):
        link.mend()
    on_return(switch)
