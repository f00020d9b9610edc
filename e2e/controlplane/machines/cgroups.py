"""
Control groups: a subtree for each machine, in every hierarchy, of version 1 and 2.

Owns their creation and removal. Must never change a group outside the given subtree.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REMOVE_SECONDS = 10.0


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy of control groups."""

    kind: str
    """`cgroup` or `cgroup2`."""
    options: str
    """The mount options, such as `rw,memory`."""
    place: Path


def hierarchies() -> list[Hierarchy]:
    """Return the mounted hierarchies, outermost first. Source: proc_pid_mountinfo(5)."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in {"cgroup", "cgroup2"}:
            found.append(Hierarchy(kind, options, Path(before.split()[4])))
    return found


def create(name: str) -> None:
    """Make the group *name* (`a/b`) in every hierarchy, with all controllers of its parents."""
    for hierarchy in hierarchies():
        group = hierarchy.place
        for part in name.split("/"):
            _hand_down(group)
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (group / file).exists() and hierarchy.kind == "cgroup" and not (group / file).read_text().strip():
                    (group / file).write_text((parent / file).read_text())


def enter(name: str) -> None:
    """Move this process into the group *name* of every hierarchy."""
    for hierarchy in hierarchies():
        (hierarchy.place / name / "cgroup.procs").write_text("0")


def weigh(name: str, cpu_millicores: int, pid: int) -> None:
    """
    Move process *pid* to the group *name*, with the CPU weight that the kubelet gives for *cpu_millicores*.

    Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/helpers_linux.go (`MilliCPUToShares`)
    and https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/cgroup_manager_linux.go
    (`getCPUWeight`).
    """
    shares = max(2, cpu_millicores * 1024 // 1000)
    create(name)
    for hierarchy in hierarchies():
        group = hierarchy.place / name
        for file, weight in (("cpu.shares", shares), ("cpu.weight", 1 + (shares - 2) * 9999 // 262142)):
            if (group / file).exists():
                (group / file).write_text(str(weight))
                (group / "cgroup.procs").write_text(str(pid))


def step_aside(name: str) -> None:
    """
    Move this process from the group *name* to `init` in it, in version 2.

    A group of version 2 can delegate controllers only while it has no process.
    """
    for hierarchy in hierarchies():
        group = hierarchy.place / name
        if hierarchy.kind == "cgroup2":
            (group / "init").mkdir(exist_ok=True)
            (group / "init/cgroup.procs").write_text("0")
            _hand_down(group)


def remove(name: str) -> None:
    """
    Remove the group *name* and all groups below it, once their processes have ended.

    Raises: OSError (EBUSY) with the group if a process still runs after REMOVE_SECONDS.
    """
    for hierarchy in hierarchies():
        for group in _deepest_first(hierarchy.place / name):
            _remove_one(group)


def remove_if_empty(name: str) -> None:
    """Remove the group *name* unless it has groups."""
    for hierarchy in hierarchies():
        with contextlib.suppress(OSError):
            (hierarchy.place / name).rmdir()


def _hand_down(group: Path) -> None:
    """Delegate all controllers of a version 2 *group* to its children. Version 1 needs no delegation."""
    if (group / "cgroup.controllers").exists():
        for controller in (group / "cgroup.controllers").read_text().split():
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _deepest_first(group: Path) -> Iterator[Path]:
    if group.is_dir():
        for child in group.iterdir():
            if child.is_dir():
                yield from _deepest_first(child)
        yield group


def _remove_one(group: Path) -> None:
    deadline = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
