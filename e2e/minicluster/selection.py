"""
Label selectors and field selectors.

Owns both syntaxes and the `LabelSelector` object. A selector becomes a function from labels or fields to a bool.
Source: k8s.io/apimachinery/pkg/labels/selector.go, pkg/fields/selector.go.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Matcher = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"(?P<key>[^\s!=<>,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s!=<>,()]+)\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[^\s!=<>,()]*)")
_EXISTENCE = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s!=<>,()]+)")


class SelectorError(ValueError):
    """A selector that cannot be parsed."""


def label_selector(text: str) -> Matcher | None:
    """
    Return a matcher for *text* (`a=b,c in (d,e),!f,g>1`), or None if it selects everything.

    Raises: SelectorError with the wrong requirement.

    >>> label_selector("tier in (a, b),!old")({"tier": "a"})
    True
    """
    return _all([_label_requirement(part) for part in _split(text)])


def _label_requirement(text: str) -> Matcher:
    if match := _SET.fullmatch(text):
        values = [value.strip() for value in match["values"].split(",")]
        return requirement(match["key"], "In" if match["operator"] == "in" else "NotIn", values)
    if match := _EQUALITY.fullmatch(text):
        operator = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}[match["operator"]]
        return requirement(match["key"], operator, [match["value"]])
    if match := _EXISTENCE.fullmatch(text):
        return requirement(match["key"], "DoesNotExist" if match["not"] else "Exists", [])
    raise SelectorError(f"unable to parse requirement: {text!r}")


def requirement(key: str, operator: str, values: list[str]) -> Matcher:
    """
    Return a matcher for one requirement of a Node affinity or of `matchExpressions`.

    Raises: SelectorError for an unknown operator, or a bound that is not a whole number.
    """
    if operator == "In":
        return lambda labels: labels.get(key) in values
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    if operator == "Exists":
        return lambda labels: key in labels
    if operator == "DoesNotExist":
        return lambda labels: key not in labels
    if operator in {"Gt", "Lt"}:
        return _bound(key, operator, values)
    raise SelectorError(f"{operator!r} is not a valid label selector operator")


def _bound(key: str, operator: str, values: list[str]) -> Matcher:
    if len(values) != 1 or _whole(values[0]) is None:
        raise SelectorError(f"{key}: {operator} needs one whole number, found {values!r}")
    bound = int(values[0])

    def matches(labels: Mapping[str, str]) -> bool:
        found = _whole(labels.get(key, ""))
        return found is not None and (found > bound if operator == "Gt" else found < bound)

    return matches


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else None


def label_selector_object(selector: Mapping[str, Any] | None) -> Matcher:
    """
    Return a matcher for a `LabelSelector` object. An empty or missing one selects everything.

    Raises: SelectorError for an unknown operator.
    """
    requirements = [
        requirement(key, "In", [value]) for key, value in ((selector or {}).get("matchLabels") or {}).items()
    ]
    for found in (selector or {}).get("matchExpressions") or ():
        requirements.append(requirement(found["key"], found["operator"], found.get("values") or []))
    return _all(requirements) or (lambda labels: True)


def field_selector(text: str, supported: tuple[str, ...]) -> Matcher | None:
    """
    Return a matcher for *text* (`spec.nodeName=n1,status.phase!=Running`), or None if it selects everything.

    Raises: SelectorError for a field outside *supported*.
    """
    return _all([_field_requirement(part, supported) for part in _split(text)])


def _field_requirement(text: str, supported: tuple[str, ...]) -> Matcher:
    match = re.fullmatch(r"(?P<field>[^=!]+?)(?P<operator>!=|==|=)(?P<value>.*)", text)
    if match is None:
        raise SelectorError(f"invalid selector: {text!r}; can't understand {text!r}")
    field, value = match["field"].strip(), match["value"].strip()
    if field not in supported:
        raise SelectorError(f"field label not supported: {field}")
    if match["operator"] == "!=":
        return lambda fields: fields.get(field, "") != value
    return lambda fields: fields.get(field, "") == value


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def _all(matchers: list[Matcher]) -> Matcher | None:
    if not matchers:
        return None
    if len(matchers) == 1:
        return matchers[0]
    return lambda found: all(matcher(found) for matcher in matchers)
