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

from hami_scheduler.decide.prefilter import Bools, Int64s, belonging_devices, partitioned_devices, refused_devices
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.fit import Attempt, Sharing
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.rules import Rules
from hamicommon.model import Request


@dataclass(frozen=True, slots=True)
class _Tally:
    """How many devices of each Node refuse one request, per reason."""

    asked: Request
    enough: int
    """Fewer acceptable devices than this are too few in any order."""
    reasons: Sequence[Reason]
    """`COUNT` stands for the acceptable ones."""
    counts: Int64s
    """Per reason and Node index."""
    is_untold: Bools
    """Per Node index: whether it has devices that numbers do not describe, such as MIG."""

    def cause(self, index: int) -> Misfit | None:
        """Return why the Node at *index* has too few devices, None if the order of devices may matter."""
        counts = Counter(dict(zip(self.reasons, self.counts[:, index].tolist(), strict=True)))
        if self.asked.count > counts.total():
            return Misfit.of_node(Reason.NODE_DEVICES)
        return Misfit.of_devices(counts, counts.total()) if counts[Reason.COUNT] < self.enough else None


def bulk_reasons(request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance]) -> list[Misfit | None]:
    """
    Return per Node index why it rejects *request*, None if `place` must be called.

    Only the first container that asks for devices is checked: it finds the Node as it is, whatever the others ask.
    """
    first = next((container.requests for container in request.containers if container.requests), ())
    told = [_is_told(asked, request.vendors[asked.vendor].sharing, request.rules[asked.vendor]) for asked in first]
    if not told or not all(told):
        return [None] * ledger.node_count
    tallies = [_tally(asked, request, ledger, allowances, is_alone=len(first) == 1) for asked in first]
    is_untold = np.logical_or.reduce([tally.is_untold for tally in tallies])
    is_untold[ledger.indexes_with_instances()] = True
    examples, way_of_node = _ways([is_untold, *(column for tally in tallies for column in tally.counts)])
    causes = [None if is_untold[index] else _joined(tallies, index) for index in examples.tolist()]
    return [causes[way] for way in way_of_node.tolist()]


def _joined(tallies: Iterable[_Tally], index: int) -> Misfit | None:
    causes = [cause for tally in tallies if (cause := tally.cause(index))]
    return Misfit.of_all(causes) if causes else None


def _is_told(asked: Request, sharing: Sharing, rules: Rules) -> bool:
    """Return whether numbers alone decide, without functions of the vendor."""
    if not sharing.is_plain or sharing.gate or sharing.check_first or sharing.check_last:
        return False
    return not sharing.refuses_itself(Attempt(asked, rules, ()))


def _tally(
    asked: Request, request: PodRequest, ledger: Ledger, allowances: Mapping[str, Allowance], *, is_alone: bool
) -> _Tally:
    """Count the devices. With *is_alone* the container asks no other vendor."""
    rules, allowance = request.rules[asked.vendor], allowances.get(asked.vendor, UNLIMITED)
    reasons = [Reason.COUNT]
    reason_of_row = np.zeros(ledger.row_count, np.int64)
    for reason, refused in refused_devices(ledger, asked, rules, request.vendors[asked.vendor].sharing, allowance):
        if reason not in reasons:
            reasons.append(reason)
        reason_of_row[refused & (reason_of_row == 0)] = reasons.index(reason)
    rows = np.flatnonzero(belonging_devices(ledger, asked.vendor, rules))
    node_of_row, size = ledger.node_of_row[rows], len(reasons)
    counts = np.bincount(node_of_row * size + reason_of_row[rows], minlength=ledger.node_count * size)
    is_untold = np.zeros(ledger.node_count, np.bool_)
    is_untold[node_of_row[partitioned_devices(ledger)[rows]]] = True
    enough = int(is_alone) if allowance != UNLIMITED or rules.is_numa_bound else asked.count
    return _Tally(asked, enough, reasons, counts.reshape(-1, size).T, is_untold)


def _ways(columns: Iterable[NDArray[np.generic]]) -> tuple[Int64s, Int64s]:
    """Group Nodes that are equal in all *columns*: return one index of each group, and per Node index its group."""
    way_of_node: Int64s = np.zeros(1, np.int64)
    for column in columns:
        numbers = column.astype(np.int64)
        _, way_of_node = np.unique(way_of_node * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)
    _, examples, way_of_node = np.unique(way_of_node, return_index=True, return_inverse=True)
    return examples, way_of_node
