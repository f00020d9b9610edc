"""
A whole scheduler in virtual time: minutes pass in milliseconds, and every request to the API server is dated.

Owns a clock that jumps to the next timer whenever nobody has anything to do, and an API server in memory that can be
away, break its watches at every event, or forget what it told.
"""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hami_scheduler.config import Config
from hami_scheduler.main import Service
from hamicommon.runtime.api.api_errors import Conflict, Gone, NotFound, Unreachable
from hamicommon.runtime.api.watch_stream import Event
from hamicommon.runtime.program.device_config import DeviceConfigFile
from testbed.waiting import eventually

from .builders import VECTORS, Object


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while there is work, and jumps when there is none."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.now = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the virtual seconds."""
        return self.now

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready and loop._scheduled:
            self.now = max(self.now, loop._scheduled[0].when())
        loop_once: Callable[[], None] = super()._run_once  # type: ignore[misc]
        loop_once()


def run_virtually(monkeypatch: pytest.MonkeyPatch, story: Callable[[], Awaitable[None]]) -> None:
    """Run *story* to its end in virtual time, which is also what `time.monotonic` tells."""
    loop = VirtualLoop()
    monkeypatch.setattr(time, "monotonic", loop.time)
    try:
        loop.run_until_complete(story())
    finally:
        monkeypatch.undo()
        loop.close()


class MemoryApi:
    """What the scheduler's client offers, on objects in memory."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.objects: dict[str, dict[str, Object]] = {}
        self.calls: list[tuple[float, str]] = []
        """When, and what was asked, watches and lists included."""
        self.is_away = False
        self.breaks_watches = False
        """Each watch ends with an error after its first event."""
        self.forgets = False
        """Each watch is told that its version is gone, after its first event."""
        self.conflicts: dict[str, int] = {}
        """Per beginning of a request's name: how many more of them are refused with 409, whatever they ask."""
        self._version = 0
        self._journal: list[tuple[int, str, str, Object]] = []
        self._news = asyncio.Condition()

    async def put(self, collection: str, item: Object) -> Object:
        """Create or change an object."""
        item = copy.deepcopy(item)
        known = self.objects.setdefault(collection, {})
        kind = "MODIFIED" if _key(item) in known else "ADDED"
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        known[_key(item)] = item
        await self._tell(collection, kind, item)
        return item

    async def remove(self, collection: str, key: str) -> None:
        """Delete an object."""
        self._version += 1
        item = self.objects[collection].pop(key)
        item["metadata"]["resourceVersion"] = str(self._version)
        await self._tell(collection, "DELETED", item)

    async def set_away(self, *, is_away: bool) -> None:
        """Answer nobody, or everybody again."""
        self.is_away = is_away
        async with self._news:
            self._news.notify_all()

    def calls_since(self, begin: float, word: str = "") -> list[tuple[float, str]]:
        """Return the requests since *begin* whose name has *word* in it."""
        return [(when, what) for when, what in self.calls if when >= begin and word in what]

    async def _tell(self, collection: str, kind: str, item: Object) -> None:
        self._journal.append((self._version, collection, kind, copy.deepcopy(item)))
        async with self._news:
            self._news.notify_all()

    def _asked(self, what: str) -> None:
        self.calls.append((asyncio.get_running_loop().time(), what))
        if self.is_away:
            raise Unreachable(what, 0, "Away", "nobody answers")
        for beginning, left in self.conflicts.items():
            if left and what.startswith(beginning):
                self.conflicts[beginning] = left - 1
                raise Conflict(what, 409, "Conflict", "the object has been modified")

    # The client

    async def pages(self, path: str, **_query: Any) -> AsyncIterator[tuple[list[Object], str]]:
        """Yield one page."""
        self._asked(f"list {path}")
        yield copy.deepcopy(list(self.objects.get(path.rpartition("/")[2], {}).values())), str(self._version)

    async def watch(
        self, path: str, timeout_seconds: int, _readers: object = None, /, **query: Any
    ) -> AsyncIterator[Event]:
        """Yield each event after the version asked for, as long as the server is well."""
        self._asked(f"watch {path}")
        seen, collection = int(query["resourceVersion"]), path.rpartition("/")[2]
        end = asyncio.get_running_loop().time() + timeout_seconds
        while asyncio.get_running_loop().time() < end:
            if self.is_away:
                raise Unreachable(path, 0, "Away", "the stream broke")
            for version, changed, kind, item in self._journal:
                if version > seen and changed == collection:
                    seen = version
                    yield kind, copy.deepcopy(item)
                    if self.forgets:
                        raise Gone(path, 410, "Expired", "too old resource version")
                    if self.breaks_watches:
                        raise Unreachable(path, 0, "Broken", "the stream broke")
            try:
                async with asyncio.timeout_at(end), self._news:
                    await self._news.wait()
            except TimeoutError:
                return

    async def get(self, path: str) -> Object:
        """Return an object."""
        self._asked(f"get {path}")
        collection, key = _place(path)
        if key not in self.objects.get(collection, {}):
            raise NotFound(path, 404, "NotFound", "not found")
        return copy.deepcopy(self.objects[collection][key])

    async def create(self, path: str, body: Object) -> Object:
        """Take an Event, or make a Binding."""
        self._asked(f"create {path}")
        if path.endswith("/binding"):
            pod = copy.deepcopy(self.objects["pods"][_place(path.removesuffix("/binding"))[1]])
            if pod["spec"].get("nodeName") or pod["metadata"]["uid"] != body["metadata"]["uid"]:
                raise Conflict(path, 409, "Conflict", "is bound, or another")
            pod["spec"]["nodeName"] = body["target"]["name"]
            pod["metadata"]["annotations"].update(body["metadata"]["annotations"])
            await self.put("pods", pod)
        return body

    async def merge_patch(self, path: str, body: Object) -> Object:
        """Change annotations and labels, on condition of the version that *body* names."""
        self._asked(f"patch {path}")
        collection, key = _place(path)
        if key not in self.objects[collection]:
            raise NotFound(path, 404, "NotFound", "not found")
        item, asked = copy.deepcopy(self.objects[collection][key]), body["metadata"]
        if asked.get("resourceVersion") not in {None, item["metadata"]["resourceVersion"]}:
            raise Conflict(path, 409, "Conflict", "the object has been modified")
        for part in ("annotations", "labels"):
            merged = {**item["metadata"].get(part, {}), **asked.get(part, {})}
            item["metadata"][part] = {name: value for name, value in merged.items() if value is not None}
        return await self.put(collection, item)


def _place(path: str) -> tuple[str, str]:
    """Return collection and key of the object at *path*."""
    parts = path.strip("/").split("/")
    return parts[-2], f"{parts[-3]}/{parts[-1]}" if "namespaces" in parts else parts[-1]


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


@asynccontextmanager
async def a_scheduler(api: MemoryApi, **settings: Any) -> AsyncIterator[Service]:
    """Let a scheduler follow *api* and do all it does by itself, until the block ends."""
    kube: Any = api
    devices = DeviceConfigFile(str(VECTORS / "device-config-default.yaml"))
    service = Service(Config("", scheduler_name="s", **settings), kube, devices, CollectorRegistry())
    follow, *others = service.actors()
    follow.close()  # reads the device config's file in another thread, where time is real
    tasks = [asyncio.ensure_future(actor) for actor in (service.feed.follow(), *others)]
    try:
        await eventually(lambda: service.readiness.unsynced() is None, seconds=60.0)
        yield service
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
