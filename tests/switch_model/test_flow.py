"""Structured control flow from graphs of next nodes."""

import pytest

from switch_model.flow import LoopError, Region, Step, structure


def _structured(graph: dict[str, tuple[str | None, ...]], start: str | None) -> Region[str]:
    return structure(start, graph.__getitem__)


def test_a_diamond_meets_again() -> None:
    graph = {"if": ("then", "else"), "then": ("end",), "else": ("end",), "end": (None,)}
    then, other = Region((Step("then"),)), Region((Step("else"),))
    assert _structured(graph, "if") == Region((Step("if", (then, other)), Step("end")))


def test_an_arm_that_leaves_early_ends_at_the_end() -> None:
    graph = {"if": ("leave", "go on"), "leave": (None,), "go on": ("last",), "last": (None,)}
    arms = (Region((Step("leave"),)), Region((Step("go on"), Step("last"))))
    assert _structured(graph, "if") == Region((Step("if", arms),))


def test_a_missing_else_is_an_empty_arm() -> None:
    graph = {"if": ("then", "end"), "then": ("end",), "end": (None,)}
    assert _structured(graph, "if") == Region((Step("if", (Region((Step("then"),)), Region())), Step("end")))


def test_equal_successors_need_no_arms() -> None:
    assert _structured({"table": ("next", "next"), "next": (None,)}, "table") == Region((Step("table"), Step("next")))


def test_a_node_that_arms_reach_without_meeting_there_is_repeated() -> None:
    graph = {"a": ("b", "c"), "b": ("shared", None), "c": ("shared",), "shared": (None,)}
    assert sorted(_structured(graph, "a").nodes()) == ["a", "b", "c", "shared", "shared"]


def test_no_start_is_an_empty_region() -> None:
    assert _structured({}, None) == Region()


def test_a_loop_is_refused() -> None:
    with pytest.raises(LoopError, match="a"):
        _structured({"a": ("b",), "b": ("a", None)}, "a")
