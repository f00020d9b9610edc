"""
Compute what part of its devices each Pod uses now.

It is priced like what the Pod holds, by the larger of memory and compute. The driver's numbers count if there are any.
Else those of a region count, which its container can write: for its own Pod only, and for at most one device.
Neighbours: `hami_monitor.decide.observation` has the numbers, `book` adds them up.
"""

from collections import defaultdict
from collections.abc import Iterable

from hami_monitor.decide.accounts.book import PodKey
from hami_monitor.decide.accounts.price import Offer, Offers, part_of
from hami_monitor.decide.observation import MIB, ShownDevice


def used_parts(shown: Iterable[ShownDevice], offers: Offers) -> dict[PodKey, float]:
    """Return the devices that each Pod uses now, such as 0.5 for half of one."""
    of_devices: dict[tuple[str, str, str], float] = {}
    for one in shown:
        namespace, pod, _, _, uuid = one.labels
        if uuid in offers:
            place = (namespace, pod, uuid)
            of_devices[place] = min(of_devices.get(place, 0.0) + _part(one, offers[uuid]), 1.0)
    found: defaultdict[PodKey, float] = defaultdict(float)
    for (namespace, pod, uuid), part in of_devices.items():
        found[PodKey(namespace, pod, offers[uuid].type)] += part
    return found


def _part(one: ShownDevice, offer: Offer) -> float:
    memory_bytes = None if one.driver is None else one.driver.used_bytes
    busy_ratio = None if one.driver is None else one.driver.busy_ratio
    if memory_bytes is None:
        memory_bytes = 0 if one.sums is None else one.sums.total
    if busy_ratio is None:
        busy_ratio = 0.0 if one.sums is None else one.sums.sm / 100
    return part_of(memory_bytes / (max(offer.memory_mib, 1) * MIB), busy_ratio)
