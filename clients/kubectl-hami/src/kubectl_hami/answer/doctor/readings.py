"""
Numbers of the services, and sentences about several of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubectl_hami.answer.exposition import ScrapeError, samples
from kubectl_hami.values.diagnosis import Check, Examined, Health, Service

_NAMED: Final = 3
"""Names in a sentence; more are counted."""


def good(name: str, found: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(name, Health.GOOD.value, found)


def bad(name: str, found: str, fix: str) -> Check:
    """Return a check that found what stops Pods, or lets a share be exceeded."""
    return Check(name, Health.BAD.value, found, fix)


def doubtful(name: str, found: str, fix: str) -> Check:
    """Return a check that found what may become bad, or is bad for some."""
    return Check(name, Health.DOUBTFUL.value, found, fix)


def unknown(name: str, found: str, fix: str = "") -> Check:
    """Return a check that could not be made."""
    return Check(name, Health.UNKNOWN.value, found, fix)


def of(examined: Examined, component: str) -> list[Service]:
    """Return the Pods of *component*."""
    return [service for service in examined.services if service.component == component]


def readings(services: Iterable[Service], metric: str) -> list[tuple[Service, Mapping[str, str], float]]:
    """Return the samples of *metric* of all *services* that answer, with their labels."""
    found = []
    for service in services:
        try:
            read = samples(service.metrics or b"", (metric,))[metric]
        except ScrapeError:
            continue
        found += [(service, labels, value) for labels, value in read]
    return found


def named(names: Sequence[str]) -> str:
    """
    Return *names* for a sentence, cut if they are many.

    >>> named(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def is_ready(service: Service) -> bool:
    """Return whether the Pod of *service* is ready."""
    conditions = (service.pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
