"""The checked-in output of p4c is that of the checked-in sources."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

P4SRC = Path(__file__).resolve().parents[1] / "p4src"
MANIFEST = json.loads((P4SRC / "build" / "manifest.json").read_text())


@pytest.fixture(scope="module")
def p4_compile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("p4_compile", P4SRC / "compile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_manifest_names_these_sources(p4_compile: ModuleType) -> None:
    assert MANIFEST["sources_sha256"] == p4_compile.sources_hash(), "run `make p4`"


def test_recompiling_changes_nothing(p4_compile: ModuleType, tmp_path: Path) -> None:
    command = p4_compile.compiler(tmp_path)
    if command != ["p4c-bm2-ss"]:
        pytest.skip("no p4c-bm2-ss on the PATH")
    if (found := p4_compile.version(command)) != MANIFEST["p4c"]:
        pytest.skip(f"p4c is {found}, the checked-in output is of {MANIFEST['p4c']}")
    p4_compile.compile_to(tmp_path, command)
    for name in p4_compile.OUTPUTS:
        assert (tmp_path / name).read_text() == (P4SRC / "build" / name).read_text(), name
