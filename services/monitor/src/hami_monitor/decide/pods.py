"""
Read what the monitor needs from a Pod object.

Owns which Pods and containers are shown.
Neighbours: `kube` delivers the objects, `observation` reads the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hami_monitor.decide.share_time import ShareTime, pod_share_time
from hamicommon.errors import HamiError
from hamicommon.model import MigAllocation, Share
from hamicommon.pod.claims import ClaimUse
from hamicommon.pod.lists import Granted
from hamicommon.pod.reading import NOTHING_GRANTED, Pod, read_pod
from hamicommon.vendors.nvidia import ALLOCATED_KEY
from hamicommon.wire import keys


@dataclass(frozen=True, slots=True)
class MonitoredPod:
    """A Pod of this Node whose devices were granted here, or that uses ResourceClaims."""

    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...]
    """Names of all containers, init containers first, as allocations count them."""
    shown: frozenset[str]
    """Containers in the metrics: init containers only while they may still run."""
    shares: Mapping[str, tuple[Share, ...]] = field(default_factory=dict)
    """The shares of each container; empty once the Pod has ended."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The priority of each container that sets one."""
    mig_allocations: tuple[tuple[str, MigAllocation], ...] = ()
    """Each MIG instance with the name of its container."""
    share_time: ShareTime | None = None
    """How long it holds its shares, also after it has ended, without those of claims; None if that is unknown."""
    claims: Mapping[str, tuple[ClaimUse, ...]] = field(default_factory=dict)
    """The ResourceClaims that its containers use, by the container's name."""
    holds: bool = True
    """Whether its shares count: it has not ended."""
    problems: tuple[str, ...] = ()
    """One sentence for each unreadable annotation."""


def pod_uid(pod: Mapping[str, Any]) -> str:
    """Return the UID of *pod*, empty if it has none."""
    return str((pod.get("metadata") or {}).get("uid") or "")


def monitored_pod(item: Mapping[str, Any], node_name: str) -> MonitoredPod | None:
    """
    Return what is monitored of the Pod in *item*; None if no device was granted to it on *node_name*, and it uses no
    ResourceClaim.

    HAMi marks such Pods with a label since 2.5, and with an annotation of the same name in every version.
    """
    pod = read_pod(item)
    is_granted = node_name in (pod.annotations.get(keys.POD_NODE), pod.labels.get(keys.POD_NODE))
    if not is_granted and not pod.claims:
        return None
    problems: list[str] = []
    granted = _granted(pod, problems) if is_granted else NOTHING_GRANTED
    shares = [*zip(pod.containers, granted.shares, strict=False)]
    return MonitoredPod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        containers=tuple(container.name for container in pod.containers),
        shown=frozenset(container.name for container in pod.containers if container.may_run),
        shares={container.name: held for container, held in shares if held} if pod.holds else {},
        priorities={each.name: each.priority for each in pod.containers if each.priority is not None},
        mig_allocations=_mig_allocations(pod, granted, problems),
        share_time=pod_share_time(item, [(container.kind, held) for container, held in shares if held]),
        claims=pod.claims,
        holds=pod.holds,
        problems=tuple(problems),
    )


def _granted(pod: Pod, problems: list[str]) -> Granted:
    try:
        return pod.granted(ALLOCATED_KEY)
    except HamiError as error:
        problems.append(f"annotation {error}")
        return NOTHING_GRANTED


def _mig_allocations(pod: Pod, granted: Granted, problems: list[str]) -> tuple[tuple[str, MigAllocation], ...]:
    try:
        allocations = pod.mig_allocations(granted)
    except HamiError as error:
        problems.append(f"annotation {keys.MIG_ALLOCATIONS}: {error}")
        return ()
    inside = [allocation for allocation in allocations if allocation.container_index < len(pod.containers)]
    if len(inside) < len(allocations):
        problems.append(f"annotation {keys.MIG_ALLOCATIONS}: names a container past the Pod's {len(pod.containers)}")
    return tuple((pod.containers[allocation.container_index].name, allocation) for allocation in inside)
