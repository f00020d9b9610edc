"""
Decide when a finding counts, when it is reported again, and when its Pod is evicted if the settings ask for it.

It counts in two readings that are far enough apart, and in each between them. A process that starts is listed by the
driver and counted in its region at almost the same time, and one that ends may be listed a moment longer. Neither
lasts.
A wrong finding would cost a tenant its work if the Pod is evicted. So it must have lasted longer for that, and a Node
evicts one Pod at a time, with a pause after each attempt: a mistake reaches few Pods before somebody sees it.
Neighbours: `findings` makes the evidence of each reading, `hami_monitor.serve.evictions` asks the API server.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hami_monitor.decide.watchdog.findings import Evidence, Finding, Kind

LASTING_SECONDS = 3.0
QUIET_SECONDS = 3600.0
"""A finding that comes and goes, as of a container that restarts, is one Event in this time."""
EVICTION_SECONDS = 30.0
"""How long a finding has lasted before its Pod is evicted."""
PAUSE_SECONDS = 60.0
"""Between two attempts on a Node."""
RETRY_SECONDS = 300.0
"""Between two attempts on the same Pod: it ends, or a PodDisruptionBudget protects it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The evidence of the last reading, and since when each part of it was in all readings."""

    since_seconds: Mapping[Evidence, float] = field(default_factory=dict)
    """By the clock that `see` is given."""
    confirmed: frozenset[Finding] = frozenset()

    @property
    def is_settled(self) -> bool:
        """Whether no evidence waits for another reading."""
        return all(evidence.finding in self.confirmed for evidence in self.since_seconds)


def see(before: Seen, evidence: Iterable[Evidence], now_seconds: float) -> Seen:
    """Return what is known after a reading at *now_seconds* that found *evidence*."""
    since = {one: before.since_seconds.get(one, now_seconds) for one in evidence}
    lasting = {one.finding for one, seconds in since.items() if now_seconds - seconds >= LASTING_SECONDS}
    remaining = before.confirmed & {one.finding for one in since}
    return Seen(since, frozenset(lasting | remaining))


def to_report(
    reported: Mapping[Finding, float], confirmed: Iterable[Finding], now_seconds: float
) -> tuple[Mapping[Finding, float], frozenset[Finding]]:
    """
    Return when each finding was *reported* last, without those of long ago, and which of *confirmed* to report now.
    """
    recent = {finding: seconds for finding, seconds in reported.items() if now_seconds - seconds < QUIET_SECONDS}
    due = frozenset(confirmed) - recent.keys()
    return recent | dict.fromkeys(due, now_seconds), due


def to_evict(seen: Seen, kinds: Collection[Kind], attempts: Mapping[str, float], now_seconds: float) -> Finding | None:
    """
    Return the finding whose Pod is to be evicted now; None if there is none.

    *kinds* are those for which Pods are evicted, *attempts* when each was tried last, by the Pod's UID. The finding
    that has lasted longest comes first.
    """
    if any(now_seconds - seconds < PAUSE_SECONDS for seconds in attempts.values()):
        return None
    lasting = [
        (seconds, evidence.finding)
        for evidence, seconds in seen.since_seconds.items()
        if evidence.finding.kind in kinds
        and now_seconds - seconds >= EVICTION_SECONDS
        and now_seconds - attempts.get(evidence.finding.place.pod_uid, -RETRY_SECONDS) >= RETRY_SECONDS
    ]
    return min(lasting, key=lambda each: (each[0], each[1].place))[1] if lasting else None


def recent(attempts: Mapping[str, float], now_seconds: float) -> dict[str, float]:
    """Return those of *attempts* that still hold back another one."""
    return {uid: seconds for uid, seconds in attempts.items() if now_seconds - seconds < RETRY_SECONDS}
