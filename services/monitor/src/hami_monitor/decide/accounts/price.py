"""
Compute what part of a device a Pod's shares are.

A share is priced by the larger of its parts of the memory and of the compute that the device offers, because neither
can be given to somebody else without the other. Of containers that do not run at once the largest sum counts (KEP-753),
as in the scheduler.
Neighbours: `share_time` has the shares, `book` takes the parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hamicommon.model import Device, Share
from hamicommon.pod.amounts import most_over_time, sum_shares
from hamicommon.pod.containers import ContainerKind


@dataclass(frozen=True, slots=True)
class Offer:
    """What the Node offers of one device."""

    type: str
    """Its model."""
    memory_mib: int
    core_percent: int


Offers = Mapping[str, Offer]
"""By UUID of the device."""


def offers_of(devices: Iterable[Device]) -> dict[str, Offer]:
    """Return what the Node offers of *devices*, those of its inventory."""
    return {device.id: Offer(device.type, device.memory_mib, device.core_percent) for device in devices}


def part_of(memory: float, compute: float) -> float:
    """
    Return what part of a device *memory* and *compute*, its parts of each, are.

    >>> part_of(0.25, 0.1), part_of(0.25, 0.5), part_of(-1, 7)
    (0.25, 0.5, 1.0)
    """
    return min(max(memory, compute, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Part:
    """What is held of one device, as a part of it."""

    held: float

    def plus(self, other: "Part") -> "Part":
        """Return the sum."""
        return Part(self.held + other.held)

    def peak(self, other: "Part") -> "Part":
        """Return the larger one."""
        return Part(max(self.held, other.held))


def parts(
    containers: Sequence[tuple[ContainerKind, tuple[Share, ...]]], offers: Offers, *, is_prepared: bool
) -> dict[str, float]:
    """
    Return what part of each device of *offers* a Pod of *containers* holds, by UUID.

    *is_prepared* says that its init containers have ended. A device that is not offered is left out.
    """
    kinds = [kind for kind, _ in containers]
    most = most_over_time(kinds, [_parts(shares, offers) for _, shares in containers], inits_are_done=is_prepared)
    return {uuid: part.held for uuid, part in most.items()}


def _parts(shares: tuple[Share, ...], offers: Offers) -> dict[str, Part]:
    held = {}
    for uuid, taken in sum_shares(shares).items():
        offer = offers.get(uuid)
        if offer is not None:
            memory, compute = (
                taken.memory_mib / max(offer.memory_mib, 1),
                taken.core_percent / max(offer.core_percent, 1),
            )
            held[uuid] = Part(part_of(memory, compute))
    return held
