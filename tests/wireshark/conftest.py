"""tshark with the dissector, or why the tests that need it are skipped."""

import shutil
from pathlib import Path

import pytest

from tests.wireshark.tshark import MISSING, WITHOUT_LUA, TShark


@pytest.fixture(scope="session")
def tshark(tmp_path_factory: pytest.TempPathFactory) -> TShark:
    if shutil.which("tshark") is None:
        pytest.skip(MISSING)
    home = tmp_path_factory.mktemp("tshark")
    made = TShark(home)
    if not made.runs_lua(home):
        pytest.skip(WITHOUT_LUA)
    return made


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "capture.pcap"
