"""
Read from a Pod object from when to when it holds its shares.

The moments are the API server's and the kubelet's, in Unix seconds. So they are the same for every process that reads
the Pod, and a restart of the monitor loses none of the time between them.
Neighbours: `pods` reads the shares, `accounts` adds the time up.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hamicommon.model import Share
from hamicommon.pod.containers import (
    ContainerKind,
    containers_of,
    ended_at,
    has_ended,
    inits_are_done,
    moment,
    statuses_of,
)

LASTING = math.inf
"""The end of what has not ended."""


@dataclass(frozen=True, slots=True)
class ShareTime:
    """How long one Pod holds its shares."""

    namespace: str
    name: str
    containers: tuple[tuple[ContainerKind, tuple[Share, ...]], ...]
    """Those with shares, in Pod order."""
    began_seconds: float
    """When it was bound to the Node."""
    prepared_seconds: float
    """When its init containers had ended; LASTING before."""
    ended_seconds: float = LASTING


def with_claims(share_time: ShareTime, shares: tuple[Share, ...]) -> ShareTime:
    """Return *share_time* with the *shares* of ResourceClaims, which a Pod holds from its bind to its end."""
    return replace(share_time, containers=((ContainerKind.SIDECAR, shares), *share_time.containers))


def pod_share_time(
    pod: Mapping[str, Any], containers: Sequence[tuple[ContainerKind, tuple[Share, ...]]]
) -> ShareTime | None:
    """
    Return how long *pod* holds the shares of *containers*; None if no moment can be read.

    A Pod that has ended holds nothing from the end of its last container on.
    """
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    began = _began(metadata, status)
    if began is None:
        return None
    return ShareTime(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        containers=tuple(containers),
        began_seconds=began,
        prepared_seconds=_prepared(pod, began),
        ended_seconds=_ended(status, began) if has_ended(pod) else LASTING,
    )


def _began(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """Return when the Pod was bound, or else the nearest moment known."""
    bound = (
        condition.get("lastTransitionTime")
        for condition in status.get("conditions") or []
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True"
    )
    moments = (unix_seconds(text) for text in (*bound, status.get("startTime"), metadata.get("creationTimestamp")))
    return next((moment for moment in moments if moment is not None), None)


def _prepared(pod: Mapping[str, Any], began: float) -> float:
    """Return when the last ordinary init container ended, as far as is known; at once without any."""
    inits = {str(container.get("name")) for container, kind in containers_of(pod) if kind is ContainerKind.INIT}
    if not inits:
        return began
    if not inits_are_done(pod):
        return LASTING
    statuses = statuses_of(pod.get("status") or {})
    return max(_finished(statuses.get(name, {})) or began for name in inits)


def _ended(status: Mapping[str, Any], began: float) -> float:
    """Return when the last container ended; an evicted Pod may have none, but has conditions that changed then."""
    ends = [_finished(found) for found in statuses_of(status).values()]
    changes = [unix_seconds(condition.get("lastTransitionTime")) for condition in status.get("conditions") or []]
    known = [end for end in ends if end is not None] or [change for change in changes if change is not None]
    return max(known, default=began)


def _finished(status: Mapping[str, Any]) -> float | None:
    ended = ended_at(status)
    return None if ended is None else ended.timestamp()


def unix_seconds(text: object) -> float | None:
    """
    Return the moment *text* of the API; None if it is none.

    >>> unix_seconds("1970-01-01T00:01:00Z"), unix_seconds("soon"), unix_seconds(None)
    (60.0, None, None)
    """
    found = moment(text)
    return None if found is None else found.timestamp()
