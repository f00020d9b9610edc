"""
The containers of a Pod: their kinds, and which of them have ended.

Functions on the object itself, because the scheduler asks them of every event. Source: KEP-753 for sidecars.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final

ENDED_PHASES: Final = ("Succeeded", "Failed")
"""The phases of a Pod that has ended: no container runs or will run."""
RUNNING: Final = "Running"
NOT_ENDED: Final = ",".join(f"status.phase!={phase}" for phase in ENDED_PHASES)
"""The same for the API server, as the field selector of all other Pods."""

ALWAYS: Final = "Always"
"""The restartPolicy of an init container that makes it a sidecar (KEP-753)."""


class ContainerKind(Enum):
    """When a container runs, relative to its siblings."""

    INIT = "init"
    """Alone, after the init containers before it, beside the sidecars before it."""
    SIDECAR = "sidecar"
    """An init container with `restartPolicy: Always`: from its turn on until the Pod ends (KEP-753)."""
    APP = "app"
    """Beside every other app container and every sidecar."""


class ContainerState(Enum):
    """What the kubelet says of a container."""

    WAITING = "waiting"
    """To start, or to start again. Also if nothing is said."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    """It has ended with exit code 0."""
    FAILED = "failed"
    """It has ended with another exit code."""


def containers_of(pod: Mapping[str, Any]) -> tuple[tuple[Mapping[str, Any], ContainerKind], ...]:
    """Return the containers of *pod* with their kinds, init containers first, in Pod order."""
    spec = pod.get("spec") or {}
    inits = [(container, init_kind(container)) for container in spec.get("initContainers") or ()]
    return (*inits, *[(container, ContainerKind.APP) for container in spec.get("containers") or ()])


def init_kind(container: Mapping[str, Any]) -> ContainerKind:
    """Return the kind of one of a Pod's `initContainers`."""
    return ContainerKind.SIDECAR if container.get("restartPolicy") == ALWAYS else ContainerKind.INIT


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether *pod* has ended, so that it holds nothing although the object still exists."""
    return (pod.get("status") or {}).get("phase") in ENDED_PHASES


def inits_are_done(pod: Mapping[str, Any]) -> bool:
    """
    Return whether *pod* has ordinary init containers and all of them have succeeded.

    Until then each of them counts, as in HAMi. A kubelet that restarts and rejects a Pod takes every status of its
    containers away while they end. The phase stays, and `Running`, of a Pod that a kubelet has started, means that the
    init containers had succeeded.
    Sources: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/scheduler.go (onUpdatePod),
    https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/status/status_manager.go (mergePodStatus)
    """
    inits = (pod.get("spec") or {}).get("initContainers")
    if not inits:
        return False
    names = {container.get("name") for container in inits if container.get("restartPolicy") != ALWAYS}
    status = pod.get("status") or {}
    statuses = status.get("initContainerStatuses")
    if not statuses:
        return bool(names) and status.get("phase") == RUNNING and bool(status.get("startTime"))
    done = {one.get("name") for one in statuses if has_succeeded(one)}
    return bool(names) and names <= done


def has_succeeded(status: Mapping[str, Any]) -> bool:
    """Return whether a container with this *status* has ended with exit code 0."""
    return ((status.get("state") or {}).get("terminated") or {}).get("exitCode") == 0


def statuses_of(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the status of each container in a Pod's `status`, by its name."""
    inits, apps = status.get("initContainerStatuses") or [], status.get("containerStatuses") or []
    return {found.get("name") or "": found for found in [*inits, *apps]} if inits or apps else {}


def id_of(status: Mapping[str, Any]) -> str:
    """
    Return the id of the container with this *status* without its runtime's name; empty if it was not started.

    >>> id_of({"containerID": "containerd://4f2a"}), id_of({})
    ('4f2a', '')
    """
    return str(status.get("containerID") or "").partition("://")[2]


def state_of(status: Mapping[str, Any]) -> ContainerState:
    """
    Return the state in a container's *status*.

    >>> state_of({"state": {"terminated": {"exitCode": 0}}}), state_of({})
    (<ContainerState.SUCCEEDED: 'succeeded'>, <ContainerState.WAITING: 'waiting'>)
    """
    state = status.get("state")
    if not state:
        return ContainerState.WAITING
    ended = state.get("terminated")
    if ended:
        return ContainerState.SUCCEEDED if has_succeeded(status) else ContainerState.FAILED
    return ContainerState.RUNNING if state.get("running") is not None else ContainerState.WAITING


def started_at(status: Mapping[str, Any]) -> datetime | None:
    """Return when the last run of the container with this *status* started; None while it waits to start."""
    state = status.get("state") or {}
    return moment((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def ended_at(status: Mapping[str, Any]) -> datetime | None:
    """Return when the container with this *status* ended; None if it has not."""
    return moment(((status.get("state") or {}).get("terminated") or {}).get("finishedAt"))


def moment(text: object) -> datetime | None:
    """
    Return the moment that the API's *text* names; None if it names none.

    >>> moment("2026-08-21T12:00:00Z"), moment("soon"), moment(None)
    (datetime.datetime(2026, 8, 21, 12, 0, tzinfo=datetime.timezone.utc), None, None)
    """
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
