"""
Keep a copy of one API collection current: list, watch, and start again after any failure.

It handles resourceVersions, bookmarks, new lists and backoff. Three callbacks receive the objects. A callback that
raises ends the reflector, because that is a bug. It must never loop without waiting while the server fails.
Neighbours: `kube` opens the requests, `watch_stream` reads their events.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import structlog

from hamicommon.runtime.api.api_errors import Gone, KubeError
from hamicommon.runtime.api.watch_stream import Event

WATCH_SECONDS = (300, 600)
"""A watch ends after a random time in this range, as in client-go, so that load spreads over servers."""
BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_LAST_SECONDS = 30.0
SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner counts as a failure."""
LONG_WATCH_SECONDS = 10.0
"""A watch that lasted this long ends a series of failures."""

logger = structlog.get_logger()


class Collection(Protocol):
    """The methods of an API client that a reflector uses."""

    def pages(self, path: str, **query: str | int) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        """Yield the objects and the resourceVersion of each page."""

    def watch(self, path: str, timeout_seconds: int, /, **query: str | int) -> AsyncIterator[Event]:
        """Yield each event of a watch until the server ends it."""


class Backoff:
    """Waiting times that double up to a limit. Each is random in the upper half of its range."""

    def __init__(
        self, first_seconds: float = BACKOFF_FIRST_SECONDS, last_seconds: float = BACKOFF_LAST_SECONDS
    ) -> None:
        self._first = first_seconds
        self._last = last_seconds
        self._failures = 0

    def reset(self) -> None:
        """Forget the previous failures."""
        self._failures = 0

    def next_seconds(self, at_least: float = 0.0) -> float:
        """Return how long to wait after one more failure, never less than *at_least*."""
        ceiling: float = min(self._last, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return max(at_least, random.uniform(ceiling / 2, ceiling))


class Reflector:
    """
    Calls *replace* with every object after each list, then *upsert* and *delete* with each change.

    `delete` receives the object's last state. `synced` is set after the first list and stays set; `restarts` counts the
    lists after the first.
    """

    def __init__(
        self,
        kube: Collection,
        path: str,
        *,
        field_selector: str = "",
        label_selector: str = "",
        replace: Callable[[list[dict[str, Any]]], None],
        upsert: Callable[[dict[str, Any]], None],
        delete: Callable[[dict[str, Any]], None],
        backoff: Backoff | None = None,
    ) -> None:
        """Prepare to follow the collection at *path*; `run` starts it."""
        self.synced = asyncio.Event()
        self.restarts = 0
        self._kube = kube
        self._path = path
        self._query = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self._replace = replace
        self._upsert = upsert
        self._delete = delete
        self._backoff = backoff or Backoff()
        self._heard: float | None = None

    def age_seconds(self) -> float:
        """Return the seconds since the server last sent anything of the collection; infinite before the first list."""
        return float("inf") if self._heard is None else time.monotonic() - self._heard

    async def run(self) -> None:
        """Keep the copy current until cancelled."""
        while True:
            try:
                version = await self._list()
                await self._follow(version)
            except Gone as error:
                logger.info("Listing again, the server no longer has the version", path=self._path)
                await self._wait(error)
            except KubeError as error:
                logger.warning("Listing again after an API error", path=self._path, error=str(error))
                await self._wait(error)

    async def _list(self) -> str:
        """Pass the whole collection to `replace` and return its resourceVersion."""
        try:
            objects, version = await self._collect()
        except Gone:
            # The snapshot expired between two pages: ask for everything in one answer, as client-go's pager does.
            objects, version = await self._collect(limit=0)
        self._replace(objects)
        self._heard = time.monotonic()
        if self.synced.is_set():
            self.restarts += 1
        self.synced.set()
        return version

    async def _collect(self, **query: int) -> tuple[list[dict[str, Any]], str]:
        objects: list[dict[str, Any]] = []
        version = ""
        async for page, version in self._kube.pages(self._path, **self._query, **query):  # noqa: B007 - the last one counts
            objects.extend(page)
        return objects, version

    async def _follow(self, version: str) -> None:
        """Watch from *version* on, repeatedly, until a new list is needed."""
        broken_before = False
        while True:
            began = time.monotonic()
            try:
                version = await self._watch(version)
            except Gone:
                raise
            except _Broken as broken:
                # A proxy may cut long connections. Retry the watch immediately, but only once, before a new list.
                if broken_before or time.monotonic() - began < LONG_WATCH_SECONDS:
                    raise broken.cause from broken
                broken_before, version = True, broken.version
                continue
            broken_before = False
            lived = time.monotonic() - began
            if lived < SHORT_WATCH_SECONDS:
                await self._wait(None)
            elif lived >= LONG_WATCH_SECONDS:
                self._backoff.reset()

    async def _watch(self, version: str) -> str:
        """Apply the events of one watch and return its last version."""
        events = self._kube.watch(
            self._path,
            random.randint(*WATCH_SECONDS),
            allowWatchBookmarks="true",
            resourceVersion=version,
            **self._query,
        )
        try:
            async for kind, item in events:
                version = _version(item) or version
                self._heard = time.monotonic()
                if kind in {"ADDED", "MODIFIED"}:
                    self._upsert(item)
                elif kind == "DELETED":
                    self._delete(item)
        except Gone:
            raise
        except KubeError as error:
            raise _Broken(error, version) from error
        return version

    async def _wait(self, error: KubeError | None) -> None:
        await asyncio.sleep(self._backoff.next_seconds(error.retry_after_seconds if error else 0.0))


class _Broken(Exception):  # noqa: N818 - carries an error between two methods, never leaves this module
    """A watch failed after *version*."""

    def __init__(self, cause: KubeError, version: str) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.version = version


def _version(item: dict[str, Any]) -> str | None:
    metadata = item.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else None
