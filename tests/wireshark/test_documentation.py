"""docs/wireshark: the sample is current, and README.md says what is so."""

import re
from dataclasses import fields
from pathlib import Path

from nic_model.headers import DscpPlan, Opcode
from nic_model.packet import parse
from tests.wireshark.kinds import PREFIXES, WIRE_FILTERS
from tests.wireshark.session import session
from tests.wireshark.tshark import DISSECTOR, TShark, write_capture

README = DISSECTOR.with_name("README.md")
SAMPLE = DISSECTOR.with_name("sample.pcap")
PREFERENCES = {"mrc.ports", "mrc.icrc", *(f"mrc.dscp_{role.name}" for role in fields(DscpPlan))}


def test_the_sample_is_current(capture: Path) -> None:
    assert SAMPLE.read_bytes() == write_capture(capture, session()).read_bytes(), "see tests/wireshark/session.py"


def test_the_sample_holds_every_kind() -> None:
    assert {parse((frame, b"")).opcode for frame in session()} == set(Opcode)


def test_the_text_in_the_readme_is_what_its_command_prints(tshark: TShark) -> None:
    printed = tshark.run("-n", "-r", str(SAMPLE), "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info")
    assert printed.expandtabs(4) in README.read_text()


def test_the_filters_of_the_readme_are_filters(tshark: TShark) -> None:
    """tshark refuses one that is not; together they leave out only some of the sample."""
    table = README.read_text().partition("## Filters that help")[2].partition("##")[0]
    filters = [text.replace("\\|", "|") for text in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)]
    assert len(filters) == table.count("\n| `")
    either = " || ".join(f"({text})" for text in filters)
    assert 0 < len(tshark.rows(SAMPLE, ["frame.number"], "-Y", either)) < len(session())


def test_the_readme_names_what_there_is(tshark: TShark) -> None:
    """All fields but those of headers, whose names follow from a rule, and nothing else."""
    listed = {line.split("\t")[2] for line in tshark.run("-G", "fields").splitlines() if "\tmrc." in line}
    named = set(re.findall(r"mrc(?:\.[a-z0-9_]+)+", README.read_text())) - {DISSECTOR.name}
    assert named <= listed | PREFERENCES
    assert listed - set(WIRE_FILTERS) <= named
    assert set(PREFIXES.values()) <= named
