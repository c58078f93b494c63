"""What Write and Read refuse, with canonical code and message, and what they keep."""

from collections.abc import Callable

import pytest
from finsy.proto import p4r, rpc_code

from switch_model.entities import Config
from switch_model.messages import encode_bytes
from switch_model.status import StatusError
from tests.switch_model.support import (
    Ids,
    call,
    delete,
    exact,
    insert,
    interval,
    load,
    lpm,
    modify,
    optional,
    ternary,
)


class _Tables:
    """Entries for the tables of match_kinds.p4 and stateful.p4, right but for what a test changes."""

    def __init__(self, program: str) -> None:
        self.device, self.config = load(program)
        self.ids = Ids(self.config.message.p4info)

    def entry(self, table: str, *match: p4r.FieldMatch, **more: object) -> p4r.TableEntry:
        name = f"TestIngress.{table}"
        fields = {"action": call(self.ids.action(f"set_{table}"), b"\x07"), **more}
        return p4r.TableEntry(table_id=self.ids.table(name), match=match, **fields)  # type: ignore[arg-type]


def _kinds() -> _Tables:
    return _Tables("match_kinds")


def _refused(config: Config, update: p4r.Update) -> tuple[int, str]:
    with pytest.raises(StatusError) as error:
        config.write(update)
    return error.value.code, error.value.message


_K8, _K16 = exact(1, b"\x01"), exact(2, b"\x02")
_INVALID = rpc_code.INVALID_ARGUMENT
_DENIED = rpc_code.PERMISSION_DENIED

_Build = Callable[[_Tables], p4r.TableEntry]

_BAD_INSERTS: dict[str, tuple[_Build, int, str]] = {
    "unknown table": (lambda _: p4r.TableEntry(table_id=1), _INVALID, "no table with id 1"),
    "missing exact field": (
        lambda t: t.entry("exact", _K8),
        _INVALID,
        "table 'exact', match field 'k16': missing, an exact field can't be left out",
    ),
    "unknown field": (
        lambda t: t.entry("exact", _K8, _K16, exact(9, b"\x01")),
        _INVALID,
        "table 'exact' has no match field with id 9",
    ),
    "field twice": (
        lambda t: t.entry("exact", _K8, _K8),
        _INVALID,
        "table 'exact': match field 1 is given twice",
    ),
    "value too wide": (
        lambda t: t.entry("exact", exact(1, b"\x01\x00"), _K16),
        _INVALID,
        "table 'exact', match field 'k8': value 0x100 does not fit 8 bits",
    ),
    "empty value": (
        lambda t: t.entry("exact", exact(1, b""), _K16),
        _INVALID,
        "table 'exact', match field 'k8': value is empty",
    ),
    "wrong kind": (
        lambda t: t.entry("exact", ternary(1, b"\x01", b"\xff"), _K16),
        _INVALID,
        "table 'exact', match field 'k8': 'ternary' given, the field is 'exact'",
    ),
    "kind missing": (
        lambda t: t.entry("exact", p4r.FieldMatch(field_id=1), _K16),
        _INVALID,
        "table 'exact', match field 'k8': 'None' given, the field is 'exact'",
    ),
    "priority of an exact entry": (
        lambda t: t.entry("exact", _K8, _K16, priority=1),
        _INVALID,
        "table 'exact': entries have no priority",
    ),
    "no priority of a ternary entry": (
        lambda t: t.entry("masked", ternary(1, b"\x01", b"\xff")),
        _INVALID,
        "table 'masked': entries need a priority above 0",
    ),
    "host bits": (
        lambda t: t.entry("prefix", lpm(1, b"\x0a\x00\x00\x01", 24)),
        _INVALID,
        "table 'prefix', match field 'k32': value 0xa000001 has bits set behind its prefix of 24 bits",
    ),
    "prefix length 0": (
        lambda t: t.entry("prefix", lpm(1, b"\x00", 0)),
        _INVALID,
        "table 'prefix', match field 'k32': prefix length 0 is not in 1..32, leave the field out to match everything",
    ),
    "prefix too long": (
        lambda t: t.entry("prefix", lpm(1, b"\x01", 33)),
        _INVALID,
        "table 'prefix', match field 'k32': prefix length 33 is not in 1..32",
    ),
    "mask 0": (
        lambda t: t.entry("masked", ternary(1, b"\x00", b"\x00"), priority=1),
        _INVALID,
        "table 'masked', match field 'k16': mask 0, leave the field out to match everything",
    ),
    "bits outside the mask": (
        lambda t: t.entry("masked", ternary(1, b"\x03", b"\x01"), priority=1),
        _INVALID,
        "table 'masked', match field 'k16': value 0x3 has bits set outside its mask 0x1",
    ),
    "whole range": (
        lambda t: t.entry("range", interval(1, b"\x00", b"\xff\xff"), exact(2, b"\x01"), priority=1),
        _INVALID,
        "table 'range', match field 'k16': the whole range, leave the field out to match everything",
    ),
    "range upside down": (
        lambda t: t.entry("range", interval(1, b"\x02", b"\x01"), exact(2, b"\x01"), priority=1),
        _INVALID,
        "table 'range', match field 'k16': low 0x2 is above high 0x1",
    ),
    "ternary for optional": (
        lambda t: t.entry("optional", ternary(1, b"\x01", b"\xff"), priority=1),
        _INVALID,
        "table 'optional', match field 'k8': 'ternary' given, the field is 'optional'",
    ),
    "no action": (
        lambda t: t.entry("exact", _K8, _K16, action=None),
        _INVALID,
        "table 'exact': an entry needs an action",
    ),
    "action of another table": (
        lambda t: t.entry("exact", _K8, _K16, action=call(t.ids.action("set_range"), b"\x01")),
        _INVALID,
        "table 'exact' has no action with id ",
    ),
    "default-only action": (
        lambda t: t.entry("exact", _K8, _K16, action=call(t.ids.action("NoAction"))),
        _DENIED,
        "table 'exact': action 'NoAction' is for the default entry only",
    ),
    "member id": (
        lambda t: t.entry("exact", _K8, _K16, action=p4r.TableAction(action_profile_member_id=1)),
        _INVALID,
        "table 'exact': 'action_profile_member_id' given, the table takes an action",
    ),
    "missing parameter": (
        lambda t: t.entry("exact", _K8, _K16, action=call(t.ids.action("set_exact"))),
        _INVALID,
        "table 'exact', action 'set_exact': parameter 'value' is missing",
    ),
    "extra parameter": (
        lambda t: t.entry("exact", _K8, _K16, action=call(t.ids.action("set_exact"), b"\x01", b"\x02")),
        _INVALID,
        "table 'exact', action 'set_exact' has no parameter with id 2",
    ),
    "parameter too wide": (
        lambda t: t.entry("exact", _K8, _K16, action=call(t.ids.action("set_exact"), b"\x01\x00\x00")),
        _INVALID,
        "table 'exact', action 'set_exact': parameter 'value' 0x10000 does not fit 16 bits",
    ),
    "counter data without counter": (
        lambda t: t.entry("exact", _K8, _K16, counter_data=p4r.CounterData(packet_count=1)),
        _INVALID,
        "table 'exact' has no direct counter",
    ),
    "meter": (
        lambda t: t.entry("exact", _K8, _K16, meter_config=p4r.MeterConfig(cir=1)),
        _INVALID,
        "table 'exact' has no direct meter",
    ),
    "idle timeout": (
        lambda t: t.entry("exact", _K8, _K16, idle_timeout_ns=1),
        _INVALID,
        "table 'exact' does not support idle timeout",
    ),
    "const": (
        lambda t: t.entry("exact", _K8, _K16, is_const=True),
        _INVALID,
        "table 'exact': is_const can't be written",
    ),
    "insert of the default entry": (
        lambda t: t.entry("exact", is_default_action=True),
        _INVALID,
        "table 'exact': the default entry can't be inserted, use MODIFY",
    ),
}


@pytest.mark.parametrize("case", _BAD_INSERTS)
def test_refused_insert(case: str) -> None:
    tables = _kinds()
    build, code, message = _BAD_INSERTS[case]
    found_code, found = _refused(tables.config, insert(build(tables)))
    assert (found_code, found[: len(message)]) == (code, message)
    assert _written(tables.config) == []


def test_insert_modify_delete() -> None:
    tables = _kinds()
    config, entry = tables.config, tables.entry("exact", _K8, _K16)
    changed = tables.entry("exact", _K8, _K16, action=call(tables.ids.action("set_exact"), b"\x08"))
    missing = (rpc_code.NOT_FOUND, "table 'exact': no such entry")
    assert _refused(config, modify(entry)) == missing
    assert _refused(config, delete(entry)) == missing
    config.write(insert(entry))
    code, message = _refused(config, insert(changed))
    assert (code, message) == (rpc_code.ALREADY_EXISTS, "table 'exact': entry exists, use MODIFY to change it")
    assert _read(config, p4r.TableEntry(table_id=entry.table_id)) == [entry]
    config.write(modify(changed))
    assert _read(config, p4r.TableEntry(table_id=entry.table_id)) == [changed]
    # Only the key counts for DELETE.
    config.write(delete(p4r.TableEntry(table_id=entry.table_id, match=entry.match)))
    assert _read(config, p4r.TableEntry(table_id=entry.table_id)) == []


def test_the_update_type_and_the_entity_must_be_set() -> None:
    tables = _kinds()
    entity = p4r.Entity(table_entry=tables.entry("exact", _K8, _K16))
    assert _refused(tables.config, p4r.Update(entity=entity)) == (_INVALID, "update type is not set")
    assert _refused(tables.config, p4r.Update(type=p4r.Update.INSERT)) == (_INVALID, "update without an entity")


@pytest.mark.parametrize("kind", ["register_entry", "meter_entry", "digest_entry"])
def test_other_entities_are_unimplemented(kind: str) -> None:
    config = _kinds().config
    entity = p4r.Entity()
    getattr(entity, kind).SetInParent()
    code, message = _refused(config, p4r.Update(type=p4r.Update.INSERT, entity=entity))
    assert (code, message) == (rpc_code.UNIMPLEMENTED, f"writing '{kind}' is not supported")


def test_reading_everything_of_a_kind_that_is_not_there_finds_nothing() -> None:
    config = _kinds().config
    group = p4r.MulticastGroupEntry()
    for entity in (
        p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
        p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
        p4r.Entity(meter_entry=p4r.MeterEntry()),
        p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=group)),
    ):
        assert list(config.read(entity)) == []
    for entity in (
        p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=1)),
        p4r.Entity(register_entry=p4r.RegisterEntry()),
    ):
        with pytest.raises(StatusError, match="is not supported") as error:
            config.read(entity)
        assert error.value.code == rpc_code.UNIMPLEMENTED


def _read(config: Config, request: p4r.TableEntry) -> list[p4r.TableEntry]:
    return [entity.table_entry for entity in config.read(p4r.Entity(table_entry=request))]


def _written(config: Config) -> list[p4r.TableEntry]:
    """All entries but the constant ones."""
    return [entry for entry in _read(config, p4r.TableEntry()) if not entry.is_const]


def test_bytestrings_are_accepted_long_and_returned_short() -> None:
    tables = _kinds()
    long = tables.entry(
        "exact",
        exact(1, b"\x00\x00\x01"),
        exact(2, b"\x00\x02"),
        action=call(tables.ids.action("set_exact"), bytes(7) + b"\x07"),
    )
    tables.config.write(insert(long))
    assert _written(tables.config) == [tables.entry("exact", _K8, _K16)]
    assert (encode_bytes(0), encode_bytes(255), encode_bytes(256)) == (b"\x00", b"\xff", b"\x01\x00")


def test_what_is_read_is_what_was_written() -> None:
    tables = _kinds()
    entries = [
        tables.entry("exact", _K8, _K16, controller_metadata=9, metadata=b"note"),
        tables.entry("prefix", lpm(1, b"\x0a\x00\x00\x00", 8)),
        tables.entry("prefix"),
        tables.entry("exact_prefix", exact(1, b"\x01")),
        tables.entry("masked", ternary(1, b"\x00", b"\x0f"), priority=3),
        tables.entry("range", interval(1, b"\x00", b"\xff"), exact(2, b"\x00"), priority=4),
        tables.entry("optional", optional(2, b"\x00"), priority=5),
        tables.entry("optional", priority=2147483647),
        tables.entry("mixed", lpm(2, b"\x80\x00\x00\x00", 1), interval(3, b"\x05", b"\x05"), priority=6),
    ]
    for entry in entries:
        tables.config.write(insert(entry))
    assert _written(tables.config) == entries
    for entry in entries:
        same_table = [other for other in entries if other.table_id == entry.table_id]
        assert _read(tables.config, p4r.TableEntry(table_id=entry.table_id)) == same_table
        if entry.match:
            key = p4r.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority)
            assert _read(tables.config, key) == [entry]


def test_reads_are_filtered() -> None:
    tables = _kinds()
    first = tables.entry("optional", priority=5, metadata=b"a", controller_metadata=1)
    second = tables.entry("optional", priority=6, metadata=b"b", controller_metadata=2)
    for entry in (first, second):
        tables.config.write(insert(entry))
    table_id = first.table_id

    def found(**selector: object) -> list[p4r.TableEntry]:
        return _read(tables.config, p4r.TableEntry(table_id=table_id, **selector))  # type: ignore[arg-type]

    assert found(priority=6) == [second]
    assert found(metadata=b"a") == [first]
    assert found(controller_metadata=2) == [second]
    assert found(action=call(tables.ids.action("set_optional"))) == [first, second]
    assert found(action=call(tables.ids.action("NoAction"))) == []
    assert found(match=[optional(1, b"\x01")], priority=1) == []


def test_default_entries() -> None:
    tables = _kinds()
    config = tables.config
    selector = p4r.TableEntry(table_id=tables.ids.table("TestIngress.exact"), is_default_action=True)
    no_action = call(tables.ids.action("NoAction"))
    original = p4r.TableEntry(table_id=selector.table_id, is_default_action=True, action=no_action)
    assert _read(config, selector) == [original]
    changed = tables.entry("exact", is_default_action=True, metadata=b"mine")
    config.write(modify(changed))
    assert _read(config, selector) == [changed]
    assert tables.device.pipeline is not None
    # Without an action the default is that of the program again.
    config.write(modify(selector))
    assert _read(config, selector) == [original]
    assert len(_read(config, p4r.TableEntry(is_default_action=True))) == 8
    assert _refused(config, delete(selector))[1] == "table 'exact': the default entry can't be deleted"
    bad = tables.entry("exact", _K8, is_default_action=True)
    assert _refused(config, modify(bad)) == (_INVALID, "table 'exact': the default entry has no match fields")


def test_a_constant_default_action_is_kept() -> None:
    tables = _Tables("stateful")
    entry = p4r.TableEntry(table_id=tables.ids.table("commands_table"), is_default_action=True)
    assert _refused(tables.config, modify(entry)) == (
        _DENIED,
        "table 'commands_table' has a constant default action",
    )


def test_constant_entries_are_read_only() -> None:
    tables = _Tables("stateful")
    table_id = tables.ids.table("commands_table")
    entries = _read(tables.config, p4r.TableEntry(table_id=table_id))
    assert [entry.match[0].exact.value for entry in entries] == [bytes([code]) for code in range(1, 9)]
    assert all(entry.is_const for entry in entries)
    entry = p4r.TableEntry(table_id=table_id, match=[exact(1, b"\x01")], action=call(tables.ids.action("draw")))
    refusal = (_DENIED, "table 'commands_table' has constant entries")
    for update in (insert(entry), modify(entry), delete(entry)):
        assert _refused(tables.config, update) == refusal


class TestCounters:
    def _tables(self) -> tuple[_Tables, p4r.TableEntry]:
        tables = _Tables("stateful")
        entry = p4r.TableEntry(
            table_id=tables.ids.table("known_arguments"),
            match=[exact(1, b"\x05")],
            action=call(tables.ids.action("known"), b"\x01"),
        )
        tables.config.write(insert(entry))
        for argument in (5, 5, 6):
            frame = bytes([9, 0, argument, 0, 0]) + bytes(95)
            tables.device.ingress(1, (frame, b""), 0)
        return tables, entry

    def test_a_direct_counter_counts_hits(self) -> None:
        tables, entry = self._tables()
        request = p4r.TableEntry(table_id=entry.table_id, counter_data=p4r.CounterData())
        (found,) = _read(tables.config, request)
        assert (found.counter_data.packet_count, found.counter_data.byte_count) == (2, 200)
        (found,) = _read(tables.config, p4r.TableEntry(table_id=entry.table_id))
        assert not found.HasField("counter_data")
        (default,) = _read(
            tables.config,
            p4r.TableEntry(table_id=entry.table_id, is_default_action=True, counter_data=p4r.CounterData()),
        )
        assert not default.HasField("counter_data"), "BMv2 does not count misses"

    @pytest.mark.parametrize("wildcard", ["entry", "table", "all"])
    def test_direct_counter_entries(self, wildcard: str) -> None:
        tables, entry = self._tables()
        key = p4r.TableEntry(table_id=entry.table_id, match=entry.match)
        request = {"entry": key, "table": p4r.TableEntry(table_id=entry.table_id), "all": p4r.TableEntry()}[wildcard]
        (found,) = tables.config.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=request)))
        assert found.direct_counter_entry == p4r.DirectCounterEntry(
            table_entry=key, data=p4r.CounterData(packet_count=2, byte_count=200)
        )

    def test_a_direct_counter_is_written_and_survives_a_modify(self) -> None:
        tables, entry = self._tables()
        data = p4r.CounterData(packet_count=7, byte_count=8)
        counter = p4r.DirectCounterEntry(table_entry=entry, data=data)
        update = p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(direct_counter_entry=counter))
        tables.config.write(update)
        tables.config.write(modify(entry))
        request = p4r.TableEntry(table_id=entry.table_id, counter_data=p4r.CounterData())
        assert _read(tables.config, request)[0].counter_data == data
        update.entity.direct_counter_entry.table_entry.match[0].exact.value = b"\x09"
        assert _refused(tables.config, update)[0] == rpc_code.NOT_FOUND

    def test_an_insert_may_set_the_counter(self) -> None:
        tables, entry = self._tables()
        entry.match[0].exact.value = b"\x07"
        entry.counter_data.packet_count = 3
        tables.config.write(insert(entry))
        request = p4r.TableEntry(table_id=entry.table_id, match=entry.match, counter_data=p4r.CounterData())
        assert _read(tables.config, request) == [entry]

    def test_indirect_counters(self) -> None:
        tables, _ = self._tables()
        counter_id = tables.ids.counter("commands")
        one = p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=9))
        (found,) = tables.config.read(p4r.Entity(counter_entry=one))
        assert found.counter_entry.data == p4r.CounterData(packet_count=3, byte_count=300)
        whole = p4r.CounterEntry(counter_id=counter_id)
        for request in (whole, p4r.CounterEntry()):
            cells = [item.counter_entry for item in tables.config.read(p4r.Entity(counter_entry=request))]
            assert [cell.index.index for cell in cells] == list(range(16))
            assert sum(cell.data.packet_count for cell in cells) == 3
        one.data.packet_count = 1
        tables.config.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=one)))
        assert tables.device.read_counter("commands", 9) == (1, 0)

    def test_what_counters_refuse(self) -> None:
        tables, _ = self._tables()
        counter_id = tables.ids.counter("commands")

        def update(kind: p4r.Update.Type.ValueType, entry: p4r.CounterEntry) -> tuple[int, str]:
            return _refused(tables.config, p4r.Update(type=kind, entity=p4r.Entity(counter_entry=entry)))

        cell = p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=0))
        assert update(p4r.Update.INSERT, cell) == (_INVALID, "counters can't be inserted, use MODIFY")
        whole = p4r.CounterEntry(counter_id=counter_id)
        assert update(p4r.Update.MODIFY, whole) == (
            rpc_code.UNIMPLEMENTED,
            "counter 'commands': write without an index",
        )
        for index, code, message in (
            (16, rpc_code.OUT_OF_RANGE, "counter 'commands' has 16 cells, no index 16"),
            (-1, _INVALID, "counter 'commands': negative index -1"),
        ):
            beyond = p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=index))
            assert update(p4r.Update.MODIFY, beyond) == (code, message)
        unknown = p4r.CounterEntry(counter_id=1, index=p4r.Index(index=0))
        assert update(p4r.Update.MODIFY, unknown) == (_INVALID, "no indirect counter with id 1")
