"""
Check all devices of all Nodes at once, by arrays, as `fit` checks one device.

A Node that fails cannot take the Pod; a Node that passes may still be refused by `place_pod`. It costs a few array
operations per container, whatever the number of Pods. Neighbours: `ledger` owns the arrays, `bulk_reasons` counts the
refused devices per reason.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.rules.fit import (
    WHOLE_CORE_PERCENT,
    belongs,
    has_users,
    is_used_up,
    lacks,
    lacks_memory,
    memory_asked,
)
from hami_scheduler.rules.mig import MODE
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.constraints import Constraints
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import ORDINARY, FitRules
from hamicommon.model import Request
from hamicommon.pod.amounts import AMOUNT_LIMIT
from hamicommon.wire.device_lists import uuid_allowed
from hamicommon.wire.go.strings import BLANKS, pieces

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]
_NO_UUID = ","
"""A UUID that no list can name and no device has."""


def possible_nodes(ledger: Ledger, request: PodRequest, allowances: Mapping[str, Allowance] | None = None) -> Bools:
    """
    Return per Node index whether each container of *request*, taken alone, finds enough devices there.

    The kubelet's count is for the whole Pod. What containers take from each other, NUMA and links are left to
    `place_pod`: they only refuse more. So are quotas without *allowances*, which are per vendor key.
    """
    possible = ~ledger.lacks_replicas(request.replicas)
    tried: set[Request] = set()
    for container in request.containers:
        for asked in container.requests:
            if asked not in tried:
                tried.add(asked)
                constraints, fit = request.constraints[asked.vendor], request.vendors[asked.vendor].fit
                allowance = (allowances or {}).get(asked.vendor, UNLIMITED)
                possible &= acceptable_devices(ledger, asked, constraints, fit, allowance) >= asked.count
    return possible


def acceptable_devices(
    ledger: Ledger, asked: Request, constraints: Constraints, fit: FitRules = ORDINARY, allowance: Allowance = UNLIMITED
) -> Int64s:
    """
    Return per Node index how many devices may take one share of *asked* now.

    What only a vendor's own functions check is left to `place_pod`.
    """
    ok = belonging_devices(ledger, asked.vendor, constraints)
    for _, refused in refused_devices(ledger, asked, constraints, fit, allowance):
        ok &= np.logical_not(refused)
    counts = np.bincount(ledger.node_of_row[: ledger.row_count][ok], minlength=ledger.node_count)
    partitioned = partitioned_devices(ledger) & ok
    if partitioned.any():
        # A device in MIG mode can serve one request several times; only `place_pod` knows how often.
        counts[ledger.node_of_row[: ledger.row_count][partitioned]] += asked.count
    return counts


def refused_devices(
    ledger: Ledger, asked: Request, constraints: Constraints, fit: FitRules, allowance: Allowance
) -> Iterator[tuple[Reason, Bools]]:
    """
    Yield each reason to refuse one share of *asked*, in the order of `fit`, with the device rows that refuse for it.

    The first reason that a device has is the one that counts. *allowance* is what the namespace may still take. What
    only a vendor's own functions check is left out.
    """
    rows = slice(0, ledger.row_count)
    capacity, promised = ledger.capacity[rows], ledger.promised[rows]
    yield fit.unhealthy, ~ledger.is_healthy[rows]
    yield Reason.CORDONED, ~ledger.is_open[rows]
    yield Reason.TYPE, ~ledger.of_kinds(constraints.accepts_type)
    if constraints.use_uuids is not None or constraints.nouse_uuids is not None:
        yield Reason.UUID, _refused_uuids(ledger, constraints)
    if fit.counts_replicas:
        yield Reason.REPLICAS, promised[:, 0] >= capacity[:, 0]
    if constraints.is_mutex or fit.is_exclusive:
        yield Reason.EXCLUSIVE, promised[:, 0] > 0
    if not fit.is_plain:
        return
    memory_mib, core_percent = memory_asked(asked, capacity[:, 1]), asked.held_core_percent
    if allowance != UNLIMITED:
        yield Reason.QUOTA, allowance.is_exceeded_by(np.clip(memory_mib, 0, AMOUNT_LIMIT), core_percent)
    if fit.counts_memory:
        yield Reason.MEMORY, lacks_memory(capacity[:, 1], promised[:, 1], memory_mib)
    if fit.counts_cores:
        cores = constraints.core_capacity or capacity[:, 2]
        yield Reason.CORE, lacks(cores, promised[:, 2], core_percent)
        if core_percent == WHOLE_CORE_PERCENT:
            yield Reason.EXCLUSIVE, has_users(cores, promised[:, 0])
        if core_percent == 0:
            yield Reason.ZERO_CORE, is_used_up(cores, promised[:, 2])


def belonging_devices(ledger: Ledger, vendor: str, constraints: Constraints) -> Bools:
    """Return per device row whether it is of *vendor*, and of a type that *constraints* accept; see `fit.belongs`."""
    return ledger.has_device & ledger.of_kinds(lambda kind: belongs(kind, vendor, constraints))


def partitioned_devices(ledger: Ledger) -> Bools:
    """Return per device row whether it is in MIG mode."""
    return ledger.of_kinds(lambda kind: kind.mode == MODE)


def _refused_uuids(ledger: Ledger, constraints: Constraints) -> Bools:
    """Return per device row whether the lists of *constraints* refuse its UUID."""
    refused = _named_devices(ledger, constraints.nouse_uuids or "")
    if not uuid_allowed(constraints.use_uuids, None, _NO_UUID):
        refused |= ~_named_devices(ledger, constraints.use_uuids or "")
    return refused


def _named_devices(ledger: Ledger, uuids: str) -> Bools:
    named = np.zeros(ledger.row_count, np.bool_)
    for uuid in pieces(uuids, ","):
        named[list(ledger.rows_of_uuid(uuid.strip(BLANKS)))] = True
    return named
