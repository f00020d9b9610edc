"""
Compare what was promised to each container with what it really has.

The promise is the annotation. What the container has is its limit in the region that its library reads, what the
library counts, what the driver counts, and what the monitor's watchdog has seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from hamicommon.vendors.nvidia import KEY as NVIDIA
from hamicommon.wire import keys
from kubectl_hami.values.cluster import ClusterState, Device, Node, Share

WHOLE_PERCENT = 100


class Verdict(Enum):
    """Whether a container has what it was promised."""

    KEPT = "kept"
    UNKNOWN = "unknown"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One share, promised and real."""

    cluster: str
    node: str
    device: str
    index: int
    share: Share
    verdict: str
    """A value of `Verdict`."""
    why: str
    """One sentence."""


def comparisons(state: ClusterState, pod: str = "") -> Iterator[Comparison]:
    """Yield a comparison for each share that counts now, of *pod* if one is named, by Pod and container."""
    found = [
        (node, device, share)
        for node in state.nodes
        for device in node.devices
        for share in device.shares
        if share.holds and pod in {"", share.pod}
    ]
    for node, device, share in sorted(found, key=lambda one: (one[2].namespace, one[2].pod, one[1].index)):
        verdict, why = _judged(node, device, share)
        by = f" (by ResourceClaim {share.claim})" if share.claim else ""
        yield Comparison(state.cluster, node.name, device.id, device.index, share, verdict.value, why + by)


def _judged(node: Node, device: Device, share: Share) -> tuple[Verdict, str]:
    if share.phase == keys.BIND_PHASE_FAILED:
        return Verdict.BROKEN, "the device plugin could not allocate it; the Pod's Events say why"
    if not device.replicas:
        return Verdict.BROKEN, f"node {node.name} no longer offers the device"
    broken = _broken(share)
    if broken:
        return Verdict.BROKEN, "; ".join(broken)
    if share.phase == keys.BIND_PHASE_ALLOCATING:
        return Verdict.UNKNOWN, "the container has not started: its allocation is in progress"
    if share.limit_memory_mib is not None:
        return Verdict.KEPT, "the container's limit is its grant"
    return Verdict.UNKNOWN, _unmeasured(node, device, share)


def _broken(share: Share) -> list[str]:
    """Return how the container has other than it was promised."""
    found = []
    limit, granted = share.limit_memory_mib, share.memory_mib
    if limit is not None and limit != granted:
        found.append(f"its limit is {limit or 'no'} MiB, and {granted} MiB are granted")
    used = share.used_memory_mib
    if used is not None and used > granted:
        found.append(f"it uses {used} MiB, and {granted} MiB are granted")
    return [*found, *(f"watchdog: {kind}" for kind in share.findings)]


def _unmeasured(node: Node, device: Device, share: Share) -> str:
    """Return why a container's limit is unknown."""
    if share.memory_mib >= device.memory_mib and share.core_percent in {0, WHOLE_PERCENT}:
        return "a whole device has no limit to check"
    if device.mode == "mig":
        return "its MIG instance is the limit"
    if device.vendor != NVIDIA:
        return f"the devices of {device.vendor} are limited by their own device plugin"
    if not node.is_measured:
        return f"no monitor answers for node {node.name}"
    return "its library has no region yet: the container has made no CUDA call"
