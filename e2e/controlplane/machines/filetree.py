"""
The file tree of a machine: that of this machine, except for some private folders.

Runs first in the machine's mount namespace. Owns the order of mounts. Must never change a file of this machine. So a
missing folder is made on a memory file system that also has the entries beside it.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from controlplane.machines import cgroups, linux

TUNED = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""
Kernel settings that a kubelet changes. Here it changes a copy.

Source: setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go.
"""

_ASSEMBLY = Path("/sys")
"""The folder where the new root is assembled. It is not part of the new root, so no mount contains itself."""

Tree = dict[str, Any]
"""The entries of a folder that contain private folders, recursively. An empty entry is a private folder."""


def enter(machine: dict[str, Any], folder: Path) -> None:
    """Move this process to a root with the `own` folders of *machine*, from *folder*/own, and its `visible` ones."""
    hierarchies = cgroups.hierarchies()
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    # All sources are opened before the first mount, which may hide the next.
    own = {path: os.open(_made(folder / "own" / path.lstrip("/")), os.O_PATH) for path in machine["own"]}
    visible = {path: os.open(path, os.O_PATH) for path in machine["visible"]}
    linux.mount("tmpfs", _ASSEMBLY, "tmpfs", options="mode=755")
    _show(Path("/"), _tree(own))
    for path, handle in {**own, **visible}.items():
        place = _assembled(Path(path))
        if path in own or not place.exists():
            linux.mount(f"/proc/self/fd/{handle}", _made(place), flags=linux.MS_BIND | linux.MS_REC)
        os.close(handle)
    linux.mount("proc", _made(_ASSEMBLY / "proc"), "proc")
    linux.mount("sysfs", _made(_ASSEMBLY / "sys"), "sysfs")
    linux.move_root(_ASSEMBLY)
    _mount_cgroups(hierarchies)
    _copy_tuned()
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SHARED)


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _assembled(path: Path) -> Path:
    return _ASSEMBLY / path.relative_to("/")


def _tree(paths: Iterable[str]) -> Tree:
    root: Tree = {}
    for path in paths:
        place = root
        for part in Path(path).parts[1:]:
            place = place.setdefault(part, {})
    return root


def _show(folder: Path, tree: Tree) -> None:
    """Fill *folder* of the new root with this machine's entries, except those in *tree*."""
    for path in folder.iterdir():
        if path.name not in tree and path not in {Path("/proc"), _ASSEMBLY}:
            _show_one(path)
    for name, below in tree.items():
        _made(_assembled(folder / name))
        if below and (folder / name).is_dir():
            _show(folder / name, below)


def _show_one(path: Path) -> None:
    place = _assembled(path)
    if path.is_symlink():
        place.symlink_to(path.readlink())
        return
    if path.is_dir():
        place.mkdir()
    else:
        place.touch()
    linux.mount(path, place, flags=linux.MS_BIND | linux.MS_REC)


def _mount_cgroups(hierarchies: list[cgroups.Hierarchy]) -> None:
    """Mount every hierarchy at its place. Its root is the machine's group."""
    if hierarchies[0].kind == "cgroup":
        linux.mount("tmpfs", "/sys/fs/cgroup", "tmpfs", options="mode=755")
    for hierarchy in hierarchies:
        hierarchy.place.mkdir(exist_ok=True)
        linux.mount(hierarchy.kind, hierarchy.place, hierarchy.kind, options=_own_options(hierarchy))


def _own_options(hierarchy: cgroups.Hierarchy) -> str:
    """Return the mount options that select the hierarchy: its controllers or name, or none for version 2."""
    if hierarchy.kind == "cgroup2":
        return ""
    return ",".join(option for option in hierarchy.options.split(",") if option not in {"rw", "ro"})


def _copy_tuned() -> None:
    for name in TUNED:
        setting, copy = Path("/proc/sys", name), Path("/run/sysctl", name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(setting.read_text())
        linux.mount(copy, setting, flags=linux.MS_BIND)
