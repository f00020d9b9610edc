"""
The scheduler's requests to the API server: its watches, its few writes, and the meaning of their failures.

Decides nothing. Neighbours: `hamicommon.runtime.api.kube` speaks HTTP, `cluster_feed` receives objects, the verbs,
`bind_writer` and `locking` request writes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from urllib.parse import quote

import structlog

from hami_scheduler.bind.locking import LockReading
from hami_scheduler.bind.plan import BindPlan
from hami_scheduler.errors import ApiConflictError, ApiRefusedError, ApiUnknownError
from hami_scheduler.serve.call_priority import CallPriority
from hami_scheduler.serve.kube.pods import PROTOBUF, PodReader, trimmed
from hamicommon.dra.names import API_VERSION
from hamicommon.model import Object
from hamicommon.pod.containers import NOT_ENDED
from hamicommon.runtime.api.kube import Conflict, Kube, KubeError, NotFound, Unreachable, event, timestamp
from hamicommon.runtime.api.watch_stream import Event
from hamicommon.wire import keys

_EVENT_QUEUE_LIMIT = 10_000
"""Of each kind. In a burst, Pods are placed first and their Events written later."""
WARNING_PATIENCE_SECONDS = 1.0
"""How long a warning waits for binds in progress."""
SUCCESS_PATIENCE_SECONDS = 60.0
"""How long a success waits; kube-scheduler writes its own. In a burst the queue takes about as long to fill."""
_CALM_SECONDS = 5.0
"""A burst is over when no bind has run for this long, and the Nodes have started its Pods."""
_DRA = f"/apis/{API_VERSION}"
_DEVICE_CLASSES = f"{_DRA}/deviceclasses"
_SMALL_PAGE = 50
"""Objects whose JSON is read in about a millisecond, so that questions of people delay no filter."""
_UNCERTAIN_STATUS = 500
"""From this HTTP status on, the write may or may not have happened."""

_Events = asyncio.Queue[tuple[float, Object]]
"""Events, each with its latest time of writing, by the monotonic clock."""

logger = structlog.get_logger()


class KubeApi:
    """The writes and single reads."""

    def __init__(self, kube: Kube, component: str, now: Callable[[], datetime]) -> None:
        """Write through *kube*; Events name *component* as their source."""
        self._kube = kube
        self._component = component
        self._now = now
        self._warnings: _Events = asyncio.Queue(_EVENT_QUEUE_LIMIT)
        self._successes: _Events = asyncio.Queue(_EVENT_QUEUE_LIMIT)
        self._binds = CallPriority(_CALM_SECONDS)
        self.events_lost = 0
        """Events not written: the queue was full, or the API server refused them."""

    async def read_pod(self, namespace: str, name: str) -> Object | None:
        """Return the Pod, None if it does not exist."""
        with suppress(ApiMissingError), _translated():
            return await self._kube.get(_pod(namespace, name))
        return None

    async def read_claim(self, namespace: str, name: str) -> Object | None:
        """Return the ResourceClaim, None if it does not exist."""
        with suppress(ApiMissingError), _translated():
            return await self._kube.get(f"{_DRA}/namespaces/{quote(namespace)}/resourceclaims/{quote(name)}")
        return None

    async def living_uids(self, node: str) -> set[str]:
        """Return the UIDs of the Pods of *node* that have not ended."""
        selector = f"spec.nodeName={node},{NOT_ENDED}"
        with _translated():
            return {pod["metadata"]["uid"] async for pod in self._kube.items("/api/v1/pods", fieldSelector=selector)}

    async def pods(self) -> AsyncIterator[Object]:
        """Yield every Pod that has not ended, from a consistent read that begins now."""
        with _translated():
            async for page, _ in self._kube.pages("/api/v1/pods", fieldSelector=NOT_ENDED):
                for pod in page:
                    yield pod

    async def collection(self, kind: str) -> AsyncIterator[list[Object]]:
        """Yield the `nodes`, or the `pods` that have not ended, whole, in small pages; `namespaces/a/pods` of one."""
        query = {"fieldSelector": NOT_ENDED} if kind.endswith("pods") else {}
        with _translated():
            async for page, _ in self._kube.pages(f"/api/v1/{kind}", limit=_SMALL_PAGE, **query):
                yield page

    async def bind(self, plan: BindPlan, version: str) -> None:
        """Write the Binding of *plan* if the Pod is still at *version*."""
        with self._binds.first(), _translated():
            await self._kube.create(plan.path, plan.binding(version))

    async def mark_pod(self, uid: str, namespace: str, name: str, mark: str) -> Object:
        """
        Set *mark* as a condition of the Pod *uid*, and return the Pod.

        The status has no limit on the size of a Pod's annotations that a tenant could use up, and its change does not
        make kube-scheduler retry the Pod.
        """
        condition = {
            "type": keys.SCHEDULER_TERM,
            "status": "True",
            "reason": "Fenced",
            "message": mark,
            "lastTransitionTime": timestamp(self._now()),
        }
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        with _translated():
            return await self._kube.strategic_patch(f"{_pod(namespace, name)}/status", body)

    async def label_pod(self, uid: str, namespace: str, name: str, label: tuple[str, str]) -> None:
        """Set one *label*, key and value, of the Pod *uid*."""
        metadata = {"uid": uid, "labels": dict([label])}
        with _translated():
            await self._kube.merge_patch(_pod(namespace, name), {"metadata": metadata})

    async def wake_pod(self, uid: str, namespace: str, name: str) -> None:
        """Change an annotation of the Pod *uid*; kube-scheduler asks about a refused Pod again when it changes."""
        metadata = {"uid": uid, "annotations": {keys.ROOM_TIME: f"{self._now().timestamp():.3f}"}}
        with _translated():
            await self._kube.merge_patch(_pod(namespace, name), {"metadata": metadata})

    async def read_lock(self, node: str, key: str) -> LockReading:
        """Return the lock *key* of *node* as it is now."""
        with _translated():
            found = await self._kube.get(_node(node))
        metadata = found["metadata"]
        return LockReading((metadata.get("annotations") or {}).get(key), metadata["resourceVersion"])

    async def write_lock(self, node: str, key: str, value: str | None, resource_version: str) -> None:
        """Set, or with None remove, the lock *key* of *node* if it is still at *resource_version*."""
        metadata = {"annotations": {key: value}, "resourceVersion": resource_version}
        with _translated():
            await self._kube.merge_patch(_node(node), {"metadata": metadata})

    async def device_classes(self) -> list[Object]:
        """Return all DeviceClasses; none where the API server has no such objects."""
        with suppress(ApiMissingError), _translated():
            return [each async for each in self._kube.items(_DEVICE_CLASSES)]
        return []

    async def touch_device_class(self, name: str) -> None:
        """Change an annotation of the DeviceClass *name*, by which kube-scheduler reads it again."""
        metadata = {"annotations": {keys.CLASS_TIME: f"{self._now().timestamp():.3f}"}}
        with suppress(ApiMissingError), _translated():
            await self._kube.merge_patch(f"{_DEVICE_CLASSES}/{quote(name)}", {"metadata": metadata})

    async def list_resources(self, node: str, capacity: Mapping[str, str | None]) -> None:
        """Set, or with None remove, extended resources in the capacity of *node*, from which its kubelet takes over."""
        status = {"capacity": capacity, "allocatable": capacity}
        with _translated():
            await self._kube.merge_patch(f"{_node(node)}/status", {"status": status})

    def queue_event(self, regarding: Mapping[str, Any], reason: str, message: str, *, is_warning: bool) -> None:
        """Queue an Event about *regarding*, a Pod unless it says another kind; never waits, never fails."""
        body = event(dict(regarding), reason, message, component=self._component, warning=is_warning, now=self._now())
        queue = self._warnings if is_warning else self._successes
        patience_seconds = WARNING_PATIENCE_SECONDS if is_warning else SUCCESS_PATIENCE_SECONDS
        try:
            queue.put_nowait((time.monotonic() + patience_seconds, body))
        except asyncio.QueueFull:
            self.events_lost += 1

    async def write_events(self) -> None:
        """Write queued Events until cancelled, one of each kind at a time; count and drop those that fail."""
        async with asyncio.TaskGroup() as group:
            for queue in (self._warnings, self._successes):
                group.create_task(self._write_in_turn(queue))

    async def _write_in_turn(self, queue: _Events) -> None:
        while True:
            latest, body = await queue.get()
            await self._binds.wait(latest - time.monotonic())
            try:
                await self._kube.create(f"/api/v1/namespaces/{quote(body['metadata']['namespace'])}/events", body)
            except KubeError as error:
                self.events_lost += 1
                logger.debug("Event not written", error=str(error))


class ApiMissingError(ApiRefusedError):
    """The object does not exist."""


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the failures of a block's requests into errors of this service."""
    try:
        yield
    except Unreachable as error:
        raise ApiUnknownError(str(error)) from error
    except NotFound as error:
        raise ApiMissingError(str(error)) from error
    except Conflict as error:
        raise ApiConflictError(str(error)) from error
    except KubeError as error:
        kind = ApiUnknownError if error.status == 0 or error.status >= _UNCERTAIN_STATUS else ApiRefusedError
        raise kind(str(error)) from error


async def objects(kube: Kube) -> list[Object]:
    """Return every Node, every Pod that has not ended and every ResourceQuota, each with its kind."""
    found = []
    for kind, collection, query in (
        ("Node", "nodes", {}),
        ("Pod", "pods", {"fieldSelector": NOT_ENDED}),
        ("ResourceQuota", "resourcequotas", {}),
    ):
        async for item in kube.items(f"/api/v1/{collection}", **query):
            found.append({**item, "kind": kind})
    return found


async def read_lease(kube: Kube, namespace: str, name: str) -> Object | None:
    """Return the Lease as it is now, None if it does not exist."""
    with suppress(ApiMissingError), _translated():
        return await kube.get(f"{leases(namespace)}/{quote(name)}")
    return None


class TrimmedPods:
    """Pods reduced to the parts we read, page by page, so that no full list is ever in memory."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def pages(self, path: str, **query: str | int) -> AsyncIterator[tuple[list[Object], str]]:
        """Yield each page."""
        async for page, version in self._kube.pages(path, **query):
            yield [trimmed(pod) for pod in page], version

    def watch(self, path: str, timeout_seconds: int, /, **query: str | int) -> AsyncIterator[Event]:
        """Watch in protobuf; a server without it answers with whole Pods in JSON."""
        return self._kube.watch(path, timeout_seconds, {PROTOBUF: PodReader}, **query)


def leases(namespace: str) -> str:
    """Return the path of the Leases of *namespace*."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"


def _node(name: str) -> str:
    return f"/api/v1/nodes/{quote(name)}"
