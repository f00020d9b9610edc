"""
Try a Pod on one Node: which devices each container would get.

Owns the walk over containers. Ordinary init containers are tried each on a copy, because they run alone; what sidecars
and app containers take stays for those after them, and where those would go without, is chosen once more. Knows nothing
of other Nodes. Neighbours: `place_container` tries one container, `filter` chooses among Nodes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/score.go
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hami_scheduler.decide.place_container import Trial, place_container
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.fit import belongs, memory_asked
from hami_scheduler.values.inventory import PairScores
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import ContainerKind, PodRequest
from hamicommon.model import MigAllocation, PodShares

UNREGISTERED = Misfit.of_node(Reason.NODE_UNREGISTERED)
"""A Node that offers no device, or is unknown."""
_TRIES = 256
"""How often a container is tried on one Node where the devices that each prefers leave a later one without."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What each container of a Pod would get on one Node."""

    shares: Mapping[str, PodShares]
    """Per vendor key, for each vendor asked: one entry per container, in Pod order."""
    mig: tuple[MigAllocation, ...] = ()
    """The MIG instances to be made, for those of the shares that are one."""


def place(
    request: PodRequest,
    uses: Sequence[DeviceUse],
    allowances: Mapping[str, Allowance],
    pair_scores: PairScores | None = None,
) -> Placement | Misfit:
    """
    Return what every container of *request* would get of *uses*, or why it cannot get it.

    *uses* are the devices of one Node in registered order; they are changed on the way. *allowances* are what the
    Pod's namespace may take per vendor key.
    """
    trial = Trial(request, pair_scores or {}, allowances)
    asking = [container for container in request.containers if container.requests]
    untouched = _copies(uses) if any(map(trial.matters, asking[:-1])) else []
    running = list(uses)
    for container in request.containers:
        is_alone = container.kind is ContainerKind.INIT
        where = _copies(running) if is_alone else running
        misfit = place_container(container, where, trial)
        if misfit is not None:
            found = _rearranged(trial, untouched) if untouched else None
            return _placement(found) if found else misfit
    return _placement(trial)


def try_node(request: PodRequest, name: str, ledger: Ledger, allowances: Mapping[str, Allowance]) -> Placement | Misfit:
    """Return what *request* would get on the Node *name*, or why the Node refuses it."""
    entry = ledger.node(name)
    if entry is None:
        return UNREGISTERED
    return place(request, ledger.device_uses(name), allowances, entry.inventory.pair_scores)


def _placement(trial: Trial) -> Placement:
    return Placement(trial.shares(), tuple(trial.mig))


def _copies(uses: Sequence[DeviceUse]) -> list[DeviceUse]:
    return [use.copy() for use in uses]


def _rearranged(failed: Trial, uses: Sequence[DeviceUse]) -> Trial | None:
    """
    Return a trial in which all containers get devices of *uses*, None where there is none, or none was found.

    In *failed* each got what it prefers, until one got nothing. HAMi stops there.
    """
    position = len(failed.taken) - 1
    if not any(any(taken.values()) for taken in failed.taken[:position]) or not _have_enough(uses, failed):
        return None
    alone = replace(failed, taken=[{} for _ in range(position)], mig=[])
    if place_container(failed.request.containers[position], _copies(uses), alone) is not None:
        return None
    trial = replace(failed, taken=[], mig=[])
    return trial if _search(trial, uses, iter(range(_TRIES))) else None


def _have_enough(uses: Sequence[DeviceUse], trial: Trial) -> bool:
    """Return whether *uses* together, and quotas, have memory for the last container tried and those beside it."""
    *before, last = trial.request.containers[: len(trial.taken)]
    beside = [container for container in before if container.kind is not ContainerKind.INIT]
    asked = [request for container in (*beside, last) for request in container.requests]
    for vendor, rules in trial.request.rules.items():
        sharing, allowance = trial.request.vendors[vendor].sharing, trial.allowances.get(vendor, UNLIMITED)
        usable = [use for use in uses if belongs(use.device, vendor, rules) and use.device.healthy]
        if not usable or not sharing.is_plain or not sharing.counts_memory:
            continue
        of_vendor = [request for request in asked if request.vendor == vendor]
        least_mib = sum(r.count * min(memory_asked(r, use.device) for use in usable) for r in of_vendor)
        free_mib = sum(max(0, use.device.memory_mib - use.memory_mib) for use in usable)
        if least_mib > free_mib or not allowance.allows(least_mib, 0):
            return False
    return True


def _search(trial: Trial, uses: Sequence[DeviceUse], tries: Iterator[int]) -> bool:
    """
    Give the containers of *trial* that were not tried yet devices of *uses*, and return whether all have theirs.

    Each gets what it prefers, then does without one device of these, and so on, until those after it have theirs, or
    *tries* are over.
    """
    position, instances = len(trial.taken), len(trial.mig)
    if position == len(trial.request.containers):
        return True
    container = trial.request.containers[position]
    choices: list[frozenset[str]] = [frozenset()]
    while choices and next(tries, None) is not None:
        withheld = choices.pop(0)
        where = _copies(uses)
        for use in where:
            use.is_withheld = use.device.id in withheld
        if place_container(container, where, trial) is None:
            for use in where:
                use.is_withheld = False
            if _search(trial, uses if container.kind is ContainerKind.INIT else where, tries):
                return True
            taken = {share.uuid for shares in trial.taken[position].values() for share in shares}
            fewer = [withheld | {uuid} for uuid in sorted(taken)] if trial.matters(container) else []
            choices += [choice for choice in fewer if choice not in choices]
        del trial.taken[position:], trial.mig[instances:]
    return False
