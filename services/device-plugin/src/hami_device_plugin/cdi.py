"""
Write and remove the CDI specs that carry a grant to the container runtime: one file, one device, one Allocate answer.

Owns the kind, the device names and the files of that kind. A device's name is made for one Allocate answer and never
used again, so no older contents can exist under it: a runtime that has not seen the file yet refuses the container, and
the kubelet tries again.
Must write vendor and class of two or more characters: a single one anywhere makes containerd 2.1 panic.
Source: https://github.com/cncf-tags/container-device-interface/blob/v1.0.1/SPEC.md
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from hami_device_plugin.allocation import Grant, Mount
from hami_device_plugin.files import write_atomically

KIND = "hami.io/vgpu"
VERSION = "0.5.0"
"""The oldest with `hostPath` of device nodes, so that every runtime with CDI reads it."""
DEVICE_PREFIX = "a-"
"""Names had to start with a letter before CDI 0.5."""
_PREFIX = KIND.replace("/", "-") + "_"
_SUFFIX = ".json"
_MOUNT_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate")


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One spec of this plugin in the CDI directory."""

    path: Path
    pod_uid: str
    device: str
    """Unqualified name."""


def new_device() -> str:
    """
    Return a device name no Allocate answer has used before.
    """
    return f"{DEVICE_PREFIX}{uuid.uuid4()}"


def qualified(device: str) -> str:
    """
    Return the name a container runtime resolves.

    >>> qualified("a-1")
    'hami.io/vgpu=a-1'
    """
    return f"{KIND}={device}"


def unqualified(name: str) -> str | None:
    """
    Return the device of a qualified *name*, None where it is of another kind.

    >>> unqualified("hami.io/vgpu=a-1"), unqualified("nvidia.com/gpu=0")
    ('a-1', None)
    """
    kind, _, device = name.partition("=")
    return device if kind == KIND and device else None


def spec(device: str, grant: Grant) -> dict[str, Any]:
    """
    Return the CDI spec that gives *grant* to a container naming *device*.

    Mounts come with parents before children, because not every runtime sorts them.
    """
    edits: dict[str, Any] = {"env": [f"{name}={value}" for name, value in grant.env.items()]}
    if grant.mounts:
        edits["mounts"] = [_mount(mount) for mount in sorted(grant.mounts, key=_depth)]
    if grant.device_nodes:
        edits["deviceNodes"] = [
            {"path": node.container_path, "hostPath": node.host_path, "permissions": node.permissions}
            for node in grant.device_nodes
        ]
    return {"cdiVersion": VERSION, "kind": KIND, "devices": [{"name": device, "containerEdits": edits}]}


def write_spec(root: Path, pod_uid: str, device: str, grant: Grant) -> bool:
    """
    Put the spec of *device* into *root* and return whether that changed anything.

    The file appears by a rename inside *root*: containerd's watcher ignores a rename from another directory, and would
    read half a file that is written in place.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{_PREFIX}{pod_uid}_{device}{_SUFFIX}"
    return write_atomically(path, orjson.dumps(spec(device, grant), option=orjson.OPT_INDENT_2))


def spec_files(root: Path) -> Iterator[SpecFile]:
    """
    Yield every spec of this plugin in *root*; none where *root* does not exist.
    """
    for path in root.glob(f"{_PREFIX}*{_SUFFIX}"):
        pod_uid, _, device = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX).partition("_")
        if device:
            yield SpecFile(path, pod_uid, device)


def remove_specs(root: Path, is_stale: Callable[[SpecFile], bool]) -> int:
    """
    Remove the specs *is_stale* says so of, and return how many.
    """
    stale = [found for found in spec_files(root) if is_stale(found)]
    for found in stale:
        found.path.unlink(missing_ok=True)
    return len(stale)


def host_paths(root: Path) -> frozenset[str]:
    """
    Return the host side of every mount that this plugin's specs in *root* name.
    """
    return frozenset(path for found in spec_files(root) for path in _mounted(found.path))


def _mounted(path: Path) -> list[str]:
    try:
        devices = orjson.loads(path.read_bytes())["devices"]
        return [mount["hostPath"] for device in devices for mount in device["containerEdits"].get("mounts", ())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # A file nobody can read resolves no device either, so nothing it names is in use.
        return []


def _mount(mount: Mount) -> dict[str, Any]:
    options = [*_MOUNT_OPTIONS, "ro" if mount.is_read_only else "rw"]
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options}


def _depth(mount: Mount) -> int:
    return mount.container_path.rstrip("/").count("/")
