"""
What is promised of every device: replicas, memory and compute, changed by deltas.

Owns the grants, and the arrays with their sums that decisions read. A grant of an unknown device is kept and counts
once the device is known. Must never count a Pod twice or let a number go below zero; `recount` checks both.
Neighbours: `inventory` says what Nodes offer, `grant` what a Pod holds, `prefilter` reads the arrays, `place_pod` the
device uses.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.values.device_use import DeviceUse, Tenant
from hami_scheduler.values.fit import WHOLE_CORE_PERCENT
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.mig import MODE, blocked_instances, mig_state
from hami_scheduler.values.score import Float32s, node_scores, score_divisors
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.held import NOTHING, Taken

Int64s = NDArray[np.int64]
_FIRST_ROWS = 64
_COLUMNS = 3
"""Replicas, MiB, core percent: the columns of every amounts array."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """The properties of a device that rules about models read; a cluster has few kinds."""

    vendor: str
    type: str
    mode: str


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
        self._rows_of_uuid: dict[str, set[int]] = {}
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
        """Yield what every Pod holds, in no order."""
        yield from self._grants.values()

    def grants_on(self, name: str) -> tuple[Grant, ...]:
        """Return what the Pods on Node *name* hold, in no order."""
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
            _add_mig(uses, here.values())
        _add_tenants(uses, here.values())
        return uses

    def promise(self, node: str, uuid: str) -> Taken:
        """Return what is promised of one device; nothing if it is unknown."""
        entry = self._nodes.get(node)
        row = entry.rows.get(uuid) if entry else None
        return NOTHING if row is None else Taken(*self.promised[row].tolist())

    # Changing

    def put_node(self, inventory: NodeInventory) -> None:
        """Replace what the Node of *inventory* offers; a Node without devices is dropped."""
        entry = self._nodes.get(inventory.name)
        if entry is not None and entry.inventory == inventory:
            return
        if entry is not None and entry.inventory.devices == inventory.devices:
            self._open_rows(entry, inventory)
            return
        self.drop_node(inventory.name)
        if inventory.devices:
            self._add_node(inventory)

    def drop_node(self, name: str) -> None:
        """Drop what Node *name* offers. Grants stay: the Pods still run, and the Node may come back."""
        entry = self._nodes.pop(name, None)
        if entry is None:
            return
        stop = entry.start + len(entry.inventory.devices)
        for uuid, row in entry.rows.items():
            self._rows_of_uuid[uuid].discard(row)
            if not self._rows_of_uuid[uuid]:
                del self._rows_of_uuid[uuid]
        self.capacity[entry.start : stop] = 0
        self.promised[entry.start : stop] = 0
        self.node_of_row[entry.start : stop] = -1
        self.is_healthy[entry.start : stop] = False
        self.is_open[entry.start : stop] = False
        self.node_promised[entry.index] = 0
        self._node_divisors[entry.index] = np.inf
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
        if drift:
            self.promised, self.node_promised = expected, node_expected
            self.version += 1
            self.node_versions[:] = self.version
        return drift

    # Inside

    def _apply(self, grant: Grant, sign: int) -> None:
        entry = self._nodes.get(grant.node)
        if entry is None:
            return
        self._touch(entry)
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
        for uuid, row in entry.rows.items():
            self.is_open[row] = self.is_healthy[row] and uuid not in inventory.cordoned

    def _add_node(self, inventory: NodeInventory) -> None:
        start = self._reserve_rows(len(inventory.devices))
        entry = NodeEntry(self._take_index(inventory.name), start, inventory)
        self._index_of[inventory.name] = entry.index
        self._name_ranks = None
        self._nodes[inventory.name] = entry
        self._touch(entry)
        for row, device in enumerate(inventory.devices, start):
            entry.rows[device.id] = row
            self._rows_of_uuid.setdefault(device.id, set()).add(row)
            self.capacity[row] = (device.count, device.memory_mib, device.core_percent)
            self.node_of_row[row] = entry.index
            kind = DeviceKind(device.vendor, device.type, device.mode)
            self.kind_of_row[row] = self._kinds.setdefault(kind, len(self._kinds))
            self.is_healthy[row] = device.healthy
            self.is_open[row] = device.healthy and device.id not in inventory.cordoned
        totals = self.capacity[start : start + len(inventory.devices)].sum(axis=0, keepdims=True)
        self._node_divisors[entry.index] = score_divisors(totals)
        for grant in self._grants_of_node.get(inventory.name, {}).values():
            self._apply(grant, 1)

    def _take_index(self, name: str) -> int:
        if self._free_indexes:
            index = self._free_indexes.pop()
            self._names[index] = name
            return index
        self._names.append(name)
        if len(self._names) > len(self.node_promised):
            self.node_promised = _grown(self.node_promised)
            self._node_divisors = _grown(self._node_divisors, np.inf)
            self.node_versions = _grown(self.node_versions)
        return len(self._names) - 1

    def _reserve_rows(self, count: int) -> int:
        """Return the first of *count* new rows; if most rows are dead, compact first."""
        if self._dead_rows > max(_FIRST_ROWS, self.row_count // 2):
            self._compact()
        start = self.row_count
        self.row_count += count
        while self.row_count > len(self.capacity):
            self.capacity, self.promised = _grown(self.capacity), _grown(self.promised)
            self.node_of_row, self.kind_of_row = _grown(self.node_of_row, -1), _grown(self.kind_of_row)
            self.is_healthy, self.is_open = _grown(self.is_healthy), _grown(self.is_open)
        return start

    def _compact(self) -> None:
        order = [row for entry in self._nodes.values() for row in range(entry.start, entry.start + len(entry.rows))]
        size = max(_FIRST_ROWS, 2 * len(order))
        for name in ("capacity", "promised", "node_of_row", "kind_of_row", "is_healthy", "is_open"):
            old = getattr(self, name)
            new = np.full((size, *old.shape[1:]), -1 if name == "node_of_row" else 0, old.dtype, "F")
            new[: len(order)] = old[order]
            setattr(self, name, new)
        row = 0
        self._rows_of_uuid = {}
        for entry in self._nodes.values():
            entry.start = row
            entry.rows = {uuid: entry.start + offset for offset, uuid in enumerate(entry.rows)}
            for uuid, place in entry.rows.items():
                self._rows_of_uuid.setdefault(uuid, set()).add(place)
            row += len(entry.rows)
        self.row_count, self._dead_rows = row, 0


def _add_mig(uses: Iterable[DeviceUse], grants: Iterable[Grant]) -> None:
    """Add the MIG instances of *grants*, all on one Node, to *uses*."""
    state = mig_state((use.device for use in uses), grants)
    for use in uses:
        use.occupied = state.occupied.get(use.device.id, [])
        use.is_sound = use.device.id not in state.unsound


def _add_tenants(uses: Iterable[DeviceUse], grants: Iterable[Grant]) -> None:
    """Add the Pods of *grants* with notes, all on one Node, to *uses*."""
    speaking = [grant for grant in grants if grant.notes]
    if not speaking:
        return
    for use in uses:
        uuid, vendor = use.device.id, use.device.vendor
        use.tenants = tuple(
            Tenant(grant.notes[vendor], grant.amounts[uuid].core_percent, grant.is_settled)
            for grant in speaking
            if uuid in grant.amounts and vendor in grant.notes
        )


def _amounts() -> Int64s:
    """Return an array of amounts, stored by column, because decisions read columns."""
    return np.zeros((_FIRST_ROWS, _COLUMNS), np.int64, "F")


def _grown(array: NDArray, empty: float = 0) -> NDArray:  # type: ignore[type-arg]
    """Return *array* with twice the rows, the new ones *empty*."""
    grown = np.full((2 * len(array), *array.shape[1:]), empty, array.dtype, "F")
    grown[: len(array)] = array
    return grown


def shortfall(ledger: Ledger, grant: Grant, vendors: Iterable[VendorFrame] = ()) -> Mapping[str, str]:
    """
    Return per device UUID of *grant*, which *ledger* counts, why its promises cannot be kept; empty if they can.

    A bind checks this last: since the choice the device may have gone, or another scheduler may have taken from it.
    *vendors* say which of their amounts are limited.
    """
    frames = {frame.key: frame for frame in vendors}
    entry = ledger.node(grant.node)
    found: dict[str, str] = {}
    blocked: set[str] = set()
    if entry and grant.mig:
        others = [other for other in ledger.grants_on(grant.node) if other.uid != grant.uid]
        blocked = blocked_instances(grant, entry.inventory.devices, others)
    for uuid, own in grant.amounts.items():
        row = entry.rows.get(uuid) if entry else None
        if row is None:
            found[uuid] = "is no longer offered"
            continue
        if not ledger.is_open[row]:
            found[uuid] = "is unhealthy or cordoned"
            continue
        over = _over(ledger, row, grant, frames.get(grant.vendors[uuid]))
        if any(over):
            found[uuid] = f"is short of {over[0]} replicas, {over[1]} MiB and {over[2]} % compute"
        elif ledger.promised[row, 0] > own.replicas and _wants_whole(grant, uuid, int(ledger.capacity[row, 2])):
            found[uuid] = "is in use by others, and the Pod needs it alone"
        elif uuid in blocked:
            found[uuid] = "has no free place for the chosen MIG instance"
    return found


def _over(ledger: Ledger, row: int, grant: Grant, frame: VendorFrame | None) -> list[int]:
    """Return by how many replicas, MiB and percent the promises on the device at *row* exceed it."""
    amounts = zip(ledger.promised[row].tolist(), ledger.capacity[row].tolist(), strict=True)
    over = [max(0, promised - capacity) for promised, capacity in amounts]
    if frame is None:
        return over
    sharing, notes = frame.sharing, grant.notes.get(frame.key, ())
    has_own_capacity = frame.core_capacity is not None and frame.core_capacity(notes) > 0
    counts = (sharing.counts_replicas, sharing.counts_memory, sharing.counts_cores and not has_own_capacity)
    return [amount if is_counted else 0 for amount, is_counted in zip(over, counts, strict=True)]


def _wants_whole(grant: Grant, uuid: str, core_percent: int) -> bool:
    shares = (share for vendor in grant.shares.values() for container in vendor for share in container)
    return core_percent == WHOLE_CORE_PERCENT and any(
        share.uuid == uuid and share.core_percent >= WHOLE_CORE_PERCENT for share in shares
    )
