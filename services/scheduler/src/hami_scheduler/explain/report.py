"""
The report about one Pod: what it asks, what it gets, why each Node refuses, and which changes would help.

The report is the same for a live scheduler and a snapshot, and is printed as JSON or by `hamicommon.explanation`. It is
computed
in small steps with pauses, so that a live scheduler can do other work in between. Neighbours: `filter` decides,
`wording` has the sentences, `remedies` finds the changes.
"""

import copy
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from hami_scheduler.decide.bind_plan import promise
from hami_scheduler.decide.filter import FilterResult, filter_nodes
from hami_scheduler.decide.place_pod import Placement, try_node
from hami_scheduler.explain.hints import amount_hints, policy_hints
from hami_scheduler.explain.remedies import Change, Question, changes
from hami_scheduler.explain.supply import Supply, supplies
from hami_scheduler.explain.wording import Facts, choice, describe, node_sentence, summary
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.reasons import Misfit
from hami_scheduler.values.request import PodRequest
from hamicommon.model import MigAllocation, PodShares

T = TypeVar("T")

_STEP_NODES = 50
"""Nodes between two pauses; some 5 ms."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one container asks of one vendor."""

    container: str
    vendor: str
    count: int
    memory_mib: int | None
    """Per device; None if `memory_percent` counts."""
    memory_percent: int | None
    core_percent: int
    text: str


@dataclass(frozen=True, slots=True)
class Given:
    """One share: granted, or what would be granted."""

    container: str
    device: str
    index: int | None
    """None if the Node no longer offers the device."""
    model: str
    memory_mib: int
    core_percent: int
    mig_profile: str = ""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One Node's answer."""

    name: str
    fits: bool
    score: float | None
    """How full the Node is, 0 to 30 or more; None if the Pod does not fit."""
    code: str
    """The `FailedNodes` text; empty if the Pod fits."""
    why: str
    """One sentence with numbers."""


@dataclass(frozen=True, slots=True)
class Report:
    """The report about one Pod."""

    pod: str
    """`namespace/name`."""
    verdict: str
    """`bound`, `reserved`, `fits`, `refused` or `nothing-asked`."""
    summary: str
    node: str | None
    policy: str
    """The policies for Nodes and devices: `nodes binpack, devices spread`."""
    asks: tuple[Asked, ...] = ()
    gets: tuple[Given, ...] = ()
    nodes: tuple[NodeReport, ...] = ()
    """The chosen one first, then those that fit, then the others, by name."""
    changes: tuple[Change, ...] = ()
    """Changes that let the Pod fit, each alone, or one pair; empty if none helps or none is needed."""
    notes: tuple[str, ...] = ()
    supplies: tuple[Supply, ...] = ()
    """What the cluster offers of each vendor that a refused Pod asks."""


Steps = Generator[None, None, Report]
"""Yields at each pause, then returns the report."""


def explain(question: Question, view: ClusterView, *, notes: tuple[str, ...] = ()) -> Steps:
    """Return the report of the Pod of *question* on *view*, which may change at each pause."""
    request = question.request
    held = view.ledger.grant(request.uid) if request.uid else None
    if not request.asks_for_devices and held is None:
        return replace(_nothing_asked(question), notes=(*notes, *amount_hints(question)))
    notes = (*notes, *policy_hints(question))
    if held is not None:
        enforced = _enforcement(held.node, view.ledger)
        return replace(_held(request, held, view.ledger, question.bound_to), notes=(*notes, *enforced))
    notes = (*notes, *amount_hints(question))
    names = sorted(entry.inventory.name for entry in view.ledger.nodes())
    result = filter_nodes(request, names, view)
    if result.node is None or result.placement is None:
        return replace((yield from _refused(question, result, view)), notes=notes)
    others = yield from _others(request, names, result, view)
    chosen = NodeReport(result.node, True, result.score, "", "chosen")
    return replace(
        _base(request, "fits", choice(request, result), result.node),
        gets=_given(request, result.node, result.placement.shares, result.placement.mig, view.ledger),
        nodes=(chosen, *others),
        notes=(*notes, *_enforcement(result.node, view.ledger)),
    )


def simulate(questions: Sequence[Question], view: ClusterView) -> Generator[None, None, tuple[Report, ...]]:
    """Return the report of each Pod as if they were created now, one after the other; *view* stays as it is."""
    if len(questions) > 1:
        view = yield from _copied(view)
    found = []
    for question in questions:
        report = yield from explain(question, view)
        found.append(report)
        if report.verdict == "fits" and len(questions) > 1:
            _hold(question.request, view)
    return tuple(found)


def finish(steps: Generator[None, None, T]) -> T:
    """Return the result of *steps*, without pauses."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found


def _copied(view: ClusterView) -> Generator[None, None, ClusterView]:
    """Return a copy of *view* that may be changed."""
    ledger = Ledger()
    for number, entry in enumerate(list(view.ledger.nodes())):
        ledger.put_node(entry.inventory)
        if number % _STEP_NODES == 0:
            yield
    for number, grant in enumerate(list(view.ledger.grants())):
        ledger.put(grant)
        if number % _STEP_NODES == 0:
            yield
    return ClusterView(ledger, copy.deepcopy(view.quotas))


def _hold(request: PodRequest, view: ClusterView) -> None:
    """Count what *request* gets, for the Pods after it."""
    names = [entry.inventory.name for entry in view.ledger.nodes()]
    result = filter_nodes(request, names, view)
    entry = view.ledger.node(result.node) if result.node is not None else None
    if entry is not None and result.placement is not None:
        grant = promise(request, entry.inventory, result.placement, unix_nanoseconds=0)
        view.ledger.put(grant)
        view.quotas.hold(grant, 1)


def shape(value: Any) -> Any:
    """
    Return *value*, made of dataclasses, for JSON, with names in camelCase.

    >>> shape(Change("cordon", "with GPU-a uncordoned", "n1"))
    {'kind': 'cordon', 'what': 'with GPU-a uncordoned', 'node': 'n1'}
    """
    if is_dataclass(value):
        return {_camel(field.name): shape(getattr(value, field.name)) for field in fields(value)}
    return [shape(item) for item in value] if isinstance(value, tuple) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _base(request: PodRequest, verdict: str, text: str, node: str | None) -> Report:
    policy = f"nodes {request.node_policy}, devices {', '.join(request.device_policy.words)}"
    return Report(f"{request.namespace}/{request.name}", verdict, text, node, policy, asks=_asked(request))


def _asked(request: PodRequest) -> tuple[Asked, ...]:
    return tuple(
        Asked(
            container.name,
            each.vendor,
            each.count,
            request.vendors[each.vendor].memory_in_mib(each.memory_mib) or None,
            None if each.memory_mib else each.memory_percent,
            each.core_percent,
            describe(each, request.vendors[each.vendor]),
        )
        for container in request.containers
        for each in container.requests
    )


def _nothing_asked(question: Question) -> Report:
    text = f"{question.request.namespace}/{question.request.name} asks for no device; kube-scheduler alone places it"
    return _base(question.request, "nothing-asked", text, question.bound_to or None)


def _held(request: PodRequest, held: Grant, ledger: Ledger, bound_to: str) -> Report:
    name = f"{request.namespace}/{request.name}"
    text = f"{name} is bound to node {held.node}"
    if not bound_to:
        text = f"node {held.node} is reserved for {name}; its bind has not been seen yet"
    given = _given(request, held.node, held.shares, held.mig, ledger)
    return replace(_base(request, "bound" if bound_to else "reserved", text, held.node), gets=given)


def _enforcement(node: str, ledger: Ledger) -> tuple[str, ...]:
    """Return a sentence that says who limits memory on *node*; none if its device plugin does not say it."""
    entry = ledger.node(node)
    said = entry.inventory.enforcement if entry else ""
    return (f"node {node} limits memory by {said}",) if said else ()


def _refused(question: Question, result: FilterResult, view: ClusterView) -> Steps:
    request, misfits = question.request, result.misfits
    facts = Facts(request, view.ledger, view.allowances(request))
    text = summary(request, misfits, facts)
    nodes: list[NodeReport] = []
    for number, name in enumerate(sorted(misfits), 1):
        nodes.append(_misfit_report(name, misfits[name], facts))
        if number % _STEP_NODES == 0:
            yield
    found = yield from changes(question, view, sorted(misfits))
    offered = yield from supplies(request, view.ledger)
    return replace(_base(request, "refused", text, None), nodes=tuple(nodes), changes=found, supplies=offered)


def _others(
    request: PodRequest, names: Iterable[str], result: FilterResult, view: ClusterView
) -> Generator[None, None, list[NodeReport]]:
    """Return the reports of the Nodes that were not chosen, those that fit first."""
    ledger = view.ledger
    allowances = view.allowances(request)
    facts = Facts(request, ledger, allowances)
    scores = _scores(ledger)
    found: list[NodeReport] = []
    for number, name in enumerate((name for name in names if name != result.node), 1):
        tried = result.misfits.get(name) or try_node(request, name, ledger, allowances)
        if isinstance(tried, Placement):
            score = scores.get(name, 0.0)
            found.append(NodeReport(name, True, score, "", _lost(score, result.score, request)))
        else:
            found.append(_misfit_report(name, tried, facts))
        if number % _STEP_NODES == 0:
            yield
    return sorted(found, key=lambda node: (not node.fits, node.name))


def _scores(ledger: Ledger) -> dict[str, float]:
    return {ledger.node_name(index): float(score) for index, score in enumerate(ledger.node_scores())}


def _lost(score: float, best: float, request: PodRequest) -> str:
    if score == best:
        return "fits as well; of equal nodes the first by name is taken"
    return f"fits; {request.node_policy} prefers a node that is {'emptier' if score > best else 'fuller'}"


def _misfit_report(name: str, misfit: Misfit, facts: Facts) -> NodeReport:
    return NodeReport(name, False, None, misfit.text, node_sentence(name, misfit, facts))


def _given(
    request: PodRequest,
    node: str,
    shares: Mapping[str, PodShares],
    mig: Sequence[MigAllocation],
    ledger: Ledger,
) -> tuple[Given, ...]:
    entry = ledger.node(node)
    devices = {device.id: device for device in entry.inventory.devices} if entry else {}
    profiles = {(one.container_index, one.device_index): one.profile for one in mig}
    found = []
    for position, container in enumerate(request.containers):
        for vendor_shares in shares.values():
            here = vendor_shares[position] if position < len(vendor_shares) else ()
            for number, share in enumerate(here):
                device = devices.get(share.uuid)
                found.append(
                    Given(
                        container.name,
                        share.uuid,
                        device.index if device else None,
                        device.type if device else "",
                        share.memory_mib,
                        share.core_percent,
                        profiles.get((position, number), ""),
                    )
                )
    return tuple(found)
