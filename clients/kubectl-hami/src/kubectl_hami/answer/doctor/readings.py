"""
Numbers of the services, their device config, and sentences about several of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubectl_hami.answer.exposition import ScrapeError, samples
from kubectl_hami.values.diagnosis import Examined, Health, Service

_NAMED: Final = 3
"""Names in a sentence; more are counted."""


_MINOR: Final = re.compile(r"(?:v1\.)?([0-9]{1,4})\b")

Answer = tuple[Health, str, str]
"""The verdict of a check, what was found, and what to do; empty if nothing is to be done."""


def good(found: str) -> Answer:
    """Return the answer of a check that found nothing wrong."""
    return Health.GOOD, found, ""


def bad(found: str, fix: str) -> Answer:
    """Return the answer of a check that found what stops Pods, or lets a share be exceeded."""
    return Health.BAD, found, fix


def doubtful(found: str, fix: str) -> Answer:
    """Return the answer of a check that found what may become bad, or is bad for some."""
    return Health.DOUBTFUL, found, fix


def unknown(found: str, fix: str) -> Answer:
    """Return the answer of a check that could not be made."""
    return Health.UNKNOWN, found, fix


def of(examined: Examined, component: str) -> list[Service]:
    """Return the Pods of *component*."""
    return [service for service in examined.services if service.component == component]


def answered(examined: Examined, component: str, otherwise: Answer) -> Answer:
    """Return *otherwise* if every Pod of *component* has answered, else which have not."""
    services = of(examined, component)
    silent = [service for service in services if service.metrics is None]
    if not services:
        return bad(f"no Pod of {component} is there to ask", "the check `services` says how to get one")
    if not silent:
        return otherwise
    first = silent[0]
    what = f"{len(silent)} of {len(services)} Pods of {component} do not answer: {named([one.name for one in silent])}"
    if all(service.is_forbidden for service in silent):
        namespace = first.name.partition("/")[0]
        return unknown(f"{what}: {first.why_silent}", f"ask for get on pods/proxy in namespace {namespace}")
    fix = (
        f"kubectl -n {first.name.replace('/', ' logs ')}; kubectl get node {first.node} says whether its Node is there"
    )
    return bad(f"{what} ({first.why_silent})", fix)


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


def minor_of(text: str) -> int | None:
    """
    Return the minor version in *text*, of Kubernetes or as the API server says it alone; None if there is none.

    >>> minor_of("v1.36.3+k3s1"), minor_of("31+"), minor_of("")
    (36, 31, None)
    """
    found = _MINOR.match(text)
    return int(found[1]) if found else None
