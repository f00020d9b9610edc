"""
Decide what a Node in mode `mig` offers of each GPU: the profiles of the allowlist, with the driver's numbers.

Counts for the metrics what is offered and what there is.
Neighbours: `geometry` has the driver's profiles, `hamicommon.wire.node_devices` writes the result.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/docs/develop/mig-dynamic-deallocate.md
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hami_device_plugin.decide.mig.geometry import Gpu, overlap, profile_named, slices_of
from hami_device_plugin.decide.mig.journal import Journal, State
from hamicommon.model import Device, MigPlacement, MigProfile
from hamicommon.vendors.nvidia import MigProfileRule

OFFERED = "offered"
"""In the metrics, besides the states of the journal: how many places the Node offers."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one GPU offers."""

    profiles: tuple[MigProfile, ...]
    instances_max: int
    """Most instances of one profile that fit at a time."""
    multiprocessors: tuple[int, ...] = ()
    """Of each profile."""

    @property
    def counted_profiles(self) -> tuple[tuple[MigProfile, int], ...]:
        """Each profile with its multiprocessors."""
        return tuple(zip(self.profiles, self.multiprocessors, strict=True))


def rule_for(model: str, rules: Sequence[MigProfileRule]) -> MigProfileRule | None:
    """
    Return the first rule of the allowlist that names *model*; None if none does.

    >>> rule_for("NVIDIA A30", [MigProfileRule(("A100",), ("1g.5gb",)), MigProfileRule(("A30",), ("1g.6gb",))])
    MigProfileRule(models=('A30',), profiles=('1g.6gb',))
    """
    return next((rule for rule in rules if any(name in model for name in rule.models)), None)


def offer(gpu: Gpu, rules: Sequence[MigProfileRule], blocked: Collection[MigPlacement] = ()) -> Offer:
    """
    Return what *gpu* offers by *rules*, without the placements that share a slice with one of *blocked*.

    A profile that the GPU does not have is left out. Compute is the profile's part of the largest profile, rounded up.
    """
    rule = rule_for(gpu.name, rules)
    whole = max((profile.multiprocessors for profile in gpu.profiles), default=0)
    profiles, multiprocessors, most = [], [], 0
    for name in rule.profiles if rule else ():
        found = profile_named(gpu, name)
        if found is None or not whole:
            continue
        free = tuple(place for place in found.placements if not any(overlap(place, other) for other in blocked))
        core_percent = -(-100 * found.multiprocessors // whole)
        profiles.append(MigProfile(name, found.memory_mib, core_percent, found.slices, free))
        multiprocessors.append(found.multiprocessors)
        most = max(most, found.instances_max)
    return Offer(tuple(profiles), most, tuple(multiprocessors))


def with_offers(devices: Sequence[Device], offers: Mapping[str, Offer]) -> tuple[Device, ...]:
    """Return the *devices* that offer instances, with their profiles; the others are left out."""
    return tuple(
        replace(device, count=found.instances_max, core_percent=100, mig_profiles=found.profiles)
        for device in devices
        if (found := offers.get(device.id)) is not None and found.profiles
    )


def counts(offers: Mapping[str, Offer], journal: Journal) -> dict[tuple[str, str, str], int]:
    """
    Return how many instances of *journal* there are by GPU, profile and state, and how many of *offers* there can be.

    An offered profile has every state. A Pod's author may spell the profile of an instance in any way that means the
    same slices, so an instance counts under the name that the Node offers, else under its slices.
    """
    found: dict[tuple[str, str, str], int] = {}
    names: dict[tuple[str, int | None], str] = {}
    for uuid, offered in offers.items():
        for profile in offered.profiles:
            found[uuid, profile.name, OFFERED] = len(profile.placements)
            names[uuid, slices_of(profile.name)] = profile.name
            found |= {(uuid, profile.name, state.value): 0 for state in State}
    for entry in journal:
        slices = slices_of(entry.profile)
        name = names.get((entry.gpu_uuid, slices), f"{slices}g")
        key = (entry.gpu_uuid, name, entry.state.value)
        found[key] = found.get(key, 0) + 1
    return found
