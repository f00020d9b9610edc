"""
Decide who limits device memory, on a Node and for each of its containers.

The driver limits a container's cgroup, for every program in it. The library limits the processes that load it. A MIG
instance is limited by its GPU. Where the driver can, it limits memory, and the library limits compute, counts managed
memory and shows the share.
Neighbours: `serve.hardware.enforcement` finds out what the driver can, `identity` and `lock` ask for each container.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hami_device_plugin.decide.allocation import device_uuid
from hami_device_plugin.decide.mps import MpsDaemon
from hamicommon.errors import HamiError
from hamicommon.model import Share
from hamicommon.wire import keys

AUTO, REQUIRED, NONE = "auto", "required", "none"
SETTINGS = (AUTO, REQUIRED, NONE)
LIBRARY, DRIVER, INSTANCES = "library", "driver", "mig"
HOLDERS = (LIBRARY, DRIVER, INSTANCES)
BESIDE_LIBRARY = ", the library limits compute"
EXCLUSIVE_PERCENT = 100
"""With this share of compute a container is alone on its device."""
_MIB = 1 << 20


class EnforcementError(HamiError):
    """Memory cannot be limited as the settings or a Pod demand."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Who limits memory on a Node, and why."""

    by: str
    """One of HOLDERS."""
    reason: str
    is_final: bool = True
    """False if it is unknown what the driver can, because it did not answer."""
    compute: str = ""
    """Who limits compute, and why; empty if the settings leave it to the library."""
    mps: MpsDaemon | None = None
    """The daemon by which MPS limits compute; None if the library does."""
    is_compute_final: bool = True
    """False if MPS would limit compute, and does not yet."""

    def __str__(self) -> str:
        """Return it as users see it."""
        return f"{self.by}: {self.reason}" + (f"; compute: {self.compute}" if self.compute else "")


@dataclass(frozen=True, slots=True)
class Hold:
    """How one container is limited."""

    has_library: bool = True
    limits: Mapping[str, int] = field(default_factory=dict)
    """What the driver limits, in bytes by UUID; empty if it limits nothing."""


def choose_enforcement(setting: str, problem: str | None, *, is_final: bool = True) -> Enforcement:
    """
    Return who limits memory by *setting*; *problem* is why the driver cannot, None if it can.

    Unless *is_final*, another look may find another problem, or none.

    Raises:
        EnforcementError: the setting requires the driver, which cannot.

    >>> str(choose_enforcement("auto", "GPU-a: Not Supported"))
    'library: GPU-a: Not Supported'
    """
    if setting == NONE:
        return Enforcement(LIBRARY, "--memory-enforcement=none")
    if problem is None:
        return Enforcement(DRIVER, f"the driver limits memory by cgroup{BESIDE_LIBRARY}")
    if setting == REQUIRED:
        raise EnforcementError(f"--memory-enforcement=required: the driver cannot limit memory: {problem}")
    return Enforcement(LIBRARY, problem, is_final)


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


def hold(
    shares: Sequence[Share],
    annotations: Mapping[str, str],
    node: Enforcement,
    memory_bytes: Mapping[str, int],
    *,
    is_oversubscribed: bool,
) -> Hold:
    """
    Return how a container with *shares* is limited, of a Pod with *annotations*.

    *memory_bytes* has the devices whose size is known, by UUID. Whole devices are not limited at all: nobody else is on
    them. A share of 0 MiB has no limit.

    Raises:
        EnforcementError: the Pod demands what *node* cannot do.
    """
    check_demand(annotations, node, is_oversubscribed=is_oversubscribed)
    if all(_is_whole(share, memory_bytes) for share in shares):
        return Hold(has_library=False)
    limits: dict[str, int] = {}
    for share in shares if node.by == DRIVER else ():
        if share.memory_mib:
            uuid, size_bytes = device_uuid(share), share.memory_mib * _MIB
            # The driver refuses more than the device has, which an oversubscribed share may be.
            limits.setdefault(uuid, min(size_bytes, memory_bytes.get(uuid, size_bytes)))
    is_demanded = is_driver_demanded(annotations)
    unlimited = [device_uuid(share) for share in shares if not share.memory_mib]
    if is_demanded and node.by == DRIVER and unlimited:
        raise EnforcementError(
            f"annotation {keys.ENFORCEMENT} demands a limit, and a share of 0 MiB has none: device {unlimited[0]}"
        )
    return Hold(has_library=not is_demanded, limits=limits)


def _is_whole(share: Share, memory_bytes: Mapping[str, int]) -> bool:
    size_bytes = memory_bytes.get(device_uuid(share))
    is_all = size_bytes is not None and share.memory_mib == size_bytes // _MIB
    return is_all and share.core_percent == EXCLUSIVE_PERCENT
