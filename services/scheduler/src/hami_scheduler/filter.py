"""
Choose the Node for a Pod, or say per Node why it cannot be.

Owns the answer to `/filter`: pure, from a request and a snapshot to a result; asking changes nothing. Exactly one
Node is chosen, as HAMi does, because only one can be reserved. Neighbours: `screening` rules out, `score` ranks,
`placement` decides, `explanation` tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.ledger import Ledger
from hami_scheduler.placement import Placement, place
from hami_scheduler.quota import Allowance, Quotas
from hami_scheduler.reasons import Misfit, Reason
from hami_scheduler.refusals import Known, Refusals
from hami_scheduler.request import PodRequest
from hami_scheduler.score import node_scores
from hami_scheduler.screening import possible_nodes

UNREGISTERED = Misfit.of_node(Reason.NODE_UNREGISTERED)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a decision reads; it must not change while the decision is made."""

    ledger: Ledger
    quotas: Quotas

    @property
    def version(self) -> tuple[int, int]:
        """Equal for two looks between which nothing changed that could change an answer."""
        return self.ledger.version, self.quotas.version


@dataclass(frozen=True, slots=True)
class FilterResult:
    """One decision about one Pod."""

    node: str | None
    """The chosen Node; None where no candidate can take the Pod."""
    placement: Placement | None = None
    score: float = 0.0
    """How full the chosen Node was before."""
    misfits: Mapping[str, Misfit] = field(default_factory=dict)
    """Per candidate why it cannot take the Pod: all of them where there is no choice, else those that were tried."""

    @property
    def failed_nodes(self) -> dict[str, str]:
        """The `FailedNodes` of the answer."""
        return {name: misfit.text for name, misfit in self.misfits.items()}


def filter_nodes(
    request: PodRequest,
    candidates: Sequence[str],
    snapshot: Snapshot,
    *,
    explain_all: bool = False,
    refusals: Refusals | None = None,
) -> FilterResult:
    """
    Return the best of *candidates* for *request*, or every candidate's reason.

    Candidates that are equally good are chosen by name. With *explain_all* those that lose by reasons are told, too.
    *refusals* remembers what was refused, so that asking again costs little; it never changes the answer.
    """
    ledger = snapshot.ledger
    allowances = allowances_of(request, snapshot.quotas)
    known = refusals.known_for(request, allowances) if refusals else {}
    possible = possible_nodes(ledger, request)
    indexes = ledger.indexes(candidates)
    scores = node_scores(ledger.node_promised[: ledger.node_count], ledger.node_capacity[: ledger.node_count])
    misfits: dict[str, Misfit] = {}
    chosen: tuple[str, Placement, float] | None = None
    for index in _by_rank(indexes[possible[indexes]], scores, ledger, is_spread=request.node_policy == "spread"):
        name = ledger.node_name(index)
        found = try_node(request, name, ledger, allowances)
        if isinstance(found, Placement):
            chosen = (name, found, float(scores[index]))
            break
        misfits[name] = found
    if chosen is None or explain_all:
        rest = [name for name in candidates if name not in misfits and (chosen is None or name != chosen[0])]
        for name in rest:
            misfit = _refusal(request, name, ledger, allowances, known)
            if misfit is not None:
                misfits[name] = misfit
    if chosen is None:
        return FilterResult(None, misfits=misfits)
    return FilterResult(*chosen, misfits=misfits)


def try_node(request: PodRequest, name: str, ledger: Ledger, allowances: Mapping[str, Allowance]) -> Placement | Misfit:
    """Return what *request* would get on the Node *name*, or why it cannot."""
    entry = ledger.node(name)
    if entry is None:
        return UNREGISTERED
    return place(request, ledger.rooms(name), allowances, entry.inventory.pair_scores)


def allowances_of(request: PodRequest, quotas: Quotas) -> dict[str, Allowance]:
    """Return what the Pod's namespace may still take, per vendor key asked."""
    return {
        frame.key: quotas.allowance(request.namespace, frame) for frame in quotas.vendors if frame.key in request.rules
    }


def _by_rank(
    indexes: NDArray[np.int64], scores: NDArray[np.float32], ledger: Ledger, *, is_spread: bool
) -> Iterator[int]:
    """Yield Node *indexes*, best first; of equal ones the name that sorts first. Nearly always one is enough."""
    liking = -scores[indexes] if is_spread else scores[indexes]
    while len(indexes):
        is_best = liking == liking.max()
        tied, ranks = indexes[is_best], ledger.name_ranks[indexes[is_best]]
        yield int(tied[ranks.argmin()])
        yield from tied[ranks.argsort()][1:].tolist()
        indexes, liking = indexes[~is_best], liking[~is_best]


def _refusal(
    request: PodRequest, name: str, ledger: Ledger, allowances: Mapping[str, Allowance], known: Known
) -> Misfit | None:
    entry = ledger.node(name)
    if entry is None:
        return UNREGISTERED
    remembered = known.get(name)
    if remembered is not None and remembered[0] == entry.version:
        return remembered[1]
    found = try_node(request, name, ledger, allowances)
    if isinstance(found, Placement):
        return None
    known[name] = (entry.version, found)
    return found
