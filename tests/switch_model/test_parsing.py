"""Parser states, and frames split at every place between head and tail."""

import pytest

from tests.switch_model.support import forward, load

_TOO_SHORT, _BAD_VERSION = 1, 2

# What comes in; (error, peeked byte, path) and what is left of the packet behind the report.
_CASES = [
    pytest.param("4000", (0, 0, 0), "4000", id="no transition matches: accept"),
    pytest.param("4115 0001 ff", (0, 0, 1), "4115 0001 ff", id="masked code"),
    pytest.param("4125 0001 ff", (0, 0, 0), "4125 0001 ff", id="masked code differs"),
    pytest.param("4115 8001 ff aa", (0, 0, 3), "4115 8001 ff aa", id="masked value"),
    pytest.param("42ee 77", (0, 0, 2), "42ee 77", id="second key field is don't care"),
    pytest.param("4307 aaaa bb cc", (0, 0, 10), "4307 bb cc", id="advance drops what it passes"),
    pytest.param("4400 0102 8000 11", (0, 1, 1), "4400 0102 8000 11", id="lookahead leaves the bytes"),
    pytest.param("4400 0203", (0, 2, 16), "4400 0203", id="lookahead, no transition"),
    pytest.param("5000 1234", (_BAD_VERSION, 0, 0), "5000 1234", id="verify fails behind the extract"),
    pytest.param("40", (_TOO_SHORT, 0, 0), "40", id="first header too short"),
    pytest.param("", (_TOO_SHORT, 0, 0), "", id="empty frame"),
    pytest.param("4115 00", (_TOO_SHORT, 0, 1), "4115 00", id="second header too short"),
    pytest.param("4115 8001", (_TOO_SHORT, 0, 3), "4115 8001", id="third header too short"),
    pytest.param("4307 aa", (_TOO_SHORT, 0, 8), "4307 aa", id="advance beyond the end"),
    pytest.param("4400", (_TOO_SHORT, 0, 16), "4400", id="lookahead beyond the end"),
    pytest.param("4400 01", (_TOO_SHORT, 1, 16), "4400 01", id="longer lookahead beyond the end"),
]


@pytest.mark.parametrize(("frame", "report", "rest"), _CASES)
def test_parser(frame: str, report: tuple[int, int, int], rest: str) -> None:
    device, _ = load("parsing")
    data = bytes.fromhex(frame)
    expected = bytes(report) + bytes.fromhex(rest)
    for split in range(len(data) + 1):
        assert forward(device, data, head=split) == expected, f"split at {split}"
