"""
Evict Pods for lasting findings, if the settings name their kinds.

The API server decides: it keeps PodDisruptionBudgets, and the Pod ends as in any eviction. What was tried is forgotten
with the process, which then waits for findings to last again.
Neighbours: `watchdog` has the findings, `hami_monitor.decide.watchdog.confirmation` chooses, `kube` asks.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

import structlog

from hami_monitor.adapters.kube import Events, Pods
from hami_monitor.decide.watchdog.confirmation import Seen, recent, to_evict
from hami_monitor.decide.watchdog.findings import Finding, Kind
from hami_monitor.metrics.watchdog_families import EVICTED, FAILED, REFUSED
from hamicommon.runtime.api.kube import KubeError

_TOO_MANY_REQUESTS = 429
"""The answer if a PodDisruptionBudget allows no disruption now."""

logger = structlog.get_logger()


class Evictions:
    """The evictions of one Node."""

    def __init__(self, pods: Pods, events: Events, kinds: frozenset[Kind]) -> None:
        """Evict for findings of *kinds*, which may be none, once `run` is awaited."""
        self._pods = pods
        self._events = events
        self._kinds = kinds
        self._attempts: dict[str, float] = {}
        """When the eviction of a Pod was tried last, by its UID."""
        self._wanted: asyncio.Queue[tuple[Finding, str]] = asyncio.Queue(1)
        self.counts: Counter[str] = Counter()
        """Attempts since the start, by result."""

    def consider(self, seen: Seen, sentences: Mapping[Finding, str], now_seconds: float) -> None:
        """Choose what to evict for, of what was *seen*; never waits. *sentences* are for people."""
        self._attempts = recent(self._attempts, now_seconds)
        finding = to_evict(seen, self._kinds, self._attempts, now_seconds)
        if finding is not None and not self._wanted.full():
            self._attempts[finding.place.pod_uid] = now_seconds
            self._wanted.put_nowait((finding, sentences[finding]))

    async def run(self) -> None:
        """Evict one Pod after another, until cancelled."""
        while True:
            finding, sentence = await self._wanted.get()
            await self._evict(finding, sentence)

    async def _evict(self, finding: Finding, sentence: str) -> None:
        place = finding.place
        try:
            await self._pods.evict(place.namespace, place.pod, place.pod_uid)
        except KubeError as error:
            result = REFUSED if error.status == _TOO_MANY_REQUESTS else FAILED
            reason, message = "EvictionFailed", f"Not evicted for {finding.kind.value}: {error.message}"
        else:
            result, reason, message = EVICTED, "EvictedByWatchdog", f"Evicted for {finding.kind.value}: {sentence}"
        self.counts[result] += 1
        logger.warning("Eviction", pod=f"{place.namespace}/{place.pod}", result=result, because=message)
        self._events.warn(place.namespace, place.pod, place.pod_uid, reason, message)
