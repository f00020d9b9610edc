"""
The event stream of one watch, made of the changes of a collection.

Owns the effect of a selector on a change (an object that starts to match is ADDED, one that stops is DELETED),
bookmarks, the queue of a watch and its end. Must never know HTTP or the syntax of selectors.
Source: k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go; bookmarks: KEP-956; `sendInitialEvents`: KEP-3157.
"""

import asyncio
from collections.abc import Callable

import orjson

from minicluster.apiserver.api.resources import Resource
from minicluster.apiserver.store.storage import Change, Collection, Entry, event_line

Selects = Callable[[Entry], bool]
Render = Callable[[bytes], bytes]

QUEUE_EVENTS = 20_000
"""A watch is ended if its client is further behind. The client then watches again from its last version."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """The events of a collection for one client."""

    def __init__(self, collection: Collection, selects: Selects | None, render: Render | None) -> None:
        self.version = 0
        """The newest version that this watch has seen, matching or not."""
        self.ended = False
        self._collection = collection
        self._selects = selects
        self._render = render
        self._lines: list[bytes] = []
        self._wake = asyncio.Event()

    def start_after(self, version: int) -> None:
        """
        Start with the changes after *version*, which may be in the future.

        Raises: storage.CompactedError if some of them are no longer kept.
        """
        self.version = version
        for change in self._collection.since(version):
            self._take(change)
        self._collection.listeners.add(self._take)

    def start_with_state(self, entries: list[Entry], version: int, ends_with_bookmark: bool) -> None:
        """Start with an ADDED event for each of *entries*, which are the state at *version*."""
        self.version = version
        self._lines = [self._line("ADDED", entry.data) for entry in entries]
        if ends_with_bookmark:
            self._lines.append(self.bookmark({INITIAL_EVENTS_END: "true"}))
        self._wake.set()
        self._collection.listeners.add(self._take)

    def stop(self, error: bytes | None = None) -> None:
        """End the stream after the queued events, with an ERROR event if *error* (a `Status`) is given."""
        if error is not None:
            self._lines.append(event_line("ERROR", error))
        self.ended = True
        self._collection.listeners.discard(self._take)
        self._wake.set()

    async def lines(self, wait_seconds: float) -> list[bytes]:
        """Wait for events and return all of them. Returns none after *wait_seconds* or at the end."""
        try:
            async with asyncio.timeout(wait_seconds):
                await self._wake.wait()
        except TimeoutError:
            return []
        self._wake.clear()
        lines, self._lines = self._lines, []
        return lines

    def bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        """Return a BOOKMARK event: all events up to its resourceVersion have been sent."""
        metadata: dict[str, object] = {"resourceVersion": str(self.version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource: Resource = self._collection.resource
        found = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return event_line("BOOKMARK", orjson.dumps(found))

    def _line(self, kind: str, data: bytes) -> bytes:
        return event_line(kind, self._render(data) if self._render else data)

    def _take(self, change: Change) -> None:
        if change.version <= self.version:
            return
        self.version = change.version
        kind = self._kind(change)
        if kind is None:
            return
        line = change.line(kind) if self._render is None else self._line(kind, change.shown(kind))
        self._lines.append(line)
        if len(self._lines) > QUEUE_EVENTS:
            self._lines.clear()
            self.stop()
        self._wake.set()

    def _kind(self, change: Change) -> str | None:
        """Return the event type of *change* for this watch's selector, or None."""
        selects = self._selects
        before = change.before is not None and (selects is None or selects(change.before))
        after = change.after is not None and (selects is None or selects(change.after))
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None
