"""
The types of the fields of a v1 Pod that are read, and a check of JSON against them.

The API server makes sure of the types. A call or a manifest may have any others.
"""

from dataclasses import dataclass
from typing import Any, Final

from hamicommon.wire.errors import DecodeError

_PLACE_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Each:
    """The shape of an object with any keys."""

    of: Any


AMOUNTS: Final = Each((str, int, float))
METADATA: Final = {"name": str, "namespace": str, "uid": str, "annotations": Each(str), "labels": Each(str)}
_RESOURCES: Final = {"limits": AMOUNTS, "requests": AMOUNTS, "claims": [{"name": str, "request": str}]}
_CLAIM: Final = {"name": str, "resourceClaimName": str}
_CONTAINERS: Final = [
    {
        "name": str,
        "restartPolicy": str,
        "resources": _RESOURCES,
        "env": [{"name": str, "value": str}],
        "securityContext": {
            "privileged": bool,
            "allowPrivilegeEscalation": bool,
            "runAsNonRoot": bool,
            "runAsUser": int,
        },
    }
]
_STATUSES: Final = [{"name": str, "state": {"running": Each(object), "terminated": Each(object)}}]
POD: Final = {
    "metadata": METADATA,
    "spec": {
        "nodeName": str,
        "priority": int,
        "hostUsers": bool,
        "securityContext": {"runAsNonRoot": bool, "runAsUser": int},
        "initContainers": _CONTAINERS,
        "containers": _CONTAINERS,
        "resourceClaims": [_CLAIM],
    },
    "status": {
        "phase": str,
        "startTime": str,
        "initContainerStatuses": _STATUSES,
        "containerStatuses": _STATUSES,
        "resourceClaimStatuses": [_CLAIM],
        "extendedResourceClaimStatus": {
            "resourceClaimName": str,
            "requestMappings": [{"containerName": str, "requestName": str}],
        },
    },
}
_NEW_CONTAINERS: Final = [{**_CONTAINERS[0], "ports": [{"hostPort": int}]}]
EXPRESSIONS: Final = [{"key": str, "operator": str, "values": [str]}]
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OBJECTS: Final = [Each(object)]
NEW_POD: Final = {
    "metadata": METADATA,
    "spec": {
        **POD["spec"],
        "initContainers": _NEW_CONTAINERS,
        "containers": _NEW_CONTAINERS,
        "resources": _RESOURCES,
        "overhead": AMOUNTS,
        "schedulerName": str,
        "schedulingGates": [{"name": str}],
        "nodeSelector": Each(str),
        "affinity": {
            "nodeAffinity": {
                _REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": EXPRESSIONS, "matchFields": EXPRESSIONS}]}
            },
            "podAffinity": {_REQUIRED: _OBJECTS},
            "podAntiAffinity": {_REQUIRED: _OBJECTS},
        },
        "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
        "topologySpreadConstraints": [{"whenUnsatisfiable": str}],
        "volumes": _OBJECTS,
        "hostNetwork": bool,
    },
}
"""A Pod that does not exist yet, with what kube-scheduler reads of it."""
COUNT: Final = "count"
"""A key beside `spec` in a question about new Pods: how many such Pods are meant, one without it."""
COUNT_LIMIT: Final = 100_000
_KINDS: Final = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def check_shape(found: Any, shape: Any, place: str) -> None:
    """
    Check that *found*, which is at *place*, has *shape*. A field may be null, an element may not.

    A shape is a type, a tuple of types, a list with the shape of its elements, a dict with the shapes of some keys, or
    `Each`.

    >>> check_shape({"spec": {"containers": [{"env": {}}]}}, POD, "Pod")
    Traceback (most recent call last):
    ...
    hamicommon.wire.errors.DecodeError: Pod.spec.containers[0].env: must be a list, not dict

    Raises: DecodeError naming the first place that has another shape.
    """
    if isinstance(shape, dict):
        _expect(found, dict, place)
        for key, inner in shape.items():
            if found.get(key) is not None:
                check_shape(found[key], inner, f"{place}.{key}")
    elif isinstance(shape, Each):
        _expect(found, dict, place)
        for key, element in found.items():
            check_shape(element, shape.of, f"{place}.{key}")
    elif isinstance(shape, list):
        _expect(found, list, place)
        for position, element in enumerate(found):
            check_shape(element, shape[0], f"{place}[{position}]")
    else:
        _expect(found, shape, place)


def _expect(found: Any, kinds: Any, place: str) -> None:
    if not isinstance(found, kinds) or (isinstance(found, bool) and kinds not in (bool, object)):
        wanted = " or ".join(_KINDS[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise DecodeError(place[:_PLACE_CHARACTERS], f"must be {wanted}, not {type(found).__name__}")
