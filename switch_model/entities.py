"""P4Runtime entities to table entries and counters, and back (P4Runtime 1.4, "P4 Entity Messages").

Canonical codes are those of PI and BMv2. Where BMv2 only has UNKNOWN, because its target layer failed, the code is
the one that the specification names; messages name table, field, action and parameter.
"""

from collections.abc import Callable, Iterator
from typing import NoReturn

from finsy.proto import p4r, rpc_code

from switch_model.device import Pipeline
from switch_model.errors import StatusError
from switch_model.ir import ActionCall, MatchKind, prefix_mask
from switch_model.p4info import Action, Counter, MatchField, Schema, Table
from switch_model.tables import DuplicateError, Entry, Match, TableFullError
from switch_model.tables import Table as EntryTable


def _invalid(message: str) -> NoReturn:
    raise StatusError(rpc_code.INVALID_ARGUMENT, message)


class Config:
    """A pipeline as P4Runtime sees it: what is written and read goes to `pipeline`, by the ids of `schema`."""

    def __init__(self, message: p4r.ForwardingPipelineConfig, schema: Schema, pipeline: Pipeline) -> None:
        self.message = message
        self.pipeline = pipeline
        self._schema = schema

    # Write

    def write(self, update: p4r.Update) -> None:
        """Carries out one update. Raises StatusError."""
        kind = update.entity.WhichOneof("entity")
        if update.type == p4r.Update.UNSPECIFIED:
            _invalid("update type is not set")
        match kind:
            case "table_entry":
                self._write_table_entry(update.type, update.entity.table_entry)
            case "counter_entry":
                self._write_counter(update.type, update.entity.counter_entry)
            case "direct_counter_entry":
                self._write_direct_counter(update.type, update.entity.direct_counter_entry)
            case None:
                _invalid("update without an entity")
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
        if not message.HasField("action"):
            _invalid(f"table '{table.name}': an entry needs an action")
        match, priority = decode_match(table, message)
        call = _decode_action(table, message)
        _refuse_if_const(table)
        try:
            entry = self._entries(table).insert(match, priority, call)
        except DuplicateError:
            raise StatusError(
                rpc_code.ALREADY_EXISTS, f"table '{table.name}': entry exists, use MODIFY to change it"
            ) from None
        except TableFullError as error:
            raise StatusError(rpc_code.RESOURCE_EXHAUSTED, str(error)) from None
        _set_extras(entry, message)

    def _modify(self, table: Table, message: p4r.TableEntry) -> None:
        match, priority = decode_match(table, message)
        if not message.HasField("action"):
            _invalid(f"table '{table.name}': an entry needs an action")
        call = _decode_action(table, message)
        _refuse_if_const(table)
        entry = self._existing(table, match, priority)
        entry.set_call(call)
        _set_extras(entry, message)

    def _delete(self, table: Table, message: p4r.TableEntry) -> None:
        if message.is_default_action:
            _invalid(f"table '{table.name}': the default entry can't be deleted")
        match, priority = decode_match(table, message)
        _refuse_if_const(table)
        self._entries(table).delete(self._existing(table, match, priority))

    def _write_default(self, table: Table, update_type: int, message: p4r.TableEntry) -> None:
        if update_type == p4r.Update.INSERT:
            _invalid(f"table '{table.name}': the default entry can't be inserted, use MODIFY")
        _check_default_key(table, message)
        if table.has_const_default:
            raise StatusError(rpc_code.PERMISSION_DENIED, f"table '{table.name}' has a constant default action")
        if not message.HasField("action"):
            self._entries(table).reset_default()
            return
        entry = self._entries(table).default
        entry.set_call(_decode_action(table, message))
        entry.cookie = (message.controller_metadata, message.metadata)

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
            case "counter_entry":
                return self._read_counters(entity.counter_entry)
            case "direct_counter_entry":
                return self._read_direct_counters(entity.direct_counter_entry)
            case None:
                _invalid("read of an empty entity")
            case _ if _selects_all_of_none(entity):
                return iter(())
            case _:
                raise StatusError(rpc_code.UNIMPLEMENTED, f"reading '{kind}' is not supported")

    def _read_table_entries(self, request: p4r.TableEntry) -> Iterator[p4r.Entity]:
        if request.HasField("time_since_last_hit"):
            _invalid("time_since_last_hit is set, but no table here supports idle timeout")
        for table in self._selected(request.table_id):
            if request.is_default_action:
                _check_default_key(table, request)
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

    def _read_counters(self, request: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        counters = [self._counter(request.counter_id)] if request.counter_id else list(self._schema.counters.values())
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
                for table in self._schema.tables.values()
                if table.has_counter
                for entry in self._entries(table)
            ]
        for table, entry in entries:
            message = p4r.DirectCounterEntry(data=_counter_data(entry.packets, entry.bytes))
            _encode_key(table, entry, message.table_entry)
            yield p4r.Entity(direct_counter_entry=message)

    # Look-ups

    def _table(self, table_id: int) -> Table:
        table = self._schema.tables.get(table_id)
        if table is None:
            _invalid(f"no table with id {table_id}")
        return table

    def _selected(self, table_id: int) -> list[Table]:
        return [self._table(table_id)] if table_id else list(self._schema.tables.values())

    def _counter(self, counter_id: int) -> Counter:
        counter = self._schema.counters.get(counter_id)
        if counter is None:
            _invalid(f"no indirect counter with id {counter_id}")
        return counter

    def _counted_table(self, message: p4r.DirectCounterEntry) -> Table:
        if not message.HasField("table_entry"):
            _invalid("direct counter entry without a table entry")
        table = self._table(message.table_entry.table_id)
        if not table.has_counter:
            _invalid(f"table '{table.name}' has no direct counter")
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
        case "action_profile_member":
            return entity.action_profile_member.action_profile_id == 0
        case "action_profile_group":
            return entity.action_profile_group.action_profile_id == 0
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
        _invalid(f"table '{table.name}': time_since_last_hit can't be written")
    if message.idle_timeout_ns:
        _invalid(f"table '{table.name}' does not support idle timeout")
    if message.HasField("meter_config") or message.HasField("meter_counter_data"):
        _invalid(f"table '{table.name}' has no direct meter")
    if message.is_const:
        _invalid(f"table '{table.name}': is_const can't be written")
    if message.HasField("counter_data") and not table.has_counter:
        _invalid(f"table '{table.name}' has no direct counter")


def _set_extras(entry: Entry, message: p4r.TableEntry) -> None:
    entry.cookie = (message.controller_metadata, message.metadata)
    if message.HasField("counter_data"):
        entry.packets, entry.bytes = message.counter_data.packet_count, message.counter_data.byte_count


def _written_counts(update_type: int, data: p4r.CounterData, has_data: bool) -> tuple[int | None, int | None]:
    """What to write as packets and bytes; None to leave as it is. DELETE clears, as on PI."""
    match update_type:
        case p4r.Update.INSERT:
            _invalid("counters can't be inserted, use MODIFY")
        case p4r.Update.DELETE:
            return 0, 0
    return (data.packet_count, data.byte_count) if has_data else (None, None)


def _checked_index(counter: Counter, index: int) -> int:
    if index < 0:
        _invalid(f"counter '{counter.name}': negative index {index}")
    if index >= counter.size:
        raise StatusError(rpc_code.OUT_OF_RANGE, f"counter '{counter.name}' has {counter.size} cells, no index {index}")
    return index


def _counter_data(packets: int, octets: int) -> p4r.CounterData:
    return p4r.CounterData(packet_count=packets, byte_count=octets)


# Decoding


def _check_default_key(table: Table, message: p4r.TableEntry) -> None:
    if message.match:
        _invalid(f"table '{table.name}': the default entry has no match fields")
    if message.priority:
        _invalid(f"table '{table.name}': the default entry has no priority")


def decode_match(table: Table, message: p4r.TableEntry) -> tuple[Match, int]:
    """The match and priority of an entry. Raises StatusError."""
    if not table.fields:
        _invalid(f"table '{table.name}' has no key and takes no entries")
    given: dict[int, p4r.FieldMatch] = {}
    for item in message.match:
        if item.field_id in given:
            _invalid(f"table '{table.name}': match field {item.field_id} is given twice")
        given[item.field_id] = item
    match = tuple(_decode_field(table, field, given.pop(field.id, None)) for field in table.fields)
    if given:
        _invalid(f"table '{table.name}' has no match field with id {next(iter(given))}")
    if table.spec.uses_priority and message.priority <= 0:
        _invalid(f"table '{table.name}': entries need a priority above 0")
    if not table.spec.uses_priority and message.priority:
        _invalid(f"table '{table.name}': entries have no priority")
    return match, message.priority


def _decode_field(table: Table, field: MatchField, item: p4r.FieldMatch | None) -> tuple[int, int]:
    where = f"table '{table.name}', match field '{field.name}'"
    full = (1 << field.width) - 1
    if item is None:
        if field.kind is MatchKind.EXACT:
            _invalid(f"{where}: missing, an exact field can't be left out")
        return (0, full) if field.kind is MatchKind.RANGE else (0, 0)
    kind = item.WhichOneof("field_match_type")
    wanted = "optional" if field.optional else field.kind.value
    if kind != wanted:
        _invalid(f"{where}: '{kind}' given, the field is '{wanted}'")

    def value(data: bytes, what: str = "value") -> int:
        return _decode_bytes(data, field.width, f"{where}: {what}")

    match kind:
        case "exact":
            return value(item.exact.value), 0
        case "optional":
            return value(item.optional.value), full
        case "lpm":
            return _decode_lpm(field, item.lpm, where, value(item.lpm.value))
        case "ternary":
            return _decode_ternary(where, value(item.ternary.value), value(item.ternary.mask, "mask"))
    return _decode_range(where, value(item.range.low, "low"), value(item.range.high, "high"), full)


def _decode_lpm(field: MatchField, item: p4r.FieldMatch.LPM, where: str, value: int) -> tuple[int, int]:
    length = item.prefix_len
    if not 0 < length <= field.width:
        hint = ", leave the field out to match everything" if length == 0 else ""
        _invalid(f"{where}: prefix length {length} is not in 1..{field.width}{hint}")
    if value & ~prefix_mask(length, field.width):
        _invalid(f"{where}: value {value:#x} has bits set behind its prefix of {length} bits")
    return value, length


def _decode_ternary(where: str, value: int, mask: int) -> tuple[int, int]:
    if mask == 0:
        _invalid(f"{where}: mask 0, leave the field out to match everything")
    if value & ~mask:
        _invalid(f"{where}: value {value:#x} has bits set outside its mask {mask:#x}")
    return value, mask


def _decode_range(where: str, low: int, high: int, full: int) -> tuple[int, int]:
    if low > high:
        _invalid(f"{where}: low {low:#x} is above high {high:#x}")
    if low == 0 and high == full:
        _invalid(f"{where}: the whole range, leave the field out to match everything")
    return low, high


def _decode_bytes(data: bytes, width: int, where: str) -> int:
    """An unsigned value; longer than canonical is accepted (P4Runtime 1.4, "Bytestrings")."""
    if not data:
        _invalid(f"{where} is empty")
    value = int.from_bytes(data)
    if value.bit_length() > width:
        _invalid(f"{where} {value:#x} does not fit {width} bits")
    return value


def _decode_action(table: Table, message: p4r.TableEntry) -> ActionCall:
    kind = message.action.WhichOneof("type")
    if kind != "action":
        _invalid(f"table '{table.name}': '{kind}' given, the table takes an action")
    item = message.action.action
    action = table.actions.get(item.action_id)
    if action is None:
        _invalid(f"table '{table.name}' has no action with id {item.action_id}")
    if message.is_default_action and not action.as_default:
        raise StatusError(
            rpc_code.PERMISSION_DENIED,
            f"table '{table.name}': action '{action.name}' can't be the default action",
        )
    if not message.is_default_action and not action.in_entries:
        raise StatusError(
            rpc_code.PERMISSION_DENIED,
            f"table '{table.name}': action '{action.name}' is for the default entry only",
        )
    return ActionCall(action.place, _decode_params(table, action, item))


def _decode_params(table: Table, action: Action, item: p4r.Action) -> tuple[int, ...]:
    where = f"table '{table.name}', action '{action.name}'"
    given = {param.param_id: param.value for param in item.params}
    args = []
    for param in action.params:
        data = given.pop(param.id, None)
        if data is None:
            _invalid(f"{where}: parameter '{param.name}' is missing")
        args.append(_decode_bytes(data, param.width, f"{where}: parameter '{param.name}'"))
    if given:
        _invalid(f"{where} has no parameter with id {next(iter(given))}")
    if len(item.params) != len(args):
        _invalid(f"{where}: a parameter is given twice")
    return tuple(args)


# Encoding


def encode_bytes(value: int) -> bytes:
    """The canonical, shortest bytestring of an unsigned value."""
    return value.to_bytes(max((value.bit_length() + 7) // 8, 1))


def encode_entry(table: Table, entry: Entry) -> p4r.TableEntry:
    """The entry as a Read returns it, without its counter."""
    message = p4r.TableEntry()
    _encode_key(table, entry, message)
    action = table.action_at(entry.action)
    if action is not None:
        call = message.action.action
        call.action_id = action.id
        for param, value in zip(action.params, entry.params, strict=True):
            call.params.add(param_id=param.id, value=encode_bytes(value))
    message.controller_metadata, message.metadata = entry.cookie
    message.is_const = table.is_const and entry.hit
    return message


def _encode_key(table: Table, entry: Entry, message: p4r.TableEntry) -> None:
    message.table_id = table.id
    if not entry.hit:
        message.is_default_action = True
        return
    message.priority = entry.priority
    for field, condition in zip(table.fields, entry.match, strict=True):
        if not _is_dont_care(field, condition):
            _ENCODERS[field.kind](message.match.add(field_id=field.id), field, *condition)


def _is_dont_care(field: MatchField, condition: tuple[int, int]) -> bool:
    match field.kind:
        case MatchKind.LPM | MatchKind.TERNARY:
            return condition[1] == 0
        case MatchKind.RANGE:
            return condition == (0, (1 << field.width) - 1)
    return False


def _encode_exact(item: p4r.FieldMatch, _field: MatchField, value: int, _unused: int) -> None:
    item.exact.value = encode_bytes(value)


def _encode_lpm(item: p4r.FieldMatch, _field: MatchField, value: int, length: int) -> None:
    item.lpm.value = encode_bytes(value)
    item.lpm.prefix_len = length


def _encode_ternary(item: p4r.FieldMatch, field: MatchField, value: int, mask: int) -> None:
    if field.optional:
        item.optional.value = encode_bytes(value)
        return
    item.ternary.value = encode_bytes(value)
    item.ternary.mask = encode_bytes(mask)


def _encode_range(item: p4r.FieldMatch, _field: MatchField, low: int, high: int) -> None:
    item.range.low = encode_bytes(low)
    item.range.high = encode_bytes(high)


_ENCODERS: dict[MatchKind, Callable[[p4r.FieldMatch, MatchField, int, int], None]] = {
    MatchKind.EXACT: _encode_exact,
    MatchKind.LPM: _encode_lpm,
    MatchKind.TERNARY: _encode_ternary,
    MatchKind.RANGE: _encode_range,
}
