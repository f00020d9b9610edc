"""
Remember the steps of earlier searches while the Nodes concerned do not change.

kube-scheduler asks about every waiting Pod after every change in the cluster, and most answers are the same as before;
the next Pod often asks for the same as the last one. This is the only cache of decisions. It owns every version it
compares and every shortcut it takes, and it never changes an answer: `filter.Search` without it returns the same.
Neighbours: `filter` has the search and takes the steps that remember, `state.ledger` numbers every change of a Node.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.search.filter import Choice, Search
from hami_scheduler.search.node_rating import is_rated, sign
from hami_scheduler.search.place_pod import UNREGISTERED
from hami_scheduler.search.placement import Placement
from hami_scheduler.state.quota import Allowance
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.reasons import Misfit, Refusal
from hami_scheduler.values.request import PodRequest

_KINDS_REMEMBERED = 16
"""Kinds of requests; 5000 Nodes take some 1.2 MiB for each."""
_FEW = 8
"""Changed Nodes that are cheaper to try than to judge all Nodes again by arrays."""


class Memo:
    """What is remembered of one cluster."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._kinds: OrderedDict[Hashable, _Memory] = OrderedDict()
        self._last: tuple[PodRequest, Mapping[str, Allowance], _Memory] | None = None
        """The last request: a choice, the refusal and the look ahead all ask for the same one."""

    def search(self, request: PodRequest, view: ClusterView) -> "CachedSearch":
        """Return the search of *request* on *view*, with what is remembered of requests like it."""
        plain = Search.of(request, view)
        return CachedSearch(plain, self._memory(request, plain.allowances))

    def _memory(self, request: PodRequest, allowances: Mapping[str, Allowance]) -> "_Memory":
        """Return what is remembered of requests like *request*."""
        if self._last is not None and self._last[0] is request and self._last[1] == allowances:
            return self._last[2]
        kind = request.kind, tuple(allowances.items())
        memory = self._kinds.pop(kind, None) or _Memory()
        self._kinds[kind] = memory
        if len(self._kinds) > _KINDS_REMEMBERED:
            self._kinds.popitem(last=False)
        self._last = (request, allowances, memory)
        return memory


@dataclass(slots=True)
class _Memory:
    """What is remembered of requests of one kind; each version is the ledger's when the field was set."""

    misfits: dict[str, tuple[int, Misfit]] = field(default_factory=dict)
    """Per Node name: the Node's version when it was tried, and why it refused."""
    possible: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Per Node index: whether it is worth a try."""
    possible_version: int = -1
    reasons: Sequence[Misfit | None] = ()
    reasons_version: int = -1
    refusal: Refusal = field(default_factory=Refusal)
    """Of the last candidates."""
    refusal_version: int = -1
    best: Choice | None = None
    """The best of all Nodes; None if no Node fits."""
    best_version: int = -1


class CachedSearch:
    """A search whose steps read and fill the memory of its kind of request."""

    def __init__(self, plain: Search, memory: _Memory) -> None:
        """Search like *plain*."""
        self._plain = plain
        self._ledger = plain.ledger
        self._memory = memory
        self._cached = Search(plain.request, plain.ledger, plain.allowances, self._possible, self._place, self._reasons)

    def choose(self, candidates: Collection[str]) -> Choice | None:
        """Return the best of *candidates*, None if all refuse."""
        # If the best Node of all is a candidate, it is the best candidate. If no Node fits, no candidate does.
        if self._knows_best():
            best = self._memory.best
            if best is None or best.node in candidates:
                return best
        return self._cached.choose(candidates)

    def refuse(self, candidates: Sequence[str]) -> Refusal:
        """Return why those of *candidates* that refuse the Pod do so; the same candidates get the same object."""
        memory, version = self._memory, self._ledger.version
        if memory.refusal_version != version or memory.refusal.misfits.keys() != set(candidates):
            memory.refusal, memory.refusal_version = self._cached.refuse(candidates), version
        return memory.refusal

    def look_ahead(self) -> None:
        """Find and remember the best of all Nodes, for the next Pod that asks for the same."""
        if not self._knows_best():
            self._memory.best = self._cached.choose(self._ledger.names)
            self._memory.best_version = self._ledger.version

    def _knows_best(self) -> bool:
        """
        Return whether the best Node of all is known, after trying that Node again if it alone has changed.

        It is still the best if its score is no worse than before: binpack fills one Node after another.
        """
        memory, ledger, request = self._memory, self._ledger, self._plain.request
        if memory.best_version == ledger.version:
            return True
        if memory.best is None or is_rated(request):
            return False
        name, _, score_before = memory.best
        entry = ledger.node(name)
        if entry is None or ledger.changed_since(memory.best_version) != [entry.index]:
            return False
        score = ledger.node_score(entry)
        found = self._place(name)
        if isinstance(found, Misfit) or sign(request) * score < sign(request) * score_before:
            return False
        memory.best, memory.best_version = Choice(name, found, score), ledger.version
        return True

    def _possible(self) -> NDArray[np.bool_]:
        """Return per Node index whether the Pod may fit there; Nodes that were tried in vain are out."""
        memory, ledger = self._memory, self._ledger
        changed = ledger.changed_since(memory.possible_version)
        if len(memory.possible) != ledger.node_count or len(changed) > _FEW:
            memory.possible = self._plain.possible()
        else:
            for index in changed:
                memory.possible[index] = bool(ledger.node_name(index))
        memory.possible_version = ledger.version
        return memory.possible

    def _place(self, name: str) -> Placement | Misfit:
        """Return what the Pod would get on the Node *name*, or why the Node refuses it."""
        memory, ledger = self._memory, self._ledger
        entry = ledger.node(name)
        if entry is None:
            return self._plain.place(name)
        version = int(ledger.node_versions[entry.index])
        version_tried, misfit = memory.misfits.get(name, (-1, UNREGISTERED))
        if version_tried != version:
            found = self._plain.place(name)
            if not isinstance(found, Misfit):
                return found
            misfit = found
            memory.misfits[name] = (version, misfit)
        if memory.possible_version == ledger.version:
            memory.possible[entry.index] = False
        return misfit

    def _reasons(self) -> Sequence[Misfit | None]:
        memory, version = self._memory, self._ledger.version
        if memory.reasons_version != version:
            memory.reasons, memory.reasons_version = self._plain.reasons(), version
        return memory.reasons
