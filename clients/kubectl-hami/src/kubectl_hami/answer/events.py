"""
The Events about one Pod, as people read them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hamicommon.model import Object
from hamicommon.pod.containers import moment


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One Event, or a series of equal ones."""

    at: datetime | None
    """When it was seen last; None if it does not say."""
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str
    count: int
    """How often it was seen."""


def events_about(events: Iterable[Object]) -> tuple[PodEvent, ...]:
    """Return *events*, newest first. Both forms of Events are read: with a count, and with a series."""
    return tuple(sorted(map(_event, events), key=lambda event: event.at.timestamp() if event.at else 0.0, reverse=True))


def _event(event: Object) -> PodEvent:
    found = event.get("series")
    series: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    counts = (series.get("count"), event.get("count"))
    moments = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return PodEvent(
        at=next((found for found in map(moment, moments) if found), None),
        type=str(event.get("type") or ""),
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        count=next((count for count in counts if isinstance(count, int) and count > 0), 1),
    )
