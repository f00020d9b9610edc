"""
Read what the monitor needs from a Pod object.

Owns which Pods and containers are shown.
Neighbours: `kube` delivers the objects, `observation` reads the result.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hami_monitor.decide.tenure import ENDED_PHASES, Tenure, pod_tenure
from hamicommon.errors import HamiError
from hamicommon.model import MigAllocation, Share
from hamicommon.vendors.nvidia import ALLOCATED_KEY
from hamicommon.wire import keys
from hamicommon.wire.mig.allocations import decode_mig_allocations
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container

DEFAULT_PRIORITY = 1
"""The library's, for a container that sets none; 0 is the highest."""
PRIORITY_ENV = "CUDA_TASK_PRIORITY"
"""The webhook sets this variable of a container from its request."""
_PRIORITY = re.compile(r"[+-]?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class MonitoredPod:
    """A Pod of this Node whose devices were granted here."""

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
    tenure: Tenure | None = None
    """How long it holds its shares, also after it has ended; None if it has none."""
    problems: tuple[str, ...] = ()
    """One sentence for each unreadable annotation."""


def pod_uid(pod: Mapping[str, Any]) -> str:
    """Return the UID of *pod*, empty if it has none."""
    return str(_metadata(pod).get("uid") or "")


def monitored_pod(pod: Mapping[str, Any], node_name: str) -> MonitoredPod | None:
    """
    Return what is monitored of *pod*; None if no device was granted to it on *node_name*.

    HAMi marks such Pods with a label since 2.5, and with an annotation of the same name in every version.
    """
    metadata = _metadata(pod)
    annotations = metadata.get("annotations") or {}
    if node_name not in (annotations.get(keys.POD_NODE), (metadata.get("labels") or {}).get(keys.POD_NODE)):
        return None
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    init_containers, regular = spec.get("initContainers") or [], spec.get("containers") or []
    containers = (*init_containers, *regular)
    names = tuple(str(container.get("name") or "") for container in containers)
    problems: list[str] = []
    granted = _shares(annotations, containers, problems)
    return MonitoredPod(
        uid=pod_uid(pod),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        containers=names,
        shown=frozenset(names) - _finished(init_containers, status.get("initContainerStatuses") or []),
        shares={} if status.get("phase") in ENDED_PHASES else granted,
        priorities=dict(_priorities(containers)),
        mig_allocations=_mig_allocations(annotations, names, problems),
        tenure=pod_tenure(pod, granted),
        problems=tuple(problems),
    )


def _metadata(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("metadata") or {}


def _finished(init_containers: Iterable[Mapping[str, Any]], statuses: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the init containers that succeeded and never run again; sidecars (restartPolicy Always) may."""
    succeeded = {status.get("name") for status in statuses if _exit_code(status) == 0}
    return frozenset(
        str(container.get("name"))
        for container in init_containers
        if container.get("restartPolicy") != "Always" and container.get("name") in succeeded
    )


def _exit_code(status: Mapping[str, Any]) -> Any:
    return ((status.get("state") or {}).get("terminated") or {}).get("exitCode")


def _shares(
    annotations: Mapping[str, str], containers: Sequence[Mapping[str, Any]], problems: list[str]
) -> Mapping[str, tuple[Share, ...]]:
    text = annotations.get(ALLOCATED_KEY)
    if not text:
        return {}
    try:
        granted = decode_pod_devices(text)
    except HamiError as error:
        problems.append(f"annotation {ALLOCATED_KEY}: {error}")
        return {}
    shares = shares_by_container(granted, len(containers), [_asks_for_devices(container) for container in containers])
    return {
        str(container.get("name") or ""): share for container, share in zip(containers, shares, strict=True) if share
    }


def _priorities(containers: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, int]]:
    for container in containers:
        for variable in container.get("env") or []:
            if variable.get("name") == PRIORITY_ENV and _PRIORITY.fullmatch(text := str(variable.get("value") or "")):
                yield str(container.get("name") or ""), int(text)


def _asks_for_devices(container: Mapping[str, Any]) -> bool:
    """
    Return whether *container* has a limit on any resource that a device plugin may offer.

    The device config knows the vendors' resource names, and the monitor does not read it. To tell containers with
    devices from those without, any name with a domain suffices.
    """
    return any("/" in name for name in (container.get("resources") or {}).get("limits") or {})


def _mig_allocations(
    annotations: Mapping[str, str], names: tuple[str, ...], problems: list[str]
) -> tuple[tuple[str, MigAllocation], ...]:
    try:
        allocations = decode_mig_allocations(annotations.get(keys.MIG_ALLOCATIONS) or "")
    except HamiError as error:
        problems.append(f"annotation {keys.MIG_ALLOCATIONS}: {error}")
        return ()
    inside = [allocation for allocation in allocations if allocation.container_index < len(names)]
    if len(inside) < len(allocations):
        problems.append(f"annotation {keys.MIG_ALLOCATIONS}: names a container past the Pod's {len(names)}")
    return tuple((names[allocation.container_index], allocation) for allocation in inside)
