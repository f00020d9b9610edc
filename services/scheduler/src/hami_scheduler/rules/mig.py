"""
Choose profile and place of a MIG instance, and find what instances take of a device.

Owns the rule that a device takes no more instances unless all of its instances are known. Neighbours:
`place_container` asks for a choice, `ledger` for what is taken.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/mig_allocations.go
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hami_scheduler.values.attempt import MigChoice
from hami_scheduler.values.grant import Grant
from hamicommon.model import Device, MigPlacement
from hamicommon.pod.amounts import base_uuid

MODE = "mig"
_FROM_THE_TOP = ("1g.", "3g.")
"""Profiles placed at the highest free start. Larger profiles fit only into the low half."""


@dataclass(slots=True)
class MigState:
    """What the Pods of one Node hold of its devices in MIG mode, per device UUID."""

    occupied: dict[str, list[MigPlacement]] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)
    """Devices with instances that no annotation names; nothing more may be placed there."""


def free_instances(
    device: Device, memory_mib: int, occupied: Sequence[MigPlacement], preference: Sequence[str] = ()
) -> Iterator[MigChoice]:
    """
    Yield the instances of *device* with at least *memory_mib* that have a free place, one for each profile.

    Profiles that *preference* names come first, in its order, by their name or by their compute slices: `4g.20gb` or
    `4g`. The others follow, the smallest first.
    Source: https://github.com/Project-HAMi/HAMi/pull/3014
    """
    by_size = sorted(device.mig_profiles, key=lambda found: (found.memory_mib, found.slice_count))
    preferred = (found for word in preference for found in by_size if word in (found.name, found.name.split(".")[0]))
    for profile in dict.fromkeys((*preferred, *by_size)):
        if profile.memory_mib < memory_mib:
            continue
        is_from_top = profile.name.startswith(_FROM_THE_TOP)
        for placement in sorted(profile.placements, key=lambda place: place.start, reverse=is_from_top):
            if not any(_overlap(placement, other) for other in occupied):
                yield MigChoice(profile, placement)
                break


def mig_state(devices: Iterable[Device], grants: Iterable[Grant]) -> MigState:
    """Return what *grants*, all on one Node, hold of its *devices* in MIG mode."""
    modes: Mapping[str, str] = {device.id: device.mode for device in devices}
    state = MigState()
    for grant in grants:
        promised = Counter(allocation.gpu_uuid for allocation in grant.mig)
        for allocation in grant.mig:
            state.occupied.setdefault(allocation.gpu_uuid, []).append(allocation.placement)
            if modes.get(allocation.gpu_uuid) not in {MODE, None}:
                state.incomplete.add(allocation.gpu_uuid)
        held = Counter(
            base_uuid(share.uuid) for vendor in grant.shares.values() for container in vendor for share in container
        )
        state.incomplete.update(
            uuid for uuid, count in held.items() if modes.get(uuid) == MODE and count > promised[uuid]
        )
    return state


def blocked_instances(grant: Grant, devices: Iterable[Device], others: Iterable[Grant]) -> set[str]:
    """Return those of the *devices* of one Node where *others* on it leave no place for the instances of *grant*."""
    state = mig_state(devices, others)
    return {
        own.gpu_uuid
        for own in grant.mig
        if own.gpu_uuid in state.incomplete
        or any(_overlap(own.placement, other) for other in state.occupied.get(own.gpu_uuid, ()))
    }


def _overlap(one: MigPlacement, other: MigPlacement) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size
