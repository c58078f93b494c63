"""Action profiles and selectors: which member a packet takes, and how P4Runtime programs them.

What a member's order and the hash are was compared with simple_switch_grpc 1.15.5, frame by frame, over random writes.
"""

from collections.abc import Callable, Iterable
from zlib import crc32

import pytest
from finsy.proto import p4r, rpc_code

from switch_model import p4info
from switch_model.codegen import compile_program
from switch_model.errors import PipelineError
from switch_model.hashes import crc16
from switch_model.status import StatusError
from tests.switch_model.support import (
    PROGRAMS,
    Ids,
    call,
    delete,
    exact,
    forward,
    insert,
    load,
    lpm,
    modify,
    pipeline_config,
    ternary,
)

_CRC16, _CRC32, _IDENTITY, _SHARED = 1, 2, 3, 4
_WITH_OPTION = 0x80

_Group = p4r.ActionProfileGroup
_Action = p4r.ActionProfileAction
_INVALID = rpc_code.INVALID_ARGUMENT


class _Switch:
    """profiles.p4 on a device, one entry of each table for `group` 7."""

    def __init__(self) -> None:
        self.device, self.config = load("profiles")
        self.ids = Ids(self.config.message.p4info)

    def write(self, *updates: p4r.Update) -> None:
        for update in updates:
            self.config.write(update)

    def refused(self, update: p4r.Update) -> tuple[int, str]:
        with pytest.raises(StatusError) as error:
            self.config.write(update)
        return error.value.code, error.value.message

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        return list(self.config.read(entity))

    def set_result(self, value: int) -> p4r.Action:
        return call(self.ids.action("set_result"), value.to_bytes(2).lstrip(b"\0") or b"\0").action

    def one_shot(self, *values: int, weights: Iterable[int] = ()) -> p4r.TableAction:
        chosen = list(weights) or [1] * len(values)
        items = [
            _Action(action=self.set_result(value), weight=weight) for value, weight in zip(values, chosen, strict=True)
        ]
        return p4r.TableAction(action_profile_action_set=p4r.ActionProfileActionSet(action_profile_actions=items))

    def entry(self, table: str, action: p4r.TableAction | None, match: p4r.FieldMatch | None = None) -> p4r.TableEntry:
        return p4r.TableEntry(
            table_id=self.ids.table(table),
            match=[match or exact(1, b"\x07")],
            action=action,
            priority=1 if table == "by_identity" else 0,
        )

    def member(self, member_id: int, value: int = 0, profile: str = "crc16_members") -> p4r.Entity:
        profile_id = self.ids.profile(profile)
        action = self.set_result(value)
        message = p4r.ActionProfileMember(action_profile_id=profile_id, member_id=member_id, action=action)
        return p4r.Entity(action_profile_member=message)

    def group(
        self, group_id: int, weights: dict[int, int], max_size: int = 0, profile: str = "crc16_members"
    ) -> p4r.Entity:
        members = [_Group.Member(member_id=member_id, weight=weight) for member_id, weight in weights.items()]
        profile_id = self.ids.profile(profile)
        message = _Group(action_profile_id=profile_id, group_id=group_id, members=members, max_size=max_size)
        return p4r.Entity(action_profile_group=message)

    def result(self, code: int, flow: int = 0, address: int = 0, option: int | None = None, group: int = 7) -> int:
        flag = 0 if option is None else _WITH_OPTION
        fields = bytes([code | flag, group]) + flow.to_bytes(2) + address.to_bytes(6)
        behind = b"" if option is None else option.to_bytes(2)
        out = forward(self.device, fields + b"\0\0" + behind + b"payload")
        assert out is not None and out[12:] == behind + b"payload"
        return int.from_bytes(out[10:12])


@pytest.fixture
def switch() -> _Switch:
    return _Switch()


def _insert(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.INSERT, entity=entity)


def _modify(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.MODIFY, entity=entity)


def _delete(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=entity)


def _group_action(group_id: int) -> p4r.TableAction:
    return p4r.TableAction(action_profile_group_id=group_id)


def _member_action(member_id: int) -> p4r.TableAction:
    return p4r.TableAction(action_profile_member_id=member_id)


class TestChoice:
    def test_crc32_over_the_keys_in_order(self, switch: _Switch) -> None:
        values = [11, 22, 33]
        switch.write(insert(switch.entry("by_crc32", switch.one_shot(*values), lpm(1, b"\x07", 8))))
        for flow in range(50):
            data = flow.to_bytes(2) + (0xABCDEF << 8 | flow).to_bytes(6)
            assert switch.result(_CRC32, flow, 0xABCDEF << 8 | flow) == values[crc32(data) % 3]

    def test_fields_of_an_invalid_header_are_left_out(self, switch: _Switch) -> None:
        values = [1, 2, 3, 4, 5]
        switch.write(insert(switch.entry("by_crc16", switch.one_shot(*values))))
        for flow in range(50):
            assert switch.result(_CRC16, flow) == values[crc16(flow.to_bytes(2)) % 5]
            option = flow * 997 & 0xFFFF
            packed = option >> 12 << 28 | flow << 12 | option & 0xFFF
            assert switch.result(_CRC16, flow, option=option) == values[crc16(packed.to_bytes(4)) % 5]

    def test_identity_takes_the_low_32_bits(self, switch: _Switch) -> None:
        values = [1, 2, 3, 4, 5, 6, 7]
        switch.write(insert(switch.entry("by_identity", switch.one_shot(*values), ternary(1, b"\x07", b"\xff"))))
        for address in (0, 1, 6, 7, 0xFFFFFFFF, 0x1_0000_0000, 0x1234_0000_0003):
            assert switch.result(_IDENTITY, address=address) == values[(address & 0xFFFFFFFF) % 7]

    def test_weights_repeat_an_action_in_its_place(self, switch: _Switch) -> None:
        action = switch.one_shot(10, 20, 30, weights=(2, 1, 3))
        switch.write(insert(switch.entry("by_identity", action, ternary(1, b"\x07", b"\xff"))))
        assert [switch.result(_IDENTITY, address=n) for n in range(8)] == [10, 10, 20, 30, 30, 30, 10, 10]

    def test_a_miss_does_nothing_and_is_a_miss(self, switch: _Switch) -> None:
        assert switch.result(_CRC16) == 0xDEAD
        assert switch.result(_CRC32) == 0
        # On a miss p4c's next node lies behind the `switch` on action_run: no arm of it runs.
        assert forward(switch.device, bytes([_IDENTITY, 7]) + bytes(10)) == bytes([_IDENTITY | 0x40, 7]) + bytes(10)
        switch.write(insert(switch.entry("by_identity", switch.one_shot(5), ternary(1, b"\x07", b"\xff"))))
        out = forward(switch.device, bytes([_IDENTITY, 7]) + bytes(10))
        assert out == bytes([_IDENTITY | 0x40, 0xAA]) + bytes(8) + b"\x00\x05"

    def test_hits_are_counted_on_the_entry(self, switch: _Switch) -> None:
        entry = switch.entry("by_crc16", switch.one_shot(1, 2))
        switch.write(insert(entry))
        for flow in range(5):
            switch.result(_CRC16, flow)
        (found,) = switch.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=entry)))
        assert found.direct_counter_entry.data == p4r.CounterData(packet_count=5, byte_count=5 * 19)

    def test_a_member_that_exits(self, switch: _Switch) -> None:
        member = switch.member(1)
        member.action_profile_member.action.CopyFrom(call(switch.ids.action("leave")).action)
        switch.write(_insert(member), insert(switch.entry("by_crc16", _member_action(1))))
        out = forward(switch.device, bytes([_CRC16, 7]) + bytes(10))
        assert out == bytes([_CRC16, 7]) + bytes(10)  # else the code gets 0x40

    def test_a_profile_is_shared_by_tables(self, switch: _Switch) -> None:
        profile = p4r.ActionProfileMember(action_profile_id=switch.ids.profile("shared_members"), member_id=1)
        for update_type, value in ((p4r.Update.INSERT, b"\x05"), (p4r.Update.MODIFY, b"\x06")):
            profile.action.CopyFrom(call(switch.ids.action("add"), value).action)
            switch.write(p4r.Update(type=update_type, entity=p4r.Entity(action_profile_member=profile)))
            if update_type == p4r.Update.INSERT:
                switch.write(
                    insert(switch.entry("first_shared", _member_action(1))),
                    insert(switch.entry("second_shared", _member_action(1), exact(1, b"\x09"))),
                )
            assert switch.result(_SHARED, flow=9) == 2 * value[0]
            assert switch.result(_SHARED, flow=8) == value[0]


class TestGroups:
    """Members stand in a group by their handles: BMv2 gives the lowest free one, and one more for a greater weight."""

    def _order(self, switch: _Switch, size: int) -> list[int]:
        """The members' values in the group, by a hash that is the packet's."""
        return [switch.result(_IDENTITY, address=n) for n in range(size)]

    def _program(self, switch: _Switch, members: Iterable[int], weights: dict[int, int]) -> None:
        """Members with a value that is their id."""
        switch.write(*(_insert(switch.member(one, one, "identity_members")) for one in members))
        switch.write(_insert(switch.group(1, weights, profile="identity_members")))
        switch.write(insert(switch.entry("by_identity", _group_action(1), ternary(1, b"\x07", b"\xff"))))

    def test_in_the_order_in_which_the_members_were_made(self, switch: _Switch) -> None:
        self._program(switch, (30, 10, 20), {10: 1, 20: 1, 30: 1})
        assert self._order(switch, 4) == [30, 10, 20, 30]

    def test_more_weight_takes_new_handles_by_member_id(self, switch: _Switch) -> None:
        self._program(switch, (30, 10, 20), {30: 2, 20: 1, 10: 3})
        # handles: 30 has 0 and 5, 10 has 1, 3 and 4, 20 has 2
        assert self._order(switch, 6) == [30, 10, 20, 10, 10, 30]

    def test_less_weight_gives_handles_back(self, switch: _Switch) -> None:
        self._program(switch, (1, 2), {1: 3, 2: 1})  # 1 has 0, 2 and 3
        switch.write(_modify(switch.group(1, {1: 1, 2: 2}, profile="identity_members")))
        # 2 takes handle 4 before 1 gives back 2 and 3
        assert self._order(switch, 3) == [1, 2, 2]
        switch.write(_insert(switch.member(3, 3, "identity_members")))  # takes 2
        switch.write(_modify(switch.group(1, {1: 1, 2: 2, 3: 1}, profile="identity_members")))
        assert self._order(switch, 4) == [1, 2, 3, 2]

    def test_a_deleted_member_leaves_its_place_to_the_next(self, switch: _Switch) -> None:
        switch.write(*(_insert(switch.member(one, one, "identity_members")) for one in (1, 2)))
        switch.write(_delete(switch.member(1, profile="identity_members")))
        self._program(switch, (9,), {2: 1, 9: 1})
        assert self._order(switch, 2) == [9, 2]

    def test_a_modified_member_is_new_in_all_its_places(self, switch: _Switch) -> None:
        self._program(switch, (1, 2), {1: 2, 2: 1})
        switch.write(_modify(switch.member(1, 77, "identity_members")))
        assert self._order(switch, 3) == [77, 2, 77]
        other = switch.entry("by_identity", _member_action(1), ternary(1, b"\x08", b"\xff"))
        switch.write(insert(other))
        assert switch.result(_IDENTITY, group=8) == 77

    def test_an_emptied_group_is_a_miss(self, switch: _Switch) -> None:
        switch.write(_insert(switch.member(1, 5)), _insert(switch.group(1, {1: 1})))
        entry = switch.entry("by_crc16", _group_action(1))
        switch.write(insert(entry))
        assert switch.result(_CRC16) == 5
        switch.write(_modify(switch.group(1, {})))
        assert switch.result(_CRC16) == 0xDEAD
        (found,) = switch.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=entry)))
        assert found.direct_counter_entry.data.packet_count == 1
        switch.write(_modify(switch.group(1, {1: 1})))
        assert switch.result(_CRC16) == 5


class TestReads:
    def test_one_shots_come_back_as_they_were_written(self, switch: _Switch) -> None:
        entry = switch.entry("by_crc16", switch.one_shot(3, 1, 3, weights=(1, 2, 1)))
        switch.write(insert(entry))
        selector = p4r.Entity(table_entry=p4r.TableEntry(table_id=entry.table_id))
        assert switch.read(selector) == [p4r.Entity(table_entry=entry)]
        assert switch.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember())) == []
        assert switch.read(p4r.Entity(action_profile_group=_Group())) == []
        changed = switch.entry("by_crc16", switch.one_shot(9))
        switch.write(modify(changed))
        assert switch.read(selector) == [p4r.Entity(table_entry=changed)]

    def test_members_groups_and_entries(self, switch: _Switch) -> None:
        members = [switch.member(2, 20), switch.member(1, 10)]
        groups = [switch.group(5, {1: 1, 2: 3}, max_size=4), switch.group(6, {})]
        entries = [
            switch.entry("by_crc16", _group_action(5)),
            switch.entry("by_crc16", _member_action(2), exact(1, b"\x08")),
        ]
        switch.write(*map(_insert, (*members, *groups)), *map(insert, entries))
        profile_id = switch.ids.profile("crc16_members")
        for wanted in (0, profile_id):
            assert (
                switch.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=wanted)))
                == members
            )
            assert switch.read(p4r.Entity(action_profile_group=_Group(action_profile_id=wanted))) == groups
        one = p4r.ActionProfileMember(action_profile_id=profile_id, member_id=1)
        assert switch.read(p4r.Entity(action_profile_member=one)) == members[1:]
        assert switch.read(p4r.Entity(action_profile_group=_Group(action_profile_id=profile_id, group_id=7))) == []
        found = switch.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=entries[0].table_id)))
        assert [entity.table_entry for entity in found] == entries

    def test_the_default_entry_has_no_action(self, switch: _Switch) -> None:
        default = p4r.TableEntry(table_id=switch.ids.table("by_crc16"), is_default_action=True)
        assert switch.read(p4r.Entity(table_entry=default)) == [p4r.Entity(table_entry=default)]

    def test_an_unknown_profile(self, switch: _Switch) -> None:
        with pytest.raises(StatusError, match="no action profile with id 5"):
            switch.read(p4r.Entity(action_profile_group=_Group(action_profile_id=5)))


def test_what_is_used_can_t_be_deleted_until_it_is_free(switch: _Switch) -> None:
    switch.write(_insert(switch.member(1, 5)), _insert(switch.member(2, 6)), _insert(switch.group(1, {1: 1})))
    by_group = switch.entry("by_crc16", _group_action(1))
    by_member = switch.entry("by_crc16", _member_action(2), exact(1, b"\x08"))
    switch.write(insert(by_group), insert(by_member))
    precondition = rpc_code.FAILED_PRECONDITION
    owner = "action profile 'crc16_members'"
    assert switch.refused(_delete(switch.member(1))) == (precondition, f"{owner}: member 1 is used by group 1")
    assert switch.refused(_delete(switch.member(2))) == (precondition, f"{owner}: member 2 is used by a table entry")
    assert switch.refused(_delete(switch.group(1, {}))) == (precondition, f"{owner}: group 1 is used by a table entry")
    switch.write(modify(switch.entry("by_crc16", _member_action(2))))
    switch.write(_delete(switch.group(1, {})), _delete(switch.member(1)))
    switch.write(delete(by_group), delete(by_member), _delete(switch.member(2)))
    assert switch.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember())) == []


def test_one_shots_and_members_do_not_mix(switch: _Switch) -> None:
    one_shot = switch.entry("by_crc16", switch.one_shot(1))
    switch.write(_insert(switch.member(1, 5)))
    assert switch.refused(insert(one_shot)) == (
        _INVALID,
        "action profile 'crc16_members': has members or groups, one-shot action sets can't be mixed with them",
    )
    switch.write(_delete(switch.member(1)), insert(one_shot))
    for update in (_insert(switch.member(1)), _modify(switch.member(1)), _delete(switch.group(1, {}))):
        assert switch.refused(update) == (
            _INVALID,
            "action profile 'crc16_members': has one-shot action sets, they can't be mixed with members and groups",
        )
    assert switch.refused(insert(one_shot))[0] == rpc_code.ALREADY_EXISTS
    switch.write(_insert(switch.member(1, 5, "crc32_members")))  # another profile
    switch.write(delete(one_shot), _insert(switch.member(1)))


def _with_action(name: str, *args: bytes) -> Callable[[_Switch], p4r.Update]:
    def build(switch: _Switch) -> p4r.Update:
        entity = switch.member(1)
        entity.action_profile_member.action.CopyFrom(call(switch.ids.action(name), *args).action)
        return _insert(entity)

    return build


def _with_watch_port(switch: _Switch) -> p4r.Update:
    action = switch.one_shot(1)
    action.action_profile_action_set.action_profile_actions[0].watch_port = b"\x01"
    return insert(switch.entry("by_crc16", action))


def _with_selection_mode(switch: _Switch) -> p4r.Update:
    action = switch.one_shot(1)
    action.action_profile_action_set.action_selection_mode = p4r.ActionProfileActionSet.RANDOM
    return insert(switch.entry("by_crc16", action))


def _member_given_twice(switch: _Switch) -> p4r.Update:
    group = switch.group(9, {1: 1})
    group.action_profile_group.members.add(member_id=1, weight=1)
    return _insert(group)


_NO_PROFILE = p4r.ActionProfileMember(action_profile_id=9, member_id=1)
_CRC16_PROFILE = "action profile 'crc16_members'"
_REFUSED: dict[str, tuple[Callable[[_Switch], p4r.Update], int, str]] = {
    "unknown profile": (
        lambda _: _insert(p4r.Entity(action_profile_member=_NO_PROFILE)),
        _INVALID,
        "no action profile with id 9",
    ),
    "member exists": (
        lambda s: _insert(s.member(1)),
        rpc_code.ALREADY_EXISTS,
        f"{_CRC16_PROFILE}: member 1 exists, use MODIFY to change it",
    ),
    "no such member": (lambda s: _modify(s.member(8)), rpc_code.NOT_FOUND, f"{_CRC16_PROFILE}: no member 8"),
    "foreign action": (_with_action("add", b"\1"), _INVALID, f"{_CRC16_PROFILE} has no action with id "),
    "default action": (
        _with_action("NoAction"),
        rpc_code.PERMISSION_DENIED,
        f"{_CRC16_PROFILE}: action 'NoAction' is for the default entry only",
    ),
    "parameter too wide": (
        _with_action("set_result", b"\1\0\0"),
        _INVALID,
        f"{_CRC16_PROFILE}, action 'set_result': parameter 'value' 0x10000 does not fit 16 bits",
    ),
    "group exists": (
        lambda s: _insert(s.group(1, {})),
        rpc_code.ALREADY_EXISTS,
        f"{_CRC16_PROFILE}: group 1 exists, use MODIFY to change it",
    ),
    "no such group": (lambda s: _modify(s.group(8, {})), rpc_code.NOT_FOUND, f"{_CRC16_PROFILE}: no group 8"),
    "group of nobody": (lambda s: _insert(s.group(9, {8: 1})), rpc_code.NOT_FOUND, f"{_CRC16_PROFILE}: no member 8"),
    "member twice": (
        _member_given_twice,
        _INVALID,
        f"{_CRC16_PROFILE}, group 9: member 1 is given twice, use its weight",
    ),
    "no weight": (
        lambda s: _insert(s.group(9, {1: 0})),
        _INVALID,
        f"{_CRC16_PROFILE}, group 9: weight 0 is not positive",
    ),
    "group too big": (
        lambda s: _insert(s.group(9, {1: 3}, max_size=2)),
        rpc_code.RESOURCE_EXHAUSTED,
        f"{_CRC16_PROFILE}, group 9: the weights add up to 3, allowed are 2",
    ),
    "max_size changed": (
        lambda s: _modify(s.group(1, {1: 1}, max_size=3)),
        _INVALID,
        f"{_CRC16_PROFILE}, group 1: max_size is 4 and can't be changed",
    ),
    "max_size above the profile's": (
        lambda s: _insert(s.group(1, {}, max_size=5, profile="crc32_members")),
        _INVALID,
        "action profile 'crc32_members', group 1: max_size 5 is not in 0..4",
    ),
    "group without selector": (
        lambda s: _insert(s.group(1, {}, profile="shared_members")),
        _INVALID,
        "action profile 'shared_members' has no selector, so it has no groups",
    ),
    "entry of no member": (
        lambda s: insert(s.entry("by_crc16", _member_action(8))),
        _INVALID,
        f"{_CRC16_PROFILE}: no member 8",
    ),
    "entry of no group": (
        lambda s: insert(s.entry("by_crc16", _group_action(8))),
        _INVALID,
        f"{_CRC16_PROFILE}: no group 8",
    ),
    "entry of an empty group": (
        lambda s: insert(s.entry("by_crc16", _group_action(1))),
        rpc_code.FAILED_PRECONDITION,
        f"{_CRC16_PROFILE}: group 1 is empty",
    ),
    "direct action": (
        lambda s: insert(s.entry("by_crc16", call(s.ids.action("set_result"), b"\1"))),
        _INVALID,
        "table 'by_crc16': 'action' given, the table takes what its action profile 'crc16_members' has",
    ),
    "no action": (
        lambda s: insert(s.entry("by_crc16", None)),
        _INVALID,
        "table 'by_crc16': an entry needs an action",
    ),
    "default entry": (
        lambda s: modify(p4r.TableEntry(table_id=s.ids.table("by_crc16"), is_default_action=True)),
        _INVALID,
        "table 'by_crc16' has an action profile, its default action can't be set",
    ),
    "group in a table without selector": (
        lambda s: insert(s.entry("first_shared", _group_action(1))),
        _INVALID,
        "table 'first_shared': 'action_profile_group_id' given, action profile 'shared_members' has no selector",
    ),
    "empty one-shot": (
        lambda s: insert(s.entry("by_crc32", s.one_shot(), lpm(1, b"\x07", 8))),
        rpc_code.UNIMPLEMENTED,
        "table 'by_crc32': empty action sets are not supported",
    ),
    "one-shot too big": (
        lambda s: insert(s.entry("by_crc32", s.one_shot(1, 2, weights=(2, 3)), lpm(1, b"\x07", 8))),
        rpc_code.RESOURCE_EXHAUSTED,
        "table 'by_crc32': the weights add up to 5, allowed are 4",
    ),
    "watch port": (_with_watch_port, rpc_code.UNIMPLEMENTED, "table 'by_crc16': watch ports are not supported"),
    "selection mode": (
        _with_selection_mode,
        rpc_code.UNIMPLEMENTED,
        "table 'by_crc16': an action set can't change how its selector works",
    ),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_refused(switch: _Switch, case: str) -> None:
    switch.write(_insert(switch.member(1, 5)), _insert(switch.group(1, {}, max_size=4)))
    build, code, message = _REFUSED[case]
    refused_code, refused_message = switch.refused(build(switch))
    assert refused_code == code
    assert refused_message.startswith(message)


def test_tables_of_one_profile_with_different_actions_are_refused() -> None:
    text = (PROGRAMS / "profiles.json").read_bytes()
    changed = text.replace(
        b'"action_profile" : "TestIngress.identity_members"', b'"action_profile" : "TestIngress.crc32_members"'
    )
    assert changed != text
    message = (
        "tables 'TestIngress.by_crc32' and 'TestIngress.by_identity' of action profile 'TestIngress.crc32_members'"
    )
    with pytest.raises(PipelineError, match=message):
        compile_program(changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("name", "action profile 'TestIngress.other' of the P4Info is not in the BMv2 JSON"),
        ("selector", "action profile 'TestIngress.crc16_members' has a selector in the BMv2 JSON only"),
        ("table", "the action profile of table 'TestIngress.by_crc16' differs between P4Info and BMv2 JSON"),
    ],
)
def test_a_p4info_of_other_profiles_is_refused(change: str, message: str) -> None:
    config = pipeline_config(PROGRAMS / "profiles")
    profile = next(item for item in config.p4info.action_profiles if item.preamble.alias == "crc16_members")
    match change:
        case "name":
            profile.preamble.name = "TestIngress.other"
        case "selector":
            profile.with_selector = False
        case "table":
            next(item for item in config.p4info.tables if item.preamble.alias == "by_crc16").implementation_id = 0
    with pytest.raises(PipelineError, match=message):
        p4info.join(config.p4info, compile_program(config.p4_device_config).program)
