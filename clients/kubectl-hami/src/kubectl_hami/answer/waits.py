"""
Find the Pods that ask for devices and have no Node, why, and what would help.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hamicommon.model import Object
from hamicommon.pod.containers import containers_of, has_ended, moment
from hamicommon.pod.lists import extended_resources
from kubectl_hami.answer.shares import name_of
from kubectl_hami.values.cluster import Waiting

REFUSED = "FilteringFailed"
"""The reason of the Events in which the scheduler says why a Pod fits nowhere."""
_DEFAULT_SCHEDULER = "default-scheduler"
_CAUSE_CHARACTERS = 300
_SKEW = timedelta(minutes=5)
"""An Event from later than this in the future is none of the scheduler's."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The scheduler's answer about one waiting Pod."""

    cause: str
    """Why no Node takes it now, or why no scheduler tries; empty if a Node does."""
    changes: tuple[str, ...]
    """Changes after which it would fit, each alone or one pair, cheapest first: `with ... (node n1)`."""
    node: str
    """The Node that it would get now; empty if none."""
    verdict: str = "refused"
    """The verdict of the scheduler's report."""
    kube_scheduler: str = ""
    """What kube-scheduler last wrote on the Pod; empty if it has not."""
    not_judged: tuple[str, ...] = ()
    """What only kube-scheduler judges of the Pod."""
    gang: str = ""
    """How many Pods its gang has and which of them does not fit; empty if it is in none."""


def waiting(pods: Iterable[Object], refusals: Iterable[Object], now: datetime) -> tuple[Waiting, ...]:
    """Return the Pods that wait for devices, longest first. *refusals* are the scheduler's Events about them."""
    causes = _causes(refusals, now)
    found = list(_waiting(pods, causes, now))
    return tuple(sorted(found, key=lambda one: (one.since, one.namespace, one.pod)))


def remedies(report: Mapping[str, Any]) -> Remedy:
    """Return what *report* says: its cause, its changes, or the Node that fits by now."""
    changes = report.get("changes") or ()
    return Remedy(
        cause="" if report.get("node") else str(report.get("queue") or report.get("summary") or ""),
        gang=str(report.get("gang") or ""),
        changes=tuple(f"{change.get('what')} (node {change.get('node')})" for change in changes),
        node=str(report.get("node") or ""),
        verdict=str(report.get("verdict") or ""),
        kube_scheduler=str(report.get("kubeScheduler") or ""),
        not_judged=tuple(map(str, report.get("notJudged") or ())),
    )


def _waiting(pods: Iterable[Object], causes: Mapping[tuple[str, str], str], now: datetime) -> Iterator[Waiting]:
    for pod in pods:
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        asked = {
            name: amount
            for container, _ in containers_of(pod)
            for name, amount in extended_resources(container).items()
        }
        namespace, name = name_of(pod)
        cause = causes.get((namespace, str(metadata.get("uid") or "")), "")
        is_ours = spec.get("schedulerName", _DEFAULT_SCHEDULER) != _DEFAULT_SCHEDULER or cause
        if spec.get("nodeName") or not asked or not is_ours or has_ended(pod):
            continue
        yield Waiting(
            namespace=namespace,
            pod=name,
            since=moment(metadata.get("creationTimestamp")) or now,
            asks=", ".join(f"{resource} {amount}" for resource, amount in sorted(asked.items())),
            cause=_gates(pod) or cause or _condition(pod),
        )


def _causes(refusals: Iterable[Object], now: datetime) -> dict[tuple[str, str], str]:
    """
    Return the causes in the newest of *refusals* about each Pod, by namespace and UID.

    A tenant can write Events, but only in their own namespace, and none that is newer for ever than the scheduler's.
    """
    newest: dict[tuple[str, str], tuple[datetime, str]] = {}
    for event in refusals:
        about = event.get("involvedObject") or {}
        key = str((event.get("metadata") or {}).get("namespace") or ""), str(about.get("uid") or "")
        when = moment(event.get("lastTimestamp")) or moment(event.get("eventTime"))
        if event.get("reason") != REFUSED or when is None or when > now + _SKEW:
            continue
        if key not in newest or when >= newest[key][0]:
            newest[key] = when, str(event.get("message") or "")
    return {key: shortened(message.partition("; asked: ")[0]) for key, (_, message) in newest.items()}


def _gates(pod: Object) -> str:
    """Return what keeps schedulers from asking about *pod*, empty if nothing does."""
    gates = (pod.get("spec") or {}).get("schedulingGates")
    return shortened("gated by " + ", ".join(str(gate.get("name")) for gate in gates)) if gates else ""


def _condition(pod: Object) -> str:
    """Return what kube-scheduler says of *pod*, empty if it has said nothing."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return shortened(str(condition.get("message") or ""))
    return ""


def shortened(text: str) -> str:
    """Return *text*, cut where it is longer than a cause should be."""
    return text if len(text) <= _CAUSE_CHARACTERS else f"{text[: _CAUSE_CHARACTERS - 1]}…"
