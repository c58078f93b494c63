"""Which variables may be read before they are set."""

import pytest

from switch_model.assignment import read_before_set


@pytest.mark.parametrize(
    ("body", "unset"),
    [
        ("y = x", {"x"}),
        ("x = 1\ny = x", set()),
        ("x = x + 1", {"x"}),
        ("x += 1", {"x"}),
        ("a, x = given\ny = x", set()),
        ("x.packets += 1", {"x"}),
        ("cells[x] = 1", {"cells", "x"}),
        ("if given:\n    x = 1\ny = x", {"x"}),
        ("if given:\n    x = 1\nelse:\n    x = 2\ny = x", set()),
        ("if x:\n    x = 1", {"x"}),
        ("if given:\n    return\nelse:\n    x = 2\ny = x", set()),
        ("if given:\n    x = 1\n    return x\ny = x", {"x"}),
        ("return given\ny = x", set()),
        ("while True:\n    if given:\n        break\n    x = 1\n    y = x\n    break\nz = x", {"x"}),
        ("while True:\n    y = x\n    break", {"x"}),
        ("y = 1 if given else x", {"x"}),
    ],
)
def test_read_before_set(body: str, unset: set[str]) -> None:
    assert read_before_set(body.splitlines(), ["given"]) == unset
