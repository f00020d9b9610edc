"""
Choose the Node for a Pod, or say per Node why it cannot be.

Owns the answer to `/filter`: pure, from a request and a view of the cluster to a result; asking changes nothing.
Exactly one Node is chosen, as HAMi does, because only one can be reserved. Neighbours: `prefilter` rules out, `score`
ranks, `place_pod` decides, `wording` tells.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.decide.bulk_reasons import told_causes
from hami_scheduler.decide.memo import Choice, Known, Refusals
from hami_scheduler.decide.place_pod import Placement, place
from hami_scheduler.decide.prefilter import possible_nodes
from hami_scheduler.state.ledger import Ledger, NodeEntry
from hami_scheduler.state.quota import Allowance, Quotas
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.reasons import Misfit, Reason, Refusal
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import NodeView, Prospect, VendorFrame

UNREGISTERED = Misfit.of_node(Reason.NODE_UNREGISTERED)
_FEW = 8
"""Nodes that may be tried for a Pod at less cost than looking at all of them."""
PRIORITY_LIMIT = 10
"""
The best Node's in `/prioritize`.

Source: https://github.com/kubernetes/kube-scheduler/blob/v0.34.4/extender/v1/types.go (`MaxExtenderPriority`)
"""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """One decision about one Pod."""

    node: str | None
    """The chosen Node; None where no candidate can take the Pod."""
    placement: Placement | None = None
    score: float = 0.0
    """How full the chosen Node was before."""
    refusal: Refusal = field(default_factory=Refusal)
    """Why candidates cannot take the Pod; of none where there is a choice and nobody asked about the others."""

    @property
    def misfits(self) -> Mapping[str, Misfit]:
        """Per candidate why it cannot take the Pod."""
        return self.refusal.misfits

    @property
    def failed_nodes(self) -> Mapping[str, str]:
        """The `FailedNodes` of the answer."""
        return self.refusal.failed_nodes


def filter_nodes(
    request: PodRequest,
    candidates: Sequence[str],
    view: ClusterView,
    *,
    explain_all: bool = False,
    refusals: Refusals | None = None,
) -> FilterResult:
    """
    Return the best of *candidates* for *request*, or every candidate's reason.

    Candidates that are equally good are chosen by name. With *explain_all* those that lose by reasons are told, too.
    *refusals* remembers what was refused, so that asking again costs little; it never changes the answer.
    """
    allowances = allowances_of(request, view.quotas)
    known = refusals.known_for(request, allowances) if refusals else Known()
    chosen = _foreseen_or_best(request, candidates, view.ledger, allowances, known)
    if chosen is not None and not explain_all:
        return FilterResult(*chosen)
    refusal = _refusal(request, candidates, view.ledger, allowances, known)
    if chosen is None:
        return FilterResult(None, refusal=refusal)
    return FilterResult(*chosen, refusal=refusal)


def foresee(request: PodRequest, view: ClusterView, refusals: Refusals) -> None:
    """
    Look for the best Node of all while nobody waits, and remember it in *refusals* for the next Pod like *request*.

    The best of all is the best of any candidates it is among; where there is none, no candidates have one.
    """
    ledger, allowances = view.ledger, allowances_of(request, view.quotas)
    known = refusals.known_for(request, allowances)
    if not _is_foreseen(request, ledger, allowances, known):
        known.best = _best(request, ledger.names, ledger, allowances, known)
        known.best_version = ledger.version


def has_room(request: PodRequest, candidates: Sequence[str], view: ClusterView, refusals: Refusals) -> bool:
    """Return whether `filter_nodes` would choose one of *candidates*, which costs far less than to say why not."""
    allowances = allowances_of(request, view.quotas)
    known = refusals.known_for(request, allowances)
    return _foreseen_or_best(request, candidates, view.ledger, allowances, known) is not None


def _foreseen_or_best(
    request: PodRequest, candidates: Sequence[str], ledger: Ledger, allowances: Mapping[str, Allowance], known: Known
) -> Choice | None:
    """Return what `_best` returns, which nobody looks for again while what was foreseen holds."""
    is_foreseen = _is_foreseen(request, ledger, allowances, known)
    if is_foreseen and (known.best is None or known.best[0] in candidates):
        return known.best
    return _best(request, candidates, ledger, allowances, known)


def _is_foreseen(request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance], known: Known) -> bool:
    """
    Return whether the best Node of all is known, after a second look where only that Node has changed.

    While it is liked no less than before it is the best still: binpack fills one Node after another.
    """
    if known.best_version == ledger.version:
        return True
    if known.best is None or any(frame.rate is not None for frame in request.vendors.values()):
        return False
    name, _, score = known.best
    entry = ledger.node(name)
    if entry is None or ledger.changed_since(known.best_version) != [entry.index]:
        return False
    sign = _sign(request)
    score_now = ledger.node_score(entry)
    found = _known_or_tried(request, name, ledger, allowances, known)
    if isinstance(found, Misfit) or sign * score_now < sign * score:
        return False
    known.best, known.best_version = (name, found, score_now), ledger.version
    return True


def _best(
    request: PodRequest, candidates: Collection[str], ledger: Ledger, allowances: Mapping[str, Allowance], known: Known
) -> Choice | None:
    """
    Return the best of *candidates*, what the Pod gets there and its score.

    Nodes are ranked by what their scores are at best, before any vendor has rated what the Pod would get. The walk
    goes downwards and ends as soon as no later Node could come to the front; without vendors that rate it ends at the
    first.
    """
    sign = _sign(request)
    best: Choice | None = None
    hopeful = _hopeful_nodes(request, ledger, allowances, known)
    if not hopeful.any():
        return None
    scores = ledger.node_scores()
    at_best = scores + _ratings_at_best(request, hopeful, ledger)
    for index in _ranked(hopeful, sign * at_best, candidates, ledger):
        name, limit = ledger.node_name(index), float(at_best[index])
        if best is not None and (sign * limit, best[0]) < (sign * best[2], name):
            break
        found = _known_or_tried(request, name, ledger, allowances, known)
        if isinstance(found, Misfit):
            hopeful[index] = False
            continue
        score = float(scores[index] + np.float32(rating(request, name, found, ledger)))
        if best is None or (sign * score, best[0]) > (sign * best[2], name):
            best = (name, found, score)
        if best == (name, found, limit):
            break
    return best


def _sign(request: PodRequest) -> int:
    """Return 1 where fuller Nodes are liked better, -1 where emptier ones are."""
    return -1 if request.node_policy == "spread" else 1


def _hopeful_nodes(
    request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance], known: Known
) -> NDArray[np.bool_]:
    """
    Return per Node index whether *request* may fit there; whoever tries one in vain strikes it out.

    Where few Nodes have changed since these are worth a try, whatever they promised; else all are looked at anew.
    """
    changed = ledger.changed_since(known.hopeful_version)
    if len(known.hopeful) != ledger.node_count or len(changed) > _FEW:
        known.hopeful = possible_nodes(ledger, request, allowances)
    else:
        for index in changed:
            known.hopeful[index] = bool(ledger.node_name(index))
    known.hopeful_version = ledger.version
    return known.hopeful


def _ratings_at_best(request: PodRequest, hopeful: NDArray[np.bool_], ledger: Ledger) -> NDArray[np.float32]:
    """Return per Node index what the vendors add to the score of a *hopeful* Node at best, 0 of others."""
    ratings = np.zeros(ledger.node_count, np.float32)
    frames = [frame for frame in request.vendors.values() if frame.rate is not None]
    for index in np.flatnonzero(hopeful).tolist() if frames else ():
        entry = ledger.node(ledger.node_name(index))
        if entry is not None:
            ratings[index] = sum(_rating_at_best(request, frame, entry, ledger) for frame in frames)
    return ratings


def _rating_at_best(request: PodRequest, frame: VendorFrame, entry: NodeEntry, ledger: Ledger) -> float:
    if frame.rate_at_best is None:
        return _sign(request) * math.inf
    devices = entry.inventory.devices
    replicas = ledger.promised[entry.start : entry.start + len(devices), 0].tolist()
    used = {device.index for device, count in zip(devices, replicas, strict=True) if count}
    counts = [asked.count for c in request.containers for asked in c.requests if asked.vendor == frame.key]
    rules = request.rules[frame.key]
    return frame.rate_at_best(Prospect(devices, used, entry.inventory.notes, counts, rules, request.node_policy))


def rating(request: PodRequest, name: str, placement: Placement, ledger: Ledger) -> float:
    """Return what the vendors add to the score of Node *name* for what *request* would get there."""
    rating_frames = [frame for frame in request.vendors.values() if frame.rate is not None]
    entry = ledger.node(name)
    if not rating_frames or entry is None:
        return 0.0
    uses = ledger.device_uses(name)
    devices = {use.device.id: use.device for use in uses}
    total = 0.0
    for frame in rating_frames:
        view = NodeView(
            placement.shares[frame.key],
            uses,
            devices,
            entry.inventory.notes,
            request.rules[frame.key],
            request.node_policy,
        )
        total += frame.rate(view) if frame.rate else 0.0
    return total


def priorities(request: PodRequest, names: Sequence[str], view: ClusterView) -> dict[str, int]:
    """
    Return how the Node policy of *request* likes each of *names*, PRIORITY_LIMIT for the best, 0 for the worst.

    All the same where there is nothing to tell them by; Nodes without devices and those that do not fit get 0.
    """
    ledger = view.ledger
    allowances = allowances_of(request, view.quotas)
    is_rated = any(frame.rate is not None for frame in request.vendors.values())
    scores = ledger.node_scores()
    sign = _sign(request)
    liking: dict[str, float] = {}
    for name in names:
        entry = ledger.node(name)
        found = try_node(request, name, ledger, allowances) if is_rated else None
        if entry is None or isinstance(found, Misfit):
            continue
        liking[name] = sign * (float(scores[entry.index]) + (rating(request, name, found, ledger) if found else 0.0))
    least, most = min(liking.values(), default=0.0), max(liking.values(), default=0.0)
    scale = PRIORITY_LIMIT / (most - least) if most > least else 0.0
    return {name: round((liking[name] - least) * scale) if name in liking else 0 for name in names}


def try_node(request: PodRequest, name: str, ledger: Ledger, allowances: Mapping[str, Allowance]) -> Placement | Misfit:
    """Return what *request* would get on the Node *name*, or why it cannot."""
    entry = ledger.node(name)
    if entry is None:
        return UNREGISTERED
    return place(request, ledger.device_uses(name), allowances, entry.inventory.pair_scores)


def allowances_of(request: PodRequest, quotas: Quotas) -> dict[str, Allowance]:
    """Return what the Pod's namespace may still take, per vendor key asked."""
    return {
        frame.key: quotas.allowance(request.namespace, frame) for frame in quotas.vendors if frame.key in request.rules
    }


def _refusal(
    request: PodRequest, candidates: Sequence[str], ledger: Ledger, allowances: Mapping[str, Allowance], known: Known
) -> Refusal:
    """Return why those of *candidates* that cannot take *request* cannot; the last is remembered in *known*."""
    if known.refusal_version == ledger.version and known.refusal.misfits.keys() == set(candidates):
        return known.refusal
    if known.told_version != ledger.version:
        known.told, known.told_version = told_causes(request, ledger, allowances), ledger.version
    causes = [*known.told, UNREGISTERED]
    told = map(causes.__getitem__, ledger.places(candidates).tolist())
    misfits: dict[str, Any] = dict(zip(candidates, told, strict=True))
    for name in [name for name, cause in misfits.items() if cause is None]:
        misfits[name] = _known_or_tried(request, name, ledger, allowances, known)
        if isinstance(misfits[name], Placement):
            del misfits[name]
    known.refusal, known.refusal_version = Refusal(misfits), ledger.version
    return known.refusal


def _ranked(
    hopeful: NDArray[np.bool_], liking: NDArray[np.float32], candidates: Collection[str], ledger: Ledger
) -> Iterator[int]:
    """
    Yield the indexes of those of *candidates* that are *hopeful*, most liked first; of equal ones the name that sorts
    first.

    The best few are nearly always candidates, and one of them the last that is asked for; until that is not so, nobody
    looks the thousands of names up.
    """
    asked: list[int] = []
    for index in islice(_by_rank(np.flatnonzero(hopeful), liking, ledger), _FEW):
        if ledger.node_name(index) not in candidates:
            break
        asked.append(index)
        yield index
    indexes = ledger.indexes(candidates)
    rest = hopeful[indexes] & ~np.isin(indexes, asked)
    yield from _by_rank(indexes[rest], liking, ledger)


def _by_rank(indexes: NDArray[np.int64], liking: NDArray[np.float32], ledger: Ledger) -> Iterator[int]:
    """Yield Node *indexes*, most liked first; of equal ones the name that sorts first."""
    liking = liking[indexes]
    while len(indexes):
        is_best = liking == liking.max()
        tied, ranks = indexes[is_best], ledger.name_ranks[indexes[is_best]]
        yield int(tied[ranks.argmin()])
        yield from tied[ranks.argsort()][1:].tolist()
        indexes, liking = indexes[~is_best], liking[~is_best]


def _known_or_tried(
    request: PodRequest, name: str, ledger: Ledger, allowances: Mapping[str, Allowance], known: Known
) -> Placement | Misfit:
    """Return what `try_node` returns; a refusal is remembered in *known* for as long as the Node does not change."""
    entry = ledger.node(name)
    if entry is None:
        return UNREGISTERED
    version, remembered = int(ledger.node_versions[entry.index]), known.tried.get(name)
    if remembered is not None and remembered[0] == version:
        return remembered[1]
    found = try_node(request, name, ledger, allowances)
    if isinstance(found, Misfit):
        known.tried[name] = (version, found)
    return found
