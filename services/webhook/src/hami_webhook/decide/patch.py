"""
Compute the smallest JSON Patch between two JSON documents.

Source: https://www.rfc-editor.org/rfc/rfc6902 (operations), https://www.rfc-editor.org/rfc/rfc6901 (pointers)
"""

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]


def diff(before: Any, after: Any) -> list[Operation]:
    """
    Return the operations that turn *before* into *after*.

    Lists are compared position by position: this service only appends to them.

    >>> diff({"a": 1, "l": [1]}, {"a": 2, "l": [1, 2]})
    [{'op': 'replace', 'path': '/a', 'value': 2}, {'op': 'add', 'path': '/l/-', 'value': 2}]
    """
    return list(_changes(before, after, ""))


def _changes(before: Any, after: Any, path: str) -> Iterator[Operation]:
    # Unchanged parts are identical objects, so most of a Pod is skipped here.
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _object_changes(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_changes(before, after, path)
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": path, "value": after}


def _object_changes(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[Operation]:
    for name, value in before.items():
        place = f"{path}/{_escaped(name)}"
        if name in after:
            yield from _changes(value, after[name], place)
        else:
            yield {"op": "remove", "path": place}
    for name, value in after.items():
        if name not in before:
            yield {"op": "add", "path": f"{path}/{_escaped(name)}", "value": value}


def _list_changes(before: list[Any], after: list[Any], path: str) -> Iterator[Operation]:
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        yield from _changes(old, new, f"{path}/{index}")
    for index in range(len(before) - 1, len(after) - 1, -1):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for value in after[len(before) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
