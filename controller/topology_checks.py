"""Checks of a topology file that take more than one value. Each raises FileError, placed in the file."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Network
from typing import TYPE_CHECKING

from controller.topology_file import MAX_PORT, SMALLEST_TRIM, LinkOverride, QueuesModel
from controller.yaml_file import KeyPath, format_key

if TYPE_CHECKING:
    from controller.topology import Topology


def check_names(topo: Topology) -> None:
    """Overrides name switches and links that exist, each once."""
    for name in topo.model.overrides.switches:
        try:
            topo.parse_switch(name)
        except LookupError as error:
            raise topo.document.error(("overrides", "switches", name), str(error)) from None
    seen: dict[frozenset[str], int] = {}
    for position, link in enumerate(topo.model.overrides.links):
        key: KeyPath = ("overrides", "links", position)
        _check_link(topo, key, link)
        earlier = seen.setdefault(frozenset(link.between), position)
        if earlier != position:
            # One next hop per uSID: a second link between the same two nodes could not be told apart.
            reason = f"the link {' - '.join(link.between)} stands already in overrides.links[{earlier}]"
            raise topo.document.error((*key, "between"), f"{reason}; there are no parallel links")


def check_addresses(topo: Topology) -> None:
    """No address prefix overlaps another."""
    prefixes: dict[KeyPath, IPv6Network] = {}
    for key, prefix in _prefixes(topo):
        for other, taken in prefixes.items():
            if prefix.overlaps(taken):
                raise topo.document.error(key, f"{prefix} overlaps {format_key(other)}, {taken}")
        prefixes[key] = prefix


def check_control(topo: Topology) -> None:
    """No two switches serve P4Runtime at the same place."""
    overrides = topo.model.overrides.switches
    if not overrides:
        return  # the file's own numbering gives every switch a device_id of its own
    users: dict[tuple[str, int], str] = {}
    for switch in topo.switches():
        user = users.setdefault(switch.control, switch.name)
        if user != switch.name:
            culprit, other = (switch.name, user) if switch.name in overrides else (user, switch.name)
            address, device_id = switch.control
            reason = f"{address} device_id {device_id} is already {other}'s"
            raise topo.document.error(("overrides", "switches", culprit), reason)


def check_ports(topo: Topology) -> None:
    """No switch has two links on one port."""
    keys = {
        (name, frozenset(link.between)): ("overrides", "links", position, "ports", name)
        for position, link in enumerate(topo.model.overrides.links)
        for name in link.ports
    }
    for name in dict.fromkeys(name for name, _ in keys):
        users: dict[int, str] = {}
        for port in topo.ports(topo.switch(name)):
            user = users.setdefault(port.number, port.peer)
            if user != port.peer:
                own, other = keys.get((name, frozenset((name, port.peer)))), user
                if own is None:
                    own, other = keys[name, frozenset((name, user))], port.peer
                reason = f"port {port.number} of {name} is already the one to {other}"
                raise topo.document.error(own, reason)


def check_queues(topo: Topology) -> None:
    """The thresholds of each port are in order, and a trim leaves what a NIC needs to answer it."""
    model = topo.model
    pfc = model.links.pfc
    if pfc is not None and pfc.xon_bytes > pfc.xoff_bytes:
        reason = f"{pfc.xon_bytes} is above xoff_bytes, {pfc.xoff_bytes}"
        raise topo.document.error(("links", "pfc", "xon_bytes"), reason)
    _check_thresholds(topo, ("queues",), model.queues, model.queues)
    for position, link in enumerate(model.overrides.links):
        _check_thresholds(topo, ("overrides", "links", position, "queues"), topo.queues(*link.between), link.queues)
    smallest = SMALLEST_TRIM[model.mode]
    if model.trim_size < smallest:
        reason = f"{model.trim_size} bytes would cut transport headers off: at least {smallest} in {model.mode} mode"
        raise topo.document.error(("trim_size",), reason)


def check_dscp(topo: Topology) -> None:
    """No two roles have the same DSCP. A role that the file names is to blame, not one that has its default."""
    plan = topo.model.dscp
    taken: dict[int, str] = {}
    for role, value in sorted(plan, key=lambda item: item[0] in plan.model_fields_set):
        other = taken.setdefault(value, role)
        if other != role:
            raise topo.document.error(("dscp", role), f"{value} is already the DSCP of {other}")


def check_pushable(topo: Topology) -> None:
    """Every switch's ports can be addressed by a v1model switch."""
    for key, role, count in (
        ("t1_per_plane", "T0", topo.nics_per_row + topo.t1_per_plane),
        ("rows", "T1", topo.rows),
    ):
        if count > MAX_PORT:
            reason = f"a {role} has {count} ports, a v1model switch at most {MAX_PORT}: it can be planned, not pushed"
            raise topo.document.error((key,), reason)


def _prefixes(topo: Topology) -> Iterator[tuple[KeyPath, IPv6Network]]:
    model = topo.model
    if model.block:
        yield ("block",), model.block
    for position, tenant in enumerate(model.tenants or ()):
        yield ("tenants", position, "block"), tenant.block
    yield ("nic_prefix",), model.nic_prefix
    yield ("switch_prefix",), model.switch_prefix


def _check_thresholds(topo: Topology, key: KeyPath, queues: QueuesModel, written: QueuesModel) -> None:
    """`written` is what the file says at `key`, `queues` what is then in force."""
    if queues.mark_from > queues.mark_to:
        raise topo.document.error((*key, "mark_from"), f"{queues.mark_from} is above mark_to, {queues.mark_to}")
    if topo.model.links.pfc is not None:
        if "data_packets" in written.model_fields_set:
            raise topo.document.error((*key, "data_packets"), "has no meaning with links.pfc: data has no limit then")
    elif queues.mark_to >= queues.data_packets:
        reason = f"{queues.mark_to} is not below data_packets, {queues.data_packets}: trims would come before marks"
        raise topo.document.error((*key, "mark_to"), reason)


def _check_link(topo: Topology, key: KeyPath, link: LinkOverride) -> None:
    one, other = link.between
    try:
        linked = topo.linked(one, other)
    except LookupError as error:
        raise topo.document.error((*key, "between"), str(error)) from None
    if not linked:
        raise topo.document.error((*key, "between"), f"{one} and {other} have no link")
    for name in link.ports:
        if name not in link.between:
            raise topo.document.error((*key, "ports", name), f"is no end of the link {one} - {other}")
        if name.startswith("nic"):
            raise topo.document.error((*key, "ports", name), "a NIC's port is numbered by its plane")
