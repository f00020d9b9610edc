"""
Name the CDI devices that carry a grant to the container runtime, and make their specs.

Owns the kind, the device names and the contents of a spec. A device name belongs to one Allocate answer and is never
reused, so no older spec can exist under it. A runtime that has not seen the file yet refuses the container, and the
kubelet retries.
Vendor and class must have two or more characters each: a single one makes containerd 2.1 panic.
Neighbours: `edits` joins what a spec has from the driver with what it has from the grant, `cdi_files` keeps the files.
Source: https://github.com/cncf-tags/container-device-interface/blob/v1.0.1/SPEC.md
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hami_device_plugin.decide.allocate.allocation import (
    NO_DEVICES,
    VISIBLE_DEVICES,
    Grant,
    GrantPolicy,
    Mount,
    node_environment,
)
from hami_device_plugin.decide.allocate.cdi.driver import newest
from hami_device_plugin.decide.allocate.cdi.edits import Edits, Json, encode_edits
from hami_device_plugin.decide.probe.strategy import CDI_ANNOTATIONS, CDI_CRI

KIND = "hami.io/vgpu"
VERSION = "0.5.0"
"""The oldest version with `hostPath` of device nodes, so every runtime with CDI reads it."""
DEVICE_PREFIX = "a-"
"""Names had to start with a letter before CDI 0.5."""
CLAIM_PREFIX = "c-"
MARK_MODE = 0o777
"""The mode of a region file that a runtime has marked; the plugin makes it without a right to execute."""
NVIDIAS_LIMITS = "apply-cuda-memory-limits"
"""
The hook of NVIDIA's generator that limits memory. It has one value for all devices of a container, which it reads from
variables that the Pod's author may set.

Source: https://github.com/NVIDIA/nvidia-container-toolkit/tree/v1.20.1/cmd/nvidia-cdi-hook
"""
LIMIT_TIMEOUT_SECONDS = 30
"""
After this long a runtime kills the hook that limits memory, and the container fails. The hook gives up on the driver
after 20 s, and then says why.

Source: https://github.com/opencontainers/runtime-spec/blob/v1.2.0/config.md#posix-platform-hooks
"""
_MOUNT_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate")
_MEMORY_OPTIONS = ("nosuid", "nodev", "noexec", "mode=0777", "size=16m", "nr_inodes=64")
"""
What a container may keep in a private directory. The library has a file of 5 MiB there. The sticky bit would keep
users of the container from opening each other's files (fs.protected_regular).
"""


@dataclass(frozen=True, slots=True)
class LimitHook:
    """How a runtime runs `hami-limit-hook` on the host."""

    program: str
    driver_root: str
    cgroup_root: str
    """Where cgroup v2 is mounted."""


def new_device() -> str:
    """Return a device name that no Allocate answer has used."""
    return f"{DEVICE_PREFIX}{uuid.uuid4()}"


def claim_device(claim_uid: str, request: str, share: str) -> str:
    """
    Return the name of the device for one result of a ResourceClaim; *share* differs at each allocation of the claim.

    >>> claim_device("uid", "gpu", "s-1")
    'c-uid_gpu_s-1'
    """
    return f"{CLAIM_PREFIX}{claim_uid}_{request}_{share}"


def qualified(device: str) -> str:
    """
    Return the name that a container runtime resolves.

    >>> qualified("a-1")
    'hami.io/vgpu=a-1'
    """
    return f"{KIND}={device}"


def region_name(device: str) -> str:
    """
    Return the name, without its ending, of the region file of the container with the CDI device *device*.

    >>> region_name("a-1")
    '1'
    """
    return device.removeprefix(DEVICE_PREFIX)


def unqualified(name: str) -> str | None:
    """
    Return the device of a qualified *name*; None if it is of another kind.

    >>> unqualified("hami.io/vgpu=a-1"), unqualified("nvidia.com/gpu=0")
    ('a-1', None)
    """
    kind, _, device = name.partition("=")
    return device if kind == KIND and device else None


def answer(device: str, policy: GrantPolicy) -> Grant:
    """
    Return the Allocate answer that names *device*, to the kubelet or in an annotation, and gives no other device.

    A runtime that ignores CDI therefore gives the container none.
    """
    name, strategies = qualified(device), policy.list_strategies
    is_annotated = CDI_ANNOTATIONS in strategies
    key = f"{policy.annotation_prefix}nvidia-device-plugin_{region_name(device)}"
    return Grant(
        env=node_environment(policy) | {VISIBLE_DEVICES: NO_DEVICES},
        cdi_devices=() if is_annotated and CDI_CRI not in strategies else (name,),
        annotations={key: name} if is_annotated else {},
    )


def spec(device: str, edits: Edits, driver_version: str = VERSION) -> dict[str, Any]:
    """
    Return the CDI spec that makes *edits* to the container that names *device*.

    *driver_version* is the version of CDI that the driver's part of *edits* needs.
    """
    devices = [{"name": device, "containerEdits": encode_edits(edits)}]
    return {"cdiVersion": newest(VERSION, driver_version), "kind": KIND, "devices": devices}


def grant_edits(grant: Grant) -> Edits:
    """Return the edits that give a container its grant."""
    return Edits(
        env=grant.env,
        device_nodes={
            node.container_path: {
                "path": node.container_path,
                "hostPath": node.host_path,
                "permissions": node.permissions,
            }
            for node in grant.device_nodes
        },
        mounts={path: _memory(path) for path in grant.private_directories}
        | {mount.container_path: _mount(mount) for mount in grant.mounts},
    )


def mark_edits(program: str, region: str) -> Edits:
    """
    Return the edit that gives *region*, a file in the container, MARK_MODE when a runtime applies its edits.

    The file is the host's, so the host sees that hooks and mounts were applied. *program* is the host's path of
    nvidia-cdi-hook.
    """
    arguments = ["nvidia-cdi-hook", "chmod", "--mode", f"{MARK_MODE:o}", "--path", region]
    return Edits(hooks=({"hookName": "createContainer", "path": program, "args": arguments},))


def with_limits(edits: Edits, hook: LimitHook, limits: Mapping[str, int | None]) -> Edits:
    """
    Return *edits* and the hook that has the driver limit the container to *limits*, bytes by UUID; None is no limit.

    NVIDIA's own hook for that is left out: both would set the same limits.
    """
    if not limits:
        return edits
    places = ["--driver-root", hook.driver_root, "--cgroup", hook.cgroup_root]
    sizes = {uuid: "max" if size_bytes is None else size_bytes for uuid, size_bytes in limits.items()}
    arguments = ["hami-limit-hook", *places, *(f"{uuid}={size}" for uuid, size in sizes.items())]
    others = (other for other in edits.hooks if NVIDIAS_LIMITS not in (other.get("args") or ()))
    ours = {"hookName": "createRuntime", "path": hook.program, "args": arguments, "timeout": LIMIT_TIMEOUT_SECONDS}
    return replace(edits, hooks=(*others, ours))


def _memory(container_path: str) -> Json:
    return {"hostPath": "tmpfs", "containerPath": container_path, "type": "tmpfs", "options": [*_MEMORY_OPTIONS]}


def _mount(mount: Mount) -> Json:
    options = [*_MOUNT_OPTIONS, "ro" if mount.is_read_only else "rw"]
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options}
