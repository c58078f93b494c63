"""Our NIC against every scripted case, and the cases against their own rules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from scapy.contrib import roce
from scapy.layers import inet, inet6
from scapy.packet import Raw

from controller.yaml_file import FileError
from tests.cases.expectations import OPEN
from tests.cases.frames import frame_lines, frames_path
from tests.cases.player import Player
from tests.cases.schema import HERE, Case, case_paths, load_cases
from tests.cases.wire import SIZES, icrc
from tests.nic_model.case_runner import NicUnderTest

CASES = {path: load_cases(path) for path in case_paths()}
ALL = [case for cases in CASES.values() for case in cases]
SOURCES = ("OCP MRC", "arXiv 2605.04333", "InfiniBand", "RFC ", "decision")


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_case(case: Case) -> None:
    Player(case, NicUnderTest(case)).play()


def test_there_are_enough_cases_and_each_has_an_id_of_its_own_and_a_rule() -> None:
    assert len(ALL) >= 60
    assert [case_id for case_id, count in Counter(case.id for case in ALL).items() if count > 1] == []
    assert [case.id for case in ALL for rule in case.rule if not rule.startswith(SOURCES)] == []
    assert {case.role for case in ALL} == {"requester", "responder", "both"}


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_the_frames_written_down_are_those_of_the_cases(path: Path) -> None:
    written = frames_path(path).read_text(encoding="utf-8").splitlines()
    assert written == list(frame_lines(path)), "python -m tests.cases.frames writes them anew"


def test_the_icrc_of_the_cases_is_scapys() -> None:
    for opcode, payload in ((0xCA, b"payload."), (0xDC, bytes(36))):
        packet = bytes(
            inet6.IPv6(src="fd00::1", dst="fd00::2", tc=18, fl=77, hlim=9)
            / inet.UDP(sport=5, dport=4791)
            / roce.BTH(opcode=opcode, dqpn=7, psn=9)
            / Raw(payload)
        )
        assert icrc(packet[:-4]).to_bytes(4, "little") == packet[-4:]


def test_the_readme_tells_what_holds() -> None:
    text = (HERE / "README.md").read_text(encoding="utf-8")
    assert [name for name, reason in OPEN.items() if f"| `{name}` | {reason} |" not in text] == []
    example = text.partition("```yaml\n")[2].partition("```")[0]
    assert "  - id: nack-trimmed\n" in example and example in (HERE / "nacks.yaml").read_text(encoding="utf-8")
    for header, size in SIZES.items():
        assert f"| {header} | {size} |" in text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("role: requester", "role: both\n    bogus: 1"),
        ("wr_id: 1,", "wr_id: one,"),
        ("reason: TRIMMED}", "reason: TRIMMED, psn_: 3}"),
        ("      - at: 0\n", "      - at: 0\n        after: 1\n"),
    ],
    ids=["key", "type", "field", "time"],
)
def test_a_case_is_read_strictly(change: str, reason: str, tmp_path: Path) -> None:
    text = (HERE / "nacks.yaml").read_text(encoding="utf-8")
    path = tmp_path / "nacks.yaml"
    path.write_text(text.replace(change, reason, 1), encoding="utf-8")
    with pytest.raises(FileError, match=r"nacks\.yaml:\d+: "):
        load_cases(path)
