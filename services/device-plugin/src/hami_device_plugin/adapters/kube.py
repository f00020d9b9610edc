"""
Read and write this Node and the Pods bound to it.

Reads come from a watch if an age of seconds is harmless, and from the server if HAMi's lock protocol needs the present
state. Every write names the UID or resourceVersion it expects, or may be repeated.
Neighbours: `hamicommon.runtime.api.kube` is the client.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog

from hami_device_plugin.decide.mig.claims import same_promise
from hamicommon.errors import HamiError
from hamicommon.model import Object
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.runtime.api.event_queue import EventQueue
from hamicommon.runtime.api.kube import Conflict, Kube, NotFound, Reflector, event
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_lock import decode_node_lock
from hamicommon.wire.pod_devices import decode_pod_devices

POD_WAIT_SECONDS = 5.0
"""PreStartContainer may take 30 s, and the kubelet retries it after an error."""
GRANT_WAIT_SECONDS = 1.0
"""A Pod bound without an allocation rarely gets one later."""
REPEAT_WINDOW = timedelta(hours=1)
"""As long as an Event exists, unless the API server is told otherwise."""
SOURCE = "hami-device-plugin"
CHANGE_TRIES = 5
CHANGE_FIRST_SECONDS = 0.1
EVENTS_MAX = 64
"""Events that wait for the API server; further ones are only in the log."""
REPORT_SECONDS = 3.0

logger = structlog.get_logger()


class PodUnknownError(HamiError):
    """The kubelet runs a Pod that the watch has not delivered."""


class NodeKube:
    """This Node and its Pods as the API server has them; `run` keeps them current."""

    def __init__(
        self,
        kube: Kube,
        node: str,
        vendor: Vendor,
        see_node: Callable[[Object], None] = lambda _node: None,
    ) -> None:
        """
        Watch *node* and its Pods; *vendor* has the names and keys.

        *see_node* gets the Node at each change.
        """
        self._kube = kube
        self._report_node = see_node
        self._vendors = (vendor,)
        self._allocated_key = vendor.allocated_key
        self._node_path = f"/api/v1/nodes/{node}"
        self.node: Object = {}
        """The Node as last seen; empty until then."""
        self.pods: dict[str, Pod] = {}
        """The Pods bound to this Node, by UID."""
        self.changed = asyncio.Event()
        """Set at each change of the Node or a Pod; the waiting task clears it."""
        self.to_announce = asyncio.Event()
        """Set when the Node's annotations may be out of date; the waiting task clears it."""
        self.pods_changed = asyncio.Event()
        """Set at each change of a Pod; the waiting task clears it."""
        self._arrival = asyncio.Event()
        """Set at the next change of a Pod; a new event then replaces it."""
        self._node_change = asyncio.Event()
        """Set at the next change of the Node; a new event then replaces it."""
        self._events = EventQueue(EVENTS_MAX)
        self._edited: set[str] = set()
        """UIDs of Pods whose allocation was edited."""
        self.node_reflector = Reflector(
            kube,
            "/api/v1/nodes",
            field_selector=f"metadata.name={node}",
            replace=lambda items: self._see_node(items[0] if items else {}),
            upsert=self._see_node,
            delete=lambda _item: self._see_node({}),
        )
        self.pod_reflector = Reflector(
            kube,
            "/api/v1/pods",
            field_selector=f"spec.nodeName={node}",
            replace=self._see_pods,
            upsert=self._see_pod,
            delete=self._forget_pod,
        )

    async def run(self) -> None:
        """Keep Node and Pods current, and send the Events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.node_reflector.run())
            group.create_task(self.pod_reflector.run())
            group.create_task(self._events.run())

    def report(self, reason: str, message: str, *, is_warning: bool = False, about: str = "") -> None:
        """
        Have an Event of the Node sent soon; it is lost if the API server cannot take it.

        Within an hour, Events of one *reason* are one Event that counts; if they are *about* a device, whose UUID that
        is, one for each device.
        """
        self._events.put(reason, partial(self._send, reason, message, is_warning=is_warning, about=about))

    def report_pod(self, pod: Pod, reason: str, message: str, *, is_warning: bool = True) -> None:
        """Have an Event of *pod* sent soon; it is lost if the API server cannot take it."""
        regarding = {"kind": "Pod", "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}}
        body = event(regarding, reason, message, component=SOURCE, warning=is_warning, now=datetime.now(UTC))
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        self._events.put(reason, partial(self._kube.create, path, body))

    @property
    def annotations(self) -> Mapping[str, str]:
        """The Node's annotations as last seen."""
        return self.node.get("metadata", {}).get("annotations") or {}

    async def wait_node(self, is_so: Callable[[Object], bool]) -> Object:
        """Return the Node once *is_so* returns True for it."""
        while not is_so(self.node):
            await self._node_change.wait()
        return self.node

    async def wait_pod(self, uid: str) -> Pod:
        """
        Return the Pod of *uid*; wait for the watch to deliver it, and a moment longer for its allocation.

        Raises:
            PodUnknownError: the watch did not deliver it in time.
        """
        if self._is_granted(uid):
            return self.pods[uid]
        if not await self._wait_until(lambda: uid in self.pods, POD_WAIT_SECONDS):
            age = self.pod_reflector.age_seconds()
            raise PodUnknownError(
                f"Pod with UID {uid} is not among the {len(self.pods)} Pods that the API server lists for this Node "
                f"(last heard {age:.0f} s ago)"
            )
        await self._wait_until(lambda: self._is_granted(uid), GRANT_WAIT_SECONDS)
        if uid not in self.pods:
            raise PodUnknownError(f"Pod with UID {uid} was deleted")
        return self.pods[uid]

    async def wait_seen(self, uid: str) -> None:
        """Wait until the watch has delivered the Pod of *uid*, but not long."""
        await self._wait_until(lambda: uid in self.pods, GRANT_WAIT_SECONDS)

    async def wait_pods(self, seconds: float) -> None:
        """Return at the next change of a Pod, or after *seconds*."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrival.wait()

    async def read_lock(self) -> str | None:
        """Return the Node's lock annotation as it is now; None if there is none."""
        node = await self._kube.get(self._node_path)
        lock = (node["metadata"].get("annotations") or {}).get(keys.NODE_LOCK)
        return None if lock is None else str(lock)

    async def read_pod(self, namespace: str, name: str) -> Pod:
        """Return a Pod as it is now, with the allocation it was first seen with."""
        return self._read(await self._kube.get(_pod_path(namespace, name)))

    async def read_pods(self) -> list[Pod]:
        """Return the Pods bound to this Node as they are now, with the allocations they were first seen with."""
        name = self._node_path.rpartition("/")[2]
        items = self._kube.items("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
        return [self._read(item) async for item in items]

    async def patch_pod(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        """Apply the merge patch *patch* to *pod*, and keep the Pod it returns."""
        self._see_pod(await self._kube.merge_patch(_pod_path(pod.namespace, pod.name), patch))

    async def annotate_pod(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Merge *annotations* into *pod*."""
        await self.patch_pod(pod, {"metadata": {"annotations": annotations}})

    async def change_mig_allocations(self, pod: Pod, change: Callable[[str], str]) -> None:
        """
        Read *pod*, and write what *change* makes of its MIG annotation.

        Raises:
            PodUnknownError: the Pod is gone.
            KubeError: it cannot be read or written, or keeps changing.
        """

        def decide(metadata: Object) -> Mapping[str, str | None]:
            if metadata.get("uid") != pod.uid:
                raise PodUnknownError(f"Pod {pod} with UID {pod.uid} was deleted")
            text = (metadata.get("annotations") or {}).get(keys.MIG_ALLOCATIONS, "")
            return {keys.MIG_ALLOCATIONS: change(text)}

        await self._change(_pod_path(pod.namespace, pod.name), decide, self._see_pod)

    async def announce_mig_change(self, reason: str | None) -> None:
        """
        Write why the Node's other NVML clients must let go of the driver; None removes that.

        Raises:
            KubeError: the Node cannot be written.
        """
        if self.annotations.get(keys.MIG_CHANGE) != reason:
            await self.annotate_node({keys.MIG_CHANGE: reason})

    async def has_ended(self, uid: str, namespace: str, name: str) -> bool:
        """Return whether the Pod is gone or has ended, as the API server knows now. Raises: KubeError."""
        item = await self._existing(namespace, name)
        if item is None:
            return True
        pod = read_pod(item, self._vendors)
        return pod.uid != uid or pod.has_ended

    async def is_gone(self, namespace: str, name: str) -> bool:
        """Return whether no Pod of this namespace and name exists, on any Node. Raises: KubeError."""
        return await self._existing(namespace, name) is None

    async def _existing(self, namespace: str, name: str) -> Object | None:
        try:
            return await self._kube.get(_pod_path(namespace, name))
        except NotFound:
            return None

    async def annotate_node(self, annotations: Mapping[str, str | None]) -> None:
        """Merge *annotations* into the Node; None removes one. Keep the Node it returns."""
        self._see_node(await self._kube.merge_patch(self._node_path, {"metadata": {"annotations": annotations}}))

    async def release_lock(self, namespace: str, name: str) -> None:
        """
        Release the Node's lock if the Pod of this namespace and name holds it, or if it names no Pod.

        The write carries the resourceVersion that was read, so a lock taken by another Pod meanwhile stays.

        Raises:
            KubeError: the Node cannot be read, or keeps changing.
        """

        def decide(carried: Mapping[str, str]) -> Mapping[str, str | None]:
            text = carried.get(keys.NODE_LOCK)
            return {keys.NODE_LOCK: None} if text is not None and _is_held_by(text, namespace, name) else {}

        await self.change_annotations(decide)

    async def change_annotations(self, decide: Callable[[Mapping[str, str]], Mapping[str, str | None]]) -> None:
        """
        Read the Node, and merge the annotations that *decide* returns for the present ones; None removes one.

        The write carries the resourceVersion that was read. If the Node changed meanwhile, both steps are repeated. An
        empty result of *decide* writes nothing.

        Raises:
            KubeError: the Node cannot be read, or keeps changing.
        """
        await self._change(self._node_path, lambda metadata: decide(metadata.get("annotations") or {}), self._see_node)

    async def _change(
        self, path: str, decide: Callable[[Object], Mapping[str, str | None]], see: Callable[[Object], None]
    ) -> None:
        """Read the object at *path*, merge the annotations that *decide* returns for its metadata, and *see* it."""
        for attempt in range(1, CHANGE_TRIES + 1):
            metadata = (await self._kube.get(path))["metadata"]
            annotations = decide(metadata)
            if not annotations:
                return
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": annotations}}
            try:
                see(await self._kube.merge_patch(path, patch))
                return
            except Conflict:
                if attempt == CHANGE_TRIES:
                    raise
                await asyncio.sleep(CHANGE_FIRST_SECONDS * 2 ** (attempt - 1) * random.uniform(1, 1.5))

    def lock_owner(self) -> tuple[str, str] | None:
        """Return namespace and name of the Pod that holds the Node's lock, as last seen; None if it names no Pod."""
        text = self.annotations.get(keys.NODE_LOCK)
        if text is None:
            return None
        try:
            lock = decode_node_lock(text)
        except DecodeError:
            return None
        return None if lock.namespace is None or lock.pod is None else (lock.namespace, lock.pod)

    def pod_named(self, namespace: str, name: str) -> Pod | None:
        """Return the Pod of that name that is bound here, as last seen."""
        return next((pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)), None)

    async def send_reports(self) -> None:
        """Wait until the Events so far are sent, but not long."""
        await self._events.drain(REPORT_SECONDS)

    async def _send(self, reason: str, message: str, *, is_warning: bool, about: str) -> None:
        """Write an Event of the Node once the Node is known."""
        node, now = await self.wait_node(bool), datetime.now(UTC)
        regarding = {"kind": "Node", "metadata": node["metadata"]}
        body = event(regarding, reason, message, component=SOURCE, warning=is_warning, now=now)
        parts = (body["involvedObject"]["name"], reason, about)
        body["metadata"]["name"] = ".".join(part.lower() for part in parts if part)
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        try:
            before = await self._kube.get(f"{path}/{body['metadata']['name']}")
        except NotFound:
            await self._kube.create(path, body)
            return
        changes = {key: body[key] for key in ("message", "firstTimestamp", "lastTimestamp", "count")}
        if now - _time(before.get("firstTimestamp")) < REPEAT_WINDOW:
            changes |= {"firstTimestamp": before["firstTimestamp"], "count": before.get("count", 1) + 1}
        await self._kube.merge_patch(f"{path}/{body['metadata']['name']}", changes)

    def _see_node(self, item: Object) -> None:
        self.node = item
        if item:
            self._report_node(item)
        self.changed.set()
        self.to_announce.set()
        self._node_change.set()
        self._node_change = asyncio.Event()

    def _see_pods(self, items: list[Object]) -> None:
        found = [self._read(item) for item in items]
        self.pods = {pod.uid: pod for pod in found}
        self._announce()

    def _see_pod(self, item: Object) -> None:
        pod = self._read(item)
        self.pods[pod.uid] = pod
        self._announce()

    def _forget_pod(self, item: Object) -> None:
        uid = item["metadata"]["uid"]
        self.pods.pop(uid, None)
        self._edited.discard(uid)
        self._announce()

    def _read(self, item: Object) -> Pod:
        """Return the Pod in *item* with the allocation it was first seen with; later edits do not count."""
        pod = read_pod(item, self._vendors)
        before = self.pods.get(pod.uid)
        promised = before.annotations.get(keys.MIG_ALLOCATIONS, "") if before is not None else ""
        if promised and not same_promise(promised, pod.annotations.get(keys.MIG_ALLOCATIONS, "")):
            self._warn_of_edit(pod, keys.MIG_ALLOCATIONS)
            pod = replace(pod, annotations={**pod.annotations, keys.MIG_ALLOCATIONS: promised})
        first = before.annotations.get(self._allocated_key) if before is not None else None
        if not first or first == pod.annotations.get(self._allocated_key) or not _is_readable(first):
            return pod
        self._warn_of_edit(pod, self._allocated_key)
        return replace(pod, annotations={**pod.annotations, self._allocated_key: first})

    def _warn_of_edit(self, pod: Pod, key: str) -> None:
        if pod.uid not in self._edited:
            self._edited.add(pod.uid)
            logger.warning("A Pod's allocation was edited, the first one holds", pod=str(pod), key=key)

    def _is_granted(self, uid: str) -> bool:
        return uid in self.pods and self._allocated_key in self.pods[uid].annotations

    def _announce(self) -> None:
        self.changed.set()
        self.pods_changed.set()
        self._arrival.set()
        self._arrival = asyncio.Event()

    async def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait for a change of a Pod after which *is_so* returns True; return whether it came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so():
                    await self._arrival.wait()
        return is_so()


def _is_readable(allocation: str) -> bool:
    try:
        decode_pod_devices(allocation)
    except DecodeError:
        return False
    return True


def _time(text: Any) -> datetime:
    """Return the time in *text*; a very early one if it is none."""
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _is_held_by(text: str, namespace: str, name: str) -> bool:
    """Return whether this Pod may release the lock *text*: it is its own, or it names no owner."""
    return "," not in text or text.endswith(f",{namespace},{name}")
