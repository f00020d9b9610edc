"""
Tell which container a process belongs to, from its `/proc/PID/cgroup`.

A process cannot leave the groups of its container. It may be in groups below, whose names it chooses, so the outermost
match counts. The container runtimes' names are those of the drivers `cgroupfs` and `systemd`, for both versions of
control groups. In a cgroup namespace a path begins with `/..`, once for each level above.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.1/pkg/kubelet/cm/cgroup_manager_linux.go (ToSystemd)
"""

import re
from dataclasses import dataclass

_POD = re.compile(r"(?:[a-z0-9.-]+-)?pod(?P<uid>[0-9a-f]{8}[0-9a-f_-]{24,28})(?:\.slice)?")
_CONTAINER = re.compile(r"(?:[a-z-]+-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The control group of one container."""

    pod_uid: str
    container_id: str
    """As in the Pod's status, without the runtime's name."""


def container_group(text: str) -> ContainerGroup | None:
    """
    Return the container whose group the lines of *text* name; None if they name no container of a Pod.

    >>> container_group(f"0::/kubepods/burstable/pod{'0' * 32}/{'c' * 64}/nested").container_id == "c" * 64
    True
    """
    for line in text.splitlines():
        parts = line.split(":", 2)[-1].split("/")
        found = next((index for index, part in enumerate(parts) if _POD.fullmatch(part)), None)
        if found is None:
            continue
        pod, inside = _POD.fullmatch(parts[found]), _CONTAINER.fullmatch("".join(parts[found + 1 : found + 2]))
        if pod is not None and inside is not None:
            return ContainerGroup(pod["uid"].replace("_", "-"), inside["id"])
    return None
