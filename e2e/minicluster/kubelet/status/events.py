"""
Events that a component writes about objects.

Owns one Event per object, reason and message, counted up when it happens again. Must never hold up its caller or fail
it: an Event that cannot be written is dropped. Neighbours: `pods` and `kubelet` report through it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable

from minicluster.client import ApiError, Client, Object
from minicluster.kubelet.status.podstatus import as_time


class Events:
    """What one kubelet has to tell users."""

    def __init__(self, client: Client, component: str, host: str) -> None:
        self._client = client
        self._source = {"component": component, "host": host}
        self._counts: dict[tuple[str, str, str], tuple[str, int]] = {}
        """Name of the Event and how often it happened, by UID, reason and message."""
        self._tasks: set[asyncio.Task[None]] = set()

    def warn(self, about: Object, reason: str, message: str, field_path: str = "") -> None:
        """Tell that something went wrong with the object *about*, or with the part of it at *field_path*."""
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
        """Forget what was told of an object that is gone."""
        for key in [key for key in self._counts if key[0] == uid]:
            del self._counts[key]


async def _ignoring_errors(writing: Awaitable[object]) -> None:
    with contextlib.suppress(ApiError):
        await writing
