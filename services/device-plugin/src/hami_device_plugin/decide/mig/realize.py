"""
Decide how a promised instance comes to be: use the one that exists, create it, or first destroy another of its owner.

Runs after `repair`, so the journal has only instances whose owners have not ended, or that cannot be destroyed
yet.
Must never use or destroy an instance of another owner.
Neighbours: `claims` has the promise, `serve.mig` acts.
"""

from dataclasses import dataclass

from hami_device_plugin.decide.mig.claims import Claim
from hami_device_plugin.decide.mig.geometry import Gpu, GpuProfile, MigMode, at, overlap, profile_named, shown
from hami_device_plugin.decide.mig.journal import Entry, Journal, State
from hami_device_plugin.decide.mig.repair import described, foreign_instances
from hamicommon.errors import HamiError


class PlacementError(HamiError):
    """A promised instance cannot be created."""


class CreationError(PlacementError):
    """The driver does not create it."""


@dataclass(frozen=True, slots=True)
class Realization:
    """How one promise becomes an instance."""

    use: Entry | None = None
    """The instance exists."""
    create: GpuProfile | None = None
    """It has to be created, after *destroy*."""
    destroy: tuple[Entry, ...] = ()
    """Instances of the same owner in the same place that are not used any more."""


def realize(claim: Claim, journal: Journal, gpu: Gpu | None) -> Realization:
    """
    Return how *claim* is realized on *gpu*, which is None if the driver does not show it.

    Two containers of one Pod may be promised the same place if one is an init container that has ended.

    Raises:
        PlacementError: it cannot be created there now.
    """
    wanted = claim.allocation
    what = f"MIG instance {wanted.profile} at {shown(wanted.placement)} for {claim.owner}"
    if gpu is None:
        raise PlacementError(f"{what}: the driver does not show GPU {wanted.gpu_uuid}")
    profile = _profile(claim, gpu, what)
    mine, others = list[Entry](), list[Entry]()
    for entry in journal:
        if entry.gpu_uuid == gpu.uuid and overlap(entry.placement, wanted.placement):
            (mine if entry.owner.uid == claim.owner.uid else others).append(entry)
    if others:
        raise PlacementError(f"{what}: {described(others[0])} is in that place")
    foreign = at(wanted.placement, foreign_instances(gpu, journal))
    if foreign:
        raise PlacementError(
            f"{what}: GPU instance {foreign[0].id} ({foreign[0].mig_uuid}) of {gpu} is in that place, and neither "
            f"this plugin's journal nor a Pod accounts for it; if nothing uses it, remove it: "
            f"nvidia-smi mig -dci -i {gpu.index} -gi {foreign[0].id}; nvidia-smi mig -dgi -i {gpu.index} -gi "
            f"{foreign[0].id}"
        )
    same = next((entry for entry in mine if _is_same(entry, claim, gpu)), None)
    if same is not None:
        return Realization(use=same)
    busy = {found.id for found in gpu.instances if found.is_busy}
    used = next((entry for entry in mine if entry.gpu_instance_id in busy), None)
    if used is not None:
        raise PlacementError(f"{what}: {described(used)} is in that place, and a process uses it")
    return Realization(create=profile, destroy=tuple(mine))


def _profile(claim: Claim, gpu: Gpu, what: str) -> GpuProfile:
    wanted = claim.allocation
    if gpu.mode is not MigMode.ON:
        raise PlacementError(f"{what}: MIG of {gpu} is {gpu.mode.value}")
    profile = profile_named(gpu, wanted.profile)
    if profile is None:
        raise PlacementError(f"{what}: {gpu} has no such profile")
    if wanted.placement not in profile.placements:
        legal = ", ".join(shown(place) for place in profile.placements)
        raise PlacementError(f"{what}: {gpu} takes this profile at {legal} only")
    return profile


def _is_same(entry: Entry, claim: Claim, gpu: Gpu) -> bool:
    wanted = claim.allocation
    is_there = entry.state is State.LIVE and entry.placement == wanted.placement
    return is_there and profile_named(gpu, entry.profile) == profile_named(gpu, wanted.profile)
