"""P4Runtime messages to matches, actions and weights, and back (P4Runtime 1.4, "P4 Entity Messages").

What is not well-formed raises StatusError; messages name table, field, action and parameter.
"""

from collections.abc import Callable
from typing import NoReturn

from finsy.proto import p4r, rpc_code

from switch_model.ir import ActionCall, MatchKind, prefix_mask
from switch_model.p4info import Action, Actions, MatchField, Table, action_at
from switch_model.profiles import ActionSet, Group, Member, WeightedCall
from switch_model.status import StatusError
from switch_model.tables import Entry, Match


def invalid(message: str) -> NoReturn:
    """Refuses a malformed request."""
    raise StatusError(rpc_code.INVALID_ARGUMENT, message)


# Decoding


def check_default_key(table: Table, message: p4r.TableEntry) -> None:
    if message.match:
        invalid(f"table '{table.name}': the default entry has no match fields")
    if message.priority:
        invalid(f"table '{table.name}': the default entry has no priority")


def decode_match(table: Table, message: p4r.TableEntry) -> tuple[Match, int]:
    """The match and priority of an entry. Raises StatusError."""
    if not table.fields:
        invalid(f"table '{table.name}' has no key and takes no entries")
    given: dict[int, p4r.FieldMatch] = {}
    for item in message.match:
        if item.field_id in given:
            invalid(f"table '{table.name}': match field {item.field_id} is given twice")
        given[item.field_id] = item
    match = tuple(_decode_field(table, field, given.pop(field.id, None)) for field in table.fields)
    if given:
        invalid(f"table '{table.name}' has no match field with id {next(iter(given))}")
    if table.spec.uses_priority and message.priority <= 0:
        invalid(f"table '{table.name}': entries need a priority above 0")
    if not table.spec.uses_priority and message.priority:
        invalid(f"table '{table.name}': entries have no priority")
    return match, message.priority


def _decode_field(table: Table, field: MatchField, item: p4r.FieldMatch | None) -> tuple[int, int]:
    where = f"table '{table.name}', match field '{field.name}'"
    full = (1 << field.width) - 1
    if item is None:
        if field.kind is MatchKind.EXACT:
            invalid(f"{where}: missing, an exact field can't be left out")
        return (0, full) if field.kind is MatchKind.RANGE else (0, 0)
    kind = item.WhichOneof("field_match_type")
    wanted = "optional" if field.optional else field.kind.value
    if kind != wanted:
        invalid(f"{where}: '{kind}' given, the field is '{wanted}'")

    def value(data: bytes, what: str = "value") -> int:
        return decode_bytes(data, field.width, f"{where}: {what}")

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
        invalid(f"{where}: prefix length {length} is not in 1..{field.width}{hint}")
    if value & ~prefix_mask(length, field.width):
        invalid(f"{where}: value {value:#x} has bits set behind its prefix of {length} bits")
    return value, length


def _decode_ternary(where: str, value: int, mask: int) -> tuple[int, int]:
    if mask == 0:
        invalid(f"{where}: mask 0, leave the field out to match everything")
    if value & ~mask:
        invalid(f"{where}: value {value:#x} has bits set outside its mask {mask:#x}")
    return value, mask


def _decode_range(where: str, low: int, high: int, full: int) -> tuple[int, int]:
    if low > high:
        invalid(f"{where}: low {low:#x} is above high {high:#x}")
    if low == 0 and high == full:
        invalid(f"{where}: the whole range, leave the field out to match everything")
    return low, high


def decode_bytes(data: bytes, width: int, where: str) -> int:
    """An unsigned value; longer than canonical is accepted (P4Runtime 1.4, "Bytestrings")."""
    if not data:
        invalid(f"{where} is empty")
    value = int.from_bytes(data)
    if value.bit_length() > width:
        invalid(f"{where} {value:#x} does not fit {width} bits")
    return value


def decode_call(owner: str, actions: Actions, message: p4r.Action, *, as_default: bool = False) -> ActionCall:
    """The action of an entry or a member of `owner`, a table or an action profile. Raises StatusError."""
    action = actions.get(message.action_id)
    if action is None:
        invalid(f"{owner} has no action with id {message.action_id}")
    if as_default and not action.as_default:
        raise StatusError(rpc_code.PERMISSION_DENIED, f"{owner}: action '{action.name}' can't be the default action")
    if not as_default and not action.in_entries:
        raise StatusError(rpc_code.PERMISSION_DENIED, f"{owner}: action '{action.name}' is for the default entry only")
    return ActionCall(action.place, _decode_params(f"{owner}, action '{action.name}'", action, message))


def _decode_params(where: str, action: Action, message: p4r.Action) -> tuple[int, ...]:
    given = {param.param_id: param.value for param in message.params}
    args = []
    for param in action.params:
        data = given.pop(param.id, None)
        if data is None:
            invalid(f"{where}: parameter '{param.name}' is missing")
        args.append(decode_bytes(data, param.width, f"{where}: parameter '{param.name}'"))
    if given:
        invalid(f"{where} has no parameter with id {next(iter(given))}")
    if len(message.params) != len(args):
        invalid(f"{where}: a parameter is given twice")
    return tuple(args)


def decode_action_set(owner: str, actions: Actions, message: p4r.ActionProfileActionSet) -> tuple[WeightedCall, ...]:
    """A one-shot's actions and weights. Raises StatusError."""
    if message.action_selection_mode or message.size_semantics:
        raise StatusError(rpc_code.UNIMPLEMENTED, f"{owner}: an action set can't change how its selector works")
    if not message.action_profile_actions:
        raise StatusError(rpc_code.UNIMPLEMENTED, f"{owner}: empty action sets are not supported")
    return tuple(
        (decode_call(owner, actions, item.action), _decode_weight(owner, item))
        for item in message.action_profile_actions
    )


def decode_group(owner: str, message: p4r.ActionProfileGroup) -> dict[int, int]:
    """The weights of a group's members by their ids. Raises StatusError."""
    weights: dict[int, int] = {}
    for member in message.members:
        if member.member_id in weights:
            invalid(f"{owner}: member {member.member_id} is given twice, use its weight")
        weights[member.member_id] = _decode_weight(owner, member)
    return weights


def _decode_weight(owner: str, message: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member) -> int:
    if message.weight <= 0:
        invalid(f"{owner}: weight {message.weight} is not positive")
    if message.watch or message.watch_port:
        raise StatusError(rpc_code.UNIMPLEMENTED, f"{owner}: watch ports are not supported")
    return message.weight


# Encoding


def encode_bytes(value: int) -> bytes:
    """The canonical, shortest bytestring of an unsigned value."""
    return value.to_bytes(max((value.bit_length() + 7) // 8, 1))


def encode_entry(table: Table, entry: Entry) -> p4r.TableEntry:
    """The entry as a Read returns it, without its counter."""
    message = p4r.TableEntry()
    encode_key(table, entry, message)
    match entry.choice:
        case Member(id=member_id):
            message.action.action_profile_member_id = member_id
        case Group(id=group_id):
            message.action.action_profile_group_id = group_id
        case ActionSet(actions=actions):
            for call, weight in actions:
                item = message.action.action_profile_action_set.action_profile_actions.add(weight=weight)
                encode_call(table.actions, call, item.action)
        case _ if action_at(table.actions, entry.action):
            encode_call(table.actions, ActionCall(entry.action, entry.args), message.action.action)
    message.controller_metadata, message.metadata = entry.cookie
    message.is_const = table.is_const and entry.hit
    return message


def encode_call(actions: Actions, call: ActionCall, message: p4r.Action) -> None:
    action = action_at(actions, call.action)
    if action is None:  # P4Info does not show it
        return
    message.action_id = action.id
    for param, value in zip(action.params, call.args, strict=True):
        message.params.add(param_id=param.id, value=encode_bytes(value))


def encode_key(table: Table, entry: Entry, message: p4r.TableEntry) -> None:
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
