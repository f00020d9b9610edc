"""
Check all devices of all Nodes at once, by arrays, as `fit` checks one device.

A Node that fails cannot take the Pod; a Node that passes may still be refused by `place_pod`. It costs a few array
operations per container, whatever the number of Pods. Neighbours: `ledger` owns the arrays, `bulk_reasons` counts the
refused devices per reason.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.state.ledger import DeviceKind, Ledger
from hami_scheduler.state.quota import UNLIMITED, Allowance
from hami_scheduler.values.fit import ORDINARY, WHOLE_CORE_PERCENT, Sharing, belongs
from hami_scheduler.values.mig import MODE
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.rules import Rules
from hamicommon.held import AMOUNT_LIMIT
from hamicommon.model import Device, Request
from hamicommon.wire.device_lists import uuid_allowed
from hamicommon.wire.go.strings import BLANKS, pieces

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]
_NO_UUID = ","
"""A UUID that no list can name and no device has."""


def possible_nodes(ledger: Ledger, request: PodRequest, allowances: Mapping[str, Allowance] | None = None) -> Bools:
    """
    Return per Node index whether each container of *request*, taken alone, finds enough devices there.

    What containers take from each other, NUMA and links are left to `place_pod`: they only refuse more. So are quotas
    without *allowances*, which are per vendor key.
    """
    possible = np.ones(ledger.node_count, np.bool_)
    tried: set[Request] = set()
    for container in request.containers:
        for asked in container.requests:
            if asked not in tried:
                tried.add(asked)
                rules, sharing = request.rules[asked.vendor], request.vendors[asked.vendor].sharing
                allowance = (allowances or {}).get(asked.vendor, UNLIMITED)
                possible &= acceptable_devices(ledger, asked, rules, sharing, allowance) >= asked.count
    return possible


def acceptable_devices(
    ledger: Ledger, asked: Request, rules: Rules, sharing: Sharing = ORDINARY, allowance: Allowance = UNLIMITED
) -> Int64s:
    """
    Return per Node index how many devices may take one share of *asked* now.

    What only a vendor's own functions check is left to `place_pod`.
    """
    ok = belonging_devices(ledger, asked.vendor, rules)
    for _, refused in refused_devices(ledger, asked, rules, sharing, allowance):
        ok &= ~refused
    counts = np.bincount(ledger.node_of_row[: ledger.row_count][ok], minlength=ledger.node_count)
    partitioned = partitioned_devices(ledger) & ok
    if partitioned.any():
        # A device in MIG mode can serve one request several times; only `place_pod` knows how often.
        counts[ledger.node_of_row[: ledger.row_count][partitioned]] += asked.count
    return counts


def refused_devices(
    ledger: Ledger, asked: Request, rules: Rules, sharing: Sharing, allowance: Allowance
) -> Iterator[tuple[Reason, Bools]]:
    """
    Yield each reason to refuse one share of *asked*, in the order of `fit`, with the device rows that refuse for it.

    The first reason that a device has is the one that counts. *allowance* is what the namespace may still take. What
    only a vendor's own functions check is left out.
    """
    rows = slice(0, ledger.row_count)
    capacity, promised = ledger.capacity[rows], ledger.promised[rows]
    yield sharing.unhealthy, ~ledger.is_healthy[rows]
    yield Reason.CORDONED, ~ledger.is_open[rows]
    yield Reason.TYPE, ~_of_kinds(ledger, [rules.accepts_type(_like(kind)) for kind in ledger.kinds])
    if rules.use_uuids is not None or rules.nouse_uuids is not None:
        yield Reason.UUID, refused_uuids(ledger, rules)
    if sharing.counts_replicas:
        yield Reason.REPLICAS, promised[:, 0] >= capacity[:, 0]
    if rules.is_mutex or sharing.is_exclusive:
        yield Reason.EXCLUSIVE, promised[:, 0] > 0
    if not sharing.is_plain:
        return
    memory_mib = _memory_asked(asked, capacity[:, 1])
    if allowance != UNLIMITED:
        yield Reason.QUOTA, _beyond(allowance, memory_mib, asked, ledger.row_count)
    if sharing.counts_memory:
        yield Reason.MEMORY, (capacity[:, 1] <= 0) | (capacity[:, 1] - promised[:, 1] < memory_mib)
    if sharing.counts_cores:
        yield from _refused_cores(rules.core_capacity or capacity[:, 2], promised, asked.held_core_percent)


def belonging_devices(ledger: Ledger, vendor: str, rules: Rules) -> Bools:
    """Return per device row whether it is one of *vendor*, and of a type that *rules* accept; see `fit.belongs`."""
    is_offered: Bools = ledger.node_of_row[: ledger.row_count] >= 0
    return is_offered & _of_kinds(ledger, [belongs(_like(kind), vendor, rules) for kind in ledger.kinds])


def accepted_kinds(ledger: Ledger, vendor: str, rules: Rules) -> Bools:
    """Return per device row whether *rules* accept a device of its vendor, model and mode."""
    devices = map(_like, ledger.kinds)
    return _of_kinds(ledger, [belongs(device, vendor, rules) and rules.accepts_type(device) for device in devices])


def partitioned_devices(ledger: Ledger) -> Bools:
    """Return per device row whether it is in MIG mode."""
    return _of_kinds(ledger, [kind.mode == MODE for kind in ledger.kinds])


def refused_uuids(ledger: Ledger, rules: Rules) -> Bools:
    """Return per device row whether the lists of *rules* refuse its UUID."""
    refused = _named_devices(ledger, rules.nouse_uuids or "")
    if not uuid_allowed(rules.use_uuids, None, _NO_UUID):
        refused |= ~_named_devices(ledger, rules.use_uuids or "")
    return refused


def _of_kinds(ledger: Ledger, wanted: list[bool]) -> Bools:
    """Return per device row whether its kind is *wanted*, which has one entry per kind."""
    if len(set(wanted)) < 2:
        return np.full(ledger.row_count, any(wanted))
    return np.array(wanted)[ledger.kind_of_row[: ledger.row_count]]


def _like(kind: DeviceKind) -> Device:
    return Device(id="", count=0, memory_mib=0, core_percent=0, type=kind.type, mode=kind.mode, vendor=kind.vendor)


def _named_devices(ledger: Ledger, uuids: str) -> Bools:
    named = np.zeros(ledger.row_count, np.bool_)
    for uuid in pieces(uuids, ","):
        named[list(ledger.rows_of_uuid(uuid.strip(BLANKS)))] = True
    return named


def _memory_asked(asked: Request, capacity: Int64s) -> Int64s | int:
    """Return the MiB that one share takes of devices with *capacity*; `fit.memory_asked` for all of them."""
    if asked.memory_mib > 0 or asked.memory_percent is None:
        return asked.memory_mib
    return capacity * asked.memory_percent // 100


def _beyond(allowance: Allowance, memory_mib: Int64s | int, asked: Request, count: int) -> Bools:
    """Return per device row whether one share alone is more than *allowance*."""
    beyond = np.zeros(count, np.bool_)
    if allowance.memory_mib is not None:
        beyond |= np.clip(memory_mib, 0, AMOUNT_LIMIT) > allowance.memory_mib
    if allowance.core_percent is not None:
        beyond |= asked.held_core_percent > allowance.core_percent
    return beyond


def _refused_cores(capacity: Int64s | int, promised: Int64s, core_percent: int) -> Iterator[tuple[Reason, Bools]]:
    """Yield why devices with *capacity* have too little compute; `fit.refusal_of_cores` for all of them."""
    replicas, cores = promised[:, 0], promised[:, 2]
    yield Reason.CORE, capacity - cores < core_percent
    if core_percent == WHOLE_CORE_PERCENT:
        yield Reason.EXCLUSIVE, (capacity == np.int64(WHOLE_CORE_PERCENT)) & (replicas > 0)
    if core_percent == 0:
        yield Reason.ZERO_CORE, (cores == capacity) & (capacity != np.int64(0))
