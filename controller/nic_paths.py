"""The paths between two NICs: which way through the fabric an EV is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from controller.path_files import path_file
from controller.topology import NicSpec, Topology
from nic_model.paths import Template, srv6_ev


class PathError(ValueError):
    """Two NICs that have no such path. str() is one line."""


class NicPath(NamedTuple):
    """One path. `uplink` is the number of its T1, None inside a row; `outer_da` has 16 bytes and `usids` in it.

    `nodes` are all it touches, both NICs included.
    """

    plane: int
    uplink: int | None
    ev: int
    outer_da: bytes
    usids: tuple[int, ...]
    nodes: tuple[str, ...]

    @property
    def links(self) -> list[tuple[str, str]]:
        """The links, in the packet's order."""
        return list(zip(self.nodes, self.nodes[1:], strict=False))


def paths(topo: Topology, source: str, target: str) -> Iterator[NicPath]:
    """Every path from one NIC to another, plane by plane. Raises UnknownNodeError and PathError."""
    a, b, template = _ends(topo, source, target)
    for plane in range(topo.planes):
        for uplink in range(template.paths):
            yield _path(a, b, template, srv6_ev(plane, uplink))


def path_of_ev(topo: Topology, source: str, target: str, ev: int) -> NicPath:
    """The path that a 32-bit EV is from one NIC to another. Raises UnknownNodeError and PathError."""
    return _path(*_ends(topo, source, target), ev)


def _ends(topo: Topology, source: str, target: str) -> tuple[NicSpec, NicSpec, Template]:
    a, b = topo.nic(source), topo.nic(target)
    if a == b:
        raise PathError(f"{source} and {target} are one NIC")
    if a.tenant != b.tenant:
        raise PathError(f"there is no path from {source} to {target}: they are of tenants {a.tenant} and {b.tenant}")
    if topo.mode != "srv6":
        raise PathError(f"{topo.name} is in ECMP mode: its switches hash EVs, which name no path")
    return a, b, path_file(topo, a.row, a.tenant).template_for(b.ports[0].address.packed)


def _path(a: NicSpec, b: NicSpec, template: Template, ev: int) -> NicPath:
    try:
        outer_da = template.outer_da(ev, b.index)
    except ValueError as error:
        raise PathError(str(error)) from None
    plane, uplink = Template.plane_and_uplink(ev)
    usids = tuple(int.from_bytes(outer_da[at : at + 2], "big") for at in range(4, 4 + 2 * len(template.usids), 2))
    between = [f"p{plane}t0-{a.row}"]
    if template.uplinks:
        between += [f"p{plane}t1-{uplink}", f"p{plane}t0-{b.row}"]
    return NicPath(plane, uplink if template.uplinks else None, ev, outer_da, usids, (a.name, *between, b.name))
