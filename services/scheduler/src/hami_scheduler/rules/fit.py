"""
Decide whether one device can take one share.

Owns the arithmetic of sharing a device, in HAMi's order of checks: the first that fails is the reason. It is written
for an amount of one device and for arrays with the amounts of many. Neighbours: `values.vendor` says how a vendor
differs, `search.place_container` walks the devices of a Node, `search.prefilter` checks all devices.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`Fit`)
"""

from collections.abc import Callable
from typing import Any

from hami_scheduler.values.constraints import Constraints, DeviceKind
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import ORDINARY, FitRules
from hamicommon.model import Device, Request

WHOLE_CORE_PERCENT = 100
"""The compute of one device; a share of this much needs the device alone."""

Amount = Any
"""An integer, or an array of one integer per device."""
Truth = Any
"""A bool, or an array of one bool per device."""


def belongs(device: Device | DeviceKind, vendor: str, constraints: Constraints) -> bool:
    """Return whether *device* is one of *vendor*, and of a type that *constraints* accept."""
    return device.vendor == vendor and (not constraints.type_word or constraints.type_word in device.type.lower())


def part_of(whole: Amount, percent: int) -> Amount:
    """Return *percent* of *whole*, cut to an integer."""
    return whole * percent // 100


def memory_asked(request: Request, capacity_mib: Amount) -> Amount:
    """Return the MiB that *request* asks of a device with *capacity_mib*. An amount wins over a percentage."""
    if request.memory_mib > 0 or request.memory_percent is None:
        return request.memory_mib
    return part_of(capacity_mib, request.memory_percent)


def refusal_of_kind(use: DeviceUse, constraints: Constraints, fit: FitRules = ORDINARY) -> Reason | None:
    """Return why a device is unacceptable whatever is promised of it, None if it is acceptable."""
    if not use.device.healthy or not use.instances_known:
        return fit.unhealthy
    if use.is_cordoned:
        return Reason.CORDONED
    if use.is_withheld:
        return Reason.WITHHELD
    if not constraints.accepts_type(use.device):
        return Reason.TYPE
    return None


def refusal_of_share(
    use: DeviceUse,
    memory_mib: int,
    core_percent: int,
    constraints: Constraints,
    is_within_quota: Callable[[str, int, int], bool],
    fit: FitRules = ORDINARY,
) -> Reason | None:
    """
    Return why a device cannot take one more share of *memory_mib* and *core_percent*, None if it can.

    *is_within_quota* answers for (UUID, MiB, percent) whether the Pod's namespace may have that.
    """
    device = use.device
    if not constraints.accepts_uuid(device.id):
        return Reason.UUID
    if fit.counts_replicas and use.replicas >= device.count:
        return Reason.REPLICAS
    if (constraints.is_mutex or fit.is_exclusive) and use.replicas > 0:
        return Reason.EXCLUSIVE
    if not is_within_quota(device.id, memory_mib, core_percent):
        return Reason.QUOTA
    if fit.counts_memory and lacks_memory(device.memory_mib, use.memory_mib, memory_mib):
        return Reason.MEMORY
    return refusal_of_cores(use, core_percent, constraints) if fit.counts_cores else None


def refusal_of_cores(use: DeviceUse, core_percent: int, constraints: Constraints) -> Reason | None:
    """Return why a device has too little compute for one more share of *core_percent*, None if it has enough."""
    capacity = constraints.core_capacity or use.device.core_percent
    if lacks(capacity, use.core_percent, core_percent):
        return Reason.CORE
    if core_percent == WHOLE_CORE_PERCENT and has_users(capacity, use.replicas):
        return Reason.EXCLUSIVE
    if core_percent == 0 and is_used_up(capacity, use.core_percent):
        return Reason.ZERO_CORE
    return None


def lacks(capacity: Amount, promised: Amount, asked: Amount) -> Truth:
    """Return whether less than *asked* is left."""
    return capacity - promised < asked


def lacks_memory(capacity_mib: Amount, promised_mib: Amount, memory_mib: Amount) -> Truth:
    """Return whether a device has too little memory. One that registered none takes no share, not even of 0 MiB."""
    return (capacity_mib <= 0) | lacks(capacity_mib, promised_mib, memory_mib)


def has_users(capacity: Amount, replicas: Amount) -> Truth:
    """Return whether a share of a whole device's compute would not be alone on a device of that size."""
    return (capacity == WHOLE_CORE_PERCENT) & (replicas > 0)


def is_used_up(capacity: Amount, promised: Amount) -> Truth:
    """Return whether a share without compute of its own would find none left."""
    return (promised == capacity) & (capacity != 0)
