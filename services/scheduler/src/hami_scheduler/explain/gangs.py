"""
The report about a Pod of a gang: how many of its members exist and have a Node, and which one does not fit and why.

Members without a Node are placed one after the other on a copy of what is known, in the order of their creation, as
kube-scheduler asks about them. Neighbours: `planning` has the copy, `hamicommon.pod.gang` says who is in a gang.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from hami_scheduler.explain.kube_filters import KubeView, gates
from hami_scheduler.explain.planning import copied
from hami_scheduler.explain.remedies import Question
from hami_scheduler.explain.report import Report, Steps, explain, ruled_out_by
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.placement import grant_of
from hami_scheduler.state.view import ClusterView
from hamicommon.model import Object
from hamicommon.pod.gang import Gang, gang_of
from hamicommon.wire.errors import DecodeError

MEMBERS_LIMIT = 1000
"""Members that are counted."""
_PLACED_LIMIT = 64
"""Members that are placed; more are said to be not judged."""
_LEAST = "at least "


@dataclass(frozen=True, slots=True)
class _Misfit:
    """The first member that does not fit beside those before it."""

    name: str
    why: str


def explain_member(
    question: Question,
    members: Sequence[Object] | None,
    view: ClusterView,
    kube: KubeView,
    *,
    notes: tuple[str, ...] = (),
    was_asked: bool = False,
) -> Steps:
    """
    Return the report of the Pod of *question*, which says more if it is in a gang.

    *members* are all Pods of its gang, None if they could not be read. For the others see `report.explain`.
    """
    report = yield from explain(question, view, kube, notes=notes, was_asked=was_asked)
    gang = gang_of(question.pod)
    if gang is None:
        return report
    if members is None:
        return replace(report, gang=f"gang {gang.name} ({gang.kind}): its Pods could not be read")
    bound = [pod for pod in members if (pod.get("spec") or {}).get("nodeName")]
    unbound = [pod for pod in members if not (pod.get("spec") or {}).get("nodeName")]
    tried = sorted((pod for pod in unbound if not gates(pod)), key=_age)[:_PLACED_LIMIT]
    misfit = yield from _first_misfit(question, tried, view, kube)
    report = replace(report, gang=f"{_counted(gang, members, bound, unbound)}{_words(misfit, tried, unbound)}")
    own = (question.pod.get("metadata") or {}).get("name")
    if report.verdict != "fits" or bound or misfit is None or misfit.name == own or not gang.is_placed_together:
        return report
    text = f"{report.pod} fits node {report.node}, and waits for its gang unless that can do without {misfit.name}"
    return replace(report, verdict="gang", summary=text, node=None, gets=())


def _counted(gang: Gang, members: Sequence[Object], bound: Sequence[Object], unbound: Sequence[Object]) -> str:
    at_least = _LEAST if len(members) >= MEMBERS_LIMIT else ""
    exist = f"{at_least}{len(members)} of {gang.size} Pods exist" if gang.size else f"{at_least}{len(members)} Pods"
    return f"gang {gang.name} ({gang.kind}): {exist}, {len(bound)} have a node, {len(unbound)} wait"


def _words(misfit: _Misfit | None, tried: Sequence[Object], unbound: Sequence[Object]) -> str:
    """Return what is said of the members that wait."""
    if misfit is not None:
        return f"; {misfit.name} fits nowhere beside the others: {misfit.why}"
    if not tried:
        return ""
    return "; their devices fit together" if len(tried) == len(unbound) else f"; {len(tried)} of them fit together"


def _first_misfit(
    question: Question, members: Sequence[Object], view: ClusterView, kube: KubeView
) -> Generator[None, None, _Misfit | None]:
    """Return the first of *members*, which have no Node, that fits nowhere beside those before it; None if all fit."""
    if not members:
        return None
    view, kube = (yield from copied(view)), kube.copy()
    for pod in members:
        one = _question(question, pod)
        if one is None or view.ledger.grant(one.request.uid) is not None:
            continue  # it asks for no device, or some are reserved for it
        ruled_out = yield from ruled_out_by(kube, one, list(view.ledger.names))
        result = filter_nodes(one.request, [name for name in view.ledger.names if name not in ruled_out], view)
        if result.node is None or result.placement is None:
            report: Report = yield from explain(one, view, kube)
            return _Misfit(one.request.name, report.summary)
        grant = grant_of(one.request, view.inventory(result.node), result.placement, unix_nanoseconds=0)
        view.ledger.put(grant)
        view.quotas.count(grant, 1)
        kube.take(one.kube_pod, result.node)
        yield
    return None


def _question(like: Question, pod: Object) -> Question | None:
    """Return the question of *pod*, None if it asks for no device or cannot be read."""
    try:
        found = replace(like, pod=pod)
    except DecodeError:
        return None
    return found if found.request.asks_for_devices else None


def _age(pod: Mapping[str, Any]) -> tuple[str, str]:
    metadata = pod.get("metadata") or {}
    return str(metadata.get("creationTimestamp") or ""), str(metadata.get("name") or "")


def members_of(gang: Gang | None, pods: Iterable[Object]) -> list[Object]:
    """Return those of *pods* that are in *gang*, whatever they say of its size, at most MEMBERS_LIMIT."""
    if gang is None:
        return []
    return list(islice((pod for pod in pods if _is_same(gang, gang_of(pod))), MEMBERS_LIMIT))


def _is_same(gang: Gang, other: Gang | None) -> bool:
    return other is not None and replace(other, size=gang.size) == gang
