"""
Decide what the Node's ResourceSlices say, and whether they have to be written.

Neighbours: `hamicommon.dra` has the form, `serve.dra.slices` writes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hami_device_plugin.decide.health.condition import Condition
from hami_device_plugin.decide.mig.geometry import overlap
from hami_device_plugin.decide.mig.offer import Offer
from hamicommon.dra.partitions import Offered, Partition, encode_pool
from hamicommon.dra.slices import Description, OfferedDevice
from hamicommon.model import Device, MigPlacement, Object

NO_CAUSE = "unhealthy"
"""Why a device takes no shares if no fault of it is known: nobody can ask the driver."""


def offered_devices(
    devices: Sequence[Device], descriptions: Mapping[str, Description], conditions: Mapping[str, Condition]
) -> tuple[OfferedDevice, ...]:
    """
    Return *devices* as the slice has them, in the order of their numbers, which never changes.

    Devices without a description are left out: the driver did not answer for them when the plugin looked.
    """
    known = [(descriptions[device.id], device) for device in devices if device.id in descriptions]
    known.sort(key=lambda found: found[0].minor)
    return tuple(
        OfferedDevice(device, description, _faults(device, conditions.get(device.id, Condition())))
        for description, device in known
    )


def offered_partitions(
    gpus: Sequence[OfferedDevice], offers: Mapping[str, Offer], occupied: Mapping[str, Collection[MigPlacement]]
) -> tuple[Partition, ...]:
    """
    Return the instances that *gpus* can be cut into by *offers*, tainted where they share a slice with one *occupied*.

    kube-scheduler takes the first that fits a claim. So the smallest profile is first, and of its places the last one,
    because the large profiles begin at the first slice.
    """
    found: list[Partition] = []
    for gpu in gpus:
        uuid = gpu.device.id
        offer, taken = offers.get(uuid, Offer((), 0)), occupied.get(uuid, ())
        sizes = {profile.slice_count: (profile, count) for profile, count in reversed(offer.counted_profiles)}
        for _, (profile, multiprocessors) in sorted(sizes.items()):
            for place in sorted(profile.placements, key=lambda place: -place.start):
                is_occupied = any(overlap(place, other) for other in taken)
                found.append(Partition(gpu, profile, place, multiprocessors, is_occupied))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PoolChange:
    """What to do so that the Node's pool is right, in this order."""

    write: tuple[Object, ...] = ()
    delete: tuple[str, ...] = ()
    """Names of slices."""


def next_slices(
    node: Mapping[str, Any], offered: Sequence[Offered], present: Sequence[Object], generation: int, tokens: int = 0
) -> PoolChange:
    """
    Return how the slices *present*, the oldest first, become those that offer *offered* and so many *tokens*.

    *generation* is the highest that was seen. Each change has a higher one, by which readers know the newest, and is
    one of all slices: readers count those of one generation.

    Raises:
        EncodeError: the devices do not fit into a slice, or the Node has no UID.
    """
    wanted = encode_pool(node, offered, generation + 1, tokens)
    kept = _same(wanted, present)
    if kept is not None:
        return PoolChange(delete=tuple(_name(item) for item in present if item not in kept))
    old = [*reversed(present)]
    written = [_replacing(item, old[index]) if index < len(old) else item for index, item in enumerate(wanted)]
    return PoolChange(tuple(written), tuple(_name(item) for item in old[len(wanted) :]))


def generation_of(item: Object) -> int:
    """Return the generation of a slice; 0 if it has none."""
    found = (item["spec"].get("pool") or {}).get("generation")
    return found if isinstance(found, int) else 0


def _same(wanted: Sequence[Object], present: Sequence[Object]) -> list[Object] | None:
    """Return those of *present* that are right already; None if one is missing."""
    newest = max(map(generation_of, present), default=0)
    left, kept = [item for item in present if generation_of(item) == newest], list[Object]()
    for item in wanted:
        same = next((found for found in left if _content(found) == _content(item)), None)
        if same is None:
            return None
        left.remove(same)
        kept.append(same)
    return kept


def _replacing(item: Object, old: Object) -> Object:
    metadata = {key: old["metadata"][key] for key in ("name", "resourceVersion")}
    owners = {"ownerReferences": item["metadata"]["ownerReferences"]}
    return item | {"metadata": metadata | owners}


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _faults(device: Device, condition: Condition) -> tuple[str, ...]:
    if device.healthy:
        return ()
    return tuple(sorted(cause.value for cause in condition.faults)) or (NO_CAUSE,)


def _content(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what of a slice must be right: without its generation, and the times that the API server fills in."""
    spec = found["spec"]
    devices = [
        {**device, "taints": [{"key": taint["key"], "effect": taint["effect"]} for taint in device.get("taints") or ()]}
        for device in spec.get("devices") or ()
    ]
    owners = [owner.get("uid") for owner in found["metadata"].get("ownerReferences") or ()]
    pool = spec.get("pool") or {}
    counters = spec.get("sharedCounters") or []
    return owners, devices, counters, pool.get("name"), pool.get("resourceSliceCount"), spec.get("nodeName")
