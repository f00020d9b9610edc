"""
Decide what a Node offers by a MIG strategy: the instances that an administrator created.

`none` offers whole GPUs, as if there were no instances. `single` offers instances of one size under the Node's usual
resource. `mixed` offers each size as `nvidia.com/mig-<profile>`, and GPUs without MIG under the usual resource.
Each instance is for one container. It is limited by the driver, so nothing is preloaded.
Neighbours: `nvml.mig` reads the instances.
Source: https://github.com/NVIDIA/k8s-device-plugin/blob/v0.19.3/README.md (MIG_STRATEGY),
https://github.com/NVIDIA/go-nvlib/blob/v0.9.0/pkg/nvlib/device/mig_profile.go (the names of profiles)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hami_device_plugin.decide.inventory import SharingPolicy
from hami_device_plugin.decide.mig.geometry import Gpu, MigMode
from hamicommon.errors import HamiError

NONE, SINGLE, MIXED = "none", "single", "mixed"
STRATEGIES = (NONE, SINGLE, MIXED)
RESOURCE_PREFIX = "nvidia.com/mig-"
_MEMORY_PARTS = 8
_GIB = 2**30


class MigStrategyError(HamiError):
    """The instances of this Node do not suit the MIG strategy."""


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One instance that exists."""

    uuid: str
    gpu_uuid: str
    gpu_index: int
    name: str
    """As the driver names it."""
    profile: str
    """As 1g.5gb."""
    is_whole: bool
    """Whether it has all compute slices of its GPU instance."""
    memory_mib: int


@dataclass(frozen=True, slots=True)
class StaticOffer:
    """What a strategy offers."""

    gpu_uuids: frozenset[str]
    """GPUs that are offered whole, under the usual resource."""
    usual: tuple[MigDevice, ...] = ()
    """Instances under the usual resource."""
    by_resource: tuple[tuple[str, tuple[MigDevice, ...]], ...] = ()
    """Instances under resources of their own, by name."""
    warnings: tuple[str, ...] = ()


def static_offer(
    strategy: str, gpus: Iterable[Gpu], devices: Iterable[MigDevice], policy: SharingPolicy
) -> StaticOffer:
    """
    Return what *strategy*, `single` or `mixed`, offers of *gpus* and *devices*, the instances on them.

    A UUID that *policy* excludes is that of a GPU or of an instance, an excluded index that of a GPU.

    Raises:
        MigStrategyError: `single`, and the instances differ, or there are GPUs with and without MIG or instances.
    """
    offered = [gpu for gpu in gpus if not policy.excludes(gpu.uuid, gpu.index)]
    cut = [gpu for gpu in offered if gpu.mode in (MigMode.ON, MigMode.TURNING_OFF)]
    whole = frozenset(gpu.uuid for gpu in offered if gpu not in cut)
    parents = {gpu.uuid for gpu in cut}
    found = [one for one in devices if one.gpu_uuid in parents and one.uuid not in policy.excluded_uuids]
    empty = [gpu for gpu in cut if gpu.uuid not in {one.gpu_uuid for one in found}]
    if strategy == SINGLE:
        _check_single(cut, whole, found, empty)
        return StaticOffer(whole, usual=tuple(found))
    return _mixed(whole, found, empty)


def resource_of(profile: str) -> str:
    """
    Return the resource that offers the instances of *profile* under `mixed`.

    >>> resource_of("1g.5gb+me")
    'nvidia.com/mig-1g.5gb.me'
    """
    return RESOURCE_PREFIX + profile.replace("+", ".")


def profile_name(*, slices: int, compute_slices: int, memory_mib: int, total_bytes: int, suffix: str = "") -> str:
    """
    Return NVIDIA's name for an instance of *slices* with *memory_mib* of a GPU with *total_bytes*.

    The memory is a number of eighths of the GPU's.

    >>> profile_name(slices=1, compute_slices=1, memory_mib=4864, total_bytes=40536 * 2**20, suffix="+me")
    '1g.5gb+me'
    >>> profile_name(slices=3, compute_slices=1, memory_mib=19968, total_bytes=40536 * 2**20)
    '1c.3g.20gb'
    """
    eighths = -(-memory_mib * 2**20 * _MEMORY_PARTS // total_bytes)
    gib = round(eighths / _MEMORY_PARTS * -(-total_bytes // _GIB))
    part = "" if slices == compute_slices else f"{compute_slices}c."
    return f"{part}{slices}g.{gib}gb{suffix}"


def _check_single(cut: Sequence[Gpu], whole: frozenset[str], found: Sequence[MigDevice], empty: Sequence[Gpu]) -> None:
    profiles = sorted({one.profile for one in found})
    if cut and whole:
        problem = f"{cut[0]} is in MIG mode and GPU {min(whole)} is not"
    elif empty:
        problem = f"{empty[0]} is in MIG mode and has no instance"
    elif len(profiles) > 1:
        problem = f"the instances have different sizes: {', '.join(profiles)}"
    else:
        return
    raise MigStrategyError(
        f"--mig-strategy {SINGLE} needs instances of one size on every GPU, but {problem}; change the instances, or "
        f"use --mig-strategy {MIXED}"
    )


def _mixed(whole: frozenset[str], found: Sequence[MigDevice], empty: Sequence[Gpu]) -> StaticOffer:
    profiles = sorted({one.profile for one in found if one.is_whole})
    warnings = [f"{gpu} is in MIG mode and has no instance, so nothing of it is offered" for gpu in empty]
    warnings += [
        f"{one.uuid} ({one.profile}) is not offered: it has only some compute slices of its GPU instance"
        for one in found
        if not one.is_whole
    ]
    by_resource = tuple(
        (resource_of(profile), tuple(one for one in found if one.is_whole and one.profile == profile))
        for profile in profiles
    )
    return StaticOffer(whole, by_resource=by_resource, warnings=tuple(warnings))
