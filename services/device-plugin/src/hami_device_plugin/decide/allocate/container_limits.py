"""
Decide how one container is limited, on a Node whose enforcement is known.

Where an operator runs MPS's daemon, MPS gives a program a part of the device's multiprocessors, in place of a part of
its time. The program reads the part from its environment, so this limit is as cooperative as the library's. It also
limits programs that load no library. The paths are those of NVIDIA's own device plugin.
Neighbours: `decide.probe.enforcement` says who limits on the Node, `serve.allocate` asks for each container.
Source: https://github.com/NVIDIA/k8s-device-plugin/blob/v0.17.0/cmd/mps-control-daemon/mps/root.go
Source: https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hami_device_plugin.decide.allocate.allocation import Grant, Mount, device_uuid
from hami_device_plugin.decide.probe.enforcement import (
    DRIVER,
    INSTANCES,
    MISC,
    Enforcement,
    EnforcementError,
    MpsDaemon,
)
from hamicommon.errors import HamiError
from hamicommon.model import Share
from hamicommon.wire import keys

EXCLUSIVE_PERCENT = 100
"""With this share of compute a container is alone on its device."""
_MIB = 1 << 20
PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
NO_LIMIT_PERCENT = 100
_SHARED_MEMORY = "/dev/shm"


class MpsError(HamiError):
    """A container cannot be a client of MPS."""


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """How one container is limited."""

    has_library: bool = True
    by_driver: Mapping[str, int | None] = field(default_factory=dict)
    """What the driver is told, in bytes by UUID: None to allow everything. Empty if it is told nothing."""


def is_driver_demanded(annotations: Mapping[str, str]) -> bool:
    """
    Return whether a Pod with *annotations* demands the driver's limit and no library.

    Raises:
        EnforcementError: the annotation has an unknown value.
    """
    wanted = annotations.get(keys.ENFORCEMENT, "")
    if wanted not in ("", keys.ENFORCEMENT_DRIVER):
        raise EnforcementError(
            f"annotation {keys.ENFORCEMENT} is {wanted!r}; it must be {keys.ENFORCEMENT_DRIVER!r}, or be removed"
        )
    return bool(wanted)


def check_demand(annotations: Mapping[str, str], node: Enforcement, *, is_oversubscribed: bool) -> None:
    """
    Check that *node* can do what a Pod with *annotations* demands.

    Raises:
        EnforcementError: it cannot, or the annotation has an unknown value.
    """
    if not is_driver_demanded(annotations) or node.by == INSTANCES:
        return
    problem = node.reason if node.by != DRIVER else None
    if problem is None and is_oversubscribed:
        problem = "deviceMemoryScaling is above 1, and only the library can give more memory than a device has"
    if problem is not None:
        raise EnforcementError(
            f"annotation {keys.ENFORCEMENT} demands a limit by the driver alone, which this Node does not have: "
            f"{problem}; remove the annotation, or use a Node whose annotation {keys.NODE_ENFORCEMENT} says {DRIVER}"
        )


def container_limits(
    shares: Sequence[Share],
    annotations: Mapping[str, str],
    node: Enforcement,
    memory_bytes: Mapping[str, int],
    *,
    is_oversubscribed: bool,
    margin_mib: int = 0,
) -> ContainerLimits:
    """
    Return how a container with *shares* is limited, of a Pod with *annotations*.

    The driver allows *margin_mib* more than a share. *memory_bytes* has the devices whose size is known, by UUID. Whole
    devices are not limited at all: nobody else is on them. A share of 0 MiB has no limit. On misc the driver must be
    told so, because it never forgets a cgroup that is removed: a container whose cgroup gets the same address would
    inherit the limit of a stranger.

    Raises:
        EnforcementError: the Pod demands what *node* cannot do.
    """
    check_demand(annotations, node, is_oversubscribed=is_oversubscribed)
    unlimited_bytes = {device_uuid(share): None for share in shares if node.backend == MISC}
    if has_whole_devices(shares, memory_bytes):
        return ContainerLimits(has_library=False, by_driver=unlimited_bytes)
    limits: dict[str, int | None] = {}
    for share in shares if node.by == DRIVER else ():
        if share.memory_mib:
            uuid, size_bytes = device_uuid(share), (share.memory_mib + margin_mib) * _MIB
            # The driver refuses more than the device has, which an oversubscribed share may be.
            limits.setdefault(uuid, min(size_bytes, memory_bytes.get(uuid, size_bytes)))
    is_demanded = is_driver_demanded(annotations)
    unlimited = [device_uuid(share) for share in shares if not share.memory_mib]
    if is_demanded and node.by == DRIVER and unlimited:
        raise EnforcementError(
            f"annotation {keys.ENFORCEMENT} demands a limit, and a share of 0 MiB has none: device {unlimited[0]}"
        )
    return ContainerLimits(has_library=not is_demanded, by_driver=unlimited_bytes | limits)


def has_whole_devices(shares: Sequence[Share], memory_bytes: Mapping[str, int]) -> bool:
    """Return whether a container with *shares* is alone on each of its devices, which have *memory_bytes*."""
    return all(_is_whole(share, memory_bytes) for share in shares)


def _is_whole(share: Share, memory_bytes: Mapping[str, int]) -> bool:
    size_bytes = memory_bytes.get(device_uuid(share))
    is_all = size_bytes is not None and share.memory_mib == size_bytes // _MIB
    return is_all and share.core_percent == EXCLUSIVE_PERCENT


def thread_percentage(shares: Sequence[Share]) -> int:
    """
    Return the part of its devices' multiprocessors that a container with *shares* may use; no limit is 100.

    Raises:
        MpsError: the shares differ in compute, for which MPS has one number.
    """
    percents = {share.core_percent or NO_LIMIT_PERCENT for share in shares}
    if len(percents) > 1:
        each = ", ".join(f"{share.core_percent} % of {share.uuid}" for share in shares)
        raise MpsError(f"MPS has one limit of compute for all devices of a container, which was granted {each}")
    return min(percents)


def with_mps(grant: Grant, percent: int, daemon: MpsDaemon) -> Grant:
    """Return *grant* of a container that is a client of *daemon* and may use *percent* of the multiprocessors."""
    limit = {THREAD_PERCENTAGE: str(percent)} if percent < NO_LIMIT_PERCENT else {}
    return replace(
        grant,
        env=grant.env | {PIPE_DIRECTORY: daemon.pipe_in_container} | limit,
        mounts=(
            *grant.mounts,
            Mount(daemon.pipe_in_container, daemon.pipe, is_read_only=False),
            Mount(_SHARED_MEMORY, daemon.shared_memory, is_read_only=False),
        ),
    )
