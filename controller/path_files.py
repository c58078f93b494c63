"""Writes the NICs' path files (their schema is `nic_model.paths`), one per row."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Network
from pathlib import Path

from controller.topology import Topology
from nic_model.paths import LocalNic, LocalPort, PathFile, Template, UsidKind, usid


def write_path_files(topo: Topology, directory: Path) -> list[Path]:
    """Write `row-{row}.jsonl` for each row into a directory, which is made if need be. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for row in range(topo.rows):
        path = directory / f"row-{row}.jsonl"
        path_file(topo, row).save(path)
        written.append(path)
    return written


def path_file(topo: Topology, row: int) -> PathFile:
    """The path file of one row."""
    block = topo.block.network_address.packed[:4]
    gateways = [_mac(topo.switch(f"p{plane}t0-{row}").mac) for plane in range(topo.planes)]
    return PathFile(
        row,
        block,
        topo.planes,
        topo.t1_per_plane,
        tuple(_nics(topo, row, gateways)),
        tuple(_templates(topo, row, block)),
    )


def _nics(topo: Topology, row: int, gateways: list[bytes]) -> Iterator[LocalNic]:
    for nic in topo.row(row):
        ports = (
            LocalPort(port.plane, port.address.packed, _mac(port.mac), gateways[port.plane], port.usid)
            for port in nic.ports
        )
        yield LocalNic(nic.name, nic.index, tuple(ports))


def _templates(topo: Topology, own_row: int, block: bytes) -> Iterator[Template]:
    local, t1, nic = usid(UsidKind.T0, 0, own_row), usid(UsidKind.T1, 0, 0), usid(UsidKind.NIC, 0, 0)
    for row in range(topo.rows):
        prefix = IPv6Network(topo.row_prefix(row)).network_address.packed[:8]
        if row == own_row:
            yield Template(row, prefix, block, (local, nic), topo.planes, uplinks=0)
        else:
            usids = (local, t1, usid(UsidKind.T0, 0, row), nic)
            yield Template(row, prefix, block, usids, topo.planes, topo.t1_per_plane)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
