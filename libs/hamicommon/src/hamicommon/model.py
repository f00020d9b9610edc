"""
The values the contract speaks of: devices, shares, requests and what surrounds them.

Frozen, comparable, free of behaviour that needs a clock, a file or the network. Units are in the names:
memory in MiB, cores in percent of one device.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class MigPlacement:
    """Where a MIG profile may sit on its device, in memory slices."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A partition a MIG device can be cut into, and every place it can be cut at."""

    name: str
    memory_mib: int
    core_percent: int
    slice_count: int
    placements: tuple[MigPlacement, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a Node's inventory: what its device plugin offers."""

    id: str
    """UUID, as the driver prints it."""
    count: int
    """Replicas: how many containers may share it."""
    memory_mib: int
    """Allocatable memory, after the plugin's scaling."""
    core_percent: int
    """Allocatable compute, 100 for one whole device, after the plugin's scaling."""
    type: str
    """Model name as registered, e.g. `NVIDIA A100-SXM4-40GB`."""
    index: int = 0
    numa: int = 0
    mode: str = ""
    """`hami-core`, `mig`, `mps`; empty where the writer had none."""
    healthy: bool = True
    vendor: str = ""
    mig_profiles: tuple[MigProfile, ...] = ()
    custom: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What a vendor adds under `custominfo`."""


@dataclass(frozen=True, slots=True)
class Share:
    """One container's part of one device, as granted."""

    uuid: str
    type: str
    """The vendor's key (`NVIDIA`), not the model."""
    memory_mib: int
    core_percent: int


ContainerShares = tuple[Share, ...]
"""The shares of one container; empty where it has none."""

PodShares = tuple[ContainerShares, ...]
"""One entry per container, init containers first, in Pod order."""


@dataclass(frozen=True, slots=True)
class MigAllocation:
    """One MIG instance promised to a container, and its identity once it exists."""

    container_index: int
    """Init containers first."""
    device_index: int
    """Position inside the container's shares."""
    gpu_uuid: str
    profile: str
    placement: MigPlacement
    mig_uuid: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class NodeLock:
    """Who holds a Node's allocation lock since when; owner fields are None in the form that names no owner."""

    time: datetime
    namespace: str | None = None
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class ScoringWeights:
    """How much used replicas, cores and memory weigh in a device's score."""

    slot: int = 1
    core: int = 1
    memory: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """What one container asks of one vendor."""

    vendor: str
    """The vendor's key (`NVIDIA`)."""
    count: int
    """Distinct devices, > 0."""
    memory_mib: int
    """Per device; 0 means `memory_percent` decides."""
    memory_percent: int | None
    """Of each device's memory, 0..100; None where memory_mib decides."""
    core_percent: int
    """Per device, 0 means no part is promised."""
    profile_size: int = 0
    """Parts of a device asked for as such, where the vendor cuts devices by profile; 0 where the amounts decide."""

    @property
    def held_core_percent(self) -> int:
        """Of each device: what it comes to hold, which is at most all of it, however much is asked."""
        return min(self.core_percent, 100)
