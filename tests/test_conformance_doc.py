"""docs/mrc-conformance.md names code and tests that exist, and counts its rules rightly."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "mrc-conformance.md"
CODE_ROOM = "nic_model"
TESTS = ROOT / "tests"
COLUMNS = ["#", "Rule", "Source", "Code", "Test", "Implemented"]
NOTHING = "–"


class Rule(NamedTuple):
    """One row of the document's tables; `code` and `tests` as they stand there."""

    number: str
    text: str
    source: str
    code: list[str]
    tests: list[str]
    status: str

    @property
    def implemented(self) -> str:
        """yes, partly or no."""
        return self.status.partition(":")[0]


def _rules() -> list[Rule]:
    rules = []
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("| ") or cells == COLUMNS:
            continue
        assert len(cells) == len(COLUMNS), line
        number, text, source, code, tests, status = cells
        rules.append(Rule(number, text, source, _names(code), _names(tests), status))
    return rules


def _names(cell: str) -> list[str]:
    names = re.findall(r"`([^`]+)`", cell)
    assert "<br>".join(f"`{name}`" for name in names) == cell or cell == NOTHING, cell
    return names


RULES = _rules()


def _import(dotted: str) -> object:
    """A module's function, class or member by its dotted name. ImportError or AttributeError if there is none."""
    module, _, member = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), member)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name) or "." not in module:
            raise
        return getattr(_import(module), member)


@cache
def _tests_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def _is_room(name: str) -> bool:
    return (ROOT / name.partition(".")[0]).is_dir()


@pytest.mark.parametrize("name", sorted({name for rule in RULES for name in rule.code}))
def test_the_code_exists(name: str) -> None:
    if "/" in name:
        assert (ROOT / name).is_file()
    else:
        assert _import(name if _is_room(name) else f"{CODE_ROOM}.{name}") is not None


@pytest.mark.parametrize("name", sorted({name for rule in RULES for name in rule.tests}))
def test_the_test_exists(name: str) -> None:
    file, _, test = name.partition("::")
    paths = [path for path in (TESTS / CODE_ROOM / file, TESTS / file, ROOT / file) if path.is_file()]
    assert len(paths) == 1, f"{file}: {len(paths)} files"
    assert test in _tests_of(paths[0]) and (test.startswith("test_") or file.startswith("ptf_tests/"))


def test_every_rule_says_how_it_is_implemented() -> None:
    for rule in RULES:
        assert rule.text and rule.source, rule.number
        assert rule.implemented in ("yes", "partly", "no"), rule.number
        if rule.implemented == "yes":
            assert rule.status == "yes" and rule.code and rule.tests, rule.number
        if rule.implemented == "partly":
            assert rule.status.startswith("partly: ") and rule.code and rule.tests, rule.number


def test_rules_are_numbered_once_and_counted_rightly() -> None:
    numbers = [rule.number for rule in RULES]
    assert len(set(numbers)) == len(numbers)
    assert all(re.fullmatch("[A-Z][1-9][0-9]?", number) for number in numbers)
    kinds = Counter(rule.implemented for rule in RULES)
    said = f"{len(RULES)} rules: {kinds['yes']} are implemented, {kinds['partly']} in part, {kinds['no']} are not."
    assert said in DOCUMENT.read_text(encoding="utf-8")
