"""
Decide what each container of the Node was granted, and with which priority.

A container can write its region, so who it is and what it may use comes from its Pod alone.
Neighbours: `pods` reads the Pods, `feedback` and `usage` take the grants.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.feedback import FeedbackState
from hami_monitor.decide.pods import MonitoredPod
from hamicommon.model import MigAllocation, Share
from hamicommon.pod.variables import DEFAULT_PRIORITY
from hamicommon.wire.region.sums import RegionState


@dataclass(frozen=True, slots=True)
class Grant:
    """One container's part of the Node's devices."""

    shares: tuple[Share, ...] = ()
    instances: tuple[MigAllocation, ...] = ()
    """The MIG instances that a claim gives, by the position of their share."""
    priority: int = DEFAULT_PRIORITY


NO_GRANT = Grant()


def grants_of(pods: Iterable[MonitoredPod]) -> dict[ContainerKey, Grant]:
    """Return the grant of each container of *pods* that has shares. MIG instances have no library and no region."""
    found = {}
    for pod in pods:
        partitioned = {name for name, _ in pod.mig_allocations}
        for container, shares in pod.shares.items():
            if container not in partitioned:
                priority = pod.priorities.get(container, DEFAULT_PRIORITY)
                found[ContainerKey(pod.uid, container)] = Grant(shares, priority=priority)
    return found


def feedback_state(region: RegionState, grant: Grant = NO_GRANT) -> FeedbackState:
    """Return what the feedback rules read of a container with *region* and *grant*."""
    return FeedbackState(
        uuids=tuple(share.uuid for share in grant.shares),
        priority=grant.priority,
        recent_kernel=region.recent_kernel,
        utilization_switch=region.utilization_switch,
    )
