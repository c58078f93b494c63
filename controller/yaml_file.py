"""Strict reading of the YAML files that people write: topologies and scenarios.

Scalars follow the YAML 1.2 core schema (so `1e-4` is a number and `yes` a text). Duplicate keys, anchors,
tags and unknown keys are errors. Every error is a `FileError`: one line with the file, the line and the key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

KeyPath = tuple[str | int, ...]
"""Where a value stands in a file: keys and list indices from the root."""

_TAG = "tag:yaml.org,2002:"


class FileError(Exception):
    """What is wrong with a file, and where. str() is one line: `demo.yaml:12: links.nic.delay_ns: reason`."""

    def __init__(self, source: str, line: int | None, key: KeyPath, reason: str) -> None:
        self.source = source
        self.line = line
        self.key = key
        self.reason = reason
        place = source if line is None else f"{source}:{line}"
        super().__init__(": ".join(part for part in (place, format_key(key), reason) if part))


class Document:
    """A file's data, and the line on which each of its keys stands."""

    def __init__(self, source: str, data: dict[str, Any], lines: dict[KeyPath, int]) -> None:
        self.source = source
        self._data = data
        self._lines = lines

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a file. Raises FileError."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise FileError(str(path), None, (), error.strerror or "cannot be read") from None
        except UnicodeDecodeError:
            raise FileError(str(path), None, (), "is not UTF-8 text") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> Document:
        """Parse a file's text; `source` is the name that errors give. Raises FileError."""
        try:
            root = yaml.compose(text, _Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
            raise FileError(source, line, (), error.problem or "is not YAML") from None
        except yaml.YAMLError as error:
            raise FileError(source, None, (), str(error).splitlines()[0]) from None
        if not isinstance(root, yaml.MappingNode):
            raise FileError(source, 1, (), "must hold a mapping of keys to values")
        lines: dict[KeyPath, int] = {(): root.start_mark.line + 1}
        return cls(source, _Builder(source, lines).value(root, ()), lines)

    def validate(self, model: type[M]) -> M:
        """The data as a `model`: no unknown keys, no conversions. Raises FileError, the first in the file."""
        try:
            # Strict validation takes text for addresses and lists for tuples in its JSON mode only.
            return model.model_validate_json(json.dumps(self._data), strict=True, extra="forbid")
        except ValidationError as error:
            reasons = error.errors(include_url=False, include_context=False)
        errors = [self.error(self._key(detail["loc"], detail["type"]), _reason(detail)) for detail in reasons]
        # A mistyped key is unknown and another one is missing: the one that is there is the better hint.
        raise min(errors, key=lambda error: (error.reason == _REASONS["missing"], error.line))

    def error(self, key: KeyPath, reason: str) -> FileError:
        """An error at a key, which need not be there: then it is placed at what would hold it."""
        present = key
        while present not in self._lines:
            present = present[:-1]
        return FileError(self.source, self._lines[present], key, reason)

    def _key(self, location: KeyPath, kind: str) -> KeyPath:
        """Pydantic's location without what it adds itself, such as the members of a union."""
        key: KeyPath = ()
        for part in location:
            if (*key, part) in self._lines:
                key = (*key, part)
        return (*key, location[-1]) if kind == "missing" else key


def load(path: Path, model: type[M]) -> M:
    """Read and validate a file that needs no further checks. Raises FileError."""
    return Document.read(path).validate(model)


def format_key(key: KeyPath) -> str:
    """A key path as people write it: `overrides.links[0].between`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


_REASONS = {"extra_forbidden": "unknown key", "missing": "this key is missing"}


def _reason(detail: Any) -> str:
    if detail["type"] in _REASONS:
        return _REASONS[detail["type"]]
    message: str = detail["msg"].removeprefix("Value error, ")
    reason = message[:1].lower() + message[1:]
    value = detail["input"]
    return reason if isinstance(value, dict | list) else f"{reason}, got {json.dumps(value)}"


class _Loader(yaml.SafeLoader):
    """Composes nodes whose plain scalars are resolved as the YAML 1.2 core schema says (section 10.3.2)."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as PyYAML has it)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None):  # an alias has one too
            raise yaml.MarkedYAMLError(None, None, "anchors and aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)


for _name, _pattern, _first in (
    ("null", r"^(?:null|Null|NULL|~|)$", ["n", "N", "~", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)

_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "null": lambda _: None,
    _TAG + "bool": lambda text: text.lower() == "true",
    _TAG + "int": lambda text: int(text, 0) if text[:2] in ("0o", "0x") else int(text),
    _TAG + "float": float,
    _TAG + "str": str,
}


class _Builder:
    """Turns nodes into data and notes the line of every key."""

    def __init__(self, source: str, lines: dict[KeyPath, int]) -> None:
        self._source = source
        self._lines = lines

    def value(self, node: yaml.Node, key: KeyPath) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._item(item, (*key, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._scalar(node, key)
        raise FileError(self._source, node.start_mark.line + 1, key, f"tag {node.tag!r} is not allowed")

    def _scalar(self, node: yaml.ScalarNode, key: KeyPath) -> Any:
        try:
            value = _SCALARS[node.tag](node.value)
        except ValueError:
            value = math.inf
        if value in (math.inf, -math.inf):
            raise FileError(self._source, node.start_mark.line + 1, key, "is too large or not a number")
        return value

    def _mapping(self, node: yaml.MappingNode, key: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for name, value in node.value:
            line = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                raise FileError(self._source, line, key, "a key must be a plain text")
            child = (*key, str(name.value))
            if child in self._lines:
                raise FileError(self._source, line, child, f"stands already on line {self._lines[child]}")
            self._lines[child] = line
            data[name.value] = self.value(value, child)
        return data

    def _item(self, node: yaml.Node, key: KeyPath) -> Any:
        self._lines[key] = node.start_mark.line + 1
        return self.value(node, key)
