"""
Record the history of a cluster beside its tests, and judge it.

Owns the watches and the file. A watch that ends goes on from its last version. If that is refused (410, compacted), a
list shows what differs, which is written after a GAP. The API server numbers all kinds together (etcd's revision, and
the embedded server's counter), so sorting by version restores the order of the writes. An event is judged once every
watch has come as far, which `settle` finds out by a list of each kind.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hamicommon.dra.names import API_VERSION
from hamicommon.model import Object
from harness.history.events import (
    CLAIM,
    CONTAINER,
    CORE_KINDS,
    DEVICE_CONFIG,
    NODE,
    POD,
    QUOTA,
    SLICE,
    Change,
    Event,
    encode_event,
    state_order,
)
from harness.history.findings import Finding
from harness.history.judge import Judge
from minicluster.client import ApiError, Client
from testbed.waiting import NotInTimeError

PATHS = {
    POD: "/api/v1/pods",
    NODE: "/api/v1/nodes",
    QUOTA: "/api/v1/resourcequotas",
    SLICE: f"/apis/{API_VERSION}/resourceslices",
    CLAIM: f"/apis/{API_VERSION}/resourceclaims",
}
RETRY_SECONDS = 0.1
SETTLE_SECONDS = 30.0
GONE = 410

Look = Callable[[Object, str], tuple[Mapping[str, str], str | None]]
"""
Returns those variables of a running container that a history keeps, and the text of its limits file.

It may block. Raises: OSError, ValueError or LookupError if the container has ended or its Node is gone.
"""

ReadConfig = Callable[[], Awaitable[str]]
"""Returns the device config of the services, empty if there is none yet."""


@dataclass
class Stream:
    """What one watch has seen."""

    kind: str
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    """The newest version of each object, by namespace and name."""
    version: int = 0
    """The newest version that the watch has come to."""


class Recorder:
    """
    The history of one cluster.

    `start` begins it, and `settle` judges what happened so far. A recorder that was not started is for one `settle`,
    which takes the present state for the whole history.
    """

    def __init__(self, api: Client, config: ReadConfig, look: Look, kinds: Collection[str] = CORE_KINDS) -> None:
        self.judge = Judge()
        self.findings: list[Finding] = []
        """What was found since the last `turn_over`."""
        self.file: Path | None = None
        """The file of the history since the last `turn_over`."""
        self._api = api
        self._read_config = config
        self._config = ""
        self._look = look
        self._streams = {kind: Stream(kind) for kind in kinds}
        self._buffer: list[Event] = []
        self._looks: set[asyncio.Task[None]] = set()
        self._looked_at: set[tuple[str, str]] = set()
        """Pod UID and ID of each container that was looked at."""
        self._watches: list[asyncio.Task[None]] = []
        self._moved = asyncio.Event()
        """Set when a watch has come further."""
        self._judged = 0
        """The version up to which the history was judged."""
        self._judged_at = 0.0
        """The latest time of an event that was judged. What is judged next may have happened before the present."""

    @property
    def has_stopped(self) -> bool:
        """Whether the history has ended."""
        return not self._watches

    async def start(self) -> None:
        """Read the present state, and watch from there on."""
        await self._read_state()
        self._watches = [asyncio.create_task(self._follow(stream)) for stream in self._streams.values()]

    async def stop(self) -> None:
        """End the watches, and close the connections."""
        for task in (*self._watches, *self._looks):
            task.cancel()
        await asyncio.gather(*self._watches, *self._looks, return_exceptions=True)
        self._watches = []
        await self._api.close()

    async def settle(self) -> None:
        """
        Judge every version up to now.

        Raises: NotInTimeError if a watch does not come as far as a list.
        """
        if not self._watches:
            await self._read_state()
            await asyncio.gather(*self._looks)
            self._judge_until(self._judged)
            return
        await self._configure()
        lists = {kind: await self._api.list(PATHS[kind]) for kind in self._streams}
        versions = {kind: int(version) for kind, (_, version) in lists.items()}
        for kind, (objects, _) in lists.items():
            await self._until(kind, objects, versions[kind])
        await asyncio.gather(*self._looks)
        self._judge_until(min(versions.values()))

    async def _until(self, kind: str, objects: list[Object], version: int) -> None:
        """Wait until the watch of *kind* knows what a list of *objects* at *version* knows."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while not _has_come(self._streams[kind], objects, version):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError as error:
            what = f"the watch of {kind} has come to version {version}"
            raise NotInTimeError(f"{what}: not within {SETTLE_SECONDS:g} s") from error

    async def look_again(self) -> None:
        """
        Look at every running container, and judge every version up to now.

        Raises: NotInTimeError if a watch does not come as far as a list.
        """
        self._looked_at.clear()
        # After a gap the history has a Pod from the version of a list on, which may be later than the Pod's own.
        known = max(self._judged, self._streams[POD].version)
        for pod in list(self._streams[POD].objects.values()):
            self._look_at(pod, known, self._judged_at)
        await self.settle()

    def turn_over(self, file: Path | None) -> list[Finding]:
        """Return what was found since the last time, and write what follows to *file*, after the present state."""
        found, self.findings = self.findings, []
        self._begin_file(file)
        state = self._state()
        for event in state:
            self._write(event)
        self.judge.line = 1 + len(state)
        return found

    # --- the file --------------------------------------------------------------------------------------------------

    def _begin_file(self, file: Path | None) -> None:
        self.file = file
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"")
        self._write(self._config_event())

    async def _configure(self) -> None:
        """Judge what follows by the present device config."""
        text = await self._read_config()
        if text != self._config:
            self._config = text
            self._take(self._config_event())

    def _config_event(self) -> Event:
        return Event(Change.CONFIG, DEVICE_CONFIG, self._judged, self._judged_at, {"text": self._config})

    def _write(self, event: Event) -> None:
        if self.file is not None:
            with self.file.open("ab") as file:
                file.write(encode_event(event))

    def _take(self, event: Event) -> None:
        self._judged_at = max(self._judged_at, event.at)
        self._write(event)
        self.findings += self.judge.take(event)

    def _judge_until(self, version: int) -> None:
        """Judge the events up to *version*, in their order."""
        self._buffer.sort(key=lambda event: event.version)
        ready = [event for event in self._buffer if event.version <= version]
        self._buffer = self._buffer[len(ready) :]
        for event in ready:
            self._take(event)
        self._judged = max(self._judged, version)

    # --- the watches -----------------------------------------------------------------------------------------------

    async def _read_state(self) -> None:
        """Judge the present state as the start of the history."""
        self._judged_at = max(self._judged_at, time.time())
        await self._configure()
        for kind, stream in self._streams.items():
            objects, version = await self._api.list(PATHS[kind])
            stream.version = int(version)
            stream.objects = {_key(found): _trimmed(found) for found in objects}
            self._judged = max(self._judged, stream.version)
        for event in self._state():
            self._take(event)
        for pod in self._streams[POD].objects.values():
            self._look_at(pod, self._judged, self._judged_at)

    def _state(self) -> list[Event]:
        """Return the present state as LISTED events."""
        listed = [
            Event(Change.LISTED, kind, _version(found), self._judged_at, found)
            for kind, stream in self._streams.items()
            for found in stream.objects.values()
        ]
        return sorted(listed, key=state_order)

    async def _follow(self, stream: Stream) -> None:
        """Watch until cancelled."""
        path = PATHS[stream.kind]
        refused = -1
        while True:
            try:
                async for change, found in self._api.watch(path, str(stream.version)):
                    self._see(stream, change, found)
            except ApiError as error:
                if error.status == GONE and refused == stream.version:
                    with suppress(ApiError):
                        await self._bridge(stream)
                # A watch may also be ended with 410 while its versions are still there.
                refused = stream.version if error.status == GONE else -1
            await asyncio.sleep(RETRY_SECONDS)

    def _see(self, stream: Stream, change: str, found: Object) -> None:
        stream.version = max(stream.version, _version(found))
        self._moved.set()
        if change == "BOOKMARK":
            return
        item, now = _trimmed(found), time.time()
        if change == "DELETED":
            stream.objects.pop(_key(found), None)
        else:
            stream.objects[_key(found)] = item
        self._buffer.append(Event(Change(change), stream.kind, _version(found), now, item))
        if stream.kind == POD and change != "DELETED":
            self._look_at(item, _version(found), now)

    async def _bridge(self, stream: Stream) -> None:
        """List after the watch has lost its place, and tell the differences as a gap."""
        objects, text = await self._api.list(PATHS[stream.kind])
        version, now = int(text), time.time()
        fresh = {_key(found): _trimmed(found) for found in objects}
        gone = [
            Event(Change.DELETED, stream.kind, version, now, found)
            for key, found in stream.objects.items()
            if key not in fresh or fresh[key]["metadata"]["uid"] != found["metadata"]["uid"]
        ]
        changed = [
            Event(Change.LISTED, stream.kind, version, now, found)
            for key, found in fresh.items()
            if key not in stream.objects or _version(stream.objects[key]) != _version(found)
        ]
        if gone or changed:
            gap = Event(Change.GAP, stream.kind, version, now, {"after": stream.version})
            self._buffer += [gap, *gone, *sorted(changed, key=state_order)]
        stream.objects, stream.version = fresh, version
        self._moved.set()
        if stream.kind == POD:
            for event in changed:
                self._look_at(dict(event.object), version, now)

    # --- the containers --------------------------------------------------------------------------------------------

    def _look_at(self, pod: Object, version: int, at: float) -> None:
        """Begin to look at the containers of *pod* that run and were not looked at; they are judged as of *version*."""
        if "deletionTimestamp" in pod["metadata"]:
            return
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            running = (status.get("state") or {}).get("running")
            key = pod["metadata"]["uid"], f"{status['name']} {status.get('containerID') or running}"
            if running is not None and key not in self._looked_at and status.get("containerID"):
                self._looked_at.add(key)
                task = asyncio.create_task(self._see_container(pod, status["name"], version, at))
                self._looks.add(task)
                task.add_done_callback(self._looks.discard)

    async def _see_container(self, pod: Object, container: str, version: int, at: float) -> None:
        try:
            environment, limits = await asyncio.to_thread(self._look, pod, container)
        except (OSError, ValueError, LookupError):
            return  # It has ended, or its Node is gone.
        seen: dict[str, Any] = {"uid": pod["metadata"]["uid"], "container": container}
        seen |= {"environment": dict(environment), "limits": limits}
        self._buffer.append(Event(Change.SEEN, CONTAINER, version, at, seen))


def _has_come(stream: Stream, objects: list[Object], version: int) -> bool:
    """Return whether *stream* knows all that a list of *objects* at *version* knows."""
    listed = {_key(found): _version(found) for found in objects}
    known = {key: _version(found) for key, found in stream.objects.items()}
    is_late = any(known.get(key, 0) < each and stream.version < each for key, each in listed.items())
    has_extra = any(key not in listed and each <= version for key, each in known.items())
    return not is_late and not has_extra


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _version(found: Mapping[str, Any]) -> int:
    return int(found["metadata"]["resourceVersion"])


def _trimmed(found: Object) -> Object:
    meta = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": meta}
