"""Lines of Python: the small change of code generation."""

import builtins
import keyword
import re
from collections.abc import Iterable
from typing import TypeAlias

Lines: TypeAlias = list[str]


def indented(lines: Iterable[str]) -> Lines:
    return ["    " + line for line in lines]


def if_else(condition: str, then: Lines, other: Lines) -> Lines:
    """An `if` whose arms may be empty; nothing if both are."""
    if not then:
        return [f"if not {condition}:", *indented(other)] if other else []
    return chain([(condition, then)], other)


def chain(arms: list[tuple[str, Lines]], other: Lines) -> Lines:
    """if / elif / ... / else."""
    while arms and not other and not arms[-1][1]:
        arms = arms[:-1]
    if not arms:
        return other
    lines: Lines = []
    for place, (condition, body) in enumerate(arms):
        lines += [f"{'elif' if place else 'if'} {bare(condition)}:", *indented(body or ["pass"])]
    if _is_single_if(other):
        return [*lines, f"el{other[0]}", *other[1:]]
    return [*lines, "else:", *indented(other)] if other else lines


def _is_single_if(lines: Lines) -> bool:
    return (
        bool(lines)
        and lines[0].startswith("if ")
        and all(line.startswith((" ", "elif ", "else:")) for line in lines[1:])
    )


def dispatch(selector: str, branches: list[Lines]) -> Lines:
    """Runs the branch with the number that `selector` has."""
    filled = [place for place, branch in enumerate(branches) if branch]
    if len(branches) == 1 or not filled:
        return branches[0]
    if len(filled) == 1:
        return [f"if {selector} == {filled[0]}:", *indented(branches[filled[0]])]
    arms = [(f"action == {place}", branches[place]) for place in filled]
    other = arms.pop()[1] if len(filled) == len(branches) else []
    return [f"action = {selector}", *chain(arms, other)]


def bare(text: str) -> str:
    """`text` without parentheses around all of it."""
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closing(text: str) -> int:
    """Where the parenthesis that `text` starts with is closed."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return place
    return -1


def packed(parts: list[str]) -> str:
    """A tuple display."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def identifier(text: str) -> str:
    """A Python identifier like `text`; never one with an underscore in front."""
    name = re.sub(r"[\W_]+", "_", text).strip("_")
    return name if name.isidentifier() else f"x{name}"


class Names:
    """Identifiers that are readable and unique."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used = {*keyword.kwlist, *dir(builtins), *reserved}

    def new(self, wish: str) -> str:
        """An identifier like `wish` that this did not give before."""
        base = name = identifier(wish)
        number = 2
        while name in self._used:
            name = f"{base}_{number}"
            number += 1
        self._used.add(name)
        return name

    def copy(self) -> "Names":
        return Names(self._used)
