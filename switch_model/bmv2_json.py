"""Reads p4c's BMv2 JSON (format 2.x, v1model) into `ir.Program`, and refuses what is outside `subset.SUBSET`.

Format: behavioral-model docs/JSON_format.md.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from switch_model import ir
from switch_model.errors import PipelineError, UnsupportedError
from switch_model.flow import LoopError, Region, structure

DROP_PORT = 511
"""simple_switch's drop port: the egress_spec that mark_to_drop writes."""

_BINARY = {
    "+",
    "-",
    "*",
    "<<",
    ">>",
    "&",
    "|",
    "^",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "==b",
    "!=b",
}
_UNARY = {"~", "not", "d2b", "b2d"}
_CASTS = {"two_comp_mod", "usat_cast", "sat_cast"}
_HASHES = {"crc32", "crc16", "identity"}
_IGNORED = {"log_msg", "no_op"}

Json = dict[str, Any]


def read_program(text: str | bytes) -> ir.Program:
    """The program in p4c's JSON output.

    Raises UnsupportedError naming a construct outside the subset, PipelineError for what is no BMv2 JSON.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PipelineError(f"not a BMv2 JSON: {error}") from None
    try:
        return _Reader(document).program()
    except PipelineError:
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise PipelineError(f"malformed BMv2 JSON: {type(error).__name__}: {error}") from error


class _Place(NamedTuple):
    """Where the reader is, for messages, with the widths of the action's parameters there."""

    name: str
    params: tuple[int, ...] = ()


def _refuse(what: str, where: _Place | None = None) -> NoReturn:
    raise UnsupportedError(f"{what} in {where.name}" if where else what)


def _number(text: str) -> int:
    return int(text, 16)


class _Reader:
    def __init__(self, document: Json) -> None:
        self.json = document
        self.headers: dict[str, ir.Header] = {}
        self.fields: dict[str, ir.Field] = {}
        self.actions: dict[int, ir.Action] = {}
        self.profiles: dict[str, ir.Profile] = {}

    def program(self) -> ir.Program:
        self._refuse_objects()
        self._read_headers()
        self.actions = {action["id"]: self._action(action) for action in self.json["actions"]}
        pipelines = {pipeline["name"]: pipeline for pipeline in self.json["pipelines"]}
        for pipeline in pipelines.values():
            self.profiles.update((item["name"], self._profile(item)) for item in pipeline.get("action_profiles", ()))
        ingress = self._pipeline(pipelines["ingress"])
        egress = self._pipeline(pipelines["egress"])
        tables = {node.name: node for node in (*ingress.nodes(), *egress.nodes()) if isinstance(node, ir.Table)}
        _check_profiles(tables.values())
        (parser,) = self.json["parsers"]
        (deparser,) = self.json["deparsers"]
        if deparser.get("primitives"):
            _refuse("statement other than emit", _Place("the deparser"))
        return ir.Program(
            headers=self.headers,
            errors=dict(self.json["errors"]),
            parser_start=parser["init_state"],
            parser={state["name"]: self._parser_state(state) for state in parser["parse_states"]},
            ingress=ingress,
            egress=egress,
            deparser=tuple(deparser["order"]),
            counters={
                counter["name"]: ir.Counter(counter["name"], counter["size"])
                for counter in self.json["counter_arrays"]
                if not counter["is_direct"]
            },
            registers={
                register["name"]: ir.Register(register["name"], register["size"], register["bitwidth"])
                for register in self.json["register_arrays"]
            },
            profiles=self.profiles,
            tables=tables,
        )

    def _refuse_objects(self) -> None:
        for key, what in (
            ("header_stacks", "header stack"),
            ("header_unions", "header union"),
            ("header_union_stacks", "stack of header unions"),
            ("header_union_types", "header union"),
            ("parse_vsets", "parser value set"),
            ("meter_arrays", "meter"),
            ("learn_lists", "digest"),
            ("extern_instances", "extern instance"),
            ("checksums", "checksum"),
        ):
            for item in self.json.get(key, ()):
                _refuse(f"{what} '{item['name']}'")

    # Headers

    def _read_headers(self) -> None:
        types = {header_type["name"]: header_type for header_type in self.json["header_types"]}
        for item in self.json["headers"]:
            header = self._header(item, types[item["header_type"]])
            self.headers[header.name] = header
            self.fields.update((f.path, f) for f in (*header.fields, header.valid))

    def _header(self, item: Json, header_type: Json) -> ir.Header:
        name, metadata = item["name"], item["metadata"]
        fields, offset = [], 0
        for field_name, width, *signed in header_type["fields"]:
            if width == "*":
                _refuse(f"varbit field '{field_name}'", _Place(f"header '{name}'"))
            fields.append(ir.Field(name, field_name, width, offset, bool(signed and signed[0])))
            offset += width
        if not metadata and offset % 8:
            raise PipelineError(f"header '{name}' is {offset} bits wide, which is no whole number of bytes")
        return ir.Header(name, header_type["name"], metadata, tuple(fields))

    def _field(self, value: Sequence[str]) -> ir.Field:
        return self.fields[".".join(value)]

    # Expressions

    def _expr(self, item: Json, where: _Place) -> ir.Expr:
        kind, value = item["type"], item["value"]
        match kind:
            case "expression":
                return self._expr(value, where) if "type" in value else self._operation(value, where)
            case "field":
                return self._field(value)
            case "hexstr":
                return ir.Const(_number(value))
            case "bool":
                return ir.Const(int(value))
            case "runtime_data" | "local":
                return ir.Param(value, where.params[value])
            case "lookahead":
                return ir.Lookahead(*value)
        _refuse(f"operand of type '{kind}'", where)

    def _operation(self, item: Json, where: _Place) -> ir.Expr:
        op = item["op"]
        if op == "valid":
            return ir.Valid(item["right"]["value"])
        if op == "?":
            return ir.Op(op, tuple(self._expr(item[key], where) for key in ("cond", "left", "right")))
        if op in _UNARY:
            return ir.Op(op, (self._expr(item["right"], where),))
        if op in _BINARY or op in _CASTS:
            if "header" in (item["left"]["type"], item["right"]["type"]):
                _refuse(f"comparison '{op}' of headers", where)
            return _sliced(op, self._expr(item["left"], where), self._expr(item["right"], where))
        if op in ("/", "%"):
            divisor = self._expr(item["right"], where)
            if not isinstance(divisor, ir.Const) or divisor.value <= 0:
                _refuse(f"operator '{op}' by a value that is not a positive constant", where)
            return ir.Op(op, (self._expr(item["left"], where), divisor))
        _refuse(f"operator '{op}'", where)

    # Actions

    def _action(self, item: Json) -> ir.Action:
        name = item["name"]
        params = tuple((param["name"], param["bitwidth"]) for param in item["runtime_data"])
        where = _Place(f"action '{name}'", tuple(width for _, width in params))
        return ir.Action(name, params, self._body(item["primitives"], where))

    def _body(self, primitives: list[Json], where: _Place) -> Region[ir.Statement]:
        """The `if`s of an action again, from p4c's jumps."""

        def at(place: int) -> int | None:
            """The first primitive from `place` on that does something."""
            seen: set[int] = set()
            while place < len(primitives):
                op = primitives[place]["op"]
                if place in seen:
                    raise LoopError(op)
                seen.add(place)
                if op == "_jump":
                    place = _number(primitives[place]["parameters"][0]["value"])
                elif op in _IGNORED:
                    place += 1
                else:
                    return place
            return None

        def successors(place: int) -> Sequence[int | None]:
            primitive = primitives[place]
            if primitive["op"] == "_jump_if_zero":
                return (at(place + 1), at(_number(primitive["parameters"][1]["value"])))
            return (at(place + 1),)

        try:
            region = structure(at(0), successors)
        except LoopError:
            _refuse("loop", where)
        return region.map(lambda place: self._statement(primitives[place], where))

    def _statement(self, item: Json, where: _Place) -> ir.Statement:
        op, params = item["op"], item["parameters"]

        def expr(place: int) -> ir.Expr:
            return self._expr(params[place], where)

        def target() -> ir.Field:
            if params[0]["type"] != "field":
                _refuse(f"assignment to an operand of type '{params[0]['type']}'", where)
            field = self._field(params[0]["value"])
            if field.path == "standard_metadata.mcast_grp":
                _refuse("multicast (standard_metadata.mcast_grp assigned)", where)
            return field

        def name(place: int) -> str:
            return str(params[place]["value"])

        match op:
            case "assign" | "modify_field":
                return ir.Assign(target(), expr(1))
            case "mark_to_drop" | "drop":
                return ir.Assign(self.fields["standard_metadata.egress_spec"], ir.Const(DROP_PORT))
            case "add_header":
                return ir.SetValid(name(0))
            case "remove_header":
                return ir.SetInvalid(name(0))
            case "assign_header" | "copy_header":
                return ir.CopyHeader(name(0), name(1))
            case "count":
                return ir.Count(name(0), expr(1))
            case "register_read":
                return ir.ReadRegister(target(), name(1), expr(2))
            case "register_write":
                return ir.WriteRegister(name(0), expr(1), expr(2))
            case "modify_field_rng_uniform":
                return ir.Random(target(), expr(1), expr(2))
            case "modify_field_with_hash_based_offset":
                algorithm, inputs = self._calculation(name(2))
                return ir.Hash(target(), expr(1), algorithm, inputs, expr(3))
            case "truncate":
                return ir.Truncate(expr(0))
            case "exit":
                return ir.Exit()
            case "_jump_if_zero":
                return ir.Test(expr(0))
        _refuse(f"primitive '{op}'", where)

    def _calculation(self, name: str) -> tuple[str, ir.HashInputs]:
        (item,) = (item for item in self.json["calculations"] if item["name"] == name)
        return self._hash(item, _Place(f"calculation '{name}'"))

    def _hash(self, item: Json, where: _Place) -> tuple[str, ir.HashInputs]:
        if item["algo"] not in _HASHES:
            _refuse(f"hash algorithm '{item['algo']}'", where)
        inputs: list[tuple[ir.Expr, int]] = []
        for part in item["input"]:
            match part["type"]:
                case "field":
                    field = self._field(part["value"])
                    inputs.append((field, field.width))
                case "hexstr":
                    inputs.append((ir.Const(_number(part["value"])), part["bitwidth"]))
                case kind:
                    _refuse(f"hash input of type '{kind}'", where)
        return item["algo"], tuple(inputs)

    # Parser

    def _parser_state(self, item: Json) -> ir.ParserState:
        where = _Place(f"parser state '{item['name']}'")
        key = tuple(self._select_key(part, where) for part in item["transition_key"])
        return ir.ParserState(
            item["name"],
            tuple(self._parser_op(op, where) for op in item["parser_ops"]),
            key,
            tuple(self._transition(part, [width for _, width in key], where) for part in item["transitions"]),
        )

    def _select_key(self, item: Json, where: _Place) -> tuple[ir.Expr, int]:
        value = self._expr(item, where)
        match value:
            case ir.Field(width=width) | ir.Lookahead(width=width):
                return value, width
        _refuse("select on an expression", where)

    def _transition(self, item: Json, widths: list[int], where: _Place) -> ir.Transition:
        kind = item.get("type", "default" if item["value"] == "default" else "hexstr")
        if kind == "default":
            return ir.Transition((), item["next_state"])
        if kind != "hexstr":
            _refuse(f"transition of type '{kind}'", where)
        # The value and the mask hold the key fields one after the other, each padded to whole bytes.
        value, mask = _number(item["value"]), _number(item["mask"]) if item["mask"] else -1
        matches = []
        for width in reversed(widths):
            padded = (width + 7) // 8 * 8
            field_mask = mask & ((1 << width) - 1)
            matches.append((value & field_mask, field_mask))
            value, mask = value >> padded, mask >> padded
        return ir.Transition(tuple(reversed(matches)), item["next_state"])

    def _parser_op(self, item: Json, where: _Place) -> ir.ParserOp:
        op, params = item["op"], item["parameters"]
        match op:
            case "extract":
                if params[0]["type"] != "regular":
                    _refuse(f"extract of type '{params[0]['type']}'", where)
                return ir.Extract(params[0]["value"])
            case "set":
                return ir.Assign(self._field(params[0]["value"]), self._expr(params[1], where))
            case "advance":
                bits = self._expr(params[0], where)
                if not isinstance(bits, ir.Const) or bits.value % 8:
                    _refuse("advance by anything but a constant number of whole bytes", where)
                return ir.Advance(bits.value // 8)
            case "shift":
                return ir.Advance(int(params[0]))
            case "verify":
                return ir.Verify(self._expr(params[0], where), self._expr(params[1], where))
            case "primitive":
                statement = self._statement(params[0], where)
                if isinstance(statement, (ir.Assign, ir.SetValid, ir.SetInvalid, ir.CopyHeader)):
                    return statement
                _refuse(f"primitive '{params[0]['op']}'", where)
        _refuse(f"parser operation '{op}'", where)

    # Pipelines

    def _profile(self, item: Json) -> ir.Profile:
        name = item["name"]
        if "selector" not in item:
            return ir.Profile(name, None)
        return ir.Profile(name, ir.Selector(*self._hash(item["selector"], _Place(f"action selector '{name}'"))))

    def _pipeline(self, item: Json) -> Region[ir.Node]:
        if item.get("action_calls"):
            _refuse(f"action call '{item['action_calls'][0]['name']}'")
        nodes: dict[str, ir.Node] = {}
        nexts: dict[str, tuple[str | None, ...]] = {}
        for table in item["tables"]:
            nodes[table["name"]], nexts[table["name"]] = self._table(table)
        for conditional in item["conditionals"]:
            name = conditional["name"]
            condition = self._expr(conditional["expression"], _Place(f"condition '{name}'"))
            nodes[name] = ir.Conditional(name, condition)
            nexts[name] = (conditional["true_next"], conditional["false_next"])
        try:
            return structure(item["init_table"], nexts.__getitem__).map(nodes.__getitem__)
        except LoopError as error:
            raise PipelineError(f"pipeline '{item['name']}' loops through '{error}'") from None

    def _table(self, item: Json) -> tuple[ir.Table, tuple[str | None, ...]]:
        name = item["name"]
        where = _Place(f"table '{name}'")
        if item["type"] not in ("simple", "indirect", "indirect_ws"):
            _refuse(f"implementation '{item['type']}'", where)
        profile = None if item["type"] == "simple" else self.profiles[item["action_profile"]]
        if item.get("support_timeout"):
            _refuse("idle timeout", where)
        if item.get("direct_meters"):
            _refuse(f"direct meter '{item['direct_meters']}'", where)
        key = tuple(self._key_field(part, where) for part in item["key"])
        match_type = ir.MatchKind(item["match_type"])
        ids = item["action_ids"]
        actions = tuple(self.actions[action_id] for action_id in ids)
        default = {} if profile else item["default_entry"]
        entries = item.get("entries", ())
        table = ir.Table(
            name=name,
            match_type=match_type,
            key=key,
            actions=actions,
            profile=profile,
            default=ir.ActionCall(len(ids), ()) if profile else self._call(default, ids),
            default_is_const=default.get("action_entry_const", False),
            size=item["max_size"],
            has_counters=item["with_counters"],
            const_entries=self._const_entries(entries, key, match_type, ids),
            is_const=bool(entries),
            by_hit=not {"__HIT__", "__MISS__"}.isdisjoint(item["next_tables"]),
        )
        return table, self._next_nodes(item, table)

    @staticmethod
    def _next_nodes(item: Json, table: ir.Table) -> tuple[str | None, ...]:
        following, otherwise = item["next_tables"], item.get("base_default_next")
        if table.by_hit:
            return (following.get("__HIT__", otherwise), following.get("__MISS__", otherwise))
        by_action = [following[action.name] for action in table.actions]
        return (*by_action, otherwise) if table.profile else tuple(by_action)

    def _key_field(self, item: Json, where: _Place) -> ir.KeyField:
        if item.get("mask"):
            _refuse(f"masked key field '{item['name']}'", where)
        kind, target = item["match_type"], item["target"]
        if kind == "valid":
            return ir.KeyField(item.get("name") or target, ir.MatchKind.EXACT, ir.Valid(target), 1)
        field = self._field(target)
        return ir.KeyField(item.get("name") or field.path, ir.MatchKind(kind), field, field.width)

    @staticmethod
    def _call(item: Json, action_ids: list[int]) -> ir.ActionCall:
        args = tuple(_number(value) for value in item.get("action_data", ()))
        return ir.ActionCall(action_ids.index(item["action_id"]), args)

    def _const_entries(
        self, items: list[Json], key: tuple[ir.KeyField, ...], match_type: ir.MatchKind, ids: list[int]
    ) -> tuple[ir.ConstEntry, ...]:
        # BMv2's priorities count up from the most important entry, P4Runtime's down to the least
        # (P4Runtime 1.4, "Constant Tables": N for the first of N entries).
        uses_priority = match_type in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)
        ordered = sorted(items, key=lambda item: int(item["priority"]))
        return tuple(
            ir.ConstEntry(
                tuple(_const_match(part, field) for part, field in zip(item["match_key"], key, strict=True)),
                len(items) - place if uses_priority else 0,
                self._call(item["action_entry"], ids),
            )
            for place, item in enumerate(ordered)
        )


def _check_profiles(tables: Iterable[ir.Table]) -> None:
    """A member is bound to one action for all tables of its profile (P4Runtime 1.4, "Member Programming")."""
    first: dict[str, ir.Table] = {}
    for table in tables:
        if table.profile is None:
            continue
        other = first.setdefault(table.profile.name, table)
        if [action.name for action in table.actions] != [action.name for action in other.actions]:
            raise PipelineError(
                f"tables '{other.name}' and '{table.name}' of action profile '{table.profile.name}' differ in actions"
            )


def _sliced(op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """The operation, or the slice f[high:low] where p4c wrote (f >> low) & mask."""
    match op, left, right:
        case ">>", ir.Field(width=width, signed=False), ir.Const(low) if low < width:
            return ir.Slice(left, low, width - low)
        case "&", ir.Field(width=width, signed=False), ir.Const(mask) if _is_low_mask(mask):
            return ir.Slice(left, 0, min(width, mask.bit_length()))
        case "&", ir.Slice(field, low, width), ir.Const(mask) if _is_low_mask(mask):
            return ir.Slice(field, low, min(width, mask.bit_length()))
    return ir.Op(op, (left, right))


def _is_low_mask(mask: int) -> bool:
    return mask > 0 and mask & (mask + 1) == 0


def _const_match(item: Json, field: ir.KeyField) -> tuple[int, int]:
    match item["match_type"]:
        case "lpm":
            length = item["prefix_length"]
            return _number(item["key"]) & ir.prefix_mask(length, field.width), length
        case "ternary":
            mask = _number(item["mask"])
            return _number(item["key"]) & mask, mask
        case "range":
            return _number(item["start"]), _number(item["end"])
        case "valid":
            return int(item["key"]), 0
    return _number(item["key"]), 0
