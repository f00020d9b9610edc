"""
Decide whether one device can take one share.

Owns the arithmetic of sharing one device, in HAMi's order of checks: the first that fails is the reason told. `Sharing`
says where a vendor's way differs. Knows nothing of Kubernetes, clocks or logs. Neighbours: `rules` says what is
acceptable, `vendor` has each vendor's `Sharing`, `place_pod` walks the devices of a Node.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`Fit`)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.rules import Notes, Rules
from hamicommon.model import Device, MigPlacement, MigProfile, Request, Share

WHOLE_CORE_PERCENT = 100
"""The compute of one device; a share of this much wants it alone."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A Pod on a device, where its vendor lets what other Pods say decide about the next."""

    notes: Notes
    core_percent: int
    is_settled: bool = True
    """Whether the device plugin has set the device up for it, so that the Node tells what came of it."""
    is_asking: bool = False
    """Whether it is the very Pod that is being tried, with an earlier container."""


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
    tenants: tuple[Tenant, ...] = ()
    """The Pods on it that say something, in no order."""
    is_barred: bool = False
    """Whether the container that is being tried does without it, for the sake of one that comes later."""

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
            self.tenants,
        )

    def take(self, memory_mib: int, core_percent: int, replicas: int = 1) -> None:
        """Promise one more share."""
        self.replicas += replicas
        self.memory_mib += memory_mib
        self.core_percent += core_percent


@dataclass(frozen=True, slots=True)
class MigChoice:
    """One MIG instance to be made."""

    profile: MigProfile
    placement: MigPlacement


@dataclass(frozen=True, slots=True)
class Offer:
    """A share that one device can give."""

    room: Room
    share: Share
    replicas: int = 1
    instance: MigChoice | None = None

    @property
    def uuid(self) -> str:
        """The device."""
        return self.share.uuid


@dataclass(frozen=True, slots=True)
class Attempt:
    """One container's request for the devices one vendor has on one Node, while it is tried."""

    request: Request
    rules: Rules
    candidates: Sequence[Room]
    """The vendor's devices in the order of the policy; the last is tried first."""
    earlier: frozenset[str] = frozenset()
    """UUIDs that the containers before it took, app containers and those before them apart."""
    pair_scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a share takes of a device."""

    memory_mib: int
    core_percent: int
    replicas: int = 1


Check = Callable[[Room, Attempt], Reason | None]
"""Why a device cannot take the share of an attempt, None where it can."""
Chooser = Callable[[Attempt, Sequence[Offer], Mapping[Reason, int]], Sequence[Offer] | Misfit | None]
"""
Which of the offers, in the order they were tried, the container gets; None where they are too few.

It is called whatever was offered, and with how many devices were refused for which reason, so that it can word the
refusal, too.
"""


def belongs(device: Device, vendor: str, rules: Rules) -> bool:
    """Return whether a container that asks *vendor* may get *device*: it is listed by it, and of a type it asks for."""
    return device.vendor == vendor and (not rules.type_word or rules.type_word in device.type.lower())


@dataclass(frozen=True, slots=True)
class Sharing:
    """
    How the devices of one vendor are shared, as far as it is not the ordinary way.

    The ordinary way: a share takes the memory and the percentage of compute it asks for and one replica, and a
    container gets the first devices that have room.
    """

    amounts: Callable[[Room, Attempt], Amounts] | None = None
    """What a share takes; None where it is what was asked."""
    counts_memory: bool = True
    """Whether memory is checked as an amount."""
    counts_cores: bool = True
    """Whether compute is checked as a percentage."""
    counts_replicas: bool = True
    """Whether replicas are checked."""
    is_exclusive: bool = False
    """Whether a device in use takes nobody else."""
    unhealthy: Reason = Reason.UNHEALTHY
    gate: Callable[[Attempt], Reason | None] | None = None
    """Why no device of the Node can take the share, asked once before any of them is looked at."""
    check_first: Check | None = None
    """Asked before anything that changes with usage."""
    check_last: Check | None = None
    """Asked when all else is well."""
    choose: Callable[[Attempt], Chooser | None] | None = None
    """
    How to choose among all devices with room; None, from either, where the first ones do.

    Asked without candidates, it answers for any: with a chooser wherever some would need one.
    """
    chooses_of_enough: bool = False
    """Whether its choosers leave it to us to refuse, and too few devices with room are told as ever."""

    @property
    def is_plain(self) -> bool:
        """Whether a share takes what was asked, so that arrays can tell whether there is room."""
        return self.amounts is None

    def refuses_itself(self, attempt: "Attempt") -> bool:
        """Return whether a chooser of the vendor has to be asked why *attempt* fails."""
        return not self.chooses_of_enough and self.choose is not None and self.choose(attempt) is not None


ORDINARY = Sharing()


def memory_asked(request: Request, device: Device) -> int:
    """
    Return the MiB of *device* that *request* asks for.

    An amount wins over a percentage; a percentage is cut to whole MiB.
    """
    if request.memory_mib > 0 or request.memory_percent is None:
        return request.memory_mib
    return device.memory_mib * request.memory_percent // 100


def refusal_of_kind(room: Room, rules: Rules, sharing: Sharing = ORDINARY) -> Reason | None:
    """Return why a device is out of the question whatever is promised of it, None where it is not."""
    if not room.device.healthy or not room.is_sound:
        return sharing.unhealthy
    if room.is_cordoned or room.is_barred:
        return Reason.CORDONED
    if not rules.accepts_type(room.device):
        return Reason.TYPE
    return None


def refusal_of_room(
    room: Room,
    memory_mib: int,
    core_percent: int,
    rules: Rules,
    is_within_quota: Callable[[str, int, int], bool],
    sharing: Sharing = ORDINARY,
) -> Reason | None:
    """
    Return why a device cannot take one more share of *memory_mib* and *core_percent*, None where it can.

    *is_within_quota* answers for (UUID, MiB, percent) whether the Pod's namespace may have that.
    """
    device = room.device
    if not rules.accepts_uuid(device.id):
        return Reason.UUID
    if sharing.counts_replicas and room.replicas >= device.count:
        return Reason.REPLICAS
    if (rules.is_mutex or sharing.is_exclusive) and room.replicas > 0:
        return Reason.EXCLUSIVE
    if not is_within_quota(device.id, memory_mib, core_percent):
        return Reason.QUOTA
    if sharing.counts_memory and (device.memory_mib <= 0 or device.memory_mib - room.memory_mib < memory_mib):
        return Reason.MEMORY
    return refusal_of_cores(room, core_percent, rules) if sharing.counts_cores else None


def refusal_of_cores(room: Room, core_percent: int, rules: Rules) -> Reason | None:
    """Return why a device has too little compute for one more share of *core_percent*, None where it has enough."""
    capacity = rules.core_capacity or room.device.core_percent
    if capacity - room.core_percent < core_percent:
        return Reason.CORE
    if core_percent == WHOLE_CORE_PERCENT == capacity and room.replicas > 0:
        return Reason.EXCLUSIVE
    if core_percent == 0 and room.core_percent == capacity != 0:
        return Reason.ZERO_CORE
    return None
