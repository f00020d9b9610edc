"""
The JSON of kube-scheduler's extender protocol: bytes to values and back.

Keys match in any case, as in Go. The parts of objects that decisions read must have the types that the API promises, so
that no code behind this needs to check again. Neighbours: `http` serves it.
Source: https://github.com/kubernetes/kube-scheduler/blob/v0.34.4/extender/v1/types.go
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from hami_scheduler.explain.defragmentation import MOVES_DEFAULT, MOVES_LIMIT, WAITING_LIMIT
from hami_scheduler.search.preempt import Victims
from hami_scheduler.serve.explainer import DefragmentQuestion
from hami_scheduler.serve.filter import FilterAnswer
from hamicommon.errors import HamiError
from hamicommon.model import Object
from hamicommon.pod.shape import AMOUNTS, COUNT, COUNT_LIMIT, EXPRESSIONS, METADATA, NEW_POD, POD, Each, check_shape
from hamicommon.wire.errors import DecodeError

PODS_LIMIT = 500
"""Pods in one question, each of which may be one of many equal ones; each costs whole decisions."""


class CallError(HamiError):
    """A body that breaks the extender protocol."""


_DEFRAGMENTATION = {
    "pods": [{"namespace": str, "name": str}],
    "budgets": [
        {
            "metadata": {"namespace": str, "name": str, "generation": int},
            "spec": {"selector": {"matchLabels": Each(str), "matchExpressions": EXPRESSIONS}},
            "status": {"observedGeneration": int, "disruptionsAllowed": int},
        }
    ],
    "empty": str,
    "moves": int,
}
_NODE = {"metadata": METADATA, "status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}}


def read_nodes(body: bytes) -> tuple[Object, Sequence[str] | None, Sequence[Object] | None]:
    """
    Return the ExtenderArgs of *body*: a Pod, and Nodes by name or as objects.

    Raises: CallError.
    """
    args = _object(body, "ExtenderArgs")
    names = args.get("nodenames")
    if names is not None and not _are_names(names):
        raise CallError("ExtenderArgs.NodeNames must be a list of names, or null")
    return _pod(args, "ExtenderArgs"), names, _items(args.get("nodes"))


def read_bind(body: bytes) -> tuple[str, str, str, str]:
    """
    Return the ExtenderBindingArgs of *body*: UID, namespace and name of a Pod, and a Node.

    Raises: CallError.
    """
    args = _object(body, "ExtenderBindingArgs")
    values = [args.get(key) or "" for key in ("poduid", "podnamespace", "podname", "node")]
    if not all(isinstance(value, str) for value in values) or not all(values[1:]):
        raise CallError("ExtenderBindingArgs needs PodName, PodNamespace, PodUID and Node")
    uid, namespace, name, node = values
    return uid, namespace, name, node


def read_preempt(body: bytes) -> tuple[Object, Mapping[str, Victims]]:
    """
    Return the ExtenderPreemptionArgs of *body*: a Pod, and per Node the Pods that kube-scheduler would evict for it.

    Raises: CallError.
    """
    args = _object(body, "ExtenderPreemptionArgs")
    whole, meta = args.get("nodenametovictims") or {}, args.get("nodenametometavictims") or {}
    place = "ExtenderPreemptionArgs.NodeNameTo"
    _check(whole, Each({"Pods": [{"metadata": {"uid": str}}], "NumPDBViolations": int}), f"{place}Victims")
    _check(meta, Each({"Pods": [{"UID": str}], "NumPDBViolations": int}), f"{place}MetaVictims")
    victims = {
        **{name: _victims(found, lambda pod: (pod.get("metadata") or {}).get("uid")) for name, found in whole.items()},
        **{name: _victims(found, lambda pod: pod.get("UID")) for name, found in meta.items()},
    }
    return _pod(args, "ExtenderPreemptionArgs"), victims


def read_pods(body: bytes) -> tuple[list[Object], list[int]]:
    """
    Return the Pods of *body*, a JSON list, and how many of each are meant.

    Raises: CallError.
    """
    try:
        pods: list[Object] = orjson.loads(body)
        orjson.dumps(pods)  # Who copies a Pod later may rely on it.
    except orjson.JSONDecodeError as error:
        raise CallError(str(error)) from error
    except orjson.JSONEncodeError as error:
        raise CallError("Pods: nested too deeply") from error
    _check(pods, [{**NEW_POD, COUNT: int}], "Pods")
    if len(pods) > PODS_LIMIT:
        raise CallError(
            f"Pods: {len(pods)} of them; at most {PODS_LIMIT} can differ, and {COUNT} says how many are equal"
        )
    counts = [1 if pod.get(COUNT) is None else pod[COUNT] for pod in pods]
    for position, count in enumerate(counts):
        if not 1 <= count <= COUNT_LIMIT:
            raise CallError(f"Pods[{position}].{COUNT}: must be between 1 and {COUNT_LIMIT}, not {count}")
    return pods, counts


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


def read_defragmentation(body: bytes) -> DefragmentQuestion:
    """
    Return the question for a plan in *body*.

    Raises: CallError.
    """
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(str(error)) from error
    _check(found, _DEFRAGMENTATION, "question")
    pods = [(pod.get("namespace") or "", pod.get("name") or "") for pod in found.get("pods") or ()]
    if len(pods) > WAITING_LIMIT:
        raise CallError(f"question.pods must be at most {WAITING_LIMIT} Pods, not {len(pods)}")
    if not all(map(all, pods)):
        raise CallError("question.pods must have namespace and name each")
    empty = found.get("empty") or "devices"
    if empty not in ("devices", "nodes"):
        raise CallError(f"question.empty must be devices or nodes, not {empty[:40]!r}")
    moves = MOVES_DEFAULT if found.get("moves") is None else found["moves"]
    if not 1 <= moves <= MOVES_LIMIT:
        raise CallError(f"question.moves must be between 1 and {MOVES_LIMIT}, not {str(moves)[:40]}")
    return DefragmentQuestion(tuple(dict.fromkeys(pods)), tuple(found.get("budgets") or ()), empty == "nodes", moves)


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
    _check(pod, POD, f"{what}.Pod")
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
    """Raise CallError unless *found* has *shape*."""
    try:
        check_shape(found, shape, place)
    except DecodeError as error:
        raise CallError(f"{error.place} {error.reason}") from error
