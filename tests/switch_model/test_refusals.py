"""What is outside the subset is refused when it is loaded, by name."""

import json

import pytest
from finsy.proto import p4i

from switch_model import p4info
from switch_model.codegen import compile_program
from switch_model.errors import PipelineError, UnsupportedError
from tests.switch_model.support import PROGRAMS, pipeline_config

_REFUSED = {
    "assertion": "primitive 'assert' in action",
    "checksum": "checksum 'cksum'",
    "clone": "primitive 'clone_ingress_pkt_to_egress' in action",
    "digest": "digest 'digest'",
    "hash_algorithm": "hash algorithm 'xor16' in calculation 'calc'",
    "idle_timeout": "idle timeout in table 'TestIngress.ageing'",
    "meter": "meter 'TestIngress.colours'",
    "multicast": "multicast (standard_metadata.mcast_grp assigned) in action",
    "parser_loop": "loop through parser state 'start'",
    "recirculate": "primitive 'recirculate' in action",
    "resubmit": "primitive 'resubmit' in action",
    "run_time_advance": "advance by anything but a constant number of whole bytes in parser state 'start'",
    "selector_hash": "hash algorithm 'xor16' in action selector 'TestIngress.members'",
    "stack": "header stack 'stack'",
    "value_set": "parser value set 'Parse.known'",
    "varbit": "varbit field 'bytes' in header 'bytes'",
}


@pytest.mark.parametrize("name", _REFUSED)
def test_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        compile_program((PROGRAMS / "refused" / f"{name}.json").read_bytes())
    assert str(error.value).startswith(_REFUSED[name])


def test_every_refused_program_is_tested() -> None:
    programs = {path.stem for path in (PROGRAMS / "refused").glob("*.json")}
    assert programs == set(_REFUSED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not a BMv2 JSON"),
        (b"\xff\xfe", "not a BMv2 JSON"),
        (b"{}", "malformed BMv2 JSON: KeyError"),
        (b"[]", "malformed BMv2 JSON: "),
    ],
)
def test_what_is_no_program(text: bytes, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        compile_program(text)


def test_an_unknown_primitive_is_named_with_its_action() -> None:
    document = json.loads((PROGRAMS / "stateful.json").read_text())
    action = next(item for item in document["actions"] if item["name"] == "TestIngress.reject")
    action["primitives"][0]["op"] = "teleport"
    with pytest.raises(UnsupportedError, match=r"primitive 'teleport' in action 'TestIngress\.reject'"):
        compile_program(json.dumps(document).encode())


def test_too_deep_nesting_is_refused() -> None:
    document = json.loads((PROGRAMS / "operators.json").read_text())
    condition = document["pipelines"][0]["conditionals"][0]
    chain = [
        {**condition, "name": f"if {place}", "true_next": f"if {place + 1}", "false_next": None} for place in range(120)
    ]
    chain[-1]["true_next"] = document["pipelines"][0]["tables"][-1]["name"]
    document["pipelines"][0]["conditionals"] += chain
    document["pipelines"][0]["init_table"] = "if 0"
    with pytest.raises(UnsupportedError, match="nested more than 100 levels"):
        compile_program(json.dumps(document).encode())


class TestMismatch:
    """A P4Info and a JSON that do not belong together."""

    def _join(self, change: str) -> None:
        config = pipeline_config(PROGRAMS / "stateful")
        info = config.p4info
        table = next(item for item in info.tables if item.preamble.alias == "known_arguments")
        match change:
            case "table":
                table.preamble.name = "TestIngress.other"
            case "missing table":
                info.tables.remove(table)
            case "width":
                table.match_fields[0].bitwidth = 17
            case "kind":
                table.match_fields[0].match_type = p4i.MatchField.LPM
            case "field":
                table.match_fields[0].name = "other"
            case "key":
                table.match_fields.add()
            case "action":
                known = next(item for item in info.actions if item.preamble.alias == "known")
                known.preamble.name = "TestIngress.unknown"
            case "parameter":
                known = next(item for item in info.actions if item.preamble.alias == "known")
                known.params[0].bitwidth = 8
            case "counter":
                info.counters[0].size = 17
            case "direct counter":
                del info.direct_counters[:]
        p4info.join(info, compile_program(config.p4_device_config).program)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ("table", "table 'TestIngress.other' of the P4Info is not in the BMv2 JSON"),
            ("missing table", "table 'TestIngress.known_arguments' of the BMv2 JSON is not in the P4Info"),
            ("width", "match field 'argument' of table 'TestIngress.known_arguments' has 17 bits in the P4Info, 16"),
            ("kind", "match field 'argument' of table 'TestIngress.known_arguments' is LPM in the P4Info, exact"),
            ("field", "match field 'other' of table 'TestIngress.known_arguments' is called 'argument'"),
            ("key", "table 'TestIngress.known_arguments' has 2 match fields in the P4Info, 1 in the BMv2 JSON"),
            ("action", "action 'TestIngress.unknown' of table 'TestIngress.known_arguments' is not in the BMv2 JSON"),
            ("parameter", "the parameters of action 'TestIngress.known' differ"),
            ("counter", "counter 'TestIngress.commands' has 17 cells in the P4Info, 16 in the BMv2 JSON"),
            ("direct counter", "table 'TestIngress.known_arguments' has a direct counter in the BMv2 JSON only"),
        ],
    )
    def test_named(self, change: str, message: str) -> None:
        with pytest.raises(PipelineError) as error:
            self._join(change)
        assert message in str(error.value)

    def test_together_they_load(self) -> None:
        self._join("nothing")
