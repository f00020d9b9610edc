"""
Processes on devices, with defaults.
"""

from collections.abc import Mapping

from hami_monitor.decide.host import DeviceProcess, HostDevice
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.watchdog.findings import HostProcess, Place, Program
from hami_monitor.decide.watchdog.owners import PodOwner
from hamicommon.model import Share
from hamicommon.pod.control_groups import ContainerGroup

GPU_A, GPU_B = "GPU-a", "GPU-b"
MIB = 1 << 20


def a_device(used_mib: Mapping[int, int], uuid: str = GPU_A) -> HostDevice:
    """Return a device with processes: what each pid has."""
    listed = (DeviceProcess(pid, mib * MIB) for pid, mib in used_mib.items())
    return HostDevice(0, uuid, "NVIDIA T4", processes=tuple(listed))


def a_process(
    pid: int, pod_uid: str = "u1", container: str = "main", *, own_pid: int = 7, has_library: bool | None = True
) -> HostProcess:
    """Return a process of a container."""
    group = ContainerGroup(pod_uid, f"{pod_uid}/{container}")
    return HostProcess(Program(pid, 1000 + pid, 5), own_pid, group, has_library)


def a_place(uuid: str = GPU_A, pod_uid: str = "u1", container: str = "main") -> Place:
    """Return a device that a container of `an_owner` uses."""
    return Place("ns", f"pod-{pod_uid}", container, uuid, pod_uid)


def an_owner(pod_uid: str = "u1", *containers: str, namespace: str = "ns", has_claims: bool = False) -> PodOwner:
    """Return a running Pod."""
    ids = {f"{pod_uid}/{name}": name for name in containers or ("main",)}
    return PodOwner(namespace, f"pod-{pod_uid}", ids, has_claims=has_claims)


def a_granted_pod(uid: str = "u1", *shares: Share, container: str = "main") -> MonitoredPod:
    """Return a Pod whose container was granted *shares*, or 3000 MiB of GPU_A."""
    given = shares or (Share(GPU_A, "NVIDIA", 3000, 25),)
    return MonitoredPod(uid, "ns", f"pod-{uid}", (container,), frozenset({container}), {container: given})
