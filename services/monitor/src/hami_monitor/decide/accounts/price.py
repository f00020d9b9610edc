"""
Compute what part of a device a Pod's shares are.

A share is priced by the larger of its parts of the memory and of the compute that the device offers, because neither
can be given to somebody else without the other. Of containers that do not run at once the largest sum counts (KEP-753),
as in the scheduler.
Neighbours: `tenure` has the shares, `book` takes the parts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hami_monitor.decide.tenure import Runs
from hamicommon.model import Device, Share


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


def parts(
    containers: Iterable[tuple[Runs, tuple[Share, ...]]], offers: Offers, *, is_prepared: bool
) -> dict[str, float]:
    """
    Return what part of each device of *offers* a Pod of *containers* holds, by UUID.

    *is_prepared* says that its init containers have ended. A device that is not offered is left out.
    """
    along: defaultdict[str, float] = defaultdict(float)
    regular: defaultdict[str, float] = defaultdict(float)
    peaks: dict[str, float] = {}
    for runs, shares in containers:
        held = _parts(shares, offers)
        if runs is Runs.REGULAR:
            _add(regular, held)
        elif runs is Runs.ALONG:
            _add(along, held)
        elif not is_prepared:
            for uuid, part in held.items():
                peaks[uuid] = max(peaks.get(uuid, 0.0), along[uuid] + part)
    return {uuid: max(along[uuid] + regular[uuid], peaks.get(uuid, 0.0)) for uuid in {*along, *regular, *peaks}}


def _add(sums: defaultdict[str, float], more: Mapping[str, float]) -> None:
    for uuid, part in more.items():
        sums[uuid] += part


def _parts(shares: Iterable[Share], offers: Offers) -> dict[str, float]:
    held: defaultdict[str, float] = defaultdict(float)
    for share in shares:
        uuid = share.uuid.partition("[")[0]  # HAMi 2.5 to 2.9 wrote the place of a MIG instance behind it.
        offer = offers.get(uuid)
        if offer is not None:
            memory, compute = (
                share.memory_mib / max(offer.memory_mib, 1),
                share.core_percent / max(offer.core_percent, 1),
            )
            held.update({uuid: part_of(memory, compute)})
    return held
