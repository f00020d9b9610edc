"""
Read from a Pod object what the watchdog must know about any Pod of the Node, with devices or without.

Neighbours: `hami_monitor.decide.pods` reads the grants, `kube` delivers the objects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hamicommon.pod.containers import id_of
from hamicommon.pod.reading import read_pod

_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@dataclass(frozen=True, slots=True)
class PodOwner:
    """A Pod that may own processes on devices."""

    namespace: str
    name: str
    containers: Mapping[str, str] = field(default_factory=dict)
    """The name of each container that was started, by its id."""
    without_library: frozenset[str] = frozenset()
    """Containers whose author switched the library off."""
    is_ended: bool = False
    has_claims: bool = False
    """Whether it has ResourceClaims, also one for an extended resource: by them a DRA driver may give it devices."""


def pod_owner(item: Mapping[str, Any]) -> PodOwner:
    """Return what the watchdog knows of the Pod in *item*."""
    pod = read_pod(item)
    return PodOwner(
        namespace=pod.namespace,
        name=pod.name,
        containers=dict(_ids(item.get("status") or {})),
        without_library=frozenset(each.name for each in pod.containers if each.is_control_disabled),
        is_ended=pod.has_ended,
        has_claims=bool((item.get("spec") or {}).get("resourceClaims") or pod.claims),
    )


def _ids(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in _STATUSES:
        for container in status.get(kind) or []:
            container_id = id_of(container)
            if container_id:
                yield container_id, str(container.get("name") or "")
