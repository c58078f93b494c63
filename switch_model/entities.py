"""Writes and Reads of P4Runtime entities: table entries, action profiles, counters (P4Runtime 1.4, "P4 Entity
Messages").

Canonical codes are those of PI and BMv2. Where BMv2 only has UNKNOWN, because its target layer failed, the code is
the one that the specification names.
"""

from collections.abc import Iterator

from finsy.proto import p4r, rpc_code

from switch_model.device import Pipeline
from switch_model.ir import ActionCall
from switch_model.messages import (
    check_default_key,
    decode_action_set,
    decode_call,
    decode_group,
    decode_match,
    encode_call,
    encode_entry,
    encode_key,
    invalid,
)
from switch_model.p4info import Counter, Profile, Schema, Table
from switch_model.profiles import Profile as ActionProfile
from switch_model.status import StatusError
from switch_model.tables import Choice, DuplicateError, Entry, Match, TableFullError
from switch_model.tables import Table as EntryTable


class Config:
    """A pipeline as P4Runtime sees it: what is written and read goes to `pipeline`, by the ids of `schema`."""

    def __init__(self, message: p4r.ForwardingPipelineConfig, schema: Schema, pipeline: Pipeline) -> None:
        self.message = message
        self.schema = schema
        self.pipeline = pipeline

    # Write

    def write(self, update: p4r.Update) -> None:
        """Carries out one update. Raises StatusError."""
        kind = update.entity.WhichOneof("entity")
        if update.type == p4r.Update.UNSPECIFIED:
            invalid("update type is not set")
        match kind:
            case "table_entry":
                self._write_table_entry(update.type, update.entity.table_entry)
            case "action_profile_member":
                self._write_member(update.type, update.entity.action_profile_member)
            case "action_profile_group":
                self._write_group(update.type, update.entity.action_profile_group)
            case "counter_entry":
                self._write_counter(update.type, update.entity.counter_entry)
            case "direct_counter_entry":
                self._write_direct_counter(update.type, update.entity.direct_counter_entry)
            case None:
                invalid("update without an entity")
            case _:
                raise StatusError(rpc_code.UNIMPLEMENTED, f"writing '{kind}' is not supported")

    def _write_table_entry(self, update_type: int, message: p4r.TableEntry) -> None:
        table = self._table(message.table_id)
        if update_type == p4r.Update.DELETE:
            self._delete(table, message)
            return
        _refuse_unwritable(table, message)
        if message.is_default_action:
            self._write_default(table, update_type, message)
        elif update_type == p4r.Update.INSERT:
            self._insert(table, message)
        else:
            self._modify(table, message)

    def _insert(self, table: Table, message: p4r.TableEntry) -> None:
        match, priority = decode_match(table, message)
        target = self._target(table, message)
        _refuse_if_const(table)
        try:
            entry = self._entries(table).insert(match, priority, target)
        except DuplicateError:
            raise StatusError(
                rpc_code.ALREADY_EXISTS, f"table '{table.name}': entry exists, use MODIFY to change it"
            ) from None
        except TableFullError as error:
            raise StatusError(rpc_code.RESOURCE_EXHAUSTED, str(error)) from None
        _set_extras(entry, message)

    def _modify(self, table: Table, message: p4r.TableEntry) -> None:
        match, priority = decode_match(table, message)
        target = self._target(table, message)
        _refuse_if_const(table)
        entry = self._existing(table, match, priority)
        entry.assign(target)
        _set_extras(entry, message)

    def _delete(self, table: Table, message: p4r.TableEntry) -> None:
        if message.is_default_action:
            invalid(f"table '{table.name}': the default entry can't be deleted")
        match, priority = decode_match(table, message)
        _refuse_if_const(table)
        self._entries(table).delete(self._existing(table, match, priority))

    def _write_default(self, table: Table, update_type: int, message: p4r.TableEntry) -> None:
        if update_type == p4r.Update.INSERT:
            invalid(f"table '{table.name}': the default entry can't be inserted, use MODIFY")
        check_default_key(table, message)
        if table.profile_id:
            invalid(f"table '{table.name}' has an action profile, its default action can't be set")
        if table.has_const_default:
            raise StatusError(rpc_code.PERMISSION_DENIED, f"table '{table.name}' has a constant default action")
        if not message.HasField("action"):
            self._entries(table).reset_default()
            return
        entry = self._entries(table).default
        entry.assign(self._target(table, message))
        entry.cookie = (message.controller_metadata, message.metadata)

    def _target(self, table: Table, message: p4r.TableEntry) -> ActionCall | Choice:
        """What a written entry does, or what it refers to in its action profile."""
        kind = message.action.WhichOneof("type")
        owner = f"table '{table.name}'"
        if kind is None:
            invalid(f"{owner}: an entry needs an action")
        if not table.profile_id:
            if kind != "action":
                invalid(f"{owner}: '{kind}' given, the table takes an action")
            return decode_call(owner, table.actions, message.action.action, as_default=message.is_default_action)
        schema = self.schema.profiles[table.profile_id]
        profile = self._profile(schema)
        if kind == "action_profile_member_id":
            return profile.member_for_entry(message.action.action_profile_member_id)
        if kind == "action":
            invalid(f"{owner}: 'action' given, the table takes what its action profile '{schema.name}' has")
        if schema.spec.selector is None:
            invalid(f"{owner}: '{kind}' given, action profile '{schema.name}' has no selector")
        if kind == "action_profile_group_id":
            return profile.group_for_entry(message.action.action_profile_group_id)
        actions = decode_action_set(owner, schema.actions, message.action.action_profile_action_set)
        _check_group_size(owner, sum(weight for _, weight in actions), schema.max_group_size)
        return profile.one_shot(actions)

    def _write_member(self, update_type: int, message: p4r.ActionProfileMember) -> None:
        schema = self._profile_schema(message.action_profile_id)
        profile = self._profile(schema)
        if update_type == p4r.Update.DELETE:
            profile.delete_member(message.member_id)
            return
        call = decode_call(f"action profile '{schema.name}'", schema.actions, message.action)
        if update_type == p4r.Update.INSERT:
            profile.insert_member(message.member_id, call)
        else:
            profile.modify_member(message.member_id, call)

    def _write_group(self, update_type: int, message: p4r.ActionProfileGroup) -> None:
        schema = self._profile_schema(message.action_profile_id)
        profile = self._profile(schema)
        owner = f"action profile '{schema.name}', group {message.group_id}"
        if schema.spec.selector is None:
            invalid(f"action profile '{schema.name}' has no selector, so it has no groups")
        if update_type == p4r.Update.DELETE:
            profile.delete_group(message.group_id)
            return
        max_size = message.max_size
        if update_type == p4r.Update.MODIFY:
            max_size = profile.group(message.group_id).max_size
            if message.max_size not in (0, max_size):
                invalid(f"{owner}: max_size is {max_size} and can't be changed")
        elif not 0 <= max_size <= (schema.max_group_size or max_size):
            invalid(f"{owner}: max_size {max_size} is not in 0..{schema.max_group_size}")
        weights = decode_group(owner, message)
        _check_group_size(owner, sum(weights.values()), max_size or schema.max_group_size)
        if update_type == p4r.Update.INSERT:
            profile.insert_group(message.group_id, max_size, weights)
        else:
            profile.modify_group(message.group_id, weights)

    def _write_counter(self, update_type: int, message: p4r.CounterEntry) -> None:
        counter = self._counter(message.counter_id)
        if not message.HasField("index"):
            raise StatusError(rpc_code.UNIMPLEMENTED, f"counter '{counter.name}': write without an index")
        index = _checked_index(counter, message.index.index)
        packets, octets = _written_counts(update_type, message.data, message.HasField("data"))
        cells = self.pipeline.counters[counter.full_name]
        if packets is not None and counter.counts_packets:
            cells.packets[index] = packets
        if octets is not None and counter.counts_bytes:
            cells.bytes[index] = octets

    def _write_direct_counter(self, update_type: int, message: p4r.DirectCounterEntry) -> None:
        table = self._counted_table(message)
        match, priority = decode_match(table, message.table_entry)
        entry = self._existing(table, match, priority)
        packets, octets = _written_counts(update_type, message.data, message.HasField("data"))
        if packets is not None and octets is not None:
            entry.packets, entry.bytes = packets, octets

    # Read

    def read(self, entity: p4r.Entity) -> Iterator[p4r.Entity]:
        """The entities that `entity` selects. Raises StatusError."""
        kind = entity.WhichOneof("entity")
        match kind:
            case "table_entry":
                return self._read_table_entries(entity.table_entry)
            case "action_profile_member":
                return self._read_members(entity.action_profile_member)
            case "action_profile_group":
                return self._read_groups(entity.action_profile_group)
            case "counter_entry":
                return self._read_counters(entity.counter_entry)
            case "direct_counter_entry":
                return self._read_direct_counters(entity.direct_counter_entry)
            case None:
                raise StatusError(rpc_code.INVALID_ARGUMENT, "read of an empty entity")
            case _ if _selects_all_of_none(entity):
                return iter(())
            case _:
                raise StatusError(rpc_code.UNIMPLEMENTED, f"reading '{kind}' is not supported")

    def _read_table_entries(self, request: p4r.TableEntry) -> Iterator[p4r.Entity]:
        if request.HasField("time_since_last_hit"):
            invalid("time_since_last_hit is set, but no table here supports idle timeout")
        for table in self._selected(request.table_id):
            if request.is_default_action:
                check_default_key(table, request)
                entries: Iterator[Entry] = iter((self._entries(table).default,))
            else:
                entries = self._filtered(table, request)
            for entry in entries:
                message = encode_entry(table, entry)
                if request.HasField("counter_data") and table.has_counter and entry.hit:
                    message.counter_data.CopyFrom(_counter_data(entry.packets, entry.bytes))
                yield p4r.Entity(table_entry=message)

    def _filtered(self, table: Table, request: p4r.TableEntry) -> Iterator[Entry]:
        entries = self._entries(table)
        if request.match:
            entry = entries.get(*decode_match(table, request))
            yield from () if entry is None else (entry,)
            return
        cookie = (request.controller_metadata, request.metadata)
        action_id = request.action.action.action_id
        place = table.actions[action_id].place if action_id in table.actions else None
        for entry in entries:
            if (
                request.priority in (0, entry.priority)
                and cookie[0] in (0, entry.cookie[0])
                and cookie[1] in (b"", entry.cookie[1])
                and (not action_id or entry.action == place)
            ):
                yield entry

    def _read_members(self, request: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        for schema in self._selected_profiles(request.action_profile_id):
            for member in self._profile(schema).members.values():
                if request.member_id in (0, member.id):
                    message = p4r.ActionProfileMember(action_profile_id=schema.id, member_id=member.id)
                    encode_call(schema.actions, member.call, message.action)
                    yield p4r.Entity(action_profile_member=message)

    def _read_groups(self, request: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        for schema in self._selected_profiles(request.action_profile_id):
            for group in self._profile(schema).groups.values():
                if request.group_id in (0, group.id):
                    message = p4r.ActionProfileGroup(
                        action_profile_id=schema.id, group_id=group.id, max_size=group.max_size
                    )
                    for member_id, weight in group.weights.items():
                        message.members.add(member_id=member_id, weight=weight)
                    yield p4r.Entity(action_profile_group=message)

    def _read_counters(self, request: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        counters = [self._counter(request.counter_id)] if request.counter_id else list(self.schema.counters.values())
        for counter in counters:
            cells = self.pipeline.counters[counter.full_name]
            indexes = (
                [_checked_index(counter, request.index.index)] if request.HasField("index") else range(counter.size)
            )
            for index in indexes:
                yield p4r.Entity(
                    counter_entry=p4r.CounterEntry(
                        counter_id=counter.id,
                        index=p4r.Index(index=index),
                        data=_counter_data(cells.packets[index], cells.bytes[index]),
                    )
                )

    def _read_direct_counters(self, request: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
        selector = request.table_entry
        if selector.table_id:
            table = self._counted_table(request)
            if selector.match:
                match, priority = decode_match(table, selector)
                entries = [(table, self._existing(table, match, priority))]
            else:
                entries = [(table, entry) for entry in self._entries(table)]
        else:
            entries = [
                (table, entry)
                for table in self.schema.tables.values()
                if table.has_counter
                for entry in self._entries(table)
            ]
        for table, entry in entries:
            message = p4r.DirectCounterEntry(data=_counter_data(entry.packets, entry.bytes))
            encode_key(table, entry, message.table_entry)
            yield p4r.Entity(direct_counter_entry=message)

    # Look-ups

    def _table(self, table_id: int) -> Table:
        table = self.schema.tables.get(table_id)
        if table is None:
            invalid(f"no table with id {table_id}")
        return table

    def _selected(self, table_id: int) -> list[Table]:
        return [self._table(table_id)] if table_id else list(self.schema.tables.values())

    def _selected_profiles(self, profile_id: int) -> list[Profile]:
        return [self._profile_schema(profile_id)] if profile_id else list(self.schema.profiles.values())

    def _profile_schema(self, profile_id: int) -> Profile:
        schema = self.schema.profiles.get(profile_id)
        if schema is None:
            invalid(f"no action profile with id {profile_id}")
        return schema

    def _profile(self, schema: Profile) -> ActionProfile:
        return self.pipeline.profiles[schema.spec.name]

    def _counter(self, counter_id: int) -> Counter:
        counter = self.schema.counters.get(counter_id)
        if counter is None:
            invalid(f"no indirect counter with id {counter_id}")
        return counter

    def _counted_table(self, message: p4r.DirectCounterEntry) -> Table:
        if not message.HasField("table_entry"):
            invalid("direct counter entry without a table entry")
        table = self._table(message.table_entry.table_id)
        if not table.has_counter:
            invalid(f"table '{table.name}' has no direct counter")
        if message.table_entry.is_default_action:
            raise StatusError(rpc_code.UNIMPLEMENTED, f"table '{table.name}': the default entry is not counted")
        return table

    def _entries(self, table: Table) -> EntryTable:
        return self.pipeline.tables[table.spec.name]

    def _existing(self, table: Table, match: Match, priority: int) -> Entry:
        entry = self._entries(table).get(match, priority)
        if entry is None:
            raise StatusError(rpc_code.NOT_FOUND, f"table '{table.name}': no such entry")
        return entry


def _selects_all_of_none(entity: p4r.Entity) -> bool:
    """A wildcard read of something that no device here has any of; clients that clear a switch send them."""
    match entity.WhichOneof("entity"):
        case "meter_entry":
            return entity.meter_entry.meter_id == 0
        case "packet_replication_engine_entry":
            engine = entity.packet_replication_engine_entry
            return engine.multicast_group_entry.multicast_group_id == engine.clone_session_entry.session_id == 0
    return False


def _refuse_if_const(table: Table) -> None:
    if table.is_const:
        raise StatusError(rpc_code.PERMISSION_DENIED, f"table '{table.name}' has constant entries")


def _refuse_unwritable(table: Table, message: p4r.TableEntry) -> None:
    if message.HasField("time_since_last_hit"):
        invalid(f"table '{table.name}': time_since_last_hit can't be written")
    if message.idle_timeout_ns:
        invalid(f"table '{table.name}' does not support idle timeout")
    if message.HasField("meter_config") or message.HasField("meter_counter_data"):
        invalid(f"table '{table.name}' has no direct meter")
    if message.is_const:
        invalid(f"table '{table.name}': is_const can't be written")
    if message.HasField("counter_data") and not table.has_counter:
        invalid(f"table '{table.name}' has no direct counter")


def _set_extras(entry: Entry, message: p4r.TableEntry) -> None:
    entry.cookie = (message.controller_metadata, message.metadata)
    if message.HasField("counter_data"):
        entry.packets, entry.bytes = message.counter_data.packet_count, message.counter_data.byte_count


def _written_counts(update_type: int, data: p4r.CounterData, has_data: bool) -> tuple[int | None, int | None]:
    """What to write as packets and bytes; None to leave as it is. DELETE clears, as on PI."""
    match update_type:
        case p4r.Update.INSERT:
            invalid("counters can't be inserted, use MODIFY")
        case p4r.Update.DELETE:
            return 0, 0
    return (data.packet_count, data.byte_count) if has_data else (None, None)


def _check_group_size(owner: str, size: int, limit: int) -> None:
    if 0 < limit < size:
        raise StatusError(rpc_code.RESOURCE_EXHAUSTED, f"{owner}: the weights add up to {size}, allowed are {limit}")


def _checked_index(counter: Counter, index: int) -> int:
    if index < 0:
        invalid(f"counter '{counter.name}': negative index {index}")
    if index >= counter.size:
        raise StatusError(rpc_code.OUT_OF_RANGE, f"counter '{counter.name}' has {counter.size} cells, no index {index}")
    return index


def _counter_data(packets: int, octets: int) -> p4r.CounterData:
    return p4r.CounterData(packet_count=packets, byte_count=octets)
