"""
The kubelet's Events about objects.

Owns one Event for each object, reason and message, with a count. Must never block its caller or raise: an Event that
cannot be written is dropped. Neighbours: `pods` and `main` use it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable

from hamicommon.model import Object
from minicluster.client import ApiError, Client
from minicluster.kubelet.status.podstatus import as_time


class Events:
    """The Events of one kubelet."""

    def __init__(self, client: Client, component: str, host: str) -> None:
        self._client = client
        self._source = {"component": component, "host": host}
        self._counts: dict[tuple[str, str, str], tuple[str, int]] = {}
        """Name and count of each Event, by UID, reason and message."""
        self._tasks: set[asyncio.Task[None]] = set()

    def warn(self, about: Object, reason: str, message: str, field_path: str = "") -> None:
        """Write a warning about the object *about*, or about its part at *field_path*."""
        metadata = about["metadata"]
        key = (metadata["uid"], reason, message)
        name, count = self._counts.get(key, (f"{metadata['name']}.{time.time_ns():x}", 0))
        self._counts[key] = (name, count + 1)
        path = f"/api/v1/namespaces/{metadata['namespace']}/events"
        now = as_time(time.time())
        if count:
            writing = self._client.patch(f"{path}/{name}", {"count": count + 1, "lastTimestamp": now})
        else:
            involved = {
                "apiVersion": "v1",
                "kind": "Pod",
                **{key: metadata[key] for key in ("namespace", "name", "uid")},
                **({"fieldPath": field_path} if field_path else {}),
            }
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": metadata["namespace"]},
                "involvedObject": involved,
                "reason": reason,
                "message": message[:1024],
                "type": "Warning",
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": self._source,
                "reportingComponent": self._source["component"],
                "reportingInstance": self._source["host"],
            }
            writing = self._client.create(path, event)
        task = asyncio.ensure_future(_ignoring_errors(writing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, uid: str) -> None:
        """Forget the Events of an object that is gone."""
        for key in [key for key in self._counts if key[0] == uid]:
            del self._counts[key]


async def _ignoring_errors(writing: Awaitable[object]) -> None:
    with contextlib.suppress(ApiError):
        await writing
