"""
Decide what to repair: compare the journal, the driver's instances, the Pods and the prepared ResourceClaims.

After a kill at any instruction the journal says what was going on. What was half created is destroyed: nothing names
it yet. What was half destroyed is destroyed. A live instance is destroyed once its owner has ended. An instance that a
Pod names but the journal does not is adopted if all of its identity is right: HAMi's plugin created it.
Must never destroy an instance that is not exactly the journal's, that a process uses, or that a living Pod names.
Neighbours: `serve.mig` carries the plan out, and asks the API server again before it destroys a Pod's instance.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hami_device_plugin.decide.mig.claims import Claim, Claims
from hami_device_plugin.decide.mig.geometry import Gpu, Instance, overlap, profile_named, shown
from hami_device_plugin.decide.mig.journal import Entry, Journal, State
from hamicommon.model import MigPlacement

UNREADABLE_CHECKPOINT = "the kubelet's checkpoint is unreadable, so its containers are unknown"


@dataclass(frozen=True, slots=True)
class Repair:
    """What to do, in this order; everything else stays as it is."""

    adopt: tuple[Entry, ...] = ()
    """Entries to add for instances that exist."""
    forget: tuple[tuple[Entry, str], ...] = ()
    """Entries whose instance does not exist any more, or was never created, each with the reason."""
    destroy: tuple[tuple[Entry, str], ...] = ()
    """Entries whose instance is to be destroyed, each with the reason."""
    problems: tuple[str, ...] = ()
    """What is unclear and therefore stays."""


def repair(
    journal: Journal, gpus: Mapping[str, Gpu], claims: Claims, allocated: Collection[str] | None = frozenset()
) -> Repair:
    """
    Return what to do about *journal* and the unknown instances of *gpus*, the GPUs that answer.

    *allocated* are the device IDs of `startup.other_devices`; None if the kubelet's checkpoint cannot be read.
    """
    forget: list[tuple[Entry, str]] = []
    destroy: list[tuple[Entry, str]] = []
    problems: list[str] = []
    for entry in journal:
        gpu = gpus.get(entry.gpu_uuid)
        if gpu is None:
            # It may be lost for a moment only; its instances are as they were.
            continue
        found, reason = _found(entry, gpu)
        if found is None:
            forget.append((entry, reason))
            continue
        why = _reason_to_destroy(entry, claims)
        obstacle = _obstacle(found, entry, claims, allocated) if why else None
        if why and obstacle:
            problems.append(f"{described(entry)} stays although {why}: {obstacle}")
        elif why:
            destroy.append((identified(entry, found), why))
    adopted, doubtful = _adoptions(journal, gpus, claims)
    return Repair(adopted, tuple(forget), tuple(destroy), (*problems, *doubtful))


def foreign_instances(gpu: Gpu, journal: Journal) -> tuple[Instance, ...]:
    """Return the instances of *gpu* that the journal does not have."""
    own = {entry.gpu_instance_id for entry in journal if entry.gpu_uuid == gpu.uuid}
    creating = [entry for entry in journal if entry.gpu_uuid == gpu.uuid and entry.state is State.CREATING]
    return tuple(
        found
        for found in gpu.instances
        if found.id not in own and not any(_created(entry, gpu) == found for entry in creating)
    )


def blocked_placements(gpu: Gpu, journal: Journal, claims: Claims) -> tuple[MigPlacement, ...]:
    """Return the placements of foreign instances of *gpu* that no Pod was promised, so that no scheduler knows them."""
    promised = [claim.allocation.placement for claim in claims.promised if claim.allocation.gpu_uuid == gpu.uuid]
    return tuple(
        found.placement
        for found in foreign_instances(gpu, journal)
        if not any(overlap(found.placement, place) for place in promised)
    )


def occupied_placements(gpu: Gpu, journal: Journal, claims: Claims) -> tuple[MigPlacement, ...]:
    """Return the placements of *gpu* where something stands, or is promised, that is of no prepared ResourceClaim."""
    claimed = {
        entry.placement
        for entry in journal
        if entry.gpu_uuid == gpu.uuid and entry.owner.is_claim and entry.owner.uid in claims.owner_uids
    }
    standing = {found.placement for found in gpu.instances} - claimed
    of_pods = {
        claim.allocation.placement
        for claim in claims.promised
        if claim.allocation.gpu_uuid == gpu.uuid and not claim.owner.is_claim
    }
    return tuple(sorted(standing | of_pods, key=lambda place: (place.start, place.size)))


def described(entry: Entry) -> str:
    """Return *entry* as messages name it."""
    name = entry.mig_uuid or "an unfinished instance"
    return f"{name} ({entry.profile} at {shown(entry.placement)} of GPU {entry.gpu_uuid}, {entry.owner})"


def identified(entry: Entry, found: Instance) -> Entry:
    """Return *entry* with the identity of *found*, which need not be complete."""
    compute = found.compute_ids[0] if len(found.compute_ids) == 1 else None
    return replace(entry, gpu_instance_id=found.id, compute_instance_id=compute, mig_uuid=found.mig_uuid)


def is_instance_of(entry: Entry, found: Instance, gpu: Gpu) -> bool:
    """Return whether *found* on *gpu* is exactly the live instance that *entry* describes."""
    return (
        _is_where_promised(entry, found, gpu)
        and found.id == entry.gpu_instance_id
        and found.compute_ids == (entry.compute_instance_id,)
        and found.mig_uuid == entry.mig_uuid
    )


def _is_where_promised(entry: Entry, found: Instance, gpu: Gpu) -> bool:
    """Return whether *found* on *gpu* has the profile and the placement of *entry*."""
    profile = profile_named(gpu, entry.profile)
    return profile is not None and found.profile_id == profile.id and found.placement == entry.placement


def _found(entry: Entry, gpu: Gpu) -> tuple[Instance | None, str]:
    """Return the instance of *entry*; or None, and why its entry has none."""
    if entry.state is State.CREATING:
        return _created(entry, gpu), "the driver had not created it"
    same = next((found for found in gpu.instances if found.id == entry.gpu_instance_id), None)
    if same is None:
        return None, "it is gone" if entry.state is State.LIVE else "it is destroyed"
    is_half_destroyed = entry.state is State.DESTROYING and not same.compute_ids
    if is_instance_of(entry, same, gpu) or (is_half_destroyed and _is_where_promised(entry, same, gpu)):
        return same, ""
    return None, f"GPU instance {same.id} is now another one ({same.mig_uuid} at {shown(same.placement)}), left alone"


def _created(entry: Entry, gpu: Gpu) -> Instance | None:
    """Return the instance that was created for an unfinished *entry*; None if the driver had not done it."""
    new = (found for found in gpu.instances if found.id not in entry.before)
    return next((found for found in new if _is_where_promised(entry, found, gpu)), None)


def _reason_to_destroy(entry: Entry, claims: Claims) -> str | None:
    if entry.state is State.CREATING:
        return "its creation was not finished"
    if entry.state is State.DESTROYING:
        return "its destruction was not finished"
    return None if entry.owner.uid in claims.owner_uids else f"{entry.owner} has ended"


def _obstacle(found: Instance, entry: Entry, claims: Claims, allocated: Collection[str] | None) -> str | None:
    """
    Return why *found* must stay although its entry is over; None if it can go.

    An instance that somebody created again with the same numbers has the same UUID.
    """
    if found.is_busy:
        return "a process uses it"
    if allocated is None:
        return UNREADABLE_CHECKPOINT
    if found.mig_uuid is not None and any(device.startswith(found.mig_uuid) for device in allocated):
        return "the kubelet gave it to another container"
    for claim in claims.promised:
        is_named = found.mig_uuid is not None and claim.allocation.mig_uuid == found.mig_uuid
        if is_named and claim.owner.uid != entry.owner.uid:
            return f"{claim.owner} names it, too"
    return claims.unclear.get(entry.gpu_uuid)


def _adoptions(journal: Journal, gpus: Mapping[str, Gpu], claims: Claims) -> tuple[tuple[Entry, ...], list[str]]:
    """Return the entries to add for instances that Pods name, and what is unclear about others."""
    known = {entry.mig_uuid for entry in journal}
    named: dict[str, list[Claim]] = {}
    for claim in claims.promised:
        uuid = claim.allocation.mig_uuid
        if uuid is not None and uuid not in known:
            named.setdefault(uuid, []).append(claim)
    adopted: list[Entry] = []
    problems: list[str] = []
    for uuid, by in named.items():
        gpu = gpus.get(by[0].allocation.gpu_uuid)
        live = next((found for found in gpu.instances if found.mig_uuid == uuid), None) if gpu else None
        if gpu is None or live is None:
            continue
        entry, problem = _adoption(by, gpu, live, (*journal, *adopted))
        if entry is not None:
            adopted.append(entry)
        else:
            problems.append(f"{uuid} on {gpu} is not adopted: {problem}")
    return tuple(adopted), problems


def _adoption(by: Sequence[Claim], gpu: Gpu, live: Instance, journal: Iterable[Entry]) -> tuple[Entry | None, str]:
    owners = sorted({str(claim.owner) for claim in by})
    if len(owners) > 1:
        return None, f"{', '.join(owners)} name it"
    claim = by[0]
    entry = Entry(
        gpu_uuid=gpu.uuid,
        profile=claim.allocation.profile,
        placement=claim.allocation.placement,
        owner=claim.owner,
        state=State.LIVE,
        gpu_instance_id=claim.allocation.gpu_instance_id,
        compute_instance_id=claim.allocation.compute_instance_id,
        mig_uuid=claim.allocation.mig_uuid,
    )
    if not is_instance_of(entry, live, gpu):
        return None, (
            f"{claim.owner} was promised {entry.profile} at {shown(entry.placement)} as GPU instance "
            f"{entry.gpu_instance_id}, it is GPU instance {live.id} at {shown(live.placement)}"
        )
    beside = (found for found in journal if found.gpu_uuid == gpu.uuid)
    other = next((found for found in beside if overlap(found.placement, live.placement)), None)
    return (None, f"{described(other)} has the same place") if other else (entry, "")
