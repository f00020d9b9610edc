"""
Rule Nodes out by arrays, all at once, so that the exact walk is done only where it can end well.

Owns necessary conditions, never sufficient ones: what passes here may still be refused by `placement`, what fails
here cannot fit. Costs a few array operations per container whatever the number of Pods. Neighbours: `ledger` owns the
arrays.
"""

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.fit import ORDINARY, WHOLE_CORE_PERCENT, Sharing, belongs, cores_asked
from hami_scheduler.ledger import DeviceKind, Ledger
from hami_scheduler.mig import MODE
from hami_scheduler.request import PodRequest
from hami_scheduler.rules import Rules
from hamicommon.model import Device, Request

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]


def possible_nodes(ledger: Ledger, request: PodRequest) -> Bools:
    """
    Return per Node index whether each container of *request*, taken alone, finds enough devices there.

    What siblings take from each other, NUMA, links and quotas are left to the exact walk: they only refuse more.
    """
    possible = np.ones(ledger.node_count, np.bool_)
    tried: set[Request] = set()
    for container in request.containers:
        for asked in container.requests:
            if asked not in tried:
                tried.add(asked)
                sharing = request.vendors[asked.vendor].sharing
                possible &= acceptable_devices(ledger, asked, request.rules[asked.vendor], sharing) >= asked.count
    return possible


def acceptable_devices(ledger: Ledger, asked: Request, rules: Rules, sharing: Sharing = ORDINARY) -> NDArray[np.int64]:
    """
    Return per Node index how many devices can take one share of *asked* as things stand, at least.

    What only a vendor's own functions can tell is left to the exact walk.
    """
    rows = slice(0, ledger.row_count)
    capacity, promised = ledger.capacity[rows], ledger.promised[rows]
    ok = ledger.is_open[rows] & accepted_kinds(ledger, asked.vendor, rules)
    if sharing.counts_replicas:
        ok &= promised[:, 0] < capacity[:, 0]
    if rules.is_mutex or sharing.is_exclusive:
        ok &= promised[:, 0] == 0
    if sharing.is_plain and sharing.counts_memory:
        ok &= _has_memory(capacity[:, 1], promised[:, 1], asked)
    if sharing.is_plain and sharing.counts_cores:
        ok &= _has_cores(rules.core_capacity or capacity[:, 2], promised, asked)
    if (rules.use_uuids or "").strip():
        ok &= _listed_rows(ledger, rules.use_uuids or "")
    counts = np.bincount(ledger.node_of_row[rows][ok], minlength=ledger.node_count)
    partitioned = np.array([kind.mode == MODE for kind in ledger.kinds] or [False], np.bool_)[ledger.kind_of_row[rows]]
    if (ok & partitioned).any():
        # A device in MIG mode can serve one request several times; how often only the exact walk knows.
        counts[ledger.node_of_row[rows][ok & partitioned]] += asked.count
    return counts


def accepted_kinds(ledger: Ledger, vendor: str, rules: Rules) -> Bools:
    """Return per device row whether *rules* accept a device of its vendor, model and mode."""
    accepted = np.array([_accepts(kind, vendor, rules) for kind in ledger.kinds] or [False], np.bool_)
    return accepted[ledger.kind_of_row[: ledger.row_count]]


def _has_memory(capacity: Int64s, promised: Int64s, asked: Request) -> Bools:
    memory_mib: Int64s | int = asked.memory_mib
    if asked.memory_mib <= 0 and asked.memory_percent is not None:
        memory_mib = capacity * asked.memory_percent // 100
    return (capacity > 0) & (capacity - promised >= memory_mib)


def _has_cores(capacity: Int64s | int, promised: Int64s, asked: Request) -> Bools:
    """Return where there is enough compute; *promised* has a column for replicas and one for compute, its last."""
    core_percent, cores = cores_asked(asked), promised[:, 2]
    ok: Bools = capacity - cores >= core_percent
    if core_percent == WHOLE_CORE_PERCENT:
        ok &= (capacity != np.int64(WHOLE_CORE_PERCENT)) | (promised[:, 0] == 0)
    if core_percent == 0:
        ok &= (capacity == np.int64(0)) | (cores != capacity)
    return ok


def _accepts(kind: DeviceKind, vendor: str, rules: Rules) -> bool:
    device = Device(id="", count=0, memory_mib=0, core_percent=0, type=kind.type, mode=kind.mode, vendor=kind.vendor)
    return belongs(device, vendor, rules) and rules.accepts_type(device)


def _listed_rows(ledger: Ledger, use_uuids: str) -> Bools:
    listed = np.zeros(ledger.row_count, np.bool_)
    for word in use_uuids.split(","):
        for row in ledger.rows_of_uuid(word.strip()):
            listed[row] = True
    return listed
