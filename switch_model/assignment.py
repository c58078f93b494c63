"""Definite assignment: which variables of generated code may be read before they are set."""

import ast
from collections.abc import Iterable

from switch_model.pytext import Lines


def read_before_set(lines: Lines, given: Iterable[str]) -> set[str]:
    """The names that a function with this body reads on some path on which it has not set them; `given` are set."""
    found: set[str] = set()
    _block(ast.parse("\n".join(lines)).body, set(given), found)
    return found


def _block(body: list[ast.stmt], names: set[str] | None, found: set[str]) -> set[str] | None:
    """The names that are set behind `body`, None where nothing gets there; adds to `found` what is read unset."""
    for statement in body:
        if names is None:
            return None
        names = _statement(statement, names, found)
    return names


def _statement(statement: ast.stmt, names: set[str], found: set[str]) -> set[str] | None:
    match statement:
        case ast.If(test, body, orelse):
            _reads(test, names, found)
            arms = [_block(arm, set(names), found) for arm in (body, orelse)]
            ends = [arm for arm in arms if arm is not None]
            return set.intersection(*ends) if ends else None
        case ast.While(_, body):  # `while True` with a break at its end
            _block(body, set(names), found)
            return names
    _reads(statement, names, found)
    match statement:
        case ast.Break() | ast.Return():
            return None
        case ast.AugAssign(ast.Name(name)) if name not in names:
            found.add(name)
        case ast.Assign():
            return names | _named(statement, ast.Store)
    return names


def _reads(tree: ast.AST, names: set[str], found: set[str]) -> None:
    found |= _named(tree, ast.Load) - names


def _named(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
