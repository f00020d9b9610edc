"""
An API server in memory, and its client in one: what the services ask of it, on objects.

It counts every request with its time, checks versions as kube-apiserver does, and can be away, break its watches at
every event, or forget what it told. Neighbour: `loop` lets its time pass.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import orjson

from hamicommon.model import Object
from hamicommon.runtime.api.api_errors import Conflict, Gone, NotFound, Unreachable
from hamicommon.runtime.api.watch_stream import Event

T = TypeVar("T")
ALL = ""
"""All collections."""


class Write(NamedTuple):
    """One change of an object."""

    version: int
    collection: str
    change: str
    """`ADDED`, `MODIFIED` or `DELETED`."""
    item: Object
    """The object after the change; of a deleted one its last state."""
    at: float
    """When, by the clock of the event loop."""


class MemoryApi:
    """What the services' client offers, on objects in memory."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.objects: dict[str, dict[str, Object]] = {}
        self.calls: list[tuple[float, str]] = []
        """When, and what was asked, watches and lists included."""
        self.journal: list[Write] = []
        """Every change: the one of version 1 first, none is missing."""
        self.is_away = False
        self.breaks_watches = False
        """Each watch ends with an error after its first event."""
        self.forgets = False
        """Each watch is told that its version is gone, after its first event."""
        self.conflicts: dict[str, int] = {}
        """Per beginning of a request's name: how many more of them are refused with 409, whatever they ask."""
        self._watchers: list[tuple[str, asyncio.Event]] = []
        """What each watch in progress is about, and its event, set when there is news; in the order of the watches."""

    async def put(self, collection: str, item: Object) -> Object:
        """Create or change an object."""
        item = _copy(item)
        known = self.objects.setdefault(collection, {})
        change = "MODIFIED" if _key(item) in known else "ADDED"
        known[_key(item)] = item
        self._tell(collection, change, item)
        return item

    async def remove(self, collection: str, key: str) -> None:
        """Delete an object."""
        self._tell(collection, "DELETED", _copy(self.objects[collection].pop(key)))

    async def set_away(self, *, is_away: bool) -> None:
        """Answer nobody, or everybody again."""
        self.is_away = is_away
        self._wake_watches(ALL)

    def calls_since(self, begin: float, word: str = "", but: str = "") -> list[tuple[float, str]]:
        """Return the requests since *begin* whose name has *word* in it, and not *but*."""
        found = [(when, what) for when, what in self.calls if when >= begin and word in what]
        return [(when, what) for when, what in found if not but or but not in what]

    async def writes(self, version: int, timeout_seconds: float, collection: str = ALL) -> AsyncIterator[Write | None]:
        """
        Yield each change of *collection* after *version*, as it happens.

        Yield None whenever there is nothing more for now.
        """
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        end = loop.time() + timeout_seconds
        watcher = collection, news
        self._watchers.append(watcher)
        try:
            while loop.time() < end:
                news.clear()
                while version < len(self.journal):
                    version += 1
                    write = self.journal[version - 1]
                    if collection in {ALL, write.collection}:
                        yield write
                yield None
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        await news.wait()
        finally:
            self._watchers.remove(watcher)

    @property
    def version(self) -> int:
        """The version of the newest change."""
        return len(self.journal)

    def _tell(self, collection: str, change: str, item: Object) -> None:
        version = len(self.journal) + 1
        item["metadata"]["resourceVersion"] = str(version)
        now = asyncio.get_running_loop().time()
        self.journal.append(Write(version, collection, change, _copy(item), now))
        self._wake_watches(collection)

    def _wake_watches(self, collection: str) -> None:
        for watched, news in self._watchers:
            if ALL in {watched, collection} or watched == collection:
                news.set()

    def _asked(self, what: str) -> None:
        self.calls.append((asyncio.get_running_loop().time(), what))
        if self.is_away:
            raise Unreachable(what, 0, "Away", "nobody answers")
        for beginning, left in self.conflicts.items():
            if left and what.startswith(beginning):
                self.conflicts[beginning] = left - 1
                raise Conflict(what, 409, "Conflict", "the object has been modified")

    # The client

    async def pages(self, path: str, **query: Any) -> AsyncIterator[tuple[list[Object], str]]:
        """Yield one page, sorted by name as etcd sorts."""
        self._asked(f"list {path}")
        by_name = sorted(self.objects.get(path.rpartition("/")[2], {}).items())
        found = [*_selected((item for _, item in by_name), query.get("fieldSelector", ""))]
        yield _copy(found), str(self.version)

    async def items(self, path: str, **query: Any) -> AsyncIterator[Object]:
        """Yield each object."""
        async for page, _ in self.pages(path, **query):
            for item in page:
                yield item

    async def watch(
        self, path: str, timeout_seconds: int, _readers: object = None, /, **query: Any
    ) -> AsyncIterator[Event]:
        """Yield each event after the version asked for, as long as the server is well."""
        self._asked(f"watch {path}")
        collection = path.rpartition("/")[2]
        async for write in self.writes(int(query["resourceVersion"]), timeout_seconds, collection):
            if self.is_away:
                raise Unreachable(path, 0, "Away", "the stream broke")
            if write is not None:
                yield write.change, _copy(write.item)
                if self.forgets:
                    raise Gone(path, 410, "Expired", "too old resource version")
                if self.breaks_watches:
                    raise Unreachable(path, 0, "Broken", "the stream broke")

    async def get(self, path: str) -> Object:
        """Return an object."""
        self._asked(f"get {path}")
        return _copy(self._at(path))

    async def create(self, path: str, body: Object) -> Object:
        """Make a Binding, or an object; take an Event."""
        self._asked(f"create {path}")
        collection = path.rpartition("/")[2]
        if collection == "events":
            return body
        if collection != "binding":
            if _key(body) in self.objects.get(collection, {}):
                raise Conflict(path, 409, "AlreadyExists", "exists already")
            return _copy(await self.put(collection, body))
        pod = _copy(self._at(path.removesuffix("/binding")))
        wanted, found = body["metadata"], pod["metadata"]
        if any(wanted.get(part) not in {None, found[part]} for part in ("uid", "resourceVersion")):
            raise Conflict(path, 409, "Conflict", "Precondition failed")
        if pod["spec"].get("nodeName") or "deletionTimestamp" in found:
            raise Conflict(path, 409, "Conflict", "is bound, or being deleted")
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"]["annotations"].update(body["metadata"]["annotations"])
        await self.put("pods", pod)
        return body

    async def replace(self, path: str, body: Object) -> Object:
        """Put *body* in the place of an object that is still at its version."""
        self._asked(f"put {path}")
        self._check(path, self._at(path), body["metadata"])
        return _copy(await self.put(_place(path)[0], body))

    async def strategic_patch(self, path: str, body: Object) -> Object:
        """Set a condition of a Pod."""
        self._asked(f"patch {path}")
        item = _copy(self._at(path.removesuffix("/status")))
        self._check(path, item, body["metadata"])
        item["status"]["conditions"] = body["status"]["conditions"]
        return _copy(await self.put("pods", item))

    async def merge_patch(self, path: str, body: Object) -> Object:
        """Change annotations and labels, on condition of the version and UID that *body* names."""
        self._asked(f"patch {path}")
        item, asked = _copy(self._at(path)), body["metadata"]
        self._check(path, item, asked)
        for part in ("annotations", "labels"):
            merged = {**item["metadata"].get(part, {}), **asked.get(part, {})}
            item["metadata"][part] = {name: value for name, value in merged.items() if value is not None}
        return _copy(await self.put(_place(path)[0], item))

    def _at(self, path: str) -> Object:
        """Return the object at *path*. Raises: NotFound."""
        collection, key = _place(path)
        if key not in self.objects.get(collection, {}):
            raise NotFound(path, 404, "NotFound", "not found")
        return self.objects[collection][key]

    def _check(self, path: str, item: Object, asked: Object) -> None:
        """Raises: Conflict if *item* has another version or UID than *asked* names."""
        found = item["metadata"]
        if any(asked.get(part) not in {None, found.get(part)} for part in ("resourceVersion", "uid")):
            raise Conflict(path, 409, "Conflict", "the object has been modified")


def _copy(item: T) -> T:
    """Return *item*, which is JSON, as a client gets it."""
    copied: T = orjson.loads(orjson.dumps(item))
    return copied


def _place(path: str) -> tuple[str, str]:
    """Return collection and key of the object at *path*."""
    parts = path.strip("/").split("/")
    return parts[-2], f"{parts[-3]}/{parts[-1]}" if "namespaces" in parts else parts[-1]


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _selected(items: Iterable[Object], selector: str) -> Iterator[Object]:
    """Yield the *items* that a field selector chooses."""
    terms = [term.partition("!=" if "!=" in term else "=") for term in selector.split(",") if term]
    for item in items:
        if all((_field(item, path) == value) is (sign == "=") for path, sign, value in terms):
            yield item


def _field(item: Object, path: str) -> str:
    found: Any = item
    for name in path.split("."):
        found = (found or {}).get(name)
    return str(found or "")
