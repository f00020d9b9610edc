"""
Sum up what the cluster offers of each vendor that a Pod asks, and what of it is free.

Owns numbers for people only: a decision looks at each device. Neighbours: `report` shows them beside what is asked.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from hami_scheduler.state.ledger import Ledger, NodeEntry
from hami_scheduler.values.request import PodRequest
from hamicommon.held import Taken
from hamicommon.model import Device

_STEP_NODES = 50
"""Nodes between two pauses."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The devices of one vendor in the cluster."""

    vendor: str
    devices: int = 0
    """Offered, in any state."""
    memory_mib: int = 0
    """The most that one device offers."""
    core_percent: int = 0
    """The most that one device offers; 100 is one whole device."""
    free_devices: int = 0
    """Healthy, not cordoned, and with a free replica."""
    free_memory_mib: int = 0
    """The most that is free on one of these."""
    free_core_percent: int = 0
    """The most that is free on one of these."""


def supplies(request: PodRequest, ledger: Ledger) -> Generator[None, None, tuple[Supply, ...]]:
    """Return the supply of each vendor that *request* asks, in the order of its containers; yields at each pause."""
    found = {each.vendor: Supply(each.vendor) for container in request.containers for each in container.requests}
    for number, entry in enumerate(list(ledger.nodes()), 1):
        for device, taken in _devices(entry, ledger):
            if device.vendor in found:
                found[device.vendor] = _with(found[device.vendor], device, taken, device.id in entry.inventory.cordoned)
        if number % _STEP_NODES == 0:
            yield
    return tuple(found.values())


def _devices(entry: NodeEntry, ledger: Ledger) -> Iterator[tuple[Device, Taken]]:
    """Yield each device of a Node, and what is promised of it."""
    devices = entry.inventory.devices
    rows = ledger.promised[entry.start : entry.start + len(devices)].tolist()
    for device, amounts in zip(devices, rows, strict=True):
        yield device, Taken(*amounts)


def _with(supply: Supply, device: Device, taken: Taken, is_cordoned: bool) -> Supply:
    """Return *supply* with one more device."""
    more = replace(
        supply,
        devices=supply.devices + 1,
        memory_mib=max(supply.memory_mib, device.memory_mib),
        core_percent=max(supply.core_percent, device.core_percent),
    )
    if is_cordoned or not device.healthy or taken.replicas >= device.count:
        return more
    return replace(
        more,
        free_devices=more.free_devices + 1,
        free_memory_mib=max(more.free_memory_mib, device.memory_mib - taken.memory_mib),
        free_core_percent=max(more.free_core_percent, device.core_percent - taken.core_percent),
    )
