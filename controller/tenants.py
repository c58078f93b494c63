"""Tenants: whose NICs are whose. Each has a block of uSIDs of its own, which leads to its own NICs and to no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv6Network
from typing import NamedTuple

from controller.topology_file import TopologyModel
from controller.yaml_file import Document, KeyPath, format_key

DEFAULT_TENANT = "default"
"""The name of the tenant that owns all NICs where the file names no tenants."""

_NICS = re.compile(r"nic(0|[1-9]\d*)(?:\.\.(0|[1-9]\d*))?")


@dataclass(frozen=True)
class Tenant:
    """A tenant. `nics` are the numbers of its NICs, in ascending ranges with gaps between; `rows` those they are in."""

    name: str
    block: IPv6Network
    nics: tuple[range, ...]
    rows: frozenset[int]

    def usid_prefix(self, usid: int) -> str:
        """The /48 of a uSID in the tenant's block."""
        return f"{self._block_text}:{usid:x}::/48"

    @cached_property
    def _block_text(self) -> str:
        block = int(self.block.network_address) >> 96
        return f"{block >> 16:x}:{block & 0xFFFF:x}"


class _Claim(NamedTuple):
    """NICs that a place in the file gives to a tenant."""

    nics: range
    key: KeyPath
    tenant: str


def read_tenants(document: Document, model: TopologyModel) -> tuple[Tenant, ...]:
    """The tenants of a topology file: each NIC has one. Raises FileError."""
    if model.tenants is None:
        if model.block is None:
            raise document.error(("block",), "this key is missing, or `tenants` with a block each")
        return (_tenant(DEFAULT_TENANT, model.block, [range(model.rows * model.nics_per_row)], model),)
    if model.block is not None:
        raise document.error(("block",), "each of the tenants has a block of its own, there is no other")

    _check_names(document, model)
    claims = list(_claims(document, model))
    _check_claims(document, model, claims)
    return tuple(
        _tenant(tenant.name, tenant.block, [claim.nics for claim in claims if claim.tenant == tenant.name], model)
        for tenant in model.tenants
    )


def _tenant(name: str, block: IPv6Network, claimed: list[range], model: TopologyModel) -> Tenant:
    merged: list[range] = []
    for nics in sorted(claimed, key=lambda nics: nics.start):
        if merged and merged[-1].stop == nics.start:
            nics = range(merged.pop().start, nics.stop)
        merged.append(nics)
    per_row = model.nics_per_row
    rows = (row for nics in merged for row in range(nics.start // per_row, (nics.stop - 1) // per_row + 1))
    return Tenant(name, block, tuple(merged), frozenset(rows))


def _check_names(document: Document, model: TopologyModel) -> None:
    seen: dict[str, int] = {}
    for position, tenant in enumerate(model.tenants or ()):
        earlier = seen.setdefault(tenant.name, position)
        if earlier != position:
            raise document.error(("tenants", position, "name"), f"tenants[{earlier}] is already {tenant.name!r}")


def _claims(document: Document, model: TopologyModel) -> Iterator[_Claim]:
    count = model.rows * model.nics_per_row
    for position, tenant in enumerate(model.tenants or ()):
        for item, text in enumerate(tenant.nics):
            key = ("tenants", position, "nics", item)
            match = _NICS.fullmatch(text)
            if not match:
                raise document.error(key, f"must be a NIC such as nic3, or a range such as nic0..3, got {text!r}")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise document.error(key, f"{text} is empty: its first NIC comes after its last")
            if last >= count:
                raise document.error(key, f"no NIC 'nic{last}' in {model.name}: nic0..{count - 1}")
            yield _Claim(range(first, last + 1), key, tenant.name)


def _check_claims(document: Document, model: TopologyModel, claims: list[_Claim]) -> None:
    """Each NIC is claimed, once."""
    previous: _Claim | None = None
    unclaimed = 0
    for claim in sorted(claims, key=lambda claim: claim.nics.start):
        if previous and claim.nics.start < unclaimed:
            earlier, later = sorted((previous, claim), key=lambda claim: claim.key)
            reason = f"nic{claim.nics.start} is already {earlier.tenant}'s, by {format_key(earlier.key)}"
            raise document.error(later.key, reason)
        if claim.nics.start > unclaimed:
            break
        previous, unclaimed = claim, claim.nics.stop
    if unclaimed < model.rows * model.nics_per_row:
        raise document.error(("tenants",), f"nic{unclaimed} is no tenant's")
