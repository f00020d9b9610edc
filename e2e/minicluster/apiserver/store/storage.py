"""
All objects, their recent changes, and one increasing resourceVersion.

An object is kept as serialised bytes, with its labels and selectable fields. The recent changes of a resource are kept
in order: they feed watches, and a list at an older resourceVersion is the present one without the later changes. Every
change is one synchronous call, so requests never see half of it. Must never interpret an object. Neighbours: `journal`
makes changes durable, `watch` streams them, `verbs` decides what to change.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

import orjson

from hamicommon.model import Object
from minicluster.apiserver.api.resources import STORED, Resource

HISTORY_CHANGES = 20_000
"""The number of changes that are kept for each resource."""
HISTORY_BYTES = 64 * 1024 * 1024
"""The number of bytes of old objects that are kept for each resource."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object at one resourceVersion."""

    version: int
    data: bytes
    labels: dict[str, str]
    fields: dict[str, str]

    def load(self) -> Object:
        """Parse the object. The caller may change the result."""
        found: Object = orjson.loads(self.data)
        return found


@dataclass(slots=True)
class Change:
    """An object before and after one write. `after` is None for a removal."""

    version: int
    key: str
    before: Entry | None
    after: Entry | None
    _lines: dict[str, bytes] = field(default_factory=dict)

    def line(self, kind: str) -> bytes:
        """
        Return the watch event of *kind* (`ADDED`, `MODIFIED`, `DELETED`) as one line, cached for all watches.

        A DELETED event has the last state of the object, with the resourceVersion of this change.
        """
        line = self._lines.get(kind)
        if line is None:
            line = event_line(kind, self.shown(kind))
            self._lines[kind] = line
        return line

    def shown(self, kind: str) -> bytes:
        """Return the object in an event of *kind*."""
        if kind != "DELETED":
            assert self.after is not None
            return self.after.data
        assert self.before is not None
        return _at_version(self.before, self.version)


def event_line(kind: str, data: bytes) -> bytes:
    """Return one watch event as a line."""
    return b'{"type":"' + kind.encode() + b'","object":' + data + b"}\n"


def _at_version(entry: Entry, version: int) -> bytes:
    found = entry.load()
    found["metadata"]["resourceVersion"] = str(version)
    return orjson.dumps(found)


class CompactedError(Exception):
    """The requested state or changes are no longer kept. `oldest` is the first version that is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"compacted before {oldest}")
        self.oldest = oldest


class Collection:
    """All objects of one resource, in key order, and their recent changes."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.oldest = 0
        """All changes after this version are kept."""
        self.listeners: set[Callable[[Change], None]] = set()
        self._keys: list[str] = []
        self._history: list[Change] = []
        self._history_bytes = 0

    def range(self, namespace: str) -> list[str]:
        """Return the sorted keys of *namespace*, or of all namespaces if it is empty."""
        if not namespace:
            return self._keys
        first = bisect.bisect_left(self._keys, f"{namespace}/")
        return self._keys[first : bisect.bisect_left(self._keys, f"{namespace}0")]

    def fill(self, entries: Iterable[tuple[str, Entry]]) -> None:
        """Add objects without history."""
        self.entries.update(entries)
        self._keys = sorted(self.entries)

    def record(self, change: Change) -> None:
        """Apply a change, and call the listeners."""
        if change.after is None:
            del self.entries[change.key]
            del self._keys[bisect.bisect_left(self._keys, change.key)]
        else:
            if change.before is None:
                bisect.insort(self._keys, change.key)
            self.entries[change.key] = change.after
        self._history.append(change)
        self._history_bytes += len(change.before.data) if change.before else 0
        if len(self._history) > HISTORY_CHANGES or self._history_bytes > HISTORY_BYTES:
            self.forget(self._history[len(self._history) // 4].version)
        for listener in tuple(self.listeners):
            listener(change)

    def since(self, version: int) -> Iterator[Change]:
        """
        Yield the changes after *version*, oldest first.

        Raises: CompactedError if some of them are no longer kept.
        """
        if version < self.oldest:
            raise CompactedError(self.oldest)
        first = bisect.bisect_right(self._history, version, key=attrgetter("version"))
        return iter(self._history[first:])

    def state_at(self, version: int) -> tuple[dict[str, Entry], list[str]]:
        """
        Return the entries and the sorted keys at *version*.

        Raises: CompactedError if that is too long ago.
        """
        changes = list(self.since(version))
        if not changes:
            return self.entries, self._keys
        entries = dict(self.entries)
        for change in reversed(changes):
            if change.before is None:
                entries.pop(change.key, None)
            else:
                entries[change.key] = change.before
        return entries, sorted(entries)

    def forget(self, version: int) -> None:
        """Drop the changes up to *version*."""
        count = bisect.bisect_right(self._history, version, key=attrgetter("version"))
        self._history_bytes -= sum(len(change.before.data) for change in self._history[:count] if change.before)
        del self._history[:count]
        self.oldest = max(self.oldest, version)


class Storage:
    """All collections, and their common resourceVersion."""

    def __init__(self, journal: Callable[[Resource, str, Entry | None, int], None] | None = None) -> None:
        self.version = 1
        self.collections = {resource: Collection(resource) for resource in STORED}
        self._journal = journal

    def get(self, resource: Resource, key: str) -> Entry | None:
        """Return the present state of an object."""
        return self.collections[resource].entries.get(key)

    def put(self, resource: Resource, key: str, found: Object) -> Entry:
        """Write *found* with the next resourceVersion."""
        version = self.version + 1
        found["metadata"]["resourceVersion"] = str(version)
        entry = entry_of(resource, found, version)
        self._commit(resource, Change(version, key, self.get(resource, key), entry))
        return entry

    def remove(self, resource: Resource, key: str) -> Entry:
        """Remove an object, and return its last state with the resourceVersion of the removal."""
        before = self.collections[resource].entries[key]
        change = Change(self.version + 1, key, before, None)
        self._commit(resource, change)
        return Entry(change.version, change.shown("DELETED"), before.labels, before.fields)

    def _commit(self, resource: Resource, change: Change) -> None:
        """Write *change* to the journal, then make it visible."""
        if self._journal is not None:
            self._journal(resource, change.key, change.after, change.version)
        self.version = change.version
        self.collections[resource].record(change)

    def fill(self, resource: Resource, objects: Iterable[Object]) -> None:
        """Add objects without history. Each gets the next resourceVersion."""
        entries = []
        for found in objects:
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            entries.append((key_of(resource, found), entry_of(resource, found, self.version)))
        self.collections[resource].fill(entries)
        self.collections[resource].forget(self.version)

    def restore(self, resource: Resource, entries: dict[str, Entry], version: int) -> None:
        """Set the state that a journal has, at *version*."""
        self.collections[resource].fill(entries.items())
        self.collections[resource].forget(version)
        self.version = max(self.version, version)

    def compact(self) -> int:
        """Forget all changes, and return the version up to which they are gone."""
        for collection in self.collections.values():
            collection.forget(self.version)
        return self.version


def key_of(resource: Resource, found: Object) -> str:
    """Return the storage key of *found*."""
    return resource.key(found["metadata"].get("namespace", ""), found["metadata"]["name"])


def entry_of(resource: Resource, found: Object, version: int) -> Entry:
    """Serialise *found*, which has *version*. kind and apiVersion come first, so that lists can cut them off."""
    labels = dict(found["metadata"].get("labels") or {})
    ordered = {"kind": resource.kind, "apiVersion": resource.api_version, **found}
    return Entry(version, orjson.dumps(ordered), labels, resource.field_values(found))
