"""
Decide when a finding counts, and when it is reported again.

It counts in two readings that are far enough apart, and in each between them.

A process that starts is listed by the driver and counted in its region at almost the same time, and one that ends may
be listed a moment longer. Neither lasts.
Neighbours: `findings` makes the evidence of each reading.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hami_monitor.decide.watchdog.findings import Evidence, Finding

LASTING_SECONDS = 3.0
QUIET_SECONDS = 3600.0
"""A finding that comes and goes, as of a container that restarts, is one Event in this time."""


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
