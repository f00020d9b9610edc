"""
One GPU as the driver describes it for MIG: its mode, profiles, instances and processes.

Neighbours: `nvml.mig` reads these values, every other module of this room decides on them.
Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from hamicommon.model import MigPlacement


class MigMode(Enum):
    """Current and pending MIG mode of a GPU."""

    UNSUPPORTED = "has no MIG"
    OFF = "off"
    ON = "on"
    TURNING_ON = "off, on after a reset"
    TURNING_OFF = "on, off after a reset"


@dataclass(frozen=True, slots=True)
class GpuProfile:
    """One GPU instance profile, with all its engines' shares but no extra ones."""

    id: int
    """The driver's ID of it on this GPU."""
    slices: int
    memory_mib: int
    multiprocessors: int
    instances_max: int
    placements: tuple[MigPlacement, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One GPU instance and its compute instances."""

    id: int
    profile_id: int
    placement: MigPlacement
    compute_ids: tuple[int, ...] = ()
    mig_uuid: str | None = None
    """UUID of the MIG device; None unless there is exactly one compute instance."""
    is_busy: bool = False
    """Whether a process runs on it, or the driver does not say."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    uuid: str
    index: int
    name: str
    mode: MigMode
    profiles: tuple[GpuProfile, ...] = ()
    instances: tuple[Instance, ...] = ()
    is_busy: bool = False
    """Whether a process runs on the GPU or on an instance of it, or the driver does not say."""

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"GPU {self.uuid} (index {self.index}, {self.name})"


def slices_of(profile: str) -> int | None:
    """
    Return the number of compute slices in a profile's name; None if it is no such name.

    HAMi looks at this part alone: memory and placements come from the driver.

    >>> slices_of("2g.10gb"), slices_of("1g"), slices_of("large")
    (2, 1, None)
    """
    found = re.match(r"([0-9]+)g(?:\.|$)", profile)
    return int(found[1]) if found else None


def profile_named(gpu: Gpu, name: str) -> GpuProfile | None:
    """Return the profile of *gpu* that a wire name such as 2g.10gb means; None if it has none."""
    slices = slices_of(name)
    return next((profile for profile in gpu.profiles if profile.slices == slices), None)


def overlap(one: MigPlacement, other: MigPlacement) -> bool:
    """
    Return whether two placements share a memory slice.

    >>> overlap(MigPlacement(0, 4), MigPlacement(3, 1)), overlap(MigPlacement(0, 4), MigPlacement(4, 4))
    (True, False)
    """
    return one.start < other.start + other.size and other.start < one.start + one.size


def at(placement: MigPlacement, instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """Return the *instances* that share a memory slice with *placement*."""
    return tuple(found for found in instances if overlap(placement, found.placement))


def shown(placement: MigPlacement) -> str:
    """
    Return *placement* as messages and nvidia-smi show it.

    >>> shown(MigPlacement(4, 2))
    '4:2'
    """
    return f"{placement.start}:{placement.size}"
