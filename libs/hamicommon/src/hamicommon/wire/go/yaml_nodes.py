"""
YAML text as a tree of nodes with line numbers, or as plain values, in bounded time and memory.

An alias is the same node, never a copy, so aliases cannot multiply the size of a text. Depth and size are limited. Keys
that are given twice are recorded. Neighbours: `yaml_reader` turns nodes into values.
"""

from dataclasses import dataclass, field
from typing import Any

import yaml

TEXT_LIMIT = 1024 * 1024
"""Characters; Kubernetes limits a ConfigMap to as many bytes."""
DEPTH_LIMIT = 32
NODE_LIMIT = 100_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    """The text is not YAML, or is too large; the message says where."""


@dataclass(slots=True)
class Scalar:
    """A scalar as written."""

    line: int
    text: str
    is_plain: bool
    """Whether it is written without quotes, so that `10` can be a number."""

    @property
    def is_null(self) -> bool:
        """Whether it is null or empty."""
        return self.is_plain and self.text in {"", "~", "null", "Null", "NULL"}


@dataclass(slots=True)
class Sequence:
    """A list."""

    line: int
    items: list["Node"] = field(default_factory=list)


@dataclass(slots=True)
class Mapping:
    """A mapping with scalar keys, in order; keys given twice are in `repeated`."""

    line: int
    items: dict[str, "Node"] = field(default_factory=dict)
    repeated: list[tuple[str, int]] = field(default_factory=list)


Node = Scalar | Sequence | Mapping


def read(text: str) -> Node | None:
    """
    Return the first document of *text*, None if it is empty.

    Raises:
        YamlError: it is not YAML, or exceeds a limit.
    """
    if len(text) > TEXT_LIMIT:
        raise YamlError(f"{len(text)} characters are more than the {TEXT_LIMIT} a configuration may have")
    try:
        return _Reader().document(yaml.parse(text, Loader=_Loader))
    except UnicodeEncodeError as error:
        raise YamlError(f"character {error.start + 1} is half of a surrogate pair") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise YamlError(f"{where}{getattr(error, 'problem', None) or error}") from error


def plain(text: str) -> Any:
    """
    Return the one document of *text* as plain Python, None if it is empty. An alias is the same value, never a copy.

    >>> plain("{a: 1, b: [yes, ~]}")
    {'a': 1, 'b': [True, None]}

    Raises:
        YamlError: as for `read`, or a value is not of the type that it seems to have, as the date 2026-13-01.
    """
    read(text)
    try:
        value = yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise YamlError(" ".join(str(error).split())) from error
    left, count = [value], 0
    while left:  # Whoever writes the values out writes each alias out, and aliases have aliases in them.
        each, count = left.pop(), count + 1
        if count > NODE_LIMIT:
            raise YamlError(f"more than {NODE_LIMIT} values, each alias written out")
        left.extend(each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
    return value


class _Reader:
    """Builds nodes from events, and counts their number and depth."""

    def __init__(self) -> None:
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def document(self, events: Any) -> Node | None:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                return self._node(next(events), events, 0)
        return None

    def _node(self, event: Any, events: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        self._count += 1
        if depth > DEPTH_LIMIT:
            raise YamlError(f"line {line}: nested deeper than {DEPTH_LIMIT} levels")
        if self._count > NODE_LIMIT:
            raise YamlError(f"line {line}: more than {NODE_LIMIT} values")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise YamlError(f"line {line}: alias *{event.anchor} has no anchor")
            return self._anchors[event.anchor]
        if isinstance(event, yaml.ScalarEvent):
            return self._anchored(event, Scalar(line, event.value, event.implicit[0] and not event.style))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, events, depth)
        return self._mapping(event, events, depth)

    def _sequence(self, event: Any, events: Any, depth: int) -> Sequence:
        result = Sequence(event.start_mark.line + 1)
        self._anchored(event, result)
        while not isinstance(following := next(events), yaml.SequenceEndEvent):
            result.items.append(self._node(following, events, depth + 1))
        return result

    def _mapping(self, event: Any, events: Any, depth: int) -> Mapping:
        result = Mapping(event.start_mark.line + 1)
        self._anchored(event, result)
        while not isinstance(following := next(events), yaml.MappingEndEvent):
            key = self._node(following, events, depth + 1)
            if not isinstance(key, Scalar):
                raise YamlError(f"line {key.line}: a key is a list or a mapping")
            if key.text == "<<" and key.is_plain:
                raise YamlError(f"line {key.line}: merge keys (<<) are not supported; write the keys out")
            if key.text in result.items:
                result.repeated.append((key.text, key.line))
            result.items[key.text] = self._node(next(events), events, depth + 1)
        return result

    def _anchored(self, event: Any, node: Node) -> Node:
        if event.anchor:
            self._anchors[event.anchor] = node
        return node
