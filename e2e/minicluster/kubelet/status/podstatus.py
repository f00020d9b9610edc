"""
The status of a Pod, computed from the states of its containers.

Functions of their arguments. Must never wait, start a process or call the API. Neighbours: `pods` keeps the states and
writes the result.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/kubelet_pods.go (getPhase)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from hamicommon.model import Object
from minicluster.kubelet.podspec import Container, container_id

ADDRESS = "127.0.0.1"
"""The address of every Node and Pod, because all share this machine's network."""


@dataclass(frozen=True)
class Attempt:
    """One run of a container. `exit_code` is None while it runs. Times are seconds since the epoch."""

    number: int
    started_at: float
    finished_at: float = 0.0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class ContainerState:
    """The state of one container: why it waits, its newest run, and the previous run."""

    spec: Container
    waiting: tuple[str, str] | None
    """Reason and message."""
    attempt: Attempt | None
    previous: Attempt | None
    is_sidecar: bool = False
    is_done: bool = False
    """Whether it has ended and will not restart."""

    @property
    def is_running(self) -> bool:
        """Whether its program runs."""
        return self.attempt is not None and self.attempt.exit_code is None

    @property
    def has_succeeded(self) -> bool:
        """Whether it is done with exit code 0."""
        return self.is_done and self.attempt is not None and self.attempt.exit_code == 0


@dataclass(frozen=True)
class PodState:
    """The state of a Pod: its containers, and the kubelet's decisions."""

    inits: Sequence[ContainerState]
    apps: Sequence[ContainerState]
    started_at: float
    is_finished: bool = False
    """Whether nothing of it runs or will run again."""
    verdict: tuple[str, str] | None = None
    """Reason and message with which the kubelet failed it, or None."""
    is_ending: bool = False
    """Whether the kubelet has rejected it, and containers that an earlier kubelet started have not ended yet."""


_WITHOUT = dict.fromkeys(
    ("conditions", "containerStatuses", "initContainerStatuses", "podIP", "podIPs", "hostIP", "hostIPs")
)
"""
What a kubelet takes away from the status of a Pod that it rejects, until its containers have ended.

Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/status/status_manager.go (`mergePodStatus`)
"""


def pod_status(pod: Object, pod_uid: str, state: PodState, now: float) -> Object:
    """Return the status. Unchanged conditions keep their transition time from *pod*."""
    if state.is_ending:
        return {**_WITHOUT, "phase": (pod.get("status") or {}).get("phase"), "startTime": as_time(state.started_at)}
    phase = _phase(state)
    status: Object = {"phase": phase, "startTime": as_time(state.started_at)}
    if state.verdict:
        status["reason"], status["message"] = state.verdict
    if state.verdict and all(container.attempt is None for container in (*state.inits, *state.apps)):
        return status  # never admitted, so the kubelet writes nothing more
    address = {"ip": ADDRESS}
    status |= {"podIP": ADDRESS, "podIPs": [address], "hostIP": ADDRESS, "hostIPs": [address]}
    status["conditions"] = _conditions(pod, state, phase, now)
    status["containerStatuses"] = [_container_status(pod_uid, container) for container in state.apps]
    if state.inits:
        status["initContainerStatuses"] = [_container_status(pod_uid, container) for container in state.inits]
    return status


def is_initialized(state: PodState) -> bool:
    """Return whether all init containers are done and all sidecars have started."""
    return not _incomplete(state)


def _incomplete(state: PodState) -> list[str]:
    """Return the init containers that are not done, and the sidecars that have not started."""
    return [
        one.spec["name"]
        for one in state.inits
        if not (one.attempt is not None if one.is_sidecar else one.has_succeeded)
    ]


def as_time(seconds: float) -> str:
    """Return a time in the form of the API."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def of_time(text: str) -> float:
    """Return a time of the API as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def _phase(state: PodState) -> str:
    if state.verdict:
        return "Failed"
    if state.is_finished:
        is_failed = not all(one.has_succeeded for one in state.apps) or not is_initialized(state)
        return "Failed" if is_failed else "Succeeded"
    if not is_initialized(state) or any(one.attempt is None for one in state.apps):
        return "Pending"
    return "Running"


def _conditions(pod: Object, state: PodState, phase: str, now: float) -> list[Object]:
    initialized = is_initialized(state) or phase == "Succeeded"
    counted = [*(one for one in state.inits if one.is_sidecar), *(one for one in state.apps if not one.has_succeeded)]
    unready = [one.spec["name"] for one in counted if not one.is_running]
    ready = initialized and not unready and phase == "Running"
    reason = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else "ContainersNotReady"
    why = {} if ready else {"reason": reason}
    if unready and phase in {"Pending", "Running"}:
        why["message"] = f"containers with unready status: [{' '.join(unready)}]"
    uninitialized = {
        "reason": "ContainersNotInitialized",
        "message": f"containers with incomplete status: [{' '.join(_incomplete(state))}]",
    }
    wanted: list[Object] = [
        {"type": "PodReadyToStartContainers", "status": str(not state.is_finished)},
        {"type": "Initialized", "status": str(initialized), **({} if initialized else uninitialized)},
        {"type": "Ready", "status": str(ready), **why},
        {"type": "ContainersReady", "status": str(ready), **why},
        {"type": "PodScheduled", "status": "True"},
    ]
    found = {condition["type"]: condition for condition in pod.get("status", {}).get("conditions") or ()}
    for condition in wanted:
        before = found.get(condition["type"], {})
        is_same = before.get("status") == condition["status"]
        condition["lastTransitionTime"] = before.get("lastTransitionTime") if is_same else as_time(now)
        condition["lastProbeTime"] = None
    foreign = [condition for kind, condition in found.items() if kind not in {one["type"] for one in wanted}]
    return [*wanted, *foreign]


def _container_status(pod_uid: str, container: ContainerState) -> Object:
    attempt, previous = container.attempt, container.previous
    status: Object = {
        "name": container.spec["name"],
        "image": container.spec.get("image", ""),
        "imageID": container.spec.get("image", ""),
        "restartCount": attempt.number if attempt else 0,
        "ready": container.is_running or (container.has_succeeded and not container.is_sidecar),
        "started": container.is_running,
        "state": {},
        "lastState": {},
    }
    if attempt is not None:
        status["containerID"] = _container_id(pod_uid, container, attempt)
    if container.waiting is not None:
        reason, message = container.waiting
        status["state"] = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        previous = attempt
    elif attempt is not None and attempt.exit_code is None:
        status["state"] = {"running": {"startedAt": as_time(attempt.started_at)}}
    elif attempt is not None:
        status["state"] = {"terminated": _terminated(pod_uid, container, attempt)}
    if previous is not None:
        status["lastState"] = {"terminated": _terminated(pod_uid, container, previous)}
    return status


def _terminated(pod_uid: str, container: ContainerState, attempt: Attempt) -> Object:
    return {
        "exitCode": attempt.exit_code,
        "reason": attempt.reason,
        **({"message": attempt.message} if attempt.message else {}),
        "startedAt": as_time(attempt.started_at),
        "finishedAt": as_time(attempt.finished_at),
        "containerID": _container_id(pod_uid, container, attempt),
    }


def _container_id(pod_uid: str, container: ContainerState, attempt: Attempt) -> str:
    return f"minicluster://{container_id(pod_uid, container.spec['name'], attempt.number)}"
