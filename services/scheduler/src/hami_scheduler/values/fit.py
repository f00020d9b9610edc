"""
Decide whether one device can take one share.

Owns the arithmetic of sharing one device, in HAMi's order of checks: the first that fails is the reason. `Sharing`
says how a vendor differs. Neighbours: `rules` says what is acceptable, `vendor` has each vendor's `Sharing`,
`place_container` walks the devices of a Node.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`Fit`)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.rules import Rules
from hamicommon.held import Taken
from hamicommon.model import Device, MigPlacement, MigProfile, Request, Share

WHOLE_CORE_PERCENT = 100
"""The compute of one device; a share of this much needs the device alone."""


@dataclass(frozen=True, slots=True)
class MigChoice:
    """One MIG instance to be made."""

    profile: MigProfile
    placement: MigPlacement


@dataclass(frozen=True, slots=True)
class Offer:
    """A share that one device can give."""

    use: DeviceUse
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
    candidates: Sequence[DeviceUse]
    """The vendor's devices in the order of the policy; the last is tried first."""
    earlier: frozenset[str] = frozenset()
    """UUIDs that earlier containers took: of an app container earlier app containers, else earlier init containers."""
    pair_scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


Check = Callable[[DeviceUse, Attempt], Reason | None]
"""Why a device cannot take the share of an attempt, None if it can."""
Chooser = Callable[[Attempt, Sequence[Offer], Mapping[Reason, int]], Sequence[Offer] | Misfit | None]
"""
Chooses which of the offers, in the order they were tried, the container gets; None if they are too few.

It also gets the number of devices refused per reason, so that it can return a refusal itself.
"""


def belongs(device: Device, vendor: str, rules: Rules) -> bool:
    """Return whether *device* is one of *vendor*, and of a type that *rules* accept."""
    return device.vendor == vendor and (not rules.type_word or rules.type_word in device.type.lower())


@dataclass(frozen=True, slots=True)
class Sharing:
    """
    How the devices of one vendor are shared, as far as this differs from the ordinary way.

    Ordinarily a share takes the memory and the percentage of compute it asks for and one replica, and a container
    gets the first devices that have room.
    """

    amounts: Callable[[DeviceUse, Attempt], Taken] | None = None
    """What a share takes; None if it is what was asked."""
    counts_memory: bool = True
    """Whether memory is checked as an amount."""
    counts_cores: bool = True
    """Whether compute is checked as a percentage."""
    counts_replicas: bool = True
    """Whether replicas are checked."""
    is_exclusive: bool = False
    """Whether a device in use takes no other Pod."""
    unhealthy: Reason = Reason.UNHEALTHY
    gate: Callable[[Attempt], Reason | None] | None = None
    """Why no device of the Node can take the share; called once, before any device is checked."""
    check_first: Check | None = None
    """Called before the checks that depend on usage."""
    check_last: Check | None = None
    """Called after all other checks have passed."""
    choose: Callable[[Attempt], Chooser | None] | None = None
    """
    How to choose among all devices with room. If it is None, or returns None, the first devices are taken.

    Called without candidates, it returns a chooser if any candidates could need one.
    """
    chooses_of_enough: bool = False
    """Whether its choosers never return a refusal of their own."""

    @property
    def is_plain(self) -> bool:
        """Whether a share takes what was asked, so that arrays can check it."""
        return self.amounts is None

    def refuses_itself(self, attempt: "Attempt") -> bool:
        """Return whether only the vendor's chooser knows why *attempt* fails."""
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


def refusal_of_kind(use: DeviceUse, rules: Rules, sharing: Sharing = ORDINARY) -> Reason | None:
    """Return why a device is unacceptable whatever is promised of it, None if it is acceptable."""
    if not use.device.healthy or not use.is_sound:
        return sharing.unhealthy
    if use.is_cordoned:
        return Reason.CORDONED
    if use.is_withheld:
        return Reason.WITHHELD
    if not rules.accepts_type(use.device):
        return Reason.TYPE
    return None


def refusal_of_share(
    use: DeviceUse,
    memory_mib: int,
    core_percent: int,
    rules: Rules,
    is_within_quota: Callable[[str, int, int], bool],
    sharing: Sharing = ORDINARY,
) -> Reason | None:
    """
    Return why a device cannot take one more share of *memory_mib* and *core_percent*, None if it can.

    *is_within_quota* answers for (UUID, MiB, percent) whether the Pod's namespace may have that.
    """
    device = use.device
    if not rules.accepts_uuid(device.id):
        return Reason.UUID
    if sharing.counts_replicas and use.replicas >= device.count:
        return Reason.REPLICAS
    if (rules.is_mutex or sharing.is_exclusive) and use.replicas > 0:
        return Reason.EXCLUSIVE
    if not is_within_quota(device.id, memory_mib, core_percent):
        return Reason.QUOTA
    if sharing.counts_memory and (device.memory_mib <= 0 or device.memory_mib - use.memory_mib < memory_mib):
        return Reason.MEMORY
    return refusal_of_cores(use, core_percent, rules) if sharing.counts_cores else None


def refusal_of_cores(use: DeviceUse, core_percent: int, rules: Rules) -> Reason | None:
    """Return why a device has too little compute for one more share of *core_percent*, None if it has enough."""
    capacity = rules.core_capacity or use.device.core_percent
    if capacity - use.core_percent < core_percent:
        return Reason.CORE
    if core_percent == WHOLE_CORE_PERCENT == capacity and use.replicas > 0:
        return Reason.EXCLUSIVE
    if core_percent == 0 and use.core_percent == capacity != 0:
        return Reason.ZERO_CORE
    return None
