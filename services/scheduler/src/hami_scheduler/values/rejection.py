"""
Which resources a kubelet rejected a Pod for.

A kubelet that has no replicas left fails a Pod for good, and says so in the Pod's status alone. Neighbours: `cluster`
keeps such a Node free of Pods for a while.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/lifecycle/predicate.go
"""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from hami_scheduler.values.request import Replicas

REJECTION_SECONDS = 15.0
"""How long a Node is left alone after a first rejection. A kubelet writes a changed status within 10 s."""
REJECTION_LIMIT_SECONDS = 240.0
"""The longest: each rejection after such a time doubles it."""

_OUT_OF = "OutOf"
_UNEXPECTED = "UnexpectedAdmissionError"
_PLUGINS_WORD = re.compile(r"rpc error: code = (?!Unavailable|Canceled|DeadlineExceeded)\w+")
"""An answer of the device plugin: it is about the Pod and not about the Node."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """What a kubelet's rejection taught about one resource of its Node."""

    offered: int
    """What the Node's status said then."""
    until: float
    """When the Node may be tried again if its status stays the same, by a steady clock."""
    seconds: float
    """How long that was from the rejection."""


def rejected_resources(pod: Mapping[str, Any], replicas: Replicas) -> Set[str]:
    """Return the resources, among those of *replicas* that *pod* asks, for which its kubelet rejected it."""
    status = pod.get("status") or {}
    asked = {name for name, _ in replicas}
    reason, message = status.get("reason") or "", status.get("message") or ""
    if status.get("phase") != "Failed":
        return set()
    if reason.startswith(_OUT_OF):
        return asked & {reason.removeprefix(_OUT_OF)}
    if reason != _UNEXPECTED or _PLUGINS_WORD.search(message):
        return set()
    named = {name for name in asked if re.search(rf"{re.escape(name)}(?![\w.-]*\w)", message)}
    return named or asked
