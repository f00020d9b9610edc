"""
The values that all formats and services use: devices, shares, requests, locks, moments.

They are frozen and comparable, and need no clock, file or network. Units are in the names: memory in MiB, cores in
percent of one device.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

Object = dict[str, Any]
"""An object of the API server, or a part of one, as JSON has it."""


@dataclass(frozen=True, slots=True)
class MigPlacement:
    """A place of a MIG profile on its device, in memory slices."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A partition that a MIG device can be cut into, and the places where it may be."""

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
    """`hami-core`, `mig` or `mps`; empty if the writer names none."""
    healthy: bool = True
    vendor: str = ""
    mig_profiles: tuple[MigProfile, ...] = ()
    custom: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What a vendor adds under `custominfo`."""
    finds_owners: bool = False
    """Whether its device plugin asks the kubelet which Pod an allocation is for, so that it needs no node lock."""


@dataclass(frozen=True, slots=True)
class Share:
    """One container's part of one device, as granted."""

    uuid: str
    type: str
    """The vendor's key (`NVIDIA`), not the model."""
    memory_mib: int
    core_percent: int


ContainerShares = tuple[Share, ...]
"""The shares of one container; empty if it has none."""

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


_EPOCH: Final = datetime(1970, 1, 1)
_CYCLE: Final = timedelta(days=146_097)
"""400 years, after which the calendar repeats itself."""
_CYCLE_YEARS: Final = 400
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Moment:
    """
    What a clock showed, in the years 0 to 9999. Peers write the year 0, which Python's datetime lacks.

    >>> noon = Moment.at(2026, 8, 21, 12)
    >>> print(noon, Moment.at(0, 2, 29))
    2026-08-21T12:00:00 0000-02-29T00:00:00
    >>> noon.age(datetime(2026, 8, 21, 12, 5))
    datetime.timedelta(seconds=300)
    """

    shown_us: int
    """Microseconds from 1970-01-01T00:00:00 on that clock."""
    offset: timedelta | None = None
    """How far the clock is ahead of UTC, None if the writer did not say."""

    @classmethod
    def of(cls, time: datetime) -> "Moment":
        """Return what *time* shows."""
        return cls((time.replace(tzinfo=None) - _EPOCH) // _MICROSECOND, time.utcoffset())

    @classmethod
    def at(cls, year: int, *rest: int, offset: timedelta | None = None) -> "Moment":
        """
        Return the moment of *year* and, in *rest*, month, day, hour, minute, second and microsecond.

        Raises: ValueError when one of them is out of its range.
        """
        shown = datetime(year or _CYCLE_YEARS, *rest) - _EPOCH - (timedelta() if year else _CYCLE)  # type: ignore[arg-type]
        return cls(shown // _MICROSECOND, offset)

    def age(self, now: datetime) -> timedelta:
        """Return how long ago this was at *now*. A clock without offset is taken for the clock of *now*."""
        clock = Moment.of(now)
        ahead = timedelta() if self.offset is None or clock.offset is None else clock.offset - self.offset
        return timedelta(microseconds=clock.shown_us - self.shown_us) - ahead

    def __str__(self) -> str:
        """Return year to second, and the fraction if there is one."""
        since = timedelta(microseconds=self.shown_us)
        is_year_0 = since < datetime.min - _EPOCH
        text = (_EPOCH + (since + _CYCLE if is_year_0 else since)).isoformat()
        return "0000" + text[4:] if is_year_0 else text


@dataclass(frozen=True, slots=True)
class NodeLock:
    """Since when a Node's allocation lock is held, and by which Pod; None in the form without owner."""

    time: Moment
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
    """Per device; 0: `memory_percent` applies."""
    memory_percent: int | None
    """Of each device's memory, 0 to 100; None: `memory_mib` applies."""
    core_percent: int
    """Per device; 0: no compute is reserved."""
    profile_size: int = 0
    """Parts of a device, for a vendor that cuts devices by profile; 0: memory and cores apply."""

    @property
    def held_core_percent(self) -> int:
        """What the container holds of each device: what it asks, at most all of it."""
        return min(self.core_percent, 100)
