"""
Keep every object, every recent change and one growing resourceVersion.

An object is its serialised bytes plus what selectors look at; nothing else of it stays parsed. The recent changes of
a resource are kept in order: watches are fed from them, and a list at an older resourceVersion is the present one
with the changes since then undone. Every change is one synchronous call, so requests see each other's changes whole.
Must never know what an object means. Neighbours: `journal` makes changes durable, `watch` turns them into streams,
`verbs` decides what to change.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import orjson

from minicluster.apiserver.api.resources import STORED, Resource

Object = dict[str, Any]

HISTORY_CHANGES = 20_000
"""How many changes of one resource are kept."""
HISTORY_BYTES = 64 * 1024 * 1024
"""How many bytes of superseded objects are kept for one resource."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as it was at one resourceVersion."""

    version: int
    data: bytes
    labels: dict[str, str]
    fields: dict[str, str]

    def load(self) -> Object:
        """Return the object, freshly parsed: the caller may change it."""
        found: Object = orjson.loads(self.data)
        return found


@dataclass(slots=True)
class Change:
    """One object before and after one write; `after` is None for a removal."""

    version: int
    key: str
    before: Entry | None
    after: Entry | None
    _lines: dict[str, bytes] = field(default_factory=dict)

    def line(self, kind: str) -> bytes:
        """
        Return the watch event of *kind* (`ADDED`, `MODIFIED`, `DELETED`) as one line, built once for all watches.

        A DELETED event shows the object as it last was, at the resourceVersion of this change.
        """
        line = self._lines.get(kind)
        if line is None:
            line = event_line(kind, self.shown(kind))
            self._lines[kind] = line
        return line

    def shown(self, kind: str) -> bytes:
        """Return the object an event of *kind* shows."""
        if kind != "DELETED":
            assert self.after is not None
            return self.after.data
        assert self.before is not None
        return _at_version(self.before, self.version)


def event_line(kind: str, data: bytes) -> bytes:
    """Return one line of a watch."""
    return b'{"type":"' + kind.encode() + b'","object":' + data + b"}\n"


def _at_version(entry: Entry, version: int) -> bytes:
    found = entry.load()
    found["metadata"]["resourceVersion"] = str(version)
    return orjson.dumps(found)


class CompactedError(Exception):
    """The state or the changes asked for are no longer known; `oldest` is the first version that is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"compacted before {oldest}")
        self.oldest = oldest


class Collection:
    """All objects of one resource, in key order, and their recent changes."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.oldest = 0
        """Changes after this version are all known."""
        self.listeners: set[Callable[[Change], None]] = set()
        self._keys: list[str] = []
        self._history: list[Change] = []
        self._history_bytes = 0

    def range(self, namespace: str) -> list[str]:
        """Return the keys of *namespace* (of all namespaces when empty), in order."""
        if not namespace:
            return self._keys
        first = bisect.bisect_left(self._keys, f"{namespace}/")
        return self._keys[first : bisect.bisect_left(self._keys, f"{namespace}0")]

    def fill(self, entries: Iterable[tuple[str, Entry]]) -> None:
        """Add objects without history, as at a start."""
        self.entries.update(entries)
        self._keys = sorted(self.entries)

    def record(self, change: Change) -> None:
        """Take a change over and tell the listeners."""
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

        Raises: CompactedError when some of them have been forgotten.
        """
        if version < self.oldest:
            raise CompactedError(self.oldest)
        first = bisect.bisect_right(self._history, version, key=attrgetter("version"))
        return iter(self._history[first:])

    def state_at(self, version: int) -> tuple[dict[str, Entry], list[str]]:
        """
        Return the entries and the ordered keys as they were at *version*.

        Raises: CompactedError when that is too long ago.
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
    """All collections and the one resourceVersion they share."""

    def __init__(self, journal: Callable[[Resource, str, Entry | None, int], None] | None = None) -> None:
        self.version = 1
        self.collections = {resource: Collection(resource) for resource in STORED}
        self._journal = journal

    def get(self, resource: Resource, key: str) -> Entry | None:
        """Return one object as it is now."""
        return self.collections[resource].entries.get(key)

    def put(self, resource: Resource, key: str, found: Object) -> Entry:
        """Write *found*, which gets the next resourceVersion."""
        version = self.version + 1
        found["metadata"]["resourceVersion"] = str(version)
        entry = entry_of(resource, found, version)
        self._commit(resource, Change(version, key, self.get(resource, key), entry))
        return entry

    def remove(self, resource: Resource, key: str) -> Entry:
        """Remove an object and return it as it last was, at the resourceVersion of the removal."""
        before = self.collections[resource].entries[key]
        change = Change(self.version + 1, key, before, None)
        self._commit(resource, change)
        return Entry(change.version, change.shown("DELETED"), before.labels, before.fields)

    def _commit(self, resource: Resource, change: Change) -> None:
        """Make *change* durable first, then visible."""
        if self._journal is not None:
            self._journal(resource, change.key, change.after, change.version)
        self.version = change.version
        self.collections[resource].record(change)

    def fill(self, resource: Resource, objects: Iterable[Object]) -> None:
        """Add objects that need no history; each gets the next resourceVersion."""
        entries = []
        for found in objects:
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            entries.append((key_of(resource, found), entry_of(resource, found, self.version)))
        self.collections[resource].fill(entries)
        self.collections[resource].forget(self.version)

    def restore(self, resource: Resource, entries: dict[str, Entry], version: int) -> None:
        """Take over what a journal remembered, as of *version*."""
        self.collections[resource].fill(entries.items())
        self.collections[resource].forget(version)
        self.version = max(self.version, version)

    def compact(self) -> int:
        """Forget all changes so far and return the version up to which they are gone."""
        for collection in self.collections.values():
            collection.forget(self.version)
        return self.version


def key_of(resource: Resource, found: Object) -> str:
    """Return the key *found* is stored under."""
    return resource.key(found["metadata"].get("namespace", ""), found["metadata"]["name"])


def entry_of(resource: Resource, found: Object, version: int) -> Entry:
    """Serialise *found*, which already carries *version*; kind and apiVersion come first, where lists cut them off."""
    labels = dict(found["metadata"].get("labels") or {})
    ordered = {"kind": resource.kind, "apiVersion": resource.api_version, **found}
    return Entry(version, orjson.dumps(ordered), labels, resource.field_values(found))
