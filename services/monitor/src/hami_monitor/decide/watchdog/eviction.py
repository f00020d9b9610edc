"""
Decide which Pod to evict for a finding, if the settings ask for it.

A wrong finding would cost a tenant its work. So a finding must have lasted for longer than one that is reported, and a
Node evicts one Pod at a time, with a pause after each attempt: a mistake reaches few Pods before somebody sees it.
Neighbours: `confirmation` says how long a finding has lasted, `hami_monitor.serve.evictions` asks the API server.
"""

from collections.abc import Collection, Mapping

from hami_monitor.decide.watchdog.confirmation import Seen
from hami_monitor.decide.watchdog.findings import Finding, Kind

LASTING_SECONDS = 30.0
"""A finding counts after 3 s, and its Event is written then."""
PAUSE_SECONDS = 60.0
"""Between two attempts on a Node."""
RETRY_SECONDS = 300.0
"""Between two attempts on the same Pod: it ends, or a PodDisruptionBudget protects it."""


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
        and now_seconds - seconds >= LASTING_SECONDS
        and now_seconds - attempts.get(evidence.finding.place.pod_uid, -RETRY_SECONDS) >= RETRY_SECONDS
    ]
    return min(lasting, key=lambda each: (each[0], each[1].place))[1] if lasting else None


def recent(attempts: Mapping[str, float], now_seconds: float) -> dict[str, float]:
    """Return those of *attempts* that still hold back another one."""
    return {uid: seconds for uid, seconds in attempts.items() if now_seconds - seconds < RETRY_SECONDS}
