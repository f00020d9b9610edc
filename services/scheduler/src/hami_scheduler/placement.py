"""
Try a Pod on one Node: which devices each container would get.

Owns the walk over containers and devices. Ordinary init containers are tried each on a copy, because they run alone;
what sidecars and app containers take stays for those after them. Knows nothing of other Nodes. Neighbours: `fit`
judges one device, `score` orders them, `topology` chooses among too many, `filter` chooses among Nodes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/score.go
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hami_scheduler.fit import Room, cores_asked, memory_asked, refusal_of_kind, refusal_of_room
from hami_scheduler.grant import NOTHING, amounts_over_time
from hami_scheduler.inventory import PairScores
from hami_scheduler.mig import MODE, MigChoice, choose_instance
from hami_scheduler.quota import UNLIMITED, Allowance
from hami_scheduler.reasons import Misfit, Reason
from hami_scheduler.request import ContainerKind, ContainerRequest, PodRequest
from hami_scheduler.rules import Rules
from hami_scheduler.score import device_order, device_score
from hami_scheduler.topology import choose_by_topology
from hamicommon.model import MigAllocation, PodShares, Request, Share


@dataclass(frozen=True, slots=True)
class Placement:
    """What each container of a Pod would get on one Node."""

    shares: Mapping[str, PodShares]
    """Per vendor key, for each vendor asked: one entry per container, in Pod order."""
    mig: tuple[MigAllocation, ...] = ()
    """The MIG instances to be made, for those of the shares that are one."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """One share while its container is being tried."""

    share: Share
    instance: MigChoice | None = None

    @property
    def uuid(self) -> str:
        return self.share.uuid

    @property
    def granted(self) -> Share:
        """The share as it counts once it is granted: a MIG instance is what its profile is, whatever was asked."""
        if self.instance is None:
            return self.share
        profile = self.instance.profile
        return replace(self.share, memory_mib=profile.memory_mib, core_percent=profile.core_percent)


@dataclass(slots=True)
class _Trial:
    """A Pod being tried on one Node."""

    request: PodRequest
    pair_scores: PairScores
    allowances: Mapping[str, Allowance]
    taken: list[dict[str, tuple[Share, ...]]] = field(default_factory=list)
    """Per container tried so far: what it takes, per vendor key."""
    mig: list[MigAllocation] = field(default_factory=list)

    def shares(self) -> dict[str, PodShares]:
        return {vendor: tuple(container.get(vendor, ()) for container in self.taken) for vendor in self.request.rules}


def place(
    request: PodRequest,
    rooms: Sequence[Room],
    allowances: Mapping[str, Allowance],
    pair_scores: PairScores | None = None,
) -> Placement | Misfit:
    """
    Return what every container of *request* would get of *rooms*, or why it cannot get it.

    *rooms* are the devices of one Node in registered order; they are changed on the way. *allowances* are what the
    Pod's namespace may take per vendor key.
    """
    trial = _Trial(request, pair_scores or {}, allowances)
    running = list(rooms)
    for container in request.containers:
        if not container.requests:
            trial.taken.append({})
            continue
        alone = container.kind is ContainerKind.INIT
        where = [room.copy() for room in running] if alone else running
        misfit = _place_container(container, where, trial)
        if misfit is not None:
            return misfit
        if not alone:
            running = where
    return Placement(trial.shares(), tuple(trial.mig))


def _place_container(container: ContainerRequest, rooms: list[Room], trial: _Trial) -> Misfit | None:
    """Give *container* its devices of *rooms*, which end up sorted, or return why it cannot have them."""
    trial.taken.append({})
    for request in container.requests:
        hopeless = _hopeless(request, rooms, trial)
        if hopeless is not None:
            return hopeless
    policy, weights = trial.request.device_policy, trial.request.weights
    scores = {room.device.id: device_score(room, container.requests, weights) for room in rooms}
    for request in container.requests:
        rules = trial.request.rules[request.vendor]
        order = device_order(
            rooms, [scores[room.device.id] for room in rooms], policy, is_numa_bound=rules.is_numa_bound
        )
        rooms[:] = [rooms[position] for position in order]
        candidates = [room for room in rooms if room.device.vendor == request.vendor]
        chosen = _take(request, candidates, trial)
        if isinstance(chosen, Misfit):
            return chosen
        _grant(request.vendor, chosen, candidates, trial)
    return None


def _hopeless(request: Request, rooms: Sequence[Room], trial: _Trial) -> Misfit | None:
    """
    Return why *request* fits in no order of devices, None where the order may matter.

    Most Nodes that say no say it here, without a device being scored or sorted.
    """
    rules = trial.request.rules[request.vendor]
    candidates = [room for room in rooms if room.device.vendor == request.vendor]
    if request.count > len(candidates) and not _may_partition(candidates, rules):
        return Misfit.of_node(Reason.NODE_DEVICES)
    is_limited = trial.allowances.get(request.vendor, UNLIMITED) != UNLIMITED
    if is_limited or rules.is_numa_bound or any(room.device.mode == MODE for room in candidates):
        return None
    core_percent = cores_asked(request)
    refusals: Counter[Reason] = Counter()
    for room in candidates:
        reason = refusal_of_kind(room, rules) or refusal_of_room(
            room, memory_asked(request, room.device), core_percent, rules, _no_limit
        )
        refusals[reason or Reason.COUNT] += 1
    return Misfit.of_devices(refusals, len(candidates)) if refusals[Reason.COUNT] < request.count else None


def _no_limit(_uuid: str, _memory_mib: int, _core_percent: int) -> bool:
    return True


def _grant(vendor: str, chosen: Sequence[_Taken], candidates: Sequence[Room], trial: _Trial) -> None:
    """Count what the current container of *trial* takes."""
    rooms = {room.device.id: room for room in candidates}
    for index, taken in enumerate(chosen):
        share, instance = taken.granted, taken.instance
        rooms[share.uuid].take(share.memory_mib, share.core_percent)
        if instance is not None:
            rooms[share.uuid].occupied.append(instance.placement)
            container = len(trial.taken) - 1
            trial.mig.append(MigAllocation(container, index, share.uuid, instance.profile.name, instance.placement))
    trial.taken[-1][vendor] = tuple(taken.granted for taken in chosen)


def _may_partition(candidates: Sequence[Room], rules: Rules) -> bool:
    """Return whether fewer devices than asked may do, because one of them is cut into instances."""
    return (rules.modes is None or MODE in rules.modes) and any(room.device.mode == MODE for room in candidates)


def _take(request: Request, candidates: Sequence[Room], trial: _Trial) -> list[_Taken] | Misfit:
    """Return one share of each of the first *request.count* acceptable devices, tried from the end."""
    rules, policy = trial.request.rules[request.vendor], trial.request.device_policy
    core_percent = cores_asked(request)
    refusals: Counter[Reason] = Counter()
    taken: list[_Taken] = []
    numa: int | None = None
    within_quota = _quota_check(request, taken, trial)
    for room in reversed(candidates):
        device = room.device
        memory_mib = memory_asked(request, device)
        while True:
            reason = refusal_of_kind(room, rules)
            if reason is None and rules.is_numa_bound and numa != device.numa:
                if not policy.is_topology_aware:
                    refusals[Reason.NUMA] += len(taken)
                taken.clear()
                numa = device.numa
            reason = reason or refusal_of_room(room, memory_mib, core_percent, rules, within_quota)
            instance = None
            if reason is None and device.mode == MODE:
                instance = _choose_instance(room, memory_mib, taken)
                reason = None if instance else Reason.MIG
            if reason is not None:
                refusals[reason] += 1
                break
            taken.append(_Taken(Share(device.id, request.vendor, memory_mib, core_percent), instance))
            if len(taken) == request.count and not policy.is_topology_aware:
                return taken
            if device.mode != MODE:
                break
    if len(taken) >= request.count:
        return choose_by_topology(taken, request.count, trial.pair_scores)
    refusals[Reason.COUNT] += len(taken)
    return Misfit.of_devices(refusals, len(candidates))


def _choose_instance(room: Room, memory_mib: int, taken: Sequence[_Taken]) -> MigChoice | None:
    """Return the MIG instance to make on the device of *room* beside what the container has *taken* already."""
    queued = [t.instance.placement for t in taken if t.instance is not None and t.uuid == room.device.id]
    return choose_instance(room.device, memory_mib, [*room.occupied, *queued])


def _quota_check(request: Request, taken: list[_Taken], trial: _Trial) -> Callable[[str, int, int], bool]:
    """
    Return the test whether the Pod stays within its namespace's quota with one more share of *request*.

    The Pod counts as it will once it runs: every container so far, at its worst moment.
    """
    allowance = trial.allowances.get(request.vendor, UNLIMITED)
    if allowance == UNLIMITED:
        return _no_limit

    def is_within_quota(uuid: str, memory_mib: int, core_percent: int) -> bool:
        here = (*(other.share for other in taken), Share(uuid, request.vendor, memory_mib, core_percent))
        before = tuple(container.get(request.vendor, ()) for container in trial.taken[:-1])
        total = NOTHING
        for amount in amounts_over_time(trial.request.kinds, (*before, here)).values():
            total = total.plus(amount)
        return allowance.allows(total.memory_mib, total.core_percent)

    return is_within_quota
