"""
Take over from an earlier scheduler: nothing is decided before nothing that it sent can take effect any more.

At the begin of a term this replica reads every Pod, counts those that are bound, and fences those that wait and could
get a device. A Pod that was created later needs no fence: a replica that knows of it has read the Lease since, and
found that it does not lead. Neighbours: `readiness` knows the term, `fences` writes, `context` asks whether decisions
can be made.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Protocol

import structlog

from hami_scheduler.bind.fences import AT_ONCE, FenceApi, Marks, PodName, fence, is_bound, take_outcome
from hami_scheduler.bind.plan import can_be_bound
from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.serve.background.leader import Term
from hami_scheduler.serve.background.readiness import Readiness
from hami_scheduler.state.cluster import Cluster
from hamicommon.model import Object
from hamicommon.pod.reading import read_pod
from hamicommon.runtime.api.reflector import Backoff

_RETRY_SECONDS = (0.1, 2.0)
"""Wait after the first failure, and longest wait."""

logger = structlog.get_logger()


class TakeoverApi(FenceApi, Protocol):
    """What taking over needs of the API server."""

    def pods(self) -> AsyncIterator[Object]:
        """Yield every Pod that has not ended, from a consistent read that begins now."""


class Takeover:
    """Whether this replica has taken over, and how far it is."""

    def __init__(self, api: TakeoverApi, readiness: Readiness, cluster: Callable[[], Cluster], marks: Marks) -> None:
        """Have taken over nothing; *cluster* returns the cluster to count bound Pods in."""
        self._api = api
        self._readiness = readiness
        self._cluster = cluster
        self._marks = marks
        self._listed: Term | None = None
        """The term in which every Pod has been read."""
        self._unfenced: dict[PodName, frozenset[str]] = {}
        """The waiting Pods without a fence of this term, with the vendor keys that they ask."""
        self._found = 0
        """How many waiting Pods there were."""

    # What may be decided

    def blocked(self) -> str | None:
        """Return why nothing can be decided now, None if something can."""
        reason = self._readiness.blocked()
        if reason is None and self._listed != self._readiness.term():
            reason = "taking over from an earlier scheduler: the Pods are being read"
        return reason

    def blocked_for(self, vendors: Collection[str]) -> str | None:
        """
        Return why no device of *vendors*, keys, can be granted now, None if it can.

        A waiting Pod without a fence may still be bound with any device of the vendors that it asks.
        """
        reason = self.blocked()
        if reason is None:
            waiting = [pod for pod, asked in self._unfenced.items() if not asked.isdisjoint(vendors)]
            if waiting:
                reason = (
                    f"taking over from an earlier scheduler, which may still bind {len(waiting)} waiting Pods, "
                    f"such as {waiting[0]}"
                )
        return reason

    def not_ready(self) -> str | None:
        """Return why the probe `/readyz` fails, None if it succeeds. A replica that does not lead has nothing to do."""
        reason = self._readiness.unsynced()
        if reason is None and self._readiness.is_leader():
            reason = self.blocked()
            if reason is None and self._unfenced:
                done = self._found - len(self._unfenced)
                reason = f"taking over from an earlier scheduler: {done} of {self._found} waiting Pods are fenced"
        return reason

    @property
    def term(self) -> Term | None:
        """The term in which every Pod has been read, and in which decisions are made."""
        return self._listed

    @property
    def unfenced_count(self) -> int:
        """How many waiting Pods an earlier scheduler may still bind."""
        return len(self._unfenced)

    async def confirm(self) -> str | None:
        """Return why this replica may not write, None if it leads by a read of the Lease that begins after the call."""
        return self.blocked() or await self._readiness.confirm(self._listed) or self.blocked()

    # Taking over

    async def run(self) -> None:
        """Take over at the begin of each term, until cancelled."""
        backoff = Backoff(*_RETRY_SECONDS)
        for reflector in self._readiness.reflectors.values():
            await reflector.synced.wait()
        while True:
            self._readiness.changed.clear()
            term = self._readiness.term()
            if term is None or (term == self._listed and not self._unfenced):
                await self._readiness.changed.wait()
                continue
            try:
                await self._take_over(term)
            except (ApiRefusedError, ApiUnknownError) as error:
                logger.warning("The Pods cannot be read to take over, trying again", term=str(term), error=str(error))
            if self._listed == term and not self._unfenced:
                backoff.reset()
                logger.info("Took over", term=str(term), fenced=self._found)
            else:
                await asyncio.sleep(backoff.next_seconds())

    async def _take_over(self, term: Term) -> None:
        """Read every Pod, unless that is done, and fence those that wait, as long as *term* lasts."""
        self._marks.owner = str(term)
        if self._listed != term:
            waiting = await self._read_pods()
            self._unfenced, self._found, self._listed = waiting, len(waiting), term
        left = iter([*self._unfenced])
        await asyncio.gather(*(self._fence_each(left, term) for _ in range(AT_ONCE)))

    async def _read_pods(self) -> dict[PodName, frozenset[str]]:
        """Count the Pods that are bound, and return those that wait for devices, with the vendor keys asked."""
        waiting: dict[PodName, frozenset[str]] = {}
        seen: set[str] = set()
        async for pod in self._api.pods():
            metadata, cluster = pod["metadata"], self._cluster()
            seen.add(metadata["uid"])
            if is_bound(pod):
                cluster.put_read(pod)
            elif can_be_bound(pod):
                containers = read_pod(pod, cluster.vendors).containers
                asked = frozenset(request.vendor for container in containers for request in container.requests)
                if asked:
                    waiting[PodName(metadata["uid"], metadata["namespace"], metadata["name"])] = asked
        for grant in self._cluster().reservations.in_doubt():
            if grant.uid not in seen:
                take_outcome(self._cluster(), grant.uid, None)
        return waiting

    async def _fence_each(self, pods: Iterator[PodName], term: Term) -> None:
        """Fence *pods*, which other tasks share, as long as *term* lasts. Those that fail stay unfenced."""
        for pod in pods:
            if self._readiness.term() != term:
                return
            try:
                found = await fence(self._api, pod, self._marks.next())
            except (ApiRefusedError, ApiUnknownError) as error:
                logger.warning("A waiting Pod is not fenced yet", pod=str(pod), error=str(error))
                continue
            take_outcome(self._cluster(), pod.uid, found)
            del self._unfenced[pod]
