"""
Read a tree of YAML nodes into frozen dataclasses, and collect every problem with its path.

A dataclass is the schema: its field types are the kinds, and `key(...)` adds the name in the file and the range.
The rules are those of HAMi's Go decoder: an unknown key is ignored (with a warning), null is an absent key, any scalar
is a string, a number in quotes is not a number.
"""

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hamicommon.wire.go.yaml_nodes import Mapping, Node, Scalar
from hamicommon.wire.go.yaml_nodes import Sequence as SequenceNode

_ITEM = re.compile(r"\[\d+\]")
_INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F]{1,16}|[0-9][0-9_]{0,20})")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
_TRUE = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """The name of a field in the file, and its valid values."""

    name: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    """Returns what is wrong with a value, or None."""
    quoted_number: bool = False
    """Whether a number in quotes is valid, because HAMi keeps it as text."""
    without_effect: str = ""
    """Why the value has no effect here; empty if it has."""
    chart: Any = None
    """The value that `tools/chart_values.py` writes into the chart; None: no value."""


def key(name: str, default: Any, **rules: Any) -> Any:
    """Return a dataclass field with the key *name* in the file; without that key it is *default*."""
    return dataclasses.field(default=default, metadata={"key": Key(name, **rules)})


class Report:
    """
    Findings, each as `path: reason`.

    `problems` are errors, `ignored` are keys without effect, `old_forms` are forms of older versions, which are read.
    """

    def __init__(self) -> None:
        self.ignored: list[str] = []
        self.old_forms: list[str] = []
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def problem(self, path: str, reason: str) -> None:
        """Add a problem."""
        self.problems.append(f"{path}: {reason}")

    def warn(self, path: str, reason: str) -> None:
        """Add a warning."""
        self.warnings.append(f"{path}: {reason}")

    def old_form(self, path: str, reason: str) -> None:
        """Add a form of an older version, which is read."""
        self.old_forms.append(f"{path}: {reason}")

    def ignore(self, path: str, reason: str) -> None:
        """Add a key that has no effect, once."""
        if f"{path}: {reason}" not in self.ignored:
            self.ignored.append(f"{path}: {reason}")


def read_mapping(kind: type[T], node: Node, path: str, report: Report, handled: Sequence[str] = ()) -> T:
    """Return a *kind* from the mapping *node*; keys in *handled* are not reported as unknown."""
    if not isinstance(node, Mapping):
        report.problem(path, f"line {node.line}: must be a mapping, not {_describe(node)}")
        return kind()
    for name, line in node.repeated:
        report.problem(_join(path, name), f"line {line}: given twice; remove one")
    values: dict[str, Any] = {}
    known = set(handled)
    types = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        rules: Key | None = field.metadata.get("key")
        if rules is None:
            continue
        known.add(rules.name)
        value_node = node.items.get(rules.name)
        if value_node is None or (isinstance(value_node, Scalar) and value_node.is_null):
            continue
        if rules.without_effect:
            report.ignore(_ITEM.sub("[]", _join(path, rules.name)), rules.without_effect)
        before = len(report.problems)
        value = _read(types[field.name], value_node, _join(path, rules.name), report, rules)
        if len(report.problems) == before:
            values[field.name] = value
    for name in node.items.keys() - known:
        report.warn(_join(path, name), f"line {node.items[name].line}: unknown key, ignored")
    return kind(**values)


def _read(kind: Any, node: Node, path: str, report: Report, rules: Key) -> Any:
    if typing.get_origin(kind) is tuple:
        return _read_items(typing.get_args(kind)[0], node, path, report, rules)
    if dataclasses.is_dataclass(kind):
        return read_mapping(typing.cast(type[Any], kind), node, path, report)
    if not isinstance(node, Scalar):
        report.problem(path, f"line {node.line}: must be {_KINDS[kind]}, not {_describe(node)}")
        return None
    value = _SCALARS[kind](node, rules)
    if value is None:
        report.problem(path, f"line {node.line}: must be {_KINDS[kind]}, not {_describe(node)}")
        return None
    reason = _misfit(value, rules)
    if reason:
        report.problem(path, f"line {node.line}: {reason}")
    return value


def _read_items(kind: Any, node: Node, path: str, report: Report, rules: Key) -> tuple[Any, ...]:
    if not isinstance(node, SequenceNode):
        report.problem(path, f"line {node.line}: must be a list, not {_describe(node)}")
        return ()
    return tuple(_read(kind, item, f"{path}[{index}]", report, rules) for index, item in enumerate(node.items))


def _misfit(value: Any, rules: Key) -> str | None:
    """Return what is wrong with a scalar *value* of the right kind."""
    if rules.choices and value not in rules.choices:
        return f"{value!r} is none of {', '.join(choice or 'empty' for choice in rules.choices)}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        least = -math.inf if rules.least is None else rules.least
        most = math.inf if rules.most is None else rules.most
        if not least <= value <= most:
            return f"{value} is not in {least:.10g} to {most:.10g}"
    return rules.check(value) if rules.check else None


def _string(node: Scalar, _rules: Key) -> str:
    return node.text


def _boolean(node: Scalar, _rules: Key) -> bool | None:
    if not node.is_plain or node.text not in _TRUE | _FALSE:
        return None
    return node.text in _TRUE


def _integer(node: Scalar, rules: Key) -> int | None:
    if not (node.is_plain or rules.quoted_number):
        return None
    if _INTEGER.fullmatch(node.text):
        digits = node.text.replace("_", "")
        return int(digits, 16) if "x" in digits else int(digits)
    number = _float(node, rules)
    return int(number) if number is not None and number.is_integer() else None


def _float(node: Scalar, rules: Key) -> float | None:
    if not (node.is_plain or rules.quoted_number) or not _FLOAT.fullmatch(node.text):
        return None
    number = float(node.text)
    return number if math.isfinite(number) else None


_SCALARS: dict[Any, Callable[[Scalar, Key], Any]] = {str: _string, bool: _boolean, int: _integer, float: _float}
_KINDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _describe(node: Node) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return repr(node.text[:40]) if node.is_plain else f"the text {node.text[:40]!r} in quotes"


def _join(path: str, name: str) -> str:
    return f"{path}.{name[:60]}" if path else name[:60]
