"""
Name the CDI devices that carry a grant to the container runtime, and write their specs.

Owns the kind, the device names and the contents of a spec. A device name belongs to one Allocate answer and is never
reused, so no older spec can exist under it. A runtime that has not seen the file yet refuses the container, and the
kubelet retries.
Vendor and class must have two or more characters each: a single one makes containerd 2.1 panic.
Neighbours: `cdi_files` keeps the files.
Source: https://github.com/cncf-tags/container-device-interface/blob/v1.0.1/SPEC.md
"""

import uuid
from typing import Any

from hami_device_plugin.decide.allocation import Grant, Mount

KIND = "hami.io/vgpu"
VERSION = "0.5.0"
"""The oldest version with `hostPath` of device nodes, so every runtime with CDI reads it."""
DEVICE_PREFIX = "a-"
"""Names had to start with a letter before CDI 0.5."""
_MOUNT_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate")


def new_device() -> str:
    """
    Return a device name that no Allocate answer has used.
    """
    return f"{DEVICE_PREFIX}{uuid.uuid4()}"


def qualified(device: str) -> str:
    """
    Return the name that a container runtime resolves.

    >>> qualified("a-1")
    'hami.io/vgpu=a-1'
    """
    return f"{KIND}={device}"


def unqualified(name: str) -> str | None:
    """
    Return the device of a qualified *name*; None if it is of another kind.

    >>> unqualified("hami.io/vgpu=a-1"), unqualified("nvidia.com/gpu=0")
    ('a-1', None)
    """
    kind, _, device = name.partition("=")
    return device if kind == KIND and device else None


def spec(device: str, grant: Grant) -> dict[str, Any]:
    """
    Return the CDI spec that gives *grant* to the container that names *device*.

    Parent mounts come before their children, because not every runtime sorts them.
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


def _mount(mount: Mount) -> dict[str, Any]:
    options = [*_MOUNT_OPTIONS, "ro" if mount.is_read_only else "rw"]
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options}


def _depth(mount: Mount) -> int:
    return mount.container_path.rstrip("/").count("/")
