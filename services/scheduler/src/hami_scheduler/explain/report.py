"""
The report about one Pod: what it asks, what it gets, why each Node refuses, and which changes would help.

The report is the same for a live scheduler and a snapshot, and is printed as JSON or by `hamicommon.cli.explanation`.
It is computed in small steps with pauses, so that a live scheduler can do other work in between.
Neighbours: `filter` decides, `kube_filters` judges kube-scheduler's part, `wording` has the sentences, `remedies`
finds the changes.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from hami_scheduler.explain import kube_filters
from hami_scheduler.explain.hints import amount_hints, claim_hints, policy_hints
from hami_scheduler.explain.kube_filters import (
    DEFAULT_SCHEDULER,
    JUDGED,
    KubeMisfit,
    KubeView,
    gates,
    last_words,
    not_judged,
)
from hami_scheduler.explain.remedies import Change, Question, changes
from hami_scheduler.explain.wording import Facts, causes, choice, describe, node_sentence, summary
from hami_scheduler.search.filter import FilterResult, filter_nodes
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.reasons import Misfit
from hami_scheduler.values.request import PodRequest
from hamicommon.model import MigAllocation, PodShares
from hamicommon.pod.containers import has_ended

T = TypeVar("T")

RuledOut = Mapping[str, tuple[KubeMisfit, ...]]
"""Why kube-scheduler rules Nodes out, by name."""
_JUDGED_OF_DEVICES = ("devices", "quotas of devices")
_DEVICES_WOULD = "its devices would take it"
_STEP_NODES = 50
"""Nodes between two pauses; some 5 ms."""
_NODES_NAMED = 5


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
    """The `FailedNodes` text, kube-scheduler's own words if it rules the Node out; empty if the Pod fits."""
    why: str
    """One sentence with numbers."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The devices of one vendor in the cluster."""

    vendor: str
    devices: int = 0
    """Offered, in any state."""
    memory_mib: int = 0
    """The most that one device offers."""
    core_percent: int = 0
    """The most that one device offers; 100 is one whole device."""
    free_devices: int = 0
    """Healthy, not cordoned, and with a free replica."""
    free_memory_mib: int = 0
    """The most that is free on one of these."""
    free_core_percent: int = 0
    """The most that is free on one of these."""


@dataclass(frozen=True, slots=True)
class Place:
    """How many of several simulated Pods one Node gets."""

    node: str
    count: int


@dataclass(frozen=True, slots=True)
class Report:
    """The report about one Pod."""

    pod: str
    """`namespace/name`."""
    verdict: str
    """
    `bound`, `reserved`, `fits`, `refused` or `nothing-asked`; `gang` if it fits and another Pod of its gang does not;
    `gated`, `other-scheduler` or `ended` if kube-scheduler will not ask about the Pod; `unfinished` if more Pods fit
    than are simulated.
    """
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
    kube_scheduler: str = ""
    """What kube-scheduler last wrote on the Pod about why it has no Node; empty if it has not."""
    judged: tuple[str, ...] = ()
    """What was judged of a Pod without a Node."""
    not_judged: tuple[str, ...] = ()
    """What kube-scheduler judges of the Pod beyond that, and may refuse it for."""
    count: int = 1
    """How many such Pods were simulated."""
    placed: int | None = None
    """How many of them fit, one after the other; None if not asked. The rest of the report is about the next one."""
    places: tuple[Place, ...] = ()
    """The Nodes of those that fit, most Pods first."""
    added: tuple[str, ...] = ()
    """The Nodes that were imagined, in words."""
    gang: str = ""
    """How many Pods its gang has and which of them does not fit, in words; empty if it is in none."""


Steps = Generator[None, None, Report]
"""Yields at each pause, then returns the report."""


def explain(
    question: Question, view: ClusterView, kube: KubeView, *, notes: tuple[str, ...] = (), was_asked: bool = False
) -> Steps:
    """
    Return the report of the Pod of *question* on *view*, which may change at each pause.

    *kube* is what kube-scheduler sees of the Nodes. *was_asked* says that it has asked this scheduler about the Pod.
    """
    request = question.request
    name = f"{request.namespace}/{request.name}"
    grant = view.ledger.grant(request.uid) if request.uid else None
    if not request.asks_for_devices and grant is None:
        text = f"{name} asks for no device; kube-scheduler alone places it"
        base = _base(request, "nothing-asked", text, question.bound_to or None)
        return replace(
            base,
            notes=(*notes, *amount_hints(question), *claim_hints(question)),
            kube_scheduler=last_words(question.pod),
        )
    notes = (*notes, *policy_hints(question))
    if grant is not None:
        verdict, text = "bound", f"{name} is bound to node {grant.node}"
        if not question.bound_to:
            verdict, text = "reserved", f"node {grant.node} is reserved for {name}; its bind has not been seen yet"
        return replace(
            _base(request, verdict, text, grant.node),
            gets=_given(request, grant.node, grant.shares, grant.mig, view.ledger),
            notes=(*notes, *_enforcement(grant.node, view.ledger)),
        )
    if has_ended(question.pod):
        text = f"{name} has ended ({question.pod['status']['phase']}), so it holds nothing"
        return _base(request, "ended", text, question.bound_to or None)
    if question.bound_to:
        text = f"{name} is bound to node {question.bound_to}, and this scheduler has not seen that it holds a device"
        return replace(_base(request, "bound", text, question.bound_to), notes=notes)
    report = yield from _unbound(question, view, kube)
    notes = (*notes, *amount_hints(question), *claim_hints(question))
    report = replace(report, notes=(*notes, *report.notes))
    barrier = _barrier(question, kube, was_asked=was_asked)
    if barrier is None:
        return report
    verdict, text = barrier
    notes = (*notes, f"apart from that: {report.summary}")
    base = _base(request, verdict, text, None)
    return replace(
        base, notes=notes, kube_scheduler=report.kube_scheduler, judged=report.judged, not_judged=report.not_judged
    )


def _unbound(question: Question, view: ClusterView, kube: KubeView) -> Steps:
    """Return the report of a Pod that has no Node."""
    request = question.request
    names = sorted({*view.ledger.names, *view.ledger.silent})
    ruled_out = yield from ruled_out_by(kube, question, names)
    candidates = [name for name in names if name not in ruled_out]
    result = filter_nodes(request, candidates, view)
    others = not_judged(question.pod, question.device_resources)
    unknown = [name for name in names if name not in kube.nodes]
    if result.node is None or result.placement is None:
        report = yield from _refused(question, result, view, kube, ruled_out)
    else:
        chosen = NodeReport(result.node, True, result.score, "", "chosen")
        told = yield from _others(question, candidates, result, view, ruled_out)
        report = replace(
            _base(request, "fits", choice(request, result), result.node),
            gets=_given(request, result.node, result.placement.shares, result.placement.mig, view.ledger),
            nodes=(chosen, *told),
            notes=_enforcement(result.node, view.ledger),
        )
    return replace(
        report,
        kube_scheduler=last_words(question.pod),
        judged=(*_JUDGED_OF_DEVICES, *(JUDGED if len(unknown) < len(names) else ())),
        not_judged=others,
        notes=(*report.notes, *_only_devices(unknown, names, kube.why_unknown)),
    )


def ruled_out_by(
    kube: KubeView, question: Question, names: Iterable[str]
) -> Generator[None, None, dict[str, tuple[KubeMisfit, ...]]]:
    """Return the Nodes of *names* that kube-scheduler rules out for the Pod, and why."""
    found: dict[str, tuple[KubeMisfit, ...]] = {}
    pod = question.kube_pod
    for number, name in enumerate(names, 1):
        misfits = kube.misfits(pod, name)
        if misfits:
            found[name] = misfits
        if number % _STEP_NODES == 0:
            yield
    return found


def _barrier(question: Question, kube: KubeView, *, was_asked: bool) -> tuple[str, str] | None:
    """Return verdict and sentence if kube-scheduler will not ask about the Pod, whatever Nodes there are."""
    request, spec = question.request, question.pod.get("spec") or {}
    name = f"{request.namespace}/{request.name}"
    if (question.pod.get("metadata") or {}).get("deletionTimestamp"):
        return "ended", f"{name} is being deleted, so no scheduler places it"
    held = gates(question.pod)
    if held:
        return (
            "gated",
            f"{name} has scheduling gates, so no scheduler looks at it until they are removed: {', '.join(held)}",
        )
    theirs, ours = spec.get("schedulerName"), kube.scheduler_name
    if theirs and ours and theirs != ours and not was_asked:
        text = f"{name} is for the scheduler {theirs}, and this one is only asked about Pods of {ours}"
        hint = "; the webhook, which changes schedulerName when a Pod is created, has left it as it was"
        return "other-scheduler", text + (hint if theirs == DEFAULT_SCHEDULER else "")
    return None


def _only_devices(unknown: Sequence[str], names: Sequence[str], why: str) -> tuple[str, ...]:
    """Return a note that only devices were judged on the Nodes *unknown* of *names*; none if there are none."""
    if not unknown:
        return ()
    where = "" if len(unknown) == len(names) else f" on {listed(unknown)}"
    reason = why or "their status does not say how many Pods they take"
    return (f"only devices were judged{where}, not kube-scheduler's part (taints, selectors, CPU, memory): {reason}",)


def listed(names: Sequence[str]) -> str:
    """
    Return the first of *names*, and how many more there are.

    >>> listed(["a", "b", "c", "d", "e", "f"])
    'a, b, c, d, e and 1 more'
    """
    more = f" and {len(names) - _NODES_NAMED} more" if len(names) > _NODES_NAMED else ""
    return f"{', '.join(names[:_NODES_NAMED])}{more}"


def finish(steps: Generator[None, None, T]) -> T:
    """Return the result of *steps*, without pauses."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found


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


def _enforcement(node: str, ledger: Ledger) -> tuple[str, ...]:
    """Return a sentence that says who limits memory on *node*; none if its device plugin does not say it."""
    entry = ledger.node(node)
    said = entry.inventory.enforcement if entry else ""
    return (f"node {node} limits memory by {said}",) if said else ()


def _refused(question: Question, result: FilterResult, view: ClusterView, kube: KubeView, ruled_out: RuledOut) -> Steps:
    request, misfits = question.request, result.refusal.misfits
    facts = Facts(request, view.ledger, view.allowances(request))
    text = summary(misfits, facts)
    if ruled_out:
        first = {name: found[0] for name, found in ruled_out.items()}
        text = f"kube-scheduler rules out {len(first)}: {kube_filters.summary(first, question.kube_pod)}"
        text += f"; of the others {causes(misfits, facts)}" if misfits else ""
        text = f"0 of {len(ruled_out) + len(misfits)} nodes: {text}"
    nodes: list[NodeReport] = []
    for number, name in enumerate(sorted(misfits), 1):
        nodes.append(_misfit_report(name, misfits[name], facts))
        if number % _STEP_NODES == 0:
            yield
    judged = yield from _ruled_out_reports(question, ruled_out, view, facts)
    found = yield from changes(question, view, sorted(misfits))
    takers = [node.name for node in judged if node.why.endswith(_DEVICES_WOULD)]
    return replace(
        _base(request, "refused", text, None),
        nodes=tuple(sorted((*nodes, *judged), key=lambda node: node.name)),
        changes=(*found, *_kube_changes(question, kube, takers)),
        supplies=supplies(request, view.ledger),
    )


def _kube_changes(question: Question, kube: KubeView, names: Iterable[str]) -> tuple[Change, ...]:
    """Return the changes after which kube-scheduler would not rule out one of *names*, each with its first Node."""
    found: dict[str, Change] = {}
    pod = question.kube_pod
    for name in names:
        misfit = kube.only_misfit(pod, name)
        if misfit is not None and len(found) < _NODES_NAMED:
            found.setdefault(misfit.remedy, Change("kube-scheduler", misfit.remedy, name))
    return tuple(found.values())


def _ruled_out_reports(
    question: Question, ruled_out: RuledOut, view: ClusterView, facts: Facts
) -> Generator[None, None, list[NodeReport]]:
    """Return the reports of the Nodes that kube-scheduler rules out; they also say whether their devices would do."""
    found = []
    allowances = view.allowances(question.request)
    for number, (name, misfits) in enumerate(ruled_out.items(), 1):
        tried = try_node(question.request, name, view.ledger, allowances)
        devices = _DEVICES_WOULD
        if isinstance(tried, Misfit):
            devices = f"of its devices, {node_sentence(name, tried, facts)}"
        what = " and ".join(misfit.what for misfit in misfits)
        found.append(NodeReport(name, False, None, misfits[0].code, f"kube-scheduler: {what}; {devices}"))
        if number % _STEP_NODES == 0:
            yield
    return found


def supplies(request: PodRequest, ledger: Ledger) -> tuple[Supply, ...]:
    """Return the supply of each vendor that *request* asks, in the order of its containers."""
    vendors = dict.fromkeys(each.vendor for container in request.containers for each in container.requests)
    return tuple(_supply(vendor, ledger) for vendor in vendors)


def _supply(vendor: str, ledger: Ledger) -> Supply:
    left = ledger.left()
    is_offered = ledger.has_device & ledger.of_kinds(lambda kind: kind.vendor == vendor)
    offered = ledger.capacity[: ledger.row_count][is_offered]
    free = left[is_offered & ledger.is_open[: ledger.row_count] & (left[:, 0] > 0)]
    _, memory_mib, core_percent = offered.max(axis=0, initial=0).tolist()
    _, free_memory_mib, free_core_percent = free.max(axis=0, initial=0).tolist()
    return Supply(vendor, len(offered), memory_mib, core_percent, len(free), free_memory_mib, free_core_percent)


def _others(
    question: Question, names: Iterable[str], result: FilterResult, view: ClusterView, ruled_out: RuledOut
) -> Generator[None, None, list[NodeReport]]:
    """Return the reports of the Nodes that were not chosen, those that fit first."""
    request, ledger = question.request, view.ledger
    allowances = view.allowances(request)
    facts = Facts(request, ledger, allowances)
    found: list[NodeReport] = []
    for number, name in enumerate((name for name in names if name != result.node), 1):
        tried = result.refusal.misfits.get(name) or try_node(request, name, ledger, allowances)
        entry = ledger.node(name)
        if isinstance(tried, Placement) and entry is not None:
            score = ledger.node_score(entry)
            found.append(NodeReport(name, True, score, "", _lost(score, result.score, request)))
        elif isinstance(tried, Misfit):
            found.append(_misfit_report(name, tried, facts))
        if number % _STEP_NODES == 0:
            yield
    found += yield from _ruled_out_reports(question, ruled_out, view, facts)
    return sorted(found, key=lambda node: (not node.fits, node.name))


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
