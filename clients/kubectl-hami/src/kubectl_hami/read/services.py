"""
Find our services by the labels of their Pods, and their ports by name.

The chart sets the labels, and HAMi's chart sets the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubectl_hami.read.source import Endpoint
from kubectl_hami.values.seen import Object

COMPONENT: Final = "app.kubernetes.io/component"
SCHEDULER: Final = "hami-scheduler"
MONITOR: Final = "hami-monitor"
WEBHOOK: Final = "hami-webhook"
DEVICE_PLUGIN: Final = "hami-device-plugin"
COMPONENTS: Final = frozenset((SCHEDULER, MONITOR, WEBHOOK, DEVICE_PLUGIN))
METRICS: Final = "metrics"
EXPLAIN: Final = "explain"


def component_of(pod: Object) -> str:
    """Return the component that *pod* is of, empty if it is none of ours."""
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(COMPONENT) or "")


def pods_of(pods: Iterable[Object], component: str) -> Iterator[Object]:
    """Yield the running Pods of *component*."""
    for pod in pods:
        if component_of(pod) == component and (pod.get("status") or {}).get("phase") == "Running":
            yield pod


def endpoint(pod: Object, port: str) -> Endpoint | None:
    """Return the port called *port* of a container of *pod*, None if there is none."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    for container in spec.get("containers") or ():
        for one in container.get("ports") or ():
            if one.get("name") == port:
                return Endpoint(str(metadata.get("namespace")), str(metadata.get("name")), int(one["containerPort"]))
    return None


def leader_first(pods: Sequence[Object], holder: str) -> list[Object]:
    """Return *pods* with the one first whose name begins *holder*, the identity in a Lease."""
    return sorted(pods, key=lambda pod: not holder.startswith(str((pod.get("metadata") or {}).get("name"))))
