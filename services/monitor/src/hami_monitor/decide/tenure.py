"""
Read from a Pod object from when to when it holds its shares.

The moments are the API server's and the kubelet's, in Unix seconds. So they are the same for every process that reads
the Pod, and a restart of the monitor loses none of the time between them.
Neighbours: `pods` reads the shares, `accounts` adds the time up.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from hamicommon.model import Share

ENDED_PHASES = frozenset({"Succeeded", "Failed"})
LASTING = math.inf
"""The end of what has not ended."""
_STATUSES = ("initContainerStatuses", "containerStatuses")


class Runs(Enum):
    """When a container of a Pod runs (KEP-753)."""

    FIRST = "init container"
    """Before the regular ones, one after another."""
    ALONG = "sidecar"
    """From its turn among the init containers until the Pod ends."""
    REGULAR = "regular container"


@dataclass(frozen=True, slots=True)
class Tenure:
    """How long one Pod holds its shares."""

    namespace: str
    name: str
    containers: tuple[tuple[Runs, tuple[Share, ...]], ...]
    """Those with shares, in Pod order."""
    began_seconds: float
    """When it was bound to the Node."""
    prepared_seconds: float
    """When its init containers had ended; LASTING before."""
    ended_seconds: float = LASTING


def pod_tenure(pod: Mapping[str, Any], shares: Mapping[str, tuple[Share, ...]]) -> Tenure | None:
    """
    Return how long *pod* holds *shares*, which are by container; None without shares, or if no moment can be read.

    A Pod that has ended holds nothing from the end of its last container on.
    """
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    began = _began(metadata, status)
    if not shares or began is None:
        return None
    init_containers = spec.get("initContainers") or []
    return Tenure(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        containers=tuple(_containers(init_containers, spec.get("containers") or [], shares)),
        began_seconds=began,
        prepared_seconds=_prepared(init_containers, status, began),
        ended_seconds=_ended(status, began) if status.get("phase") in ENDED_PHASES else LASTING,
    )


def _containers(
    init_containers: Iterable[Mapping[str, Any]],
    regular: Iterable[Mapping[str, Any]],
    shares: Mapping[str, tuple[Share, ...]],
) -> Iterator[tuple[Runs, tuple[Share, ...]]]:
    kinds = [(container, Runs.ALONG if _is_sidecar(container) else Runs.FIRST) for container in init_containers]
    for container, runs in [*kinds, *((container, Runs.REGULAR) for container in regular)]:
        held = shares.get(str(container.get("name") or ""))
        if held:
            yield runs, held


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _began(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """Return when the Pod was bound, or else the nearest moment known."""
    bound = (
        condition.get("lastTransitionTime")
        for condition in status.get("conditions") or []
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True"
    )
    moments = (unix_seconds(text) for text in (*bound, status.get("startTime"), metadata.get("creationTimestamp")))
    return next((moment for moment in moments if moment is not None), None)


def _prepared(init_containers: Iterable[Mapping[str, Any]], status: Mapping[str, Any], began: float) -> float:
    names = {str(container.get("name") or "") for container in init_containers if not _is_sidecar(container)}
    ends = {
        str(found.get("name") or ""): _finished(found)
        for found in status.get("initContainerStatuses") or []
        if _terminated(found).get("exitCode") == 0
    }
    if names - ends.keys():
        return LASTING
    return max((ends[name] or began for name in names), default=began)


def _ended(status: Mapping[str, Any], began: float) -> float:
    """Return when the last container ended; an evicted Pod may have none, but has conditions that changed then."""
    ends = [_finished(found) for kind in _STATUSES for found in status.get(kind) or []]
    changes = [unix_seconds(condition.get("lastTransitionTime")) for condition in status.get("conditions") or []]
    known = [end for end in ends if end is not None] or [change for change in changes if change is not None]
    return max(known, default=began)


def _terminated(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return (found.get("state") or {}).get("terminated") or {}


def _finished(found: Mapping[str, Any]) -> float | None:
    return unix_seconds(_terminated(found).get("finishedAt"))


def unix_seconds(text: object) -> float | None:
    """
    Return the moment *text* of the API; None if it is none.

    >>> unix_seconds("1970-01-01T00:01:00Z"), unix_seconds("soon"), unix_seconds(None)
    (60.0, None, None)
    """
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if moment is None or moment.tzinfo is None else moment.timestamp()
