"""
Watch this Node and its Pods, write Events about Pods, and evict Pods.

Owns the copies of them that all other modules read.
Neighbours: `hamicommon.runtime.api.kube` lists and watches, `pods` reads a Pod.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from hami_monitor.decide.containers import PodCache
from hami_monitor.decide.pods import MonitoredPod, monitored_pod, pod_uid
from hami_monitor.decide.share_time import ShareTime, with_claims
from hami_monitor.decide.watchdog.owners import PodOwner, pod_owner
from hamicommon.model import Share
from hamicommon.runtime.api.event_queue import EventQueue
from hamicommon.runtime.api.kube import Kube, Reflector, event

PODS_PATH = "/api/v1/pods"
NODES_PATH = "/api/v1/nodes"
EVENTS_MAX = 100
"""Events that wait to be written; more are lost."""
SOURCE = "hami-monitor"

logger = structlog.get_logger()


class Pods:
    """The Pods bound to one Node."""

    def __init__(self, kube: Kube, node_name: str, now_seconds: Callable[[], float] = time.time) -> None:
        """Watch the Pods of *node_name* through *kube*, once `run` is awaited; *now_seconds* is the Node's clock."""
        self._kube = kube
        self._node_name = node_name
        self._now_seconds = now_seconds
        self._pods: dict[str, MonitoredPod | None] = {}
        """By UID; None for a Pod without devices."""
        self._owners: dict[str, PodOwner] = {}
        self._claimed: dict[str, tuple[Share, ...]] = {}
        """The shares of claims that each Pod is charged with, by UID."""
        self._departed: list[ShareTime] = []
        """Of Pods that are gone."""
        self.has_changed = False
        """Whether a Pod has begun or ended to hold shares; the reader clears it."""
        self._reflector = Reflector(
            kube,
            PODS_PATH,
            field_selector=f"spec.nodeName={node_name}",
            replace=self.replace,
            upsert=self.upsert,
            delete=self.delete,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    @property
    def synced(self) -> asyncio.Event:
        """Set once the first complete list has arrived."""
        return self._reflector.synced

    @property
    def lists(self) -> int:
        """The number of complete lists so far."""
        return self._reflector.restarts + self.synced.is_set()

    def cache(self) -> PodCache:
        """Return the known Pods, and the age of that knowledge."""
        return PodCache(frozenset(self._pods), self.synced.is_set(), self._reflector.age_seconds())

    def shown(self) -> tuple[MonitoredPod, ...]:
        """Return the Pods that were granted devices."""
        return tuple(pod for pod in self._pods.values() if pod is not None)

    def age_seconds(self) -> float:
        """Return the time since the API server last sent anything about Pods; infinite before the first list."""
        return self._reflector.age_seconds()

    def share_times(self) -> tuple[ShareTime, ...]:
        """Return how long each Pod holds its shares, also those that are gone and not forgotten yet."""
        known = map(self._share_time, self._pods.values())
        return (*self._departed, *(share_time for share_time in known if share_time is not None))

    def charge(self, claimed: Mapping[str, tuple[Share, ...]]) -> None:
        """
        Charge Pods with the shares of claims from now on, by UID.

        Another Pod stays charged with what it was: what is prepared for it may be gone before its end is known.
        """
        kept = {uid: held for uid, held in self._claimed.items() if uid in self._pods}
        self.has_changed |= any(held != kept.get(uid) for uid, held in claimed.items())
        self._claimed = {**kept, **claimed}

    def _share_time(self, pod: MonitoredPod | None) -> ShareTime | None:
        """Return how long *pod* holds its shares, with those of claims."""
        if pod is None or pod.share_time is None:
            return None
        claimed = self._claimed.get(pod.uid)
        return with_claims(pod.share_time, claimed) if claimed else pod.share_time

    def forget_departed(self, until_seconds: float) -> None:
        """Forget the Pods that are gone and ended before *until_seconds*."""
        self._departed = [share_time for share_time in self._departed if share_time.ended_seconds > until_seconds]

    def owners(self) -> Mapping[str, PodOwner]:
        """Return every Pod by UID, with devices or without, as the watchdog sees it."""
        return self._owners

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """
        Evict the Pod of this *namespace*, *name* and *uid*.

        Raises:
            KubeError: it is not evicted. Status 429: a PodDisruptionBudget does not allow it now.
        Source: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._kube.create(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)

    def replace(self, objects: list[dict[str, Any]]) -> None:
        """Replace all Pods by *objects*."""
        before, self._pods = self._pods, {}
        self._owners = {}
        for item in objects:
            self._keep(item, before.get(pod_uid(item)))
        heard_seconds = self._now_seconds() - self.age_seconds()
        for uid in before.keys() - self._pods.keys():
            self._depart(before[uid], heard_seconds)

    def upsert(self, item: dict[str, Any]) -> None:
        """Add or replace a Pod."""
        self._keep(item, self._pods.get(pod_uid(item)))

    def delete(self, item: dict[str, Any]) -> None:
        """Remove a Pod."""
        self._keep(item, self._pods.get(pod_uid(item)))  # It has the moments at which its containers ended.
        self._depart(self._pods.pop(pod_uid(item)), self._now_seconds())
        del self._owners[pod_uid(item)]

    def _keep(self, item: dict[str, Any], before: MonitoredPod | None) -> None:
        pod = monitored_pod(item, self._node_name)
        self._pods[pod_uid(item)] = pod
        self._owners[pod_uid(item)] = pod_owner(item)
        if pod is None:
            return
        self.has_changed |= before is None or before.share_time != pod.share_time
        known = before.problems if before is not None else ()
        for problem in pod.problems:
            if problem not in known:
                logger.warning("Pod has an unreadable annotation", pod=f"{pod.namespace}/{pod.name}", problem=problem)

    def _depart(self, pod: MonitoredPod | None, at_seconds: float) -> None:
        """Keep how long *pod* held its shares; it was gone at *at_seconds*."""
        share_time = self._share_time(pod)
        if share_time is not None and share_time.containers:
            ended_seconds = min(share_time.ended_seconds, at_seconds)
            self._departed.append(replace(share_time, ended_seconds=ended_seconds))
            self.has_changed = True


class Node:
    """This Node as the API server has it; empty until it was seen."""

    def __init__(self, kube: Kube, name: str) -> None:
        """Watch the Node *name* through *kube*, once `run` is awaited."""
        self.seen: dict[str, Any] = {}
        self.changed = asyncio.Event()
        """Set at each change; the waiting task clears it."""
        self._reflector = Reflector(
            kube,
            NODES_PATH,
            field_selector=f"metadata.name={name}",
            replace=lambda items: self._see(items[0] if items else {}),
            upsert=self._see,
            delete=lambda _item: self._see({}),
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    def _see(self, item: dict[str, Any]) -> None:
        self.seen = item
        self.changed.set()


class Events:
    """Events about Pods, written one after another."""

    def __init__(self, kube: Kube) -> None:
        """Write through *kube*, once `run` is awaited."""
        self._kube = kube
        self._queue = EventQueue(EVENTS_MAX)

    def warn(self, namespace: str, name: str, uid: str, reason: str, message: str) -> None:
        """Queue a Warning about the Pod of this *namespace*, *name* and *uid*; never waits, never fails."""
        pod = {"kind": "Pod", "metadata": {"namespace": namespace, "name": name, "uid": uid}}
        body = event(pod, reason, message, component=SOURCE, warning=True, now=datetime.now(UTC))
        self._queue.put(reason, partial(self._kube.create, f"/api/v1/namespaces/{namespace}/events", body))

    async def run(self) -> None:
        """Write until cancelled; an Event that cannot be written is lost."""
        await self._queue.run()
