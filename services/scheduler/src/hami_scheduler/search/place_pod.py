"""
Choose the devices of one Node for every container of a Pod, or say why there are none.

Owns the walk over containers. Each ordinary init container is tried on a copy, because it runs alone. What sidecars and
app containers take is not available to later ones; if a later one gets nothing, the choices before it are tried again.
Neighbours: `place_container` tries one container, `filter` chooses among Nodes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/score.go
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hami_scheduler.rules.fit import belongs, memory_asked
from hami_scheduler.search.place_container import Draft, place_container
from hami_scheduler.search.placement import Placement
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.inventory import NodeInventory, PairScores
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hamicommon.pod.containers import ContainerKind
from hamicommon.vendors import nvidia

UNREGISTERED = Misfit.of_node(Reason.NODE_UNREGISTERED)
"""A Node that offers no device, or is unknown."""
_SILENT = Misfit.of_node(Reason.SILENT)
_CLAIMS_ONLY = Misfit.of_node(Reason.CLAIMS_ONLY)
_ONE_REQUEST = Misfit.of_node(Reason.ONE_REQUEST)
_PREPARED_ELSEWHERE = Misfit.of_node(Reason.PREPARED_ELSEWHERE)
_SECOND_CLAIM = Misfit.of_node(Reason.SECOND_CLAIM)
_SHORT = Misfit.of_node(Reason.KUBELET)
"""A Node whose kubelet would reject the Pod."""
_TRIES = 256
"""Tries on one Node to find devices for a later container by changing the choices of earlier ones."""


def place(
    request: PodRequest,
    uses: Sequence[DeviceUse],
    allowances: Mapping[str, Allowance],
    pair_scores: PairScores | None = None,
) -> Placement | Misfit:
    """
    Return what every container of *request* would get of *uses*, or why one gets nothing.

    *uses* are the devices of one Node in registered order; they are changed. *allowances* are what the
    Pod's namespace may take per vendor key.
    """
    draft = Draft(request, pair_scores or {}, allowances)
    asking = [container for container in request.containers if container.requests]
    untouched = _copies(uses) if any(map(draft.matters, asking[:-1])) else []
    running = list(uses)
    for container in request.containers:
        is_alone = container.kind is ContainerKind.INIT
        where = _copies(running) if is_alone else running
        misfit = place_container(container, where, draft)
        if misfit is not None:
            found = _rearranged(draft, untouched) if untouched else None
            return _placement(found) if found else misfit
    return _placement(draft)


def try_node(request: PodRequest, name: str, ledger: Ledger, allowances: Mapping[str, Allowance]) -> Placement | Misfit:
    """
    Return what *request* would get on the Node *name*, or why the Node refuses it.

    Devices come first, as in HAMi: a Node without a free replica on any device says so of its devices. Where they would
    take the Pod, the kubelet must have enough replicas left.
    """
    entry = ledger.node(name)
    inventory = entry.inventory if entry else ledger.silent.get(name)
    wrong_kind = _wrong_kind(request, inventory) if inventory is not None else None
    if wrong_kind is not None:
        return wrong_kind
    if entry is None:
        return UNREGISTERED if inventory is None else _SILENT
    found = place(request, ledger.device_uses(name), allowances, entry.inventory.pair_scores)
    is_short = isinstance(found, Placement) and ledger.short_replicas(entry, request.replicas)
    return _SHORT if is_short else found


def _wrong_kind(request: PodRequest, inventory: NodeInventory) -> Misfit | None:
    """Return why the Node of *inventory* cannot take *request* by the way in which devices reach its kubelet."""
    if nvidia.KEY not in request.constraints:
        return None
    if inventory.gives_claims:
        if not inventory.has_tokens:
            return _CLAIMS_ONLY
        return _ONE_REQUEST if request.shares_claim_requests else None
    if request.names_claim:
        return _PREPARED_ELSEWHERE
    return _SECOND_CLAIM if request.has_claims and inventory.is_mapped else None


def _placement(draft: Draft) -> Placement:
    return Placement(draft.shares(), tuple(draft.mig))


def _copies(uses: Sequence[DeviceUse]) -> list[DeviceUse]:
    return [use.copy() for use in uses]


def _rearranged(failed: Draft, uses: Sequence[DeviceUse]) -> Draft | None:
    """
    Return a draft in which all containers get devices of *uses*, None if none was found.

    In *failed* each got what it prefers, until one got nothing. HAMi stops there.
    """
    position = len(failed.taken) - 1
    if not any(any(taken.values()) for taken in failed.taken[:position]) or not _have_enough(uses, failed):
        return None
    alone = replace(failed, taken=[{} for _ in range(position)], mig=[])
    if place_container(failed.request.containers[position], _copies(uses), alone) is not None:
        return None
    draft = replace(failed, taken=[], mig=[])
    return draft if _search(draft, uses, iter(range(_TRIES))) else None


def _have_enough(uses: Sequence[DeviceUse], draft: Draft) -> bool:
    """Return whether *uses* together, and quotas, have memory for the last container tried and those beside it."""
    *before, last = draft.request.containers[: len(draft.taken)]
    beside = [container for container in before if container.kind is not ContainerKind.INIT]
    asked = [request for container in (*beside, last) for request in container.requests]
    for vendor, constraints in draft.request.constraints.items():
        fit, allowance = draft.request.vendors[vendor].fit, draft.allowances.get(vendor, UNLIMITED)
        usable = [use for use in uses if belongs(use.device, vendor, constraints) and use.device.healthy]
        if not usable or not fit.is_plain or not fit.counts_memory:
            continue
        of_vendor = [request for request in asked if request.vendor == vendor]
        least_mib = sum(r.count * min(memory_asked(r, use.device.memory_mib) for use in usable) for r in of_vendor)
        free_mib = sum(max(0, use.device.memory_mib - use.memory_mib) for use in usable)
        if least_mib > free_mib or allowance.is_exceeded_by(least_mib, 0):
            return False
    return True


def _search(draft: Draft, uses: Sequence[DeviceUse], tries: Iterator[int]) -> bool:
    """
    Place the remaining containers of *draft* on *uses*, and return whether all got devices.

    Each container first gets what it prefers. If a later one gets nothing, one of these devices is withheld from it and
    it chooses again, and so on, until all later ones have devices or *tries* are used up.
    """
    position, instances = len(draft.taken), len(draft.mig)
    if position == len(draft.request.containers):
        return True
    container = draft.request.containers[position]
    choices: list[frozenset[str]] = [frozenset()]
    while choices and next(tries, None) is not None:
        withheld = choices.pop(0)
        where = _copies(uses)
        for use in where:
            use.is_withheld = use.device.id in withheld
        if place_container(container, where, draft) is None:
            for use in where:
                use.is_withheld = False
            if _search(draft, uses if container.kind is ContainerKind.INIT else where, tries):
                return True
            taken = {share.uuid for shares in draft.taken[position].values() for share in shares}
            fewer = [withheld | {uuid} for uuid in sorted(taken)] if draft.matters(container) else []
            choices += [choice for choice in fewer if choice not in choices]
        del draft.taken[position:], draft.mig[instances:]
    return False
