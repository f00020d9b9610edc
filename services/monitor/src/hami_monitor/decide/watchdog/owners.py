"""
Read from a Pod object what the watchdog must know about any Pod of the Node, with devices or without.

Neighbours: `hami_monitor.decide.pods` reads the grants, `kube` delivers the objects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hami_monitor.decide.tenure import ENDED_PHASES
from hamicommon.wire.go.strconv import parse_bool

DISABLE_CONTROL = "CUDA_DISABLE_CONTROL"
"""With this variable in its Pod a container gets no library, as in HAMi."""
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
    """Whether it has ResourceClaims, by which a DRA driver may give it devices."""


def pod_owner(pod: Mapping[str, Any]) -> PodOwner:
    """Return what the watchdog knows of *pod*."""
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    return PodOwner(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        containers=dict(_ids(status)),
        without_library=frozenset(_without_library(spec)),
        is_ended=status.get("phase") in ENDED_PHASES,
        has_claims=bool(spec.get("resourceClaims")),
    )


def _ids(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in _STATUSES:
        for container in status.get(kind) or []:
            _, separator, container_id = str(container.get("containerID") or "").partition("://")
            if separator:
                yield container_id, str(container.get("name") or "")


def _without_library(spec: Mapping[str, Any]) -> Iterator[str]:
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        values = (item.get("value") for item in container.get("env") or () if item.get("name") == DISABLE_CONTROL)
        if any(parse_bool(str(value or "")) for value in values):
            yield str(container.get("name") or "")
