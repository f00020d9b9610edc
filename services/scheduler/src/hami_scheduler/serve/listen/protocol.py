"""
The JSON of kube-scheduler's extender protocol: bytes to values and back.

Keys match in any case, as in Go. The parts of objects that decisions read must have the types that the API promises, so
that no code behind this needs to check again. Neighbours: `http` serves it.
Source: https://github.com/kubernetes/kube-scheduler/blob/v0.34.4/extender/v1/types.go
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hami_scheduler.decide.preempt import Victims
from hami_scheduler.serve.filter import FilterAnswer
from hamicommon.errors import HamiError

Object = Mapping[str, Any]


class CallError(HamiError):
    """A body that breaks the extender protocol."""


@dataclass(frozen=True, slots=True)
class NodeCall:
    """ExtenderArgs: a Pod, and Nodes by name or as objects."""

    pod: Object
    names: Sequence[str] | None
    nodes: Sequence[Object] | None


@dataclass(frozen=True, slots=True)
class BindCall:
    """ExtenderBindingArgs."""

    uid: str
    namespace: str
    name: str
    node: str


@dataclass(frozen=True, slots=True)
class PreemptCall:
    """ExtenderPreemptionArgs: a Pod, and per Node the Pods that kube-scheduler would evict for it."""

    pod: Object
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class _Each:
    """The shape of an object with any keys."""

    of: Any


_AMOUNTS = _Each((str, int))
_METADATA = {"name": str, "namespace": str, "uid": str, "annotations": _Each(str), "labels": _Each(str)}
_CONTAINERS = [{"name": str, "restartPolicy": str, "resources": {"limits": _AMOUNTS, "requests": _AMOUNTS}}]
_POD = {
    "metadata": _METADATA,
    "spec": {"nodeName": str, "priority": int, "initContainers": _CONTAINERS, "containers": _CONTAINERS},
    "status": {"phase": str},
}
_NODE = {"metadata": _METADATA, "status": {"capacity": _AMOUNTS, "allocatable": _AMOUNTS}}
_KINDS = {str: "a string", int: "a whole number", dict: "an object", list: "a list"}


def read_nodes(body: bytes) -> NodeCall:
    """
    Return the ExtenderArgs of *body*.

    Raises: CallError.
    """
    args = _object(body, "ExtenderArgs")
    names = args.get("nodenames")
    if names is not None and not _are_names(names):
        raise CallError("ExtenderArgs.NodeNames must be a list of names, or null")
    return NodeCall(_pod(args, "ExtenderArgs"), names, _items(args.get("nodes")))


def read_bind(body: bytes) -> BindCall:
    """
    Return the ExtenderBindingArgs of *body*.

    Raises: CallError.
    """
    args = _object(body, "ExtenderBindingArgs")
    values = [args.get(key) or "" for key in ("poduid", "podnamespace", "podname", "node")]
    if not all(isinstance(value, str) for value in values) or not all(values[1:]):
        raise CallError("ExtenderBindingArgs needs PodName, PodNamespace, PodUID and Node")
    return BindCall(*values)


def read_preempt(body: bytes) -> PreemptCall:
    """
    Return the ExtenderPreemptionArgs of *body*, with victims as Pods or as UIDs.

    Raises: CallError.
    """
    args = _object(body, "ExtenderPreemptionArgs")
    whole, meta = args.get("nodenametovictims") or {}, args.get("nodenametometavictims") or {}
    place = "ExtenderPreemptionArgs.NodeNameTo"
    _check(whole, _Each({"Pods": [{"metadata": {"uid": str}}], "NumPDBViolations": int}), f"{place}Victims")
    _check(meta, _Each({"Pods": [{"UID": str}], "NumPDBViolations": int}), f"{place}MetaVictims")
    victims = {
        **{name: _victims(found, lambda pod: (pod.get("metadata") or {}).get("uid")) for name, found in whole.items()},
        **{name: _victims(found, lambda pod: pod.get("UID")) for name, found in meta.items()},
    }
    return PreemptCall(_pod(args, "ExtenderPreemptionArgs"), victims)


def filter_body(answer: FilterAnswer) -> bytes:
    """Return the ExtenderFilterResult of *answer*."""
    nodes = None if answer.nodes is None else {"metadata": {}, "items": list(answer.nodes)}
    return orjson.dumps(
        {
            "Nodes": nodes,
            "NodeNames": None if answer.node_names is None else list(answer.node_names),
            "FailedNodes": None if answer.failed_nodes is None else dict(answer.failed_nodes),
            "FailedAndUnresolvableNodes": None,
            "Error": answer.error,
        }
    )


def bind_body(error: str) -> bytes:
    """Return the ExtenderBindingResult; an empty *error* means that the Pod is bound."""
    return orjson.dumps({"Error": error})


def priorities_body(scores: Mapping[str, int]) -> bytes:
    """Return the HostPriorityList of *scores* per Node."""
    return orjson.dumps([{"Host": name, "Score": score} for name, score in scores.items()])


def victims_body(victims: Mapping[str, Victims]) -> bytes:
    """Return the ExtenderPreemptionResult of *victims* per Node."""
    found = {
        name: {"Pods": [{"UID": uid} for uid in of_node.uids], "NumPDBViolations": of_node.pdb_violations}
        for name, of_node in victims.items()
    }
    return orjson.dumps({"NodeNameToMetaVictims": found})


def _victims(found: Object | None, uid_of: Any) -> Victims:
    of_node = found or {}
    uids = tuple(uid_of(pod or {}) or "" for pod in of_node.get("Pods") or ())
    return Victims(uids, of_node.get("NumPDBViolations") or 0)


def _object(body: bytes, what: str) -> dict[str, Any]:
    """Return the top-level keys of a JSON object in lower case."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(f"{what} must be JSON: {error}" if body else f"{what} must be JSON: EOF") from error
    if not isinstance(found, dict):
        raise CallError(f"{what} must be a JSON object, not {type(found).__name__}")
    return {key.lower(): value for key, value in found.items()}


def _are_names(found: Any) -> bool:
    """Return whether *found* is a list of strings; joining checks thousands in microseconds."""
    try:
        return isinstance(found, list) and len("".join(found)) >= 0
    except TypeError:
        return False


def _pod(args: Object, what: str) -> Object:
    pod = args.get("pod")
    if not isinstance(pod, dict):
        raise CallError(f"{what}.Pod must be a Pod object")
    _check(pod, _POD, f"{what}.Pod")
    return pod


def _items(nodes: Any) -> list[Object] | None:
    """Return the Nodes of a v1 NodeList, None if none was sent."""
    if nodes is None:
        return None
    items = nodes.get("items") if isinstance(nodes, dict) else None
    if items is None and isinstance(nodes, dict):
        items = nodes.get("Items") or []
    if not isinstance(items, list) or not all(isinstance(node, dict) for node in items):
        raise CallError("ExtenderArgs.Nodes must be a NodeList, or null")
    for position, node in enumerate(items):
        _check(node, _NODE, f"ExtenderArgs.Nodes.items[{position}]")
    return items


def _check(found: Any, shape: Any, place: str) -> None:
    """
    Raise CallError unless *found* has *shape*. A field may be null, an element may not.

    A shape is a type, a tuple of types, a list with the shape of its elements, a dict with the shapes of some keys, or
    `_Each`.
    """
    if isinstance(shape, dict):
        _expect(found, dict, place)
        for key, inner in shape.items():
            if found.get(key) is not None:
                _check(found[key], inner, f"{place}.{key}")
    elif isinstance(shape, _Each):
        _expect(found, dict, place)
        for key, element in found.items():
            _check(element, shape.of, f"{place}.{key}")
    elif isinstance(shape, list):
        _expect(found, list, place)
        for position, element in enumerate(found):
            _check(element, shape[0], f"{place}[{position}]")
    else:
        _expect(found, shape, place)


def _expect(found: Any, kinds: Any, place: str) -> None:
    if not isinstance(found, kinds) or isinstance(found, bool):
        wanted = " or ".join(_KINDS[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise CallError(f"{place[:200]} must be {wanted}, not {type(found).__name__}")
