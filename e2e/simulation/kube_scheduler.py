"""
kube-scheduler, as far as an extender can tell it from the real one.

Owns leader election as client-go does it, a queue of Pods of which one is scheduled at a time, and binding cycles
beside it. It asks about a refused Pod again at every event, and after an error, later each time. Must never know what
the extender decides by. Neighbour: `replica` starts it again when it ends.
Source: https://github.com/kubernetes/client-go/blob/v0.34.1/tools/leaderelection/leaderelection.go
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/scheduler/schedule_one.go
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from hamicommon.model import Object
from hamicommon.runtime.api.api_errors import KubeError, NotFound
from hamicommon.runtime.api.reflector import Reflector
from simulation.network import Connection

SCHEDULER_NAME = "hami-scheduler"
LEASE, LEASE_NAMESPACE = "hami", "kube-system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15.0, 10.0, 2.0
"""The defaults: how long a Lease holds, how long its holder tries to renew it, and how often."""
EXTENDER_SECONDS = 30.0
"""The time limit of a call."""
BACKOFF_SECONDS = (1.0, 10.0)
"""The pause before a Pod is tried again after an error, the first and the longest."""
UNSCHEDULABLE_SECONDS = 300.0
"""After so long a Pod that fitted nowhere is tried again, whatever happened."""


class Extender(Protocol):
    """What kube-scheduler asks."""

    async def filter(self, pod: Object, nodes: Collection[str]) -> tuple[list[str], str]:
        """Return the Nodes that are left, and an error, empty if there is none. Raises: OSError, TimeoutError."""

    async def bind(self, pod: Object, node: str) -> str:
        """Bind, and return an error, empty if there is none. Raises: OSError, TimeoutError."""


class KubeScheduler:
    """One process of kube-scheduler."""

    def __init__(
        self,
        api: Connection,
        identity: str,
        extender: Extender,
        nodes: Callable[[], Collection[str]],
        now: Callable[[], datetime],
    ) -> None:
        """Compete for the Lease as *identity*, and ask *extender* about *nodes*."""
        self.leads = False
        """Whether it believes that it holds the Lease."""
        self._api = api
        self._identity = identity
        self._extender = extender
        self._nodes = nodes
        self._now = now
        self._observed: Object = {}
        """The spec of the Lease as it was last read, and since when it is so by the clock of this process."""
        self._observed_at = 0.0
        self._pods: dict[str, Object] = {}
        self._ready_at: dict[str, float] = {}
        """The Pods that wait, by UID, with the time from which each may be tried."""
        self._pause_seconds: dict[str, float] = {}
        self._refused: dict[str, None] = {}
        """UIDs of the waiting Pods that fitted nowhere, which any event may change."""
        self._assumed: set[str] = set()
        """UIDs of the Pods whose binding cycle runs."""
        self._has_work = asyncio.Event()
        self._cycles: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Wait for the Lease, then schedule Pods until it is lost."""
        pods = Reflector(
            self._api, "/api/v1/pods", replace=self._replace_pods, upsert=self._put_pod, delete=self._drop_pod
        )
        following = asyncio.create_task(pods.run())
        await self._hold_lease()
        self.leads = True
        await pods.synced.wait()
        scheduling = asyncio.create_task(self._schedule())
        await self._renew()
        self.leads = False
        # The process exits, without waiting for anything.
        for task in (following, scheduling, *self._cycles):
            task.cancel()

    async def release(self) -> None:
        """Give the Lease up, as the process does on SIGTERM."""
        if self._observed.get("holderIdentity") != self._identity:
            return
        with suppress(KubeError):
            lease = await self._api.get(f"{LEASES}/{LEASE}")
            if lease["spec"].get("holderIdentity") == self._identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._api.replace(f"{LEASES}/{LEASE}", {**lease, "spec": spec})

    # --- the Lease -------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Hold the Lease until it could not be renewed for RENEW_SECONDS."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._hold_lease()
            except TimeoutError:
                return

    async def _hold_lease(self) -> None:
        """Try until the Lease is ours."""
        while True:
            if await self._acquire_or_renew():
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _acquire_or_renew(self) -> bool:
        """Return whether the Lease is ours now."""
        now, text = asyncio.get_running_loop().time(), self._now().isoformat()
        ours = {"holderIdentity": self._identity, "leaseDurationSeconds": int(LEASE_SECONDS), "renewTime": text}
        try:
            try:
                lease = await self._api.get(f"{LEASES}/{LEASE}")
            except NotFound:
                spec = {**ours, "acquireTime": text, "leaseTransitions": 0}
                metadata = {"name": LEASE, "namespace": LEASE_NAMESPACE}
                await self._api.create(LEASES, {"metadata": metadata, "spec": spec})
                self._observe(spec, now)
                return True
            spec = lease["spec"]
            if spec != self._observed:
                self._observe(spec, now)
            holder, seconds = spec.get("holderIdentity"), spec.get("leaseDurationSeconds", LEASE_SECONDS)
            if holder == self._identity:
                fresh = {**spec, **ours}
            elif holder and self._observed_at + seconds > now:
                return False
            else:
                fresh = {**ours, "acquireTime": text, "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
            await self._api.replace(f"{LEASES}/{LEASE}", {**lease, "spec": fresh})
        except KubeError:
            return False
        self._observe(fresh, asyncio.get_running_loop().time())
        return True

    def _observe(self, spec: Object, now: float) -> None:
        self._observed, self._observed_at = spec, now

    # --- the queue -------------------------------------------------------------------------------------------------

    def _replace_pods(self, pods: list[Object]) -> None:
        known = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid in self._pods.keys() - known.keys():
            self._drop_pod(self._pods[uid])
        for pod in pods:
            self._put_pod(pod)

    def _put_pod(self, pod: Object) -> None:
        uid, before = pod["metadata"]["uid"], self._pods.get(pod["metadata"]["uid"])
        if pod["spec"].get("nodeName") or pod["spec"].get("schedulerName") != SCHEDULER_NAME or _is_over(pod):
            self._drop_pod(pod)
            return
        self._pods[uid] = pod
        if before is None or (
            uid in self._ready_at and before["metadata"]["annotations"] != pod["metadata"]["annotations"]
        ):
            self._wait(uid, 0.0)

    def _drop_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        for known in (self._pods, self._ready_at, self._pause_seconds):
            known.pop(uid, None)
        self._refused.pop(uid, None)
        for refused in [*self._refused]:
            self._back_off(refused)

    def _wait(self, uid: str, seconds: float) -> None:
        if uid in self._pods:
            self._ready_at[uid] = asyncio.get_running_loop().time() + seconds
            self._has_work.set()

    def _back_off(self, uid: str) -> None:
        first, longest = BACKOFF_SECONDS
        seconds = self._pause_seconds.get(uid, first)
        self._pause_seconds[uid] = min(2 * seconds, longest)
        self._refused.pop(uid, None)
        self._wait(uid, seconds)

    async def _next(self) -> Object:
        """Return the Pod that may be tried first, once its time has come."""
        while True:
            self._has_work.clear()
            if not self._ready_at:
                await self._has_work.wait()
                continue
            uid = min(self._ready_at, key=self._ready_at.__getitem__)
            pause_seconds = self._ready_at[uid] - asyncio.get_running_loop().time()
            if pause_seconds <= 0:
                del self._ready_at[uid]
                self._refused.pop(uid, None)
                return self._pods[uid]
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._has_work.wait()

    # --- cycles ----------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Schedule one Pod after another."""
        while True:
            pod = await self._next()
            uid = pod["metadata"]["uid"]
            if uid in self._assumed:
                continue
            try:
                nodes, error = await self._extender.filter(pod, self._nodes())
            except (OSError, TimeoutError):
                nodes, error = [], "the extender does not answer"
            if error:
                self._back_off(uid)
            elif not nodes:
                self._refused[uid] = None
                self._wait(uid, UNSCHEDULABLE_SECONDS)
            else:
                self._assumed.add(uid)
                self._begin(self._bind(pod, nodes[0]))

    def _begin(self, cycle: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(cycle)
        self._cycles.add(task)
        task.add_done_callback(self._cycles.discard)

    async def _bind(self, pod: Object, node: str) -> None:
        uid = pod["metadata"]["uid"]
        try:
            error = await self._extender.bind(pod, node)
        except (OSError, TimeoutError):
            error = "the extender does not answer"
        self._assumed.discard(uid)
        if error:
            self._back_off(uid)


def _is_over(pod: Object) -> bool:
    """Return whether *pod* needs no Node any more."""
    return "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") in {"Succeeded", "Failed"}
