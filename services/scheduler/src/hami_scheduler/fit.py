"""
Decide whether one device can take one share.

Owns the arithmetic of sharing one device, in HAMi's order of checks: the first that fails is the reason told. Knows
nothing of Kubernetes, clocks or logs. Neighbours: `rules` says what is acceptable, `placement` walks the devices of a
Node.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`Fit`)
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from hami_scheduler.reasons import Reason
from hami_scheduler.rules import Rules
from hamicommon.model import Device, MigPlacement, Request

WHOLE_CORE_PERCENT = 100
"""The compute of one device; a share of this much wants it alone."""


@dataclass(slots=True)
class Room:
    """One device and what is promised of it; changed freely while a placement is tried."""

    device: Device
    is_cordoned: bool = False
    replicas: int = 0
    memory_mib: int = 0
    core_percent: int = 0
    occupied: list[MigPlacement] = field(default_factory=list)
    """Places taken by MIG instances."""
    is_sound: bool = True
    """Whether all that is placed here is known."""

    def copy(self) -> "Room":
        """Return a Room to try something on."""
        return Room(
            self.device,
            self.is_cordoned,
            self.replicas,
            self.memory_mib,
            self.core_percent,
            list(self.occupied),
            self.is_sound,
        )

    def take(self, memory_mib: int, core_percent: int) -> None:
        """Promise one more share."""
        self.replicas += 1
        self.memory_mib += memory_mib
        self.core_percent += core_percent


def memory_asked(request: Request, device: Device) -> int:
    """
    Return the MiB of *device* that *request* asks for.

    An amount wins over a percentage; a percentage is cut to whole MiB.
    """
    if request.memory_mib > 0 or request.memory_percent is None:
        return request.memory_mib
    return device.memory_mib * request.memory_percent // 100


def cores_asked(request: Request) -> int:
    """Return the percent of a device's compute that *request* asks for, at most one whole device."""
    return min(request.core_percent, WHOLE_CORE_PERCENT)


def refusal_of_kind(room: Room, rules: Rules) -> Reason | None:
    """Return why a device is out of the question whatever is promised of it, None where it is not."""
    if not room.device.healthy or not room.is_sound:
        return Reason.UNHEALTHY
    if room.is_cordoned:
        return Reason.CORDONED
    if not rules.accepts_type(room.device):
        return Reason.TYPE
    return None


def refusal_of_room(
    room: Room, memory_mib: int, core_percent: int, rules: Rules, is_within_quota: Callable[[str, int, int], bool]
) -> Reason | None:
    """
    Return why a device cannot take one more share of *memory_mib* and *core_percent*, None where it can.

    *is_within_quota* answers for (UUID, MiB, percent) whether the Pod's namespace may have that.
    """
    device = room.device
    if not rules.accepts_uuid(device.id):
        return Reason.UUID
    if room.replicas >= device.count:
        return Reason.REPLICAS
    if rules.is_mutex and room.replicas > 0:
        return Reason.EXCLUSIVE
    if not is_within_quota(device.id, memory_mib, core_percent):
        return Reason.QUOTA
    if device.memory_mib <= 0 or device.memory_mib - room.memory_mib < memory_mib:
        return Reason.MEMORY
    if device.core_percent - room.core_percent < core_percent:
        return Reason.CORE
    if core_percent == WHOLE_CORE_PERCENT == device.core_percent and room.replicas > 0:
        return Reason.EXCLUSIVE
    if core_percent == 0 and room.core_percent == device.core_percent != 0:
        return Reason.ZERO_CORE
    return None
