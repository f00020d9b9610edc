"""
What people ask first about a Pod: its phase, its age, who made it, and why it does not run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hamicommon.model import Object
from hamicommon.pod.containers import moment, statuses_of
from kubectl_hami.answer.shares import name_of
from kubectl_hami.answer.waits import shortened
from kubectl_hami.values.cluster import ClusterState

TERMINATING: Final = "Terminating"
_HASH: Final = "pod-template-hash"
_BEHIND_OTHERS: Final = "PodInitializing"
"""The reason of a container that only waits for those before it."""


@dataclass(frozen=True, slots=True)
class PodStatus:
    """What a Pod's own object says of it."""

    namespace: str
    pod: str
    phase: str
    """`Pending` or `Running`; `Terminating` once it is deleted."""
    since: datetime | None
    """When it was created."""
    owner: str
    """Who made it, such as `Deployment/train` or `Job/tune-28`; empty if it was made alone."""
    cause: str
    """Why it has no Node, or which container does not run and why; empty if all run or nobody has said."""


def statuses(pods: Iterable[Object], state: ClusterState) -> Iterator[PodStatus]:
    """Yield the status of each of *pods* that holds or waits for a device in *state*."""
    causes = {(one.namespace, one.pod): one.cause for one in state.waiting}
    shown = causes.keys() | {
        (share.namespace, share.pod) for node in state.nodes for device in node.devices for share in device.shares
    }
    for pod in pods:
        name = name_of(pod)
        if name in shown:
            metadata = pod.get("metadata") or {}
            phase = str((pod.get("status") or {}).get("phase") or "")
            yield PodStatus(
                namespace=name[0],
                pod=name[1],
                phase=TERMINATING if metadata.get("deletionTimestamp") else phase,
                since=moment(metadata.get("creationTimestamp")),
                owner=owner_of(pod),
                cause=causes.get(name) or _waiting_container(pod),
            )


def owner_of(pod: Object) -> str:
    """
    Return kind and name of the controller of *pod*; a ReplicaSet's Deployment, if its name tells.

    >>> owner_of({"metadata": {"ownerReferences": [{"kind": "Job", "name": "tune", "controller": True}]}})
    'Job/tune'

    Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/deployment/sync.go (getNewReplicaSet)
    """
    metadata = pod.get("metadata") or {}
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = str(owner.get("kind") or ""), str(owner.get("name") or "")
            ending = f"-{(metadata.get('labels') or {}).get(_HASH)}"
            if kind == "ReplicaSet" and name.endswith(ending):
                return f"Deployment/{name.removesuffix(ending)}"
            return f"{kind}/{name}"
    return ""


def _waiting_container(pod: Object) -> str:
    """Return the first container of *pod* that waits, and why; empty if none does."""
    for name, status in statuses_of(pod.get("status") or {}).items():
        found = (status.get("state") or {}).get("waiting") or {}
        reason, message = str(found.get("reason") or ""), str(found.get("message") or "")
        if reason and reason != _BEHIND_OTHERS:
            return shortened(f"container {name}: {reason}{f': {message}' if message else ''}")
    return ""
