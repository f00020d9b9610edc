"""
Find the folders of containers' control groups, on a Node with cgroup version 2.

Only folders down to those of containers are listed. What a container makes below its own group is never read, except
for the group `container` in which crun puts a container.
Source: https://github.com/containers/crun/blob/1.19/crun.1.md (run.oci.systemd.subgroup)
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hamicommon.pod.control_groups import ContainerGroup, container_id, pod_uid

KUBEPODS = "kubepods"
"""In the name of the group above all Pods, which may be in a group of the kubelet's `--cgroup-root`."""
DEPTH_MAX = 5
"""Most levels from the root to a Pod: kind has `kubelet.slice/kubelet-kubepods.slice/` above the class of service."""
_SUBGROUP = "container"


class ControlGroups:
    """The groups that were found, so that nothing is listed until a container starts."""

    def __init__(self, root: str) -> None:
        """Look below *root*, where the Node's control groups are mounted."""
        self._root = root
        self._known: dict[ContainerGroup, str] = {}

    def find(self, wanted: Collection[ContainerGroup]) -> Mapping[ContainerGroup, str]:
        """Return the folder of each of *wanted* that exists; empty with control groups of version 1."""
        self._known = {group: folder for group, folder in self._known.items() if group in wanted and _exists(folder)}
        if wanted - self._known.keys() and _exists(self._root):
            found = dict(_groups(self._root))
            self._known |= {group: found[group] for group in wanted if group in found}
        return self._known


def _exists(folder: str) -> bool:
    return Path(folder, "cgroup.controllers").exists()


def _groups(root: str) -> Iterator[tuple[ContainerGroup, str]]:
    for uid, pod in _pods(root, 0):
        for name, folder in _folders(pod):
            inside = container_id(name)
            if inside is not None:
                below = f"{folder}/{_SUBGROUP}"
                yield ContainerGroup(uid, inside), below if _exists(below) else folder


def _pods(above: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the UID and the folder of each Pod."""
    for name, folder in _folders(above):
        uid = pod_uid(name)
        if uid is not None:
            yield uid, folder
        elif depth < DEPTH_MAX and (depth == 0 or KUBEPODS in folder):
            yield from _pods(folder, depth + 1)


def _folders(above: str) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(above) as entries:
            found = [(entry.name, entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # The group was removed.
        return
    yield from found
