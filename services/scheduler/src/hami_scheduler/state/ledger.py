"""
What is promised of every device: replicas, memory and compute; and what every kubelet has left. Changed by deltas.

Owns the grants, and the arrays with their sums that decisions read. A grant of an unknown device is kept and counts
once the device is known. Must never count a Pod twice or let a number go below zero; `recount` checks both.
Neighbours: `inventory` says what Nodes offer, `grant` what a Pod holds, `prefilter` reads the arrays, `place_pod` the
device uses.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.rules.fit import WHOLE_CORE_PERCENT, is_used_up
from hami_scheduler.rules.mig import MODE, blocked_instances, mig_state
from hami_scheduler.rules.score import Float32s, node_scores, score_divisors
from hami_scheduler.values.constraints import DeviceKind
from hami_scheduler.values.device_use import DeviceUse, PodOnDevice
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.request import Replicas
from hami_scheduler.values.vendor import VendorRules
from hamicommon.pod.amounts import Amounts

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
_FIRST_ROWS = 64
_UNLIMITED = 2**62
"""Replicas left of a resource that the Node's kubelet does not count, or has no say in."""
_COLUMNS = 3
"""Replicas, MiB, core percent: the columns of every amounts array."""
_OF_ROWS: Mapping[str, float] = {
    "capacity": 0,
    "promised": 0,
    "node_of_row": -1,
    "kind_of_row": 0,
    "is_healthy": False,
    "is_open": False,
}
"""The arrays with one row per device, and what a row without a device has."""
_OF_NODES: Mapping[str, float] = {
    "node_promised": 0,
    "_node_divisors": np.inf,
    "node_versions": 0,
    "_replicas_left": _UNLIMITED,
}
"""The arrays with one row per Node index, and what a row without a Node has."""


@dataclass(slots=True)
class NodeEntry:
    """The place of one Node in the arrays."""

    index: int
    """Row of the Node's sums."""
    start: int
    """First row of its devices."""
    inventory: NodeInventory
    rows: dict[str, int] = field(default_factory=dict)
    """Per device UUID: its row."""


class Ledger:
    """Devices, grants and their sums."""

    def __init__(self) -> None:
        """Start empty."""
        self._nodes: dict[str, NodeEntry] = {}
        self._names: list[str | None] = []
        self._index_of: dict[str, int] = {}
        self._name_ranks: Int64s | None = None
        self._free_indexes: list[int] = []
        self._grants: dict[str, Grant] = {}
        self._grants_of_node: dict[str, dict[str, Grant]] = {}
        self._with_instances: set[str] = set()
        """UIDs of the Pods that hold MIG instances."""
        self._kinds: dict[DeviceKind, int] = {}
        self._rows_of_uuid: dict[str, tuple[int, ...]] = {}
        self._silent: dict[str, NodeInventory] = {}
        """Nodes that offer Pods no device: no device plugin runs there, or devices are given by ResourceClaims."""
        self._giving_claims: set[str] = set()
        self._columns: dict[str, int] = {}
        """Per resource that a kubelet counts: its column in `_replicas_left`."""
        self._replicas_left: Int64s = np.full((_FIRST_ROWS, 1), _UNLIMITED, np.int64, "F")
        """Per Node index and resource: healthy replicas that no Pod holds; negative for none and nothing to come."""
        self.version = 0
        """Increases with every change of a Node's devices or of what is promised of them."""
        self.row_count = 0
        """Device rows in use, dead ones included."""
        self._dead_rows = 0
        self.capacity: Int64s = _amounts()
        """Per device row: what the device offers."""
        self.promised: Int64s = _amounts()
        """Per device row: what is promised of it."""
        self.node_of_row: Int64s = np.full(_FIRST_ROWS, -1, np.int64)
        """Per device row: its Node's index; -1 without a device."""
        self.kind_of_row: Int64s = np.zeros(_FIRST_ROWS, np.int64)
        self.is_healthy: NDArray[np.bool_] = np.zeros(_FIRST_ROWS, np.bool_)
        self.is_open: NDArray[np.bool_] = np.zeros(_FIRST_ROWS, np.bool_)
        """Per device row: healthy and not cordoned."""
        self.node_promised: Int64s = _amounts()
        """Per Node index: the sum over its devices."""
        self._node_divisors: Float32s = np.full((_FIRST_ROWS, _COLUMNS), np.inf, np.float32, "F")
        self.node_versions: Int64s = np.zeros(_FIRST_ROWS, np.int64)
        """Per Node index: the version of its last change."""

    # Reading

    @property
    def node_count(self) -> int:
        """Node indexes in use, free ones included: the length of per-Node results."""
        return len(self._names)

    @property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """Every kind of device seen; `kind_of_row` points into it."""
        return tuple(self._kinds)

    @property
    def names(self) -> Collection[str]:
        """The Nodes that offer devices, in no order."""
        return self._index_of.keys()

    def node(self, name: str) -> NodeEntry | None:
        """Return the entry of Node *name*, None if it offers no device."""
        return self._nodes.get(name)

    @property
    def giving_claims(self) -> Collection[str]:
        """The Nodes that give NVIDIA devices by ResourceClaims, in no order."""
        return self._giving_claims

    @property
    def silent(self) -> Mapping[str, NodeInventory]:
        """
        Per Node that offers no device: its inventory.

        Its device plugin does not run, or it gives devices by ResourceClaims.
        """
        return self._silent

    def lacks_replicas(self, asked: Replicas) -> Bools:
        """Return per Node index whether its kubelet has not enough left for a Pod that asks for *asked*."""
        lacks = np.zeros(self.node_count, np.bool_)
        for name, count in asked:
            column = self._columns.get(name)
            if column is not None:
                lacks |= self._replicas_left[: self.node_count, column] < count
        return lacks

    def short_replicas(self, entry: NodeEntry, asked: Replicas) -> dict[str, int]:
        """Return the resources of *asked* of which the kubelet of one Node has too few left, and how many it has."""
        found = {name: self.replicas_left(entry, name) for name, _ in asked}
        return {name: found[name] for name, count in asked if found[name] < count}

    def replicas_left(self, entry: NodeEntry, resource: str) -> int:
        """Return how many of *resource* the kubelet of one Node has left by our count; below 0 for none to come."""
        column = self._columns.get(resource)
        return _UNLIMITED if column is None else int(self._replicas_left[entry.index, column])

    def nodes(self) -> Iterator[NodeEntry]:
        """Yield every Node, in no order."""
        yield from self._nodes.values()

    def places(self, names: Iterable[str]) -> Int64s:
        """Return per name the index of its Node, -1 if it offers no device."""
        return np.fromiter(map(self._index_of.get, names, repeat(-1)), np.int64)

    def indexes(self, names: Iterable[str]) -> Int64s:
        """Return the indexes of those Nodes of *names* that offer devices."""
        found = self.places(names)
        known: Int64s = found[found >= 0]
        return known

    def node_scores(self) -> Float32s:
        """Return per Node index how full it is, 0 (idle) to 30 (full)."""
        return node_scores(self.node_promised[: self.node_count], self._node_divisors[: self.node_count])

    def node_score(self, entry: NodeEntry) -> float:
        """Return how full one Node is: `node_scores` at its index."""
        here = slice(entry.index, entry.index + 1)
        return float(node_scores(self.node_promised[here], self._node_divisors[here])[0])

    def changed_since(self, version: int) -> list[int]:
        """Return the indexes of the Nodes that have changed, come or gone since *version*."""
        changed: list[int] = np.flatnonzero(self.node_versions[: self.node_count] > version).tolist()
        return changed

    def indexes_with_instances(self) -> list[int]:
        """Return the indexes of the Nodes where a Pod holds MIG instances."""
        nodes = {self._grants[uid].node for uid in self._with_instances}
        return [self._index_of[name] for name in nodes if name in self._index_of]

    @property
    def name_ranks(self) -> Int64s:
        """Per Node index: the rank of its name."""
        if self._name_ranks is None:
            self._name_ranks = np.empty(self.node_count, np.int64)
            order = sorted(range(self.node_count), key=self.node_name)
            self._name_ranks[order] = np.arange(self.node_count)
        return self._name_ranks

    def node_name(self, index: int) -> str:
        """Return the name of the Node at *index*."""
        return self._names[index] or ""

    def rows_of_uuid(self, uuid: str) -> frozenset[int]:
        """Return the rows of the devices *uuid*; several only if two Nodes claim the same one."""
        return frozenset(self._rows_of_uuid.get(uuid, ()))

    def grant(self, uid: str) -> Grant | None:
        """Return what the Pod *uid* holds."""
        return self._grants.get(uid)

    def grants(self) -> Iterator[Grant]:
        """Yield what every Pod and every ResourceClaim holds, in no order."""
        yield from self._grants.values()

    def grants_on(self, name: str) -> tuple[Grant, ...]:
        """Return what Pods and ResourceClaims hold on Node *name*, in no order."""
        return tuple(self._grants_of_node.get(name, {}).values())

    def device_uses(self, name: str) -> list[DeviceUse]:
        """Return the devices of Node *name* with what is promised of each, in registered order."""
        entry = self._nodes[name]
        inventory = entry.inventory
        promised = self.promised[entry.start : entry.start + len(inventory.devices)].tolist()
        uses = [
            DeviceUse(device, device.id in inventory.cordoned, *amounts)
            for device, amounts in zip(inventory.devices, promised, strict=True)
        ]
        here = self._grants_of_node.get(name, {})
        if any(use.device.mode == MODE for use in uses) or not self._with_instances.isdisjoint(here):
            state = mig_state(inventory.devices, here.values())
            for use in uses:
                use.occupied = state.occupied.get(use.device.id, [])
                use.instances_known = use.device.id not in state.incomplete
        annotated = [grant for grant in here.values() if grant.vendor_annotations]
        for use in uses if annotated else ():
            uuid, vendor = use.device.id, use.device.vendor
            use.pods = tuple(
                PodOnDevice(grant.vendor_annotations[vendor], grant.amounts[uuid].core_percent, grant.is_set_up)
                for grant in annotated
                if uuid in grant.amounts and vendor in grant.vendor_annotations
            )
        return uses

    @property
    def has_device(self) -> Bools:
        """Per device row: whether there is a device."""
        found: Bools = self.node_of_row[: self.row_count] >= 0
        return found

    def left(self) -> Int64s:
        """Return per device row the replicas, MiB and percent that are not promised."""
        left: Int64s = (self.capacity - self.promised)[: self.row_count].clip(0)
        return left

    def of_kinds(self, is_wanted: Callable[[DeviceKind], bool]) -> Bools:
        """Return per device row whether its kind is wanted; rows without a device have any kind."""
        wanted = [is_wanted(kind) for kind in self._kinds]
        if len(set(wanted)) < 2:
            return np.full(self.row_count, any(wanted))
        return np.array(wanted)[self.kind_of_row[: self.row_count]]

    # Changing

    def put_node(self, inventory: NodeInventory) -> None:
        """Replace what the Node of *inventory* offers; a Node without devices is dropped."""
        entry = self._nodes.get(inventory.name)
        if entry is not None and entry.inventory == inventory:
            return
        if entry is not None and _same_devices(entry.inventory, inventory):
            self._open_rows(entry, inventory)
            return
        if entry is None and self._silent.get(inventory.name) == inventory:
            return
        self.drop_node(inventory.name)
        if inventory.gives_claims:
            self._giving_claims.add(inventory.name)
        if inventory.devices:
            self._add_node(inventory)
        elif inventory.silent or inventory.gives_claims:
            self._silent[inventory.name] = inventory
            self.version += 1

    def drop_node(self, name: str) -> None:
        """Drop what Node *name* offers. Grants stay: the Pods still run, and the Node may come back."""
        self._giving_claims.discard(name)
        if self._silent.pop(name, None) is not None:
            self.version += 1
        entry = self._nodes.pop(name, None)
        if entry is None:
            return
        stop = entry.start + len(entry.inventory.devices)
        for uuid, row in entry.rows.items():
            rows = tuple(other for other in self._rows_of_uuid.pop(uuid) if other != row)
            if rows:
                self._rows_of_uuid[uuid] = rows
        for array, empty in _OF_ROWS.items():
            getattr(self, array)[entry.start : stop] = empty
        for array, empty in _OF_NODES.items():
            getattr(self, array)[entry.index] = empty
        self._names[entry.index] = None
        del self._index_of[name]
        self._name_ranks = None
        self._touch(entry)
        self._free_indexes.append(entry.index)
        self._dead_rows += stop - entry.start

    def put(self, grant: Grant) -> None:
        """Count *grant* instead of what its Pod held before."""
        if self._grants.get(grant.uid) == grant:
            return
        self.drop(grant.uid)
        self._grants[grant.uid] = grant
        self._grants_of_node.setdefault(grant.node, {})[grant.uid] = grant
        if grant.mig:
            self._with_instances.add(grant.uid)
        self._apply(grant, 1)

    def drop(self, uid: str) -> Grant | None:
        """Stop counting the Pod *uid* and return what it held."""
        grant = self._grants.pop(uid, None)
        if grant is None:
            return None
        self._with_instances.discard(uid)
        of_node = self._grants_of_node[grant.node]
        del of_node[uid]
        if not of_node:
            del self._grants_of_node[grant.node]
        self._apply(grant, -1)
        return grant

    def recount(self) -> int:
        """
        Compute every promise from the grants again and return how many numbers were wrong; 0 unless there is a bug.

        The recomputed numbers are kept.
        """
        rows: list[int] = []
        amounts: list[tuple[int, int, int]] = []
        for grant in self._grants.values():
            entry = self._nodes.get(grant.node)
            for uuid, amount in grant.amounts.items():
                row = entry.rows.get(uuid) if entry else None
                if row is not None:
                    rows.append(row)
                    amounts.append((amount.replicas, amount.memory_mib, amount.core_percent))
        expected, node_expected = np.zeros_like(self.promised), np.zeros_like(self.node_promised)
        places, columns = np.array(rows, np.int64), np.array(amounts, np.int64).reshape(-1, _COLUMNS).T
        for column, counted in enumerate(columns):
            np.add.at(expected[:, column], places, counted)
            np.add.at(node_expected[:, column], self.node_of_row[places], counted)
        drift = int(np.count_nonzero(expected != self.promised))
        drift += int(np.count_nonzero(node_expected != self.node_promised))
        drift += self._recount_replicas()
        if drift:
            self.promised, self.node_promised = expected, node_expected
            self.version += 1
            self.node_versions[:] = self.version
        return drift

    def _recount_replicas(self) -> int:
        """Compute what each kubelet has left again, and return how many numbers were wrong."""
        before = self._replicas_left.copy()
        for entry in self._nodes.values():
            self._offer_replicas(entry, self._grants_of_node.get(entry.inventory.name, {}).values())
        return int(np.count_nonzero(before != self._replicas_left))

    # Inside

    def _offer_replicas(self, entry: NodeEntry, grants: Iterable[Grant]) -> None:
        """Set what the kubelet of a Node has left, from what it offers and what *grants* hold."""
        inventory = entry.inventory
        row = dict.fromkeys(self._columns, _UNLIMITED)
        for name, offered in (inventory.replicas or {}).items():
            row[name] = -_UNLIMITED if name in inventory.rejecting else offered
        for grant in grants:
            for name, count in held_replicas(grant, inventory):
                row[name] -= count
        for name in row:
            self._columns.setdefault(name, len(self._columns))
        missing = len(self._columns) - self._replicas_left.shape[1]
        if missing > 0:
            more = np.full((len(self._replicas_left), missing), _UNLIMITED, np.int64, "F")
            self._replicas_left = np.asfortranarray(np.hstack((self._replicas_left, more)))
        self._replicas_left[entry.index, : len(row)] = [*row.values()]  # `row` has the order of the columns

    def _apply(self, grant: Grant, sign: int) -> None:
        entry = self._nodes.get(grant.node)
        if entry is None:
            return
        self._touch(entry)
        for name, count in held_replicas(grant, entry.inventory):
            self._replicas_left[entry.index, self._columns[name]] -= sign * count
        for uuid, amount in grant.amounts.items():
            row = entry.rows.get(uuid)
            if row is not None:
                delta = np.array((amount.replicas, amount.memory_mib, amount.core_percent), np.int64) * sign
                self.promised[row] += delta
                self.node_promised[entry.index] += delta

    def _touch(self, entry: NodeEntry) -> None:
        self.version += 1
        self.node_versions[entry.index] = self.version

    def _open_rows(self, entry: NodeEntry, inventory: NodeInventory) -> None:
        entry.inventory = inventory
        self._touch(entry)
        self._offer_replicas(entry, self._grants_of_node.get(inventory.name, {}).values())
        for uuid, row in entry.rows.items():
            self.is_open[row] = self.is_healthy[row] and uuid not in inventory.cordoned

    def _add_node(self, inventory: NodeInventory) -> None:
        start = self._reserve_rows(len(inventory.devices))
        entry = NodeEntry(self._take_index(inventory.name), start, inventory)
        self._index_of[inventory.name] = entry.index
        self._name_ranks = None
        self._nodes[inventory.name] = entry
        self._touch(entry)
        devices, rows = inventory.devices, slice(start, start + len(inventory.devices))
        for row, device in enumerate(devices, start):
            entry.rows[device.id] = row
            self._rows_of_uuid[device.id] = (*self._rows_of_uuid.get(device.id, ()), row)
        self.capacity[rows] = [(device.count, device.memory_mib, device.core_percent) for device in devices]
        self.node_of_row[rows] = entry.index
        self.kind_of_row[rows] = [
            self._kinds.setdefault(DeviceKind(device.vendor, device.type, device.mode), len(self._kinds))
            for device in devices
        ]
        self.is_healthy[rows] = [device.healthy for device in devices]
        self.is_open[rows] = [device.healthy and device.id not in inventory.cordoned for device in devices]
        self._node_divisors[entry.index] = score_divisors(self.capacity[rows].sum(axis=0, keepdims=True))
        self._offer_replicas(entry, ())
        for grant in self._grants_of_node.get(inventory.name, {}).values():
            self._apply(grant, 1)

    def _take_index(self, name: str) -> int:
        if self._free_indexes:
            index = self._free_indexes.pop()
            self._names[index] = name
            return index
        self._names.append(name)
        if len(self._names) > len(self.node_promised):
            self._grow(_OF_NODES)
        return len(self._names) - 1

    def _reserve_rows(self, count: int) -> int:
        """Return the first of *count* new rows; if most rows are dead, compact first."""
        if self._dead_rows > max(_FIRST_ROWS, self.row_count // 2):
            self._compact()
        start = self.row_count
        self.row_count += count
        while self.row_count > len(self.capacity):
            self._grow(_OF_ROWS)
        return start

    def _grow(self, arrays: Mapping[str, float]) -> None:
        """Give *arrays* twice the rows, the new ones empty."""
        for name in arrays:
            self._rearrange(name, arrays[name], slice(None), 2 * len(getattr(self, name)))

    def _rearrange(self, name: str, empty: float, rows: Any, size: int) -> None:
        """Keep *rows* of an array, first, and add empty rows up to *size*."""
        kept = getattr(self, name)[rows]
        array = np.full((size, *kept.shape[1:]), empty, kept.dtype, "F")
        array[: len(kept)] = kept
        setattr(self, name, array)

    def _compact(self) -> None:
        order = [row for entry in self._nodes.values() for row in range(entry.start, entry.start + len(entry.rows))]
        size = max(_FIRST_ROWS, 2 * len(order))
        for name, empty in _OF_ROWS.items():
            self._rearrange(name, empty, order, size)
        row = 0
        self._rows_of_uuid = {}
        for entry in self._nodes.values():
            entry.start = row
            entry.rows = {uuid: entry.start + offset for offset, uuid in enumerate(entry.rows)}
            for uuid, place in entry.rows.items():
                self._rows_of_uuid[uuid] = (*self._rows_of_uuid.get(uuid, ()), place)
            row += len(entry.rows)
        self.row_count, self._dead_rows = row, 0


def _same_devices(before: NodeInventory, after: NodeInventory) -> bool:
    """Return whether both have the same devices and give them in the same way."""
    return before.devices == after.devices and before.gives_claims == after.gives_claims


def held_replicas(grant: Grant, inventory: NodeInventory) -> Iterator[tuple[str, int]]:
    """
    Yield how many of the healthy replicas that the kubelet of *inventory* counts the Pod of *grant* holds.

    A device plugin that knows the owners of replicas withdraws those of a failed device's Pods. They are counted only
    if each replica of the Pod stands for one share: containers that reuse replicas may leave them anywhere.
    """
    offered = inventory.replicas or {}
    for name, count in grant.replicas:
        if name in offered:
            yield name, count - _withdrawn(grant, name, count, inventory.lost)


def _withdrawn(grant: Grant, resource: str, count: int, lost: Mapping[str, str]) -> int:
    if not lost or sum(amount.replicas for amount in grant.amounts.values()) != count:
        return 0
    return sum(amount.replicas for uuid, amount in grant.amounts.items() if lost.get(uuid) == resource)


def _amounts() -> Int64s:
    """Return an array of amounts, stored by column, because decisions read columns."""
    return np.zeros((_FIRST_ROWS, _COLUMNS), np.int64, "F")


@dataclass(frozen=True, slots=True)
class Excess:
    """What is granted of one device beyond what it offers."""

    node: str
    uuid: str
    replicas: int
    memory_mib: int
    core_percent: int
    holders: tuple[str, ...]
    """Who holds it, sorted: `namespace/name` of Pods, and ResourceClaims."""


def above_capacity(ledger: Ledger, vendors: Iterable[VendorRules]) -> list[Excess]:
    """
    Return the devices of which more is granted than they offer; *vendors* say which of their amounts are limited.

    Never so by a decision of ours. A capacity that was lowered, a forged grant and another scheduler can cause it.
    """
    rules_of = {rules.key: rules for rules in vendors}
    rows = np.flatnonzero((ledger.promised > ledger.capacity)[: ledger.row_count].any(axis=1)).tolist()
    found = []
    for row in rows:
        if ledger.node_of_row[row] < 0:
            continue
        name = ledger.node_name(int(ledger.node_of_row[row]))
        entry = ledger.node(name)
        uuid = next(uuid for uuid, place in entry.rows.items() if place == row) if entry else ""
        holders = [grant for grant in ledger.grants_on(name) if uuid in grant.amounts]
        counted = [_over(ledger, row, grant, rules_of.get(grant.vendors[uuid])) for grant in holders]
        replicas, memory_mib, core_percent = (min(amounts) for amounts in zip(*counted, strict=True))
        if replicas or memory_mib or core_percent:
            names = tuple(sorted(grant.holder for grant in holders))
            found.append(Excess(name, uuid, replicas, memory_mib, core_percent, names))
    return found


def shortfall(ledger: Ledger, grant: Grant, vendors: Iterable[VendorRules] = ()) -> Mapping[str, str]:
    """
    Return per device UUID and resource of *grant*, which *ledger* counts, why it cannot be kept; empty if it can.

    A bind checks this last: since the choice the device may have gone, or another scheduler may have taken from it.
    *vendors* say which of their amounts are limited.
    """
    rules_of = {rules.key: rules for rules in vendors}
    entry = ledger.node(grant.node)
    found: dict[str, str] = {}
    if entry:
        for name in ledger.short_replicas(entry, tuple((name, 0) for name, _ in grant.replicas)):
            found[name] = "has too few healthy replicas left on its kubelet"
    others = [other for other in ledger.grants_on(grant.node) if other.uid != grant.uid]
    blocked = blocked_instances(grant, entry.inventory.devices, others) if entry and grant.mig else set()
    for uuid, own in grant.amounts.items():
        row = entry.rows.get(uuid) if entry else None
        if row is None:
            found[uuid] = "is no longer offered"
            continue
        if not ledger.is_open[row]:
            found[uuid] = "is unhealthy or cordoned"
            continue
        rules = rules_of.get(grant.vendors[uuid])
        capacity = _core_capacity(grant, rules) or int(ledger.capacity[row, 2])
        over = _over(ledger, row, grant, rules)
        if any(over):
            found[uuid] = f"is short of {over[0]} replicas, {over[1]} MiB and {over[2]} % compute"
        elif ledger.promised[row, 0] > own.replicas and _wants_whole(grant, uuid, capacity):
            found[uuid] = "is in use by others, and the Pod needs it alone"
        elif _finds_none_left(own, rules) and is_used_up(capacity, int(ledger.promised[row, 2])):
            found[uuid] = "is in use by a Pod that needs it alone"
        elif uuid in blocked:
            found[uuid] = "has no free place for the chosen MIG instance"
    return found


def _over(ledger: Ledger, row: int, grant: Grant, rules: VendorRules | None) -> list[int]:
    """Return by how many replicas, MiB and percent the promises on the device at *row* exceed it."""
    amounts = zip(ledger.promised[row].tolist(), ledger.capacity[row].tolist(), strict=True)
    over = [max(0, promised - capacity) for promised, capacity in amounts]
    if rules is None:
        return over
    fit = rules.fit
    counts = (fit.counts_replicas, fit.counts_memory, fit.counts_cores and not _core_capacity(grant, rules))
    return [amount if is_counted else 0 for amount, is_counted in zip(over, counts, strict=True)]


def _core_capacity(grant: Grant, rules: VendorRules | None) -> int:
    """Return how much compute a device has for the Pod of *grant*, if its annotations say that; else 0."""
    if rules is None or rules.core_capacity is None:
        return 0
    return max(0, rules.core_capacity(grant.vendor_annotations.get(rules.key, ())))


def _finds_none_left(own: Amounts, rules: VendorRules | None) -> bool:
    """Return whether a device without compute left is none for *own*, which has more than the sum of it otherwise."""
    return own.core_percent == 0 and (rules is None or rules.fit.counts_cores)


def _wants_whole(grant: Grant, uuid: str, core_percent: int) -> bool:
    shares = (share for vendor in grant.shares.values() for container in vendor for share in container)
    return core_percent == WHOLE_CORE_PERCENT and any(
        share.uuid == uuid and share.core_percent >= WHOLE_CORE_PERCENT for share in shares
    )
