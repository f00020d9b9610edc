"""
Choose the Node for a Pod, or say why each Node refuses it: the answer to `/filter`.

Pure over a borrowed view: it reads the ledger as it is now, changes nothing and keeps nothing. Exactly one Node is
chosen, as HAMi does, because the devices of only one can be reserved. Neighbours: `prefilter` rules Nodes out by
arrays, `place_pod` tries one Node, `bulk_reasons` says why many refuse, `cache` has a search that remembers.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.search.bulk_reasons import bulk_reasons
from hami_scheduler.search.node_rating import best_ratings, rating, sign
from hami_scheduler.search.place_pod import UNREGISTERED, try_node
from hami_scheduler.search.placement import Placement
from hami_scheduler.search.prefilter import possible_nodes
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import Allowance
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.reasons import Misfit, Refusal
from hami_scheduler.values.request import PodRequest

_FEW = 8
"""Nodes that are cheaper to look up one by one than all candidates together."""


class Choice(NamedTuple):
    """A Node that takes a Pod."""

    node: str
    placement: Placement
    """What the Pod gets there."""
    score: float
    """How full the Node is without the Pod, with what the vendors add."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """One decision about one Pod."""

    node: str | None
    """The chosen Node; None if no candidate can take the Pod."""
    placement: Placement | None = None
    score: float = 0.0
    """Of the chosen Node."""
    refusal: Refusal = field(default_factory=Refusal)
    """Why candidates refuse the Pod; empty if a Node was chosen and the caller did not ask about the others."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search for a Node, by three steps. `cache` has steps that remember what they found."""

    request: PodRequest
    ledger: Ledger
    allowances: Mapping[str, Allowance]
    """What the Pod's namespace may still take, per vendor key."""
    possible: Callable[[], NDArray[np.bool_]]
    """Return per Node index whether the Pod may fit there."""
    place: Callable[[str], Placement | Misfit]
    """Return what the Pod would get on a Node, or why the Node refuses it."""
    reasons: Callable[[], Sequence[Misfit | None]]
    """Return per Node index why it refuses the Pod, None if it must be tried."""

    @classmethod
    def of(cls, request: PodRequest, view: ClusterView) -> "Search":
        """Return the search that remembers nothing."""
        ledger, allowances = view.ledger, view.allowances(request)
        return cls(
            request,
            ledger,
            allowances,
            lambda: possible_nodes(ledger, request, allowances),
            lambda name: try_node(request, name, ledger, allowances),
            lambda: bulk_reasons(request, ledger, allowances),
        )

    def choose(self, candidates: Collection[str]) -> Choice | None:
        """
        Return the best of *candidates*, None if all refuse.

        Nodes are ranked by the best score they can reach, before the vendors rate what the Pod would get. The walk goes
        down this ranking and ends when no later Node can win. If no vendor rates Nodes, the first that fits wins.
        """
        request, ledger = self.request, self.ledger
        possible = self.possible()
        if not possible.any():
            return None
        best: Choice | None = None
        direction = sign(request)
        scores = ledger.node_scores()
        at_best = scores + best_ratings(request, possible, ledger)
        for index in _ranked(possible, direction * at_best, candidates, ledger):
            name, limit = ledger.node_name(index), float(at_best[index])
            if best is not None and (direction * limit, best.node) < (direction * best.score, name):
                break
            found = self.place(name)
            if isinstance(found, Misfit):
                continue
            score = float(scores[index] + np.float32(rating(request, name, found, ledger)))
            if best is None or (direction * score, best.node) > (direction * best.score, name):
                best = Choice(name, found, score)
            if best == (name, found, limit):
                break
        return best

    def refuse(self, candidates: Sequence[str]) -> Refusal:
        """Return why those of *candidates* that refuse the Pod do so."""
        reasons = [*self.reasons(), UNREGISTERED]
        silent, giving_claims = self.ledger.silent, self.ledger.giving_claims
        found = map(reasons.__getitem__, self.ledger.places(candidates).tolist())
        misfits: dict[str, Any] = dict(zip(candidates, found, strict=True))
        to_try = [name for name, misfit in misfits.items() if misfit is None or name in silent or name in giving_claims]
        for name in to_try:
            misfits[name] = self.place(name)
            if isinstance(misfits[name], Placement):
                del misfits[name]
        return Refusal(misfits)


class Searching(Protocol):
    """A search, with or without memory."""

    def choose(self, candidates: Collection[str]) -> Choice | None:
        """Return the best of *candidates*, None if all refuse."""

    def refuse(self, candidates: Sequence[str]) -> Refusal:
        """Return why those of *candidates* that refuse the Pod do so."""


def filter_nodes(
    request: PodRequest,
    candidates: Sequence[str],
    view: ClusterView,
    *,
    explain_all: bool = False,
    search: Searching | None = None,
) -> FilterResult:
    """
    Return the best of *candidates* for *request*, or why each of them refuses it.

    Of equally good candidates the one whose name sorts first is chosen. With *explain_all* the result also says why
    candidates refuse if one is chosen. *search* is that of *request* on *view* with memory, if there is one.
    """
    search = search or Search.of(request, view)
    choice = search.choose(candidates)
    if choice is None:
        return FilterResult(None, refusal=search.refuse(candidates))
    return FilterResult(*choice, refusal=search.refuse(candidates) if explain_all else Refusal())


def _ranked(
    possible: NDArray[np.bool_], preference: NDArray[np.float32], candidates: Collection[str], ledger: Ledger
) -> Iterator[int]:
    """
    Yield the indexes of those of *candidates* that are *possible*, the most preferred first.

    The best few are nearly always candidates, and the caller seldom wants more. So the thousands of candidates are
    looked up only if one of the best few is not among them.
    """
    yielded: list[int] = []
    for index in islice(_by_preference(np.flatnonzero(possible), preference, ledger), _FEW):
        if ledger.node_name(index) not in candidates:
            break
        yielded.append(index)
        yield index
    indexes = ledger.indexes(candidates)
    rest = possible[indexes] & ~np.isin(indexes, yielded)
    yield from _by_preference(indexes[rest], preference, ledger)


def _by_preference(indexes: NDArray[np.int64], preference: NDArray[np.float32], ledger: Ledger) -> Iterator[int]:
    """Yield Node *indexes*, the most preferred first; of equal ones the one whose name sorts first."""
    preference = preference[indexes]
    while len(indexes):
        is_best = preference == preference.max()
        tied, ranks = indexes[is_best], ledger.name_ranks[indexes[is_best]]
        yield int(tied[ranks.argmin()])
        yield from tied[ranks.argsort()][1:].tolist()
        indexes, preference = indexes[~is_best], preference[~is_best]
