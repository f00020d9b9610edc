"""
Find our services by the labels of their Pods, and their ports by name.

The chart sets the labels, and HAMi's chart sets the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hamicommon.model import Object
from kubectl_hami.read.source import Endpoint

COMPONENT: Final = "app.kubernetes.io/component"
METRICS: Final = "metrics"
EXPLAIN: Final = "explain"


def component_of(pod: Object) -> str:
    """Return the component that *pod* belongs to, empty if it is not ours."""
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(COMPONENT) or "")


def pods_of(pods: Iterable[Object], component: str) -> Iterator[Object]:
    """Yield the running Pods of *component*."""
    for pod in pods:
        if component_of(pod) == component and (pod.get("status") or {}).get("phase") == "Running":
            yield pod


def pod_name(pod: Object) -> str:
    """Return `namespace/name` of *pod*."""
    metadata = pod.get("metadata") or {}
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def endpoint(pod: Object, port: str) -> Endpoint | None:
    """Return the port called *port* of a container of *pod*, None if there is none."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    for container in spec.get("containers") or ():
        for one in container.get("ports") or ():
            if one.get("name") == port:
                return Endpoint(str(metadata.get("namespace")), str(metadata.get("name")), int(one["containerPort"]))
    return None


def leader_first(pods: Sequence[Object], holder: str) -> list[Object]:
    """Return *pods*, first the one whose name begins *holder*, the identity in a Lease."""
    return sorted(pods, key=lambda pod: not holder.startswith(str((pod.get("metadata") or {}).get("name"))))
