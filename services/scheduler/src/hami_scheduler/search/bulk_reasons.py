"""
Compute, for all Nodes at once, why each rejects a Pod.

Owns no rule: each reason is the one that `place_pod.place` returns. If only its walk over the devices can tell, there
is none here. The Nodes of a cluster refuse in a few ways; each way becomes one shared `Misfit`. Neighbours: `prefilter`
judges the devices, `filter` calls this.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.search.prefilter import Bools, Int64s, belonging_devices, partitioned_devices, refused_devices
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.attempt import Attempt
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hamicommon.model import Request


@dataclass(frozen=True, slots=True)
class _Tally:
    """How many devices of each Node refuse one request, per reason."""

    asked: Request
    enough: int
    """Fewer acceptable devices than this are too few in any order."""
    is_ordered: bool
    """Whether that many may still be too few: a quota or a NUMA node bounds what they give together."""
    reasons: Sequence[Reason]
    """`COUNT` stands for the acceptable ones."""
    counts: Int64s
    """Per reason and Node index."""
    needs_walk: Bools
    """Per Node index: whether it has devices that numbers do not describe, such as MIG."""

    def cause(self, index: int) -> Misfit | None:
        """Return why the Node at *index* has too few devices, None if the order of devices may matter."""
        counts = Counter(dict(zip(self.reasons, self.counts[:, index].tolist(), strict=True)))
        if self.asked.count > counts.total():
            return Misfit.of_node(Reason.NODE_DEVICES, self.asked.vendor)
        if counts[Reason.COUNT] < self.enough:
            return Misfit.of_devices(counts, counts.total(), self.asked.vendor)
        return None


def bulk_reasons(request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance]) -> list[Misfit | None]:
    """
    Return per Node index why it rejects *request*, None if `place` must be called.

    Only the first container that asks for devices is checked: it finds the Node as it is, whatever the others ask.
    """
    first = next((container.requests for container in request.containers if container.requests), ())
    depends_on_kind = request.has_claims or request.names_claim
    if not first or depends_on_kind or not all(_is_told(asked, request) for asked in first):
        return [None] * ledger.node_count
    tallies = [_tally(asked, request, ledger, allowances) for asked in first]
    needs_walk = np.logical_or.reduce([tally.needs_walk for tally in tallies])
    needs_walk[ledger.indexes_with_instances()] = True
    columns = [needs_walk, *(column for tally in tallies for column in tally.counts)]
    examples, group_of_node = _group_equal_nodes(columns)
    causes = [None if needs_walk[index] else _joined(tallies, index) for index in examples.tolist()]
    return [causes[way] for way in group_of_node.tolist()]


def _joined(tallies: Sequence[_Tally], index: int) -> Misfit | None:
    """Return why the vendors reject the Node at *index*, None if one's order of devices may matter."""
    causes = [tally.cause(index) for tally in tallies]
    if any(cause is None and tally.is_ordered for cause, tally in zip(causes, tallies, strict=True)):
        return None
    told = [cause for cause in causes if cause]
    return Misfit.of_all(told) if told else None


def _is_told(asked: Request, request: PodRequest) -> bool:
    """Return whether numbers alone decide, without functions of the vendor."""
    fit, attempt = request.vendors[asked.vendor].fit, Attempt(asked, request.constraints[asked.vendor], ())
    has_checks = fit.check_node or fit.check_first or fit.check_last
    return fit.is_plain and not has_checks and not fit.refuses_itself(attempt)


def _tally(asked: Request, request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance]) -> _Tally:
    """Count the devices."""
    constraints, allowance = request.constraints[asked.vendor], allowances.get(asked.vendor, UNLIMITED)
    reasons = [Reason.COUNT]
    reason_of_row = np.zeros(ledger.row_count, np.int64)
    for reason, refused in refused_devices(ledger, asked, constraints, request.vendors[asked.vendor].fit, allowance):
        if reason not in reasons:
            reasons.append(reason)
        reason_of_row[refused & (reason_of_row == 0)] = reasons.index(reason)
    rows = np.flatnonzero(belonging_devices(ledger, asked.vendor, constraints))
    node_of_row, size = ledger.node_of_row[rows], len(reasons)
    counts = np.bincount(node_of_row * size + reason_of_row[rows], minlength=ledger.node_count * size)
    needs_walk = np.zeros(ledger.node_count, np.bool_)
    needs_walk[node_of_row[partitioned_devices(ledger)[rows]]] = True
    is_ordered = allowance != UNLIMITED or constraints.is_numa_bound
    return _Tally(asked, 1 if is_ordered else asked.count, is_ordered, reasons, counts.reshape(-1, size).T, needs_walk)


def _group_equal_nodes(columns: Iterable[NDArray[np.generic]]) -> tuple[Int64s, Int64s]:
    """Group Nodes that are equal in all *columns*: return one index of each group, and per Node index its group."""
    group_of_node: Int64s = np.zeros(1, np.int64)
    for column in columns:
        numbers = column.astype(np.int64)
        _, group_of_node = np.unique(group_of_node * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)
    _, examples, group_of_node = np.unique(group_of_node, return_index=True, return_inverse=True)
    return examples, group_of_node
