"""
Tell which container a control group belongs to, by its name or from the `/proc/PID/cgroup` of a process.

A process cannot leave the groups of its container. It may be in groups below, whose names it chooses, so the outermost
match counts. The container runtimes' names are those of the drivers `cgroupfs` and `systemd`, for both versions of
control groups. In a cgroup namespace a path begins with `/..`, once for each level above.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.1/pkg/kubelet/cm/cgroup_manager_linux.go (ToSystemd)
"""

import re
from dataclasses import dataclass
from itertools import pairwise

_POD = re.compile(r"(?:[a-z0-9.-]+-)?pod(?P<uid>[0-9a-f]{8}[0-9a-f_-]{24,28})(?:\.slice)?")
_CONTAINER = re.compile(r"(?:[a-z-]+-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The control group of one container."""

    pod_uid: str
    container_id: str
    """As in the Pod's status, without the runtime's name."""


def pod_uid(name: str) -> str | None:
    """
    Return the UID of the Pod whose control group is called *name*; None if it is not a Pod's.

    >>> pod_uid("kubepods-burstable-pod0f0f0f0f_0000_0000_0000_000000000000.slice")
    '0f0f0f0f-0000-0000-0000-000000000000'
    """
    found = _POD.fullmatch(name)
    return None if found is None else found["uid"].replace("_", "-")


def container_id(name: str) -> str | None:
    """Return the id of the container whose control group is called *name*; None if it is not a container's."""
    found = _CONTAINER.fullmatch(name)
    return None if found is None else found["id"]


def container_group(text: str) -> ContainerGroup | None:
    """
    Return the container whose group the lines of *text* name; None if they name no container of a Pod.

    >>> container_group(f"0::/kubepods/burstable/pod{'0' * 32}/{'c' * 64}/nested").container_id == "c" * 64
    True
    """
    for line in text.splitlines():
        parts = line.split(":", 2)[-1].split("/")
        for name, below in pairwise([*parts, ""]):
            uid = pod_uid(name)
            if uid is not None:
                inside = container_id(below)
                if inside is not None:
                    return ContainerGroup(uid, inside)
                break
    return None
