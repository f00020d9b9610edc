"""
Compute a container's use, and the state for the feedback loop, from its region.

Owns the arithmetic over process slots: which count, how they add up, and what an impossible amount means.
Neighbours: `region_file` reads, `families` shows the usage, `feedback` takes the state.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/metrics.go
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hami_monitor.decide.feedback import FeedbackState
from hamicommon.wire.region import DeviceMemory, DeviceUtilization, Region, Slot

UUID_LENGTH_MAX = 40
"""Longest device name in a label: `GPU-` or `MIG-` and 36 characters."""
_SIGN_BIT = 1 << 63
_NO_MEMORY = DeviceMemory()
_NO_UTILIZATION = DeviceUtilization()


@dataclass(frozen=True, slots=True)
class RegionReading:
    """A region at one moment."""

    region: Region
    uuids: tuple[bytes, ...]
    """All 16 device names up to their first NUL; empty until the library writes them."""


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """One device of one container: its limit, and the sums over its processes."""

    index: int
    """Position in the region, and the device's index in the container."""
    uuid: str
    memory_limit_bytes: int
    """0 means no limit."""
    memory_used_bytes: int
    context_bytes: int = 0
    module_bytes: int = 0
    buffer_bytes: int = 0
    utilization_percent: int = 0
    """Device time, summed over processes."""


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """One container's devices, in the region's order."""

    devices: tuple[DeviceUsage, ...]
    last_kernel_seconds: int | None = None
    """Unix time of the last launch; None before the first, and if the layout has no such field."""


def container_usage(reading: RegionReading) -> ContainerUsage:
    """Return the use of the living processes of a region. A device whose name is not text is left out."""
    region = reading.region
    living = [slot for slot in region.slots if slot.status != 0]
    names = ((index, _label(uuid)) for index, uuid in enumerate(reading.uuids[: region.device_count]))
    last = region.last_kernel_time
    return ContainerUsage(
        devices=tuple(_device_usage(region, living, index, name) for index, name in names if name),
        last_kernel_seconds=last if last is not None and 0 < last < _SIGN_BIT else None,
    )


def feedback_state(reading: RegionReading) -> FeedbackState:
    """Return the fields of a region that the feedback rules read."""
    return FeedbackState(
        uuids=tuple(uuid for uuid in reading.uuids if uuid),
        priority=reading.region.priority,
        recent_kernel=reading.region.recent_kernel,
        utilization_switch=reading.region.utilization_switch,
    )


def total(amounts: Iterable[int]) -> int:
    """
    Return the sum of unsigned 64-bit *amounts*, never below 0.

    A library that frees on one device what it allocated on another stores a negative amount as one just below 2**64.
    Such amounts cancel out in the sum.

    >>> total([5, 2**64 - 3]), total([3, 2**64 - 5])
    (2, 0)
    """
    return max(0, sum(amount - (amount >= _SIGN_BIT) * 2 * _SIGN_BIT for amount in amounts))


def _device_usage(region: Region, living: list[Slot], index: int, uuid: str) -> DeviceUsage:
    memory = [slot.memory.get(index, _NO_MEMORY) for slot in living]
    utilization = [(slot.utilization or {}).get(index, _NO_UTILIZATION) for slot in living]
    return DeviceUsage(
        index=index,
        uuid=uuid,
        memory_limit_bytes=region.memory_limits_bytes[index],
        memory_used_bytes=total(amounts.total for amounts in memory),
        context_bytes=total(amounts.context for amounts in memory),
        module_bytes=total(amounts.module for amounts in memory),
        buffer_bytes=total(amounts.data for amounts in memory),
        utilization_percent=total(busy.sm for busy in utilization),
    )


def _label(uuid: bytes) -> str | None:
    """Return *uuid* as a label; None if it is not text."""
    try:
        return uuid[:UUID_LENGTH_MAX].decode()
    except UnicodeDecodeError:
        return None
