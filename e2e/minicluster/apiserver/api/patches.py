"""
The three patch forms of the API: merge, strategic merge and JSON patch.

A patch is applied to a copy, never in place. Knows only the merge keys of resources.
Source: RFC 7396, RFC 6902, and for the strategic form k8s.io/apimachinery/pkg/util/strategicpatch/patch.go with the
`patchStrategy` and `patchMergeKey` tags of k8s.io/api/core/v1/types.go.
"""

import copy
from typing import Any

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "conditions": "type",
    "addresses": "type",
    "podIPs": "ip",
    "hostIPs": "ip",
    "ownerReferences": "uid",
    "webhooks": "name",
    "matchConditions": "name",
}
"""Lists of objects that merge, by field name. Every other list is replaced, such as `tolerations` and `taints`."""

MERGED_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that merge."""


class PatchError(ValueError):
    """A patch is invalid, or cannot be applied to this object."""


def merge(target: Any, patch: Any) -> Any:
    """
    Apply a JSON merge patch: null removes, objects merge, all else replaces.

    >>> merge({"a": 1, "b": {"c": 1, "d": 2}}, {"a": None, "b": {"c": 3}})
    {'b': {'c': 3, 'd': 2}}
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: dict[str, Any]) -> Any:
    """
    Apply a strategic merge patch, with its `$patch`, `$deleteFromPrimitiveList`, `$setElementOrder` and `$retainKeys`.

    Raises: PatchError for an unknown directive, or a list item without its merge key.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise PatchError(f"Unknown patch type {directive!r}")
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.split("/", 1)[1]
            result[field] = [found for found in result.get(field) or () if found not in value]
        elif not key.startswith("$"):
            _merge_field(result, key, value)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            _reorder(result, key.split("/", 1)[1], order)
    return result


def _merge_field(result: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        result[key] = strategic(result.get(key), value)
    elif isinstance(value, list) and key in MERGED_SETS:
        known = list(result.get(key) or ())
        result[key] = known + [item for item in value if item not in known]
    elif isinstance(value, list) and key in MERGE_KEYS and all(isinstance(item, dict) for item in value):
        result[key] = _merge_list(result.get(key) or [], value, _merge_key(key, value), key)
    else:
        result[key] = copy.deepcopy(value)


def _merge_key(field: str, items: list[dict[str, Any]]) -> str:
    """Return the merge key of *field*. The key of ports is `port` in a Service and `containerPort` in a container."""
    if field == "ports" and any("port" in item for item in items):
        return "port"
    return MERGE_KEYS[field]


def _merge_list(found: list[Any], patch: list[dict[str, Any]], merge_key: str, field: str) -> list[Any]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if item.get("$patch") != "replace"]
    result = list(found)
    for item in patch:
        if merge_key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {merge_key} (in {field})")
        place = next((i for i, known in enumerate(result) if known.get(merge_key) == item[merge_key]), None)
        if item.get("$patch") == "delete":
            result = [known for known in result if known.get(merge_key) != item[merge_key]]
        elif place is None:
            result.append(strategic({}, item))
        else:
            result[place] = strategic(result[place], item)
    return result


def _reorder(result: dict[str, Any], field: str, order: list[Any]) -> None:
    """Sort the items that *order* names. Each other item stays behind the item that it followed."""
    items = result.get(field)
    if not isinstance(items, list):
        return
    merge_key = _merge_key(field, order) if field in MERGE_KEYS and order and isinstance(order[0], dict) else None
    wanted = [entry.get(merge_key) if merge_key else entry for entry in order]
    named = [item for item in items if (item.get(merge_key) if merge_key else item) in wanted]
    named.sort(key=lambda item: wanted.index(item.get(merge_key) if merge_key else item))
    slots = iter(named)
    result[field] = [next(slots) if (item.get(merge_key) if merge_key else item) in wanted else item for item in items]


def json_patch(target: Any, operations: Any) -> Any:
    """
    Apply a JSON patch.

    Raises: PatchError with the operation that failed. Nothing is applied then.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchError(f"operation without a path: {operation!r}")
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    name, path = operation.get("op"), _pointer(operation["path"])
    if name in {"add", "replace", "test"} and "value" not in operation:
        raise PatchError(f"{name} operation for path {operation['path']!r} has no value")
    if name == "add":
        return _add(document, path, copy.deepcopy(operation["value"]))
    if name == "remove":
        return _remove(document, path)
    if name == "replace":
        return _replace(document, path, copy.deepcopy(operation["value"]))
    if name in {"move", "copy"}:
        source = _pointer(str(operation.get("from", "")))
        value = copy.deepcopy(_get(document, source))
        if name == "move":
            if path[: len(source)] == source and path != source:
                raise PatchError(f"cannot move {operation['from']!r} into itself")
            document = _remove(document, source)
        return _add(document, path, value)
    if name == "test":
        if not _same(_get_or_none(document, path), operation["value"]):
            raise PatchError(f"testing path {operation['path']!r} failed")
        return document
    raise PatchError(f"unexpected kind: {name!r}")


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON values, where true is not 1."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"path {text!r} must start with '/'")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document) - 1)]
        else:
            raise PatchError(f"path {'/' + '/'.join(path)!r} does not exist")
    return document


def _get_or_none(document: Any, path: list[str]) -> Any:
    try:
        return _get(document, path)
    except PatchError:
        return None


def _index(part: str, last: int) -> int:
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0") or int(part) > last:
        raise PatchError(f"{part!r} is not an index from 0 to {last}")
    return int(part)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
    else:
        raise PatchError(f"path {'/' + '/'.join(path)!r} is inside a plain value")
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    """Replace a value. As in the real server, a missing member of an object is added."""
    parent = _get(document, path[:-1]) if path else None
    return _add(_remove(document, path) if isinstance(parent, list) else document, path, value)


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(last, len(parent) - 1)]
    else:
        raise PatchError(f"path {'/' + '/'.join(path)!r} does not exist")
    return document
