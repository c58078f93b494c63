"""Writes the NICs' path files (their schema is `nic_model.paths`), one per tenant and row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from controller.tenants import DEFAULT_TENANT, Tenant
from controller.topology import Topology, UnknownNodeError
from nic_model.paths import DscpPlan, LocalNic, LocalPort, PathFile, Template, UsidKind, usid


def write_path_files(topo: Topology, directory: Path) -> list[Path]:
    """Write `{tenant}/row-{row}.jsonl` for each row of each tenant. Directories are made as need be. Raises OSError."""
    written = []
    for tenant in topo.tenants:
        own = directory / tenant.name
        own.mkdir(parents=True, exist_ok=True)
        for row in sorted(tenant.rows):
            path = own / f"row-{row}.jsonl"
            path_file(topo, row, tenant.name).save(path)
            written.append(path)
    return written


def path_file(topo: Topology, row: int, tenant_name: str = DEFAULT_TENANT) -> PathFile:
    """The path file of a tenant's NICs in one row. Raises UnknownNodeError if there are none."""
    tenant = topo.tenant(tenant_name)
    if row not in tenant.rows:
        raise UnknownNodeError(f"tenant {tenant_name!r} has no NIC in row {row} of {topo.name}")
    block = tenant.block.network_address.packed[:4]
    gateways = [_mac(topo.switch(f"p{plane}t0-{row}").mac) for plane in range(topo.planes)]
    return PathFile(
        row,
        block,
        topo.planes,
        topo.t1_per_plane,
        tuple(_nics(topo, tenant, row, gateways)),
        tuple(_templates(topo, tenant, row, block)),
        topo.mode,
        DscpPlan(**topo.model.dscp.model_dump()),
    )


def _nics(topo: Topology, tenant: Tenant, row: int, gateways: list[bytes]) -> Iterator[LocalNic]:
    for nic in topo.row(row):
        if nic.tenant == tenant.name:
            ports = (
                LocalPort(port.plane, port.address.packed, _mac(port.mac), gateways[port.plane], port.usid)
                for port in nic.ports
            )
            yield LocalNic(nic.name, nic.index, tuple(ports))


def _templates(topo: Topology, tenant: Tenant, own_row: int, block: bytes) -> Iterator[Template]:
    local, t1, nic = usid(UsidKind.T0, 0, own_row), usid(UsidKind.T1, 0, 0), usid(UsidKind.NIC, 0, 0)
    for row in sorted(tenant.rows):
        prefix = topo.row_network(row)
        if row == own_row:
            yield Template(row, prefix, block, (local, nic), topo.planes, uplinks=0)
        else:
            usids = (local, t1, usid(UsidKind.T0, 0, row), nic)
            yield Template(row, prefix, block, usids, topo.planes, topo.t1_per_plane)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
