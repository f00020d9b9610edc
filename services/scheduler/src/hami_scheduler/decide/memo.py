"""
Remember which Nodes refused which kind of request, and which is the best, for as long as nothing there changed.

Owns a memory that never changes an answer: kube-scheduler asks about every waiting Pod at every change in the
cluster, and most of the answers are the same as before; and the next Pod often asks what the last one asked.
Neighbours: `filter` asks and fills, `ledger` numbers every change of a Node.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.decide.place_pod import Placement
from hami_scheduler.state.quota import Allowance
from hami_scheduler.values.reasons import Misfit, Refusal
from hami_scheduler.values.request import PodRequest

Choice = tuple[str, Placement, float]
"""A Node, what a Pod gets there, and the Node's score."""
_KINDS_REMEMBERED = 16
"""Requests of different kinds; 5000 Nodes take some 1.2 MiB each."""


@dataclass(slots=True)
class Known:
    """What is known of requests of one kind."""

    tried: dict[str, tuple[int, Misfit]] = field(default_factory=dict)
    """Per Node name: the version of the Node, and why it refused then."""
    hopeful: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Per Node index: whether it is worth a try, as far as is known."""
    hopeful_version: int = -1
    """Of the ledger, when that was settled last."""
    told: Sequence[Misfit | None] = ()
    """Per Node index: why it refused when all of them were looked at; None where it had to be tried."""
    told_version: int = -1
    """Of the ledger, then."""
    refusal: Refusal = field(default_factory=Refusal)
    """Of those asked about last that cannot take it."""
    refusal_version: int = -1
    """Of the ledger, then."""
    best: Choice | None = None
    """The best of all Nodes, when that was looked for ahead of a question; None where nothing fits."""
    best_version: int = -1
    """Of the ledger, then."""


@dataclass(slots=True)
class Refusals:
    """Refusals per kind of request, the kinds used last."""

    _known: OrderedDict[Hashable, Known] = field(default_factory=OrderedDict)
    _last: tuple[PodRequest, Mapping[str, Allowance], Known] | None = None
    """What was asked for last: a choice, the look at it and the look ahead ask for the same."""

    def known_for(self, request: PodRequest, allowances: Mapping[str, Allowance]) -> Known:
        """Return what is known of requests like *request*, to be read and added to."""
        if self._last is not None and self._last[0] is request and self._last[1] == allowances:
            return self._last[2]
        kind = (
            tuple((container.kind, container.requests) for container in request.containers),
            tuple(request.rules.items()),
            request.node_policy,
            request.device_policy,
            request.weights,
            tuple(allowances.items()),
        )
        known = self._known.pop(kind, None) or Known()
        self._known[kind] = known
        if len(self._known) > _KINDS_REMEMBERED:
            self._known.popitem(last=False)
        self._last = (request, allowances, known)
        return known
