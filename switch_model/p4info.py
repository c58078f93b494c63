"""A P4Info joined with the program that it describes: ids and control-plane names to tables, actions, profiles and
counters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from finsy.proto import p4i

from switch_model import ir
from switch_model.errors import PipelineError, UnsupportedError

_KINDS = {
    p4i.MatchField.EXACT: ir.MatchKind.EXACT,
    p4i.MatchField.LPM: ir.MatchKind.LPM,
    p4i.MatchField.TERNARY: ir.MatchKind.TERNARY,
    p4i.MatchField.RANGE: ir.MatchKind.RANGE,
    p4i.MatchField.OPTIONAL: ir.MatchKind.TERNARY,
}


@dataclass(frozen=True, slots=True)
class MatchField:
    id: int
    name: str
    width: int  # bits
    kind: ir.MatchKind
    optional: bool


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an action, or a field of a controller header."""

    id: int
    name: str
    width: int  # bits


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a table; `place` is its number in the program's table."""

    id: int
    name: str
    place: int
    params: tuple[Param, ...]
    in_entries: bool
    as_default: bool


Actions: TypeAlias = dict[int, Action]
"""By id."""


def action_at(actions: Actions, place: int) -> Action | None:
    """The action with this place; None for one that P4Info does not show."""
    return next((action for action in actions.values() if action.place == place), None)


@dataclass(frozen=True, slots=True)
class Table:
    id: int
    name: str
    spec: ir.Table
    fields: tuple[MatchField, ...]
    actions: Actions
    profile_id: int  # 0: none
    has_const_default: bool
    has_counter: bool
    is_const: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """An action profile with the actions of its tables."""

    id: int
    name: str
    spec: ir.Profile
    actions: Actions
    max_group_size: int  # sum of weights; 0: any


@dataclass(frozen=True, slots=True)
class ControllerHeader:
    """What stands in front of the frames of the CPU port, in one direction."""

    fields: tuple[Param, ...] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return (sum(field.width for field in self.fields) + 7) // 8


@dataclass(frozen=True, slots=True)
class Counter:
    id: int
    name: str
    full_name: str
    size: int  # cells
    counts_packets: bool
    counts_bytes: bool


@dataclass(frozen=True, slots=True)
class Schema:
    tables: dict[int, Table]
    profiles: dict[int, Profile]
    counters: dict[int, Counter]
    packet_in: ControllerHeader
    packet_out: ControllerHeader


def join(p4info: p4i.P4Info, program: ir.Program) -> Schema:
    """The schema of `program` as `p4info` describes it.

    Raises PipelineError naming the first thing on which the two disagree, UnsupportedError for what this target
    does not offer.
    """
    _refuse_unsupported(p4info)
    actions = {action.preamble.id: action for action in p4info.actions}
    counted = {counter.direct_table_id for counter in p4info.direct_counters}
    tables = {
        table.preamble.id: _table(table, program, actions, table.preamble.id in counted) for table in p4info.tables
    }
    described = {table.spec.name for table in tables.values()}
    for name, spec in program.tables.items():
        if spec.key and name not in described:
            raise PipelineError(f"table '{name}' of the BMv2 JSON is not in the P4Info")
    profiles = {profile.preamble.id: _profile(profile, tables, program) for profile in p4info.action_profiles}
    for table in tables.values():
        profile = profiles.get(table.profile_id)
        if table.spec.profile is not (profile.spec if profile else None):
            raise PipelineError(f"the action profile of table '{table.spec.name}' differs between P4Info and BMv2 JSON")
    headers = _controller_headers(p4info)
    return Schema(
        tables=tables,
        profiles=profiles,
        counters={counter.preamble.id: _counter(counter, program) for counter in p4info.counters},
        packet_in=headers.get("packet_in", ControllerHeader()),
        packet_out=headers.get("packet_out", ControllerHeader()),
    )


def _refuse_unsupported(p4info: p4i.P4Info) -> None:
    kinds: Iterable[tuple[str, Sequence[Any]]] = (
        ("meter", p4info.meters),
        ("direct meter", p4info.direct_meters),
        ("digest", p4info.digests),
        ("value set", p4info.value_sets),
    )
    for what, items in kinds:
        for item in items:
            raise UnsupportedError(f"{what} '{item.preamble.name}'")


def _table(table: p4i.Table, program: ir.Program, actions: dict[int, p4i.Action], has_counter: bool) -> Table:
    name = table.preamble.name
    spec = program.tables.get(name)
    if spec is None:
        raise PipelineError(f"table '{name}' of the P4Info is not in the BMv2 JSON")
    if has_counter != spec.has_counters:
        which = "P4Info" if has_counter else "BMv2 JSON"
        raise PipelineError(f"table '{name}' has a direct counter in the {which} only")
    if len(table.match_fields) != len(spec.key):
        raise PipelineError(
            f"table '{name}' has {len(table.match_fields)} match fields in the P4Info, {len(spec.key)} in the BMv2 JSON"
        )
    fields = tuple(_match_field(field, key, name) for field, key in zip(table.match_fields, spec.key, strict=True))
    refs = {ref.id: _action(ref, actions, spec) for ref in table.action_refs}
    return Table(
        id=table.preamble.id,
        name=table.preamble.alias,
        spec=spec,
        fields=fields,
        actions=refs,
        profile_id=table.implementation_id,
        has_const_default=bool(table.const_default_action_id),
        has_counter=has_counter,
        is_const=table.is_const_table,
    )


def _match_field(field: p4i.MatchField, key: ir.KeyField, table: str) -> MatchField:
    where = f"match field '{field.name}' of table '{table}'"
    if field.name != key.name:
        raise PipelineError(f"{where} is called '{key.name}' in the BMv2 JSON")
    if field.bitwidth != key.width:
        raise PipelineError(f"{where} has {field.bitwidth} bits in the P4Info, {key.width} in the BMv2 JSON")
    kind = _KINDS.get(field.match_type)
    if kind is not key.kind:
        wanted = p4i.MatchField.MatchType.Name(field.match_type)
        raise PipelineError(f"{where} is {wanted} in the P4Info, {key.kind.value} in the BMv2 JSON")
    return MatchField(field.id, field.name, field.bitwidth, kind, field.match_type == p4i.MatchField.OPTIONAL)


def _action(ref: p4i.ActionRef, actions: dict[int, p4i.Action], spec: ir.Table) -> Action:
    action = actions.get(ref.id)
    if action is None:
        raise PipelineError(f"table '{spec.name}' refers to an action with id {ref.id} that the P4Info has not")
    name = action.preamble.name
    place = next((i for i, known in enumerate(spec.actions) if known.name == name), None)
    if place is None:
        raise PipelineError(f"action '{name}' of table '{spec.name}' is not in the BMv2 JSON")
    params = tuple(Param(param.id, param.name, param.bitwidth) for param in action.params)
    if tuple((param.name, param.width) for param in params) != spec.actions[place].params:
        raise PipelineError(f"the parameters of action '{name}' differ between the P4Info and the BMv2 JSON")
    return Action(
        id=ref.id,
        name=action.preamble.alias,
        place=place,
        params=params,
        in_entries=ref.scope != p4i.ActionRef.DEFAULT_ONLY,
        as_default=ref.scope != p4i.ActionRef.TABLE_ONLY,
    )


def _profile(profile: p4i.ActionProfile, tables: dict[int, Table], program: ir.Program) -> Profile:
    name = profile.preamble.name
    spec = program.profiles.get(name)
    if spec is None:
        raise PipelineError(f"action profile '{name}' of the P4Info is not in the BMv2 JSON")
    if profile.with_selector != (spec.selector is not None):
        which = "P4Info" if profile.with_selector else "BMv2 JSON"
        raise PipelineError(f"action profile '{name}' has a selector in the {which} only")
    users = [table for table in tables.values() if table.profile_id == profile.preamble.id]
    return Profile(
        id=profile.preamble.id,
        name=profile.preamble.alias,
        spec=spec,
        actions=users[0].actions if users else {},
        max_group_size=profile.max_group_size,
    )


def _controller_headers(p4info: p4i.P4Info) -> dict[str, ControllerHeader]:
    return {
        header.preamble.name: ControllerHeader(
            tuple(Param(item.id, item.name, item.bitwidth) for item in header.metadata)
        )
        for header in p4info.controller_packet_metadata
    }


def _counter(counter: p4i.Counter, program: ir.Program) -> Counter:
    name = counter.preamble.name
    spec = program.counters.get(name)
    if spec is None:
        raise PipelineError(f"counter '{name}' of the P4Info is not in the BMv2 JSON")
    if spec.size != counter.size:
        raise PipelineError(f"counter '{name}' has {counter.size} cells in the P4Info, {spec.size} in the BMv2 JSON")
    unit = counter.spec.unit
    return Counter(
        id=counter.preamble.id,
        name=counter.preamble.alias,
        full_name=name,
        size=spec.size,
        counts_packets=unit != p4i.CounterSpec.BYTES,
        counts_bytes=unit != p4i.CounterSpec.PACKETS,
    )
