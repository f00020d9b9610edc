"""
The verb `/filter`: choose a Node and reserve its devices.

Choosing and reserving happen without an `await` in between, so no two Pods get the same devices. Neighbours:
`search.cache` chooses, `wording` says why not, `http` calls this.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.explain import wording
from hami_scheduler.search.filter import FilterResult, filter_nodes
from hami_scheduler.search.placement import grant_of
from hami_scheduler.serve.context import Context, node_name, pod_name
from hami_scheduler.state.ledger import Ledger
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.inventory import read_inventory
from hami_scheduler.values.request import PodRequest, read_request
from hamicommon.model import Object
from hamicommon.pod.gang import GangKind, gang_of
from hamicommon.wire.errors import DecodeError

_LEAST_NODES = 100
_LEAST_PERCENT = 5

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """ExtenderFilterResult; None is null on the wire."""

    node_names: Sequence[str] | None = None
    nodes: Sequence[Object] | None = None
    failed_nodes: Mapping[str, str] | None = None
    error: str = ""


async def filter_pod(
    context: Context, pod: Object, node_names: Sequence[str] | None, nodes: Sequence[Object] | None
) -> FilterAnswer:
    """Return the Node for *pod* among the candidates, given by name or as objects, and reserve its devices."""
    try:
        request = read_request(pod, context.cluster.vendors, context.settings.policies)
    except DecodeError as error:
        text = f"Pod {pod_name(pod)}, hami.io/device-scoring-weights: {error}"
        _report_refusal(context, pod, "scoring-weights", lambda: text)
        return FilterAnswer(error=text)
    if not request.asks_for_devices:
        return FilterAnswer(node_names=node_names, nodes=nodes)
    reason = await context.wait_until_ready(request.constraints) or await _bound_already(context, request)
    if reason:
        return FilterAnswer(error=reason)
    if nodes is None:
        return _choose(context, pod, request, node_names or ())
    if nodes and all(map(context.cluster.knows, nodes)):
        return _with_objects(_choose(context, pod, request, [node_name(node) for node in nodes]), nodes)
    return _simulate(context, request, nodes)


def _choose(context: Context, pod: Object, request: PodRequest, candidates: Sequence[str]) -> FilterAnswer:
    """Choose and reserve; there must be no `await` in between."""
    busy = context.bind_in_progress(request.uid)
    if busy:
        return FilterAnswer(error=busy)
    cluster, now = context.cluster, context.clock.steady()
    if cluster.is_deleted(request.uid):
        context.waits.ended(request.uid)
        return FilterAnswer(error=f"Pod {request.namespace}/{request.name} with uid {request.uid} is deleted")
    cluster.expire(now)
    gang = gang_of(pod)
    group = gang if gang is not None and gang.kind is GangKind.POD_GROUP else None
    if group is not None and (failed := context.gangs.refusal(group, request.uid, candidates, cluster, now)):
        _remember_refusal(context, pod, request, candidates, is_alone=False)
        return FilterAnswer(failed_nodes=failed)
    cluster.give_up(request.uid)
    context.sampled_filters += len(candidates) == _sample_size(cluster.node_count) < cluster.node_count
    # Of a gang each member must count what those before it get, so nothing is left to kube-scheduler.
    names_all = context.settings.names_all and not (gang is not None and gang.is_placed_together)
    result = _choose_uncontended(context, request, candidates, names_all=names_all)
    if result.node is None or result.placement is None:
        # About a Pod with a nominated Node kube-scheduler asks twice: with that Node alone, and then with all.
        if group is not None and list(candidates) != [_nominated(pod)]:
            context.gangs.refused(group, request, result.refusal.failed_nodes, cluster, now)
        return _refuse(context, pod, request, candidates, result)
    context.events.forget(request.uid)
    context.wakeups.forget(request.uid)
    context.waits.ended(request.uid)
    if names_all:
        fit = [name for name in candidates if name not in result.refusal.misfits]
        return FilterAnswer(node_names=fit, failed_nodes=result.refusal.failed_nodes)
    unix_nanoseconds = int(context.clock.now().timestamp() * 10**9)
    grant = grant_of(request, cluster.view.inventory(result.node), result.placement, unix_nanoseconds)
    cluster.reserve(grant, now, context.basis(pod, request))
    if group is not None:
        context.gangs.chosen(group, request, candidates, cluster, now)
    # kube-scheduler waits for the answer, and for nothing after it.
    asyncio.get_running_loop().call_soon(_after_choice, context, request, result)
    return FilterAnswer(node_names=[result.node])


def _nominated(pod: Object) -> str:
    """Return the Node where a preemption has made room for *pod*, empty if there is none."""
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def _refuse(
    context: Context, pod: Object, request: PodRequest, candidates: Sequence[str], result: FilterResult
) -> FilterAnswer:
    """Answer that no candidate takes *pod*, and say why."""
    view = context.cluster.view
    _report_refusal(
        context,
        pod,
        result.refusal.kind,
        lambda: wording.refusal(request, result.refusal.misfits, view.ledger, view.allowances(request)),
    )
    _remember_refusal(context, pod, request, candidates)
    context.count_refusal(result.refusal.leading_cause)
    return FilterAnswer(failed_nodes=result.refusal.failed_nodes)


def _remember_refusal(
    context: Context, pod: Object, request: PodRequest, candidates: Sequence[str], *, is_alone: bool = True
) -> None:
    """Remember that *pod* waits; without *is_alone* because of other Pods, so that it may fit as the cluster is."""
    context.wakeups.refused(request, candidates, context.cluster.view if is_alone else None)
    created = str((pod.get("metadata") or {}).get("creationTimestamp") or "")
    context.waits.refused(request.uid, created, context.clock.now())


def _choose_uncontended(
    context: Context, request: PodRequest, candidates: Sequence[str], *, names_all: bool
) -> FilterResult:
    """Filter *candidates*; a Node whose lock a Pod has just waited for in vain is chosen only if no other fits."""
    view = context.cluster.view
    search = context.memo.search(request, view)
    contended = set() if names_all else context.locks.contended()
    if contended:
        others = [name for name in candidates if name not in contended]
        result = filter_nodes(request, others, view, search=search)
        if result.node is not None:
            return result
    return filter_nodes(request, candidates, view, explain_all=names_all, search=search)


def _after_choice(context: Context, request: PodRequest, result: FilterResult) -> None:
    """Log *result*, and look ahead: the next Pod is often a replica of this one."""
    logger.info("Node chosen", decision=wording.choice(request, result))
    context.memo.search(request, context.cluster.view).look_ahead()


def _simulate(context: Context, request: PodRequest, nodes: Sequence[Object]) -> FilterAnswer:
    """
    Answer for Nodes that do not exist, as if they were idle; reserve nothing. Autoscalers ask like this.

    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/scheduler.go (`Filter`)
    """
    ledger = Ledger()
    for node in nodes:
        inventory, _ = read_inventory(node, context.cluster.vendors)
        ledger.put_node(replace(inventory, replicas=None))
    names = [node_name(node) for node in nodes]
    result = filter_nodes(request, names, ClusterView(ledger, context.cluster.quotas), explain_all=True)
    chosen = [node for node, name in zip(nodes, names, strict=True) if name == result.node]
    return FilterAnswer(nodes=chosen[:1], failed_nodes=result.refusal.failed_nodes)


async def _bound_already(context: Context, request: PodRequest) -> str | None:
    """Return a sentence if the Pod is bound, or may be; None if it can be decided."""
    pod_text = f"Pod {request.namespace}/{request.name}"
    reserved = context.cluster.reservations.get(request.uid)
    if reserved is None:
        bound = context.cluster.ledger.grant(request.uid)
        return f"{pod_text} is bound to node {bound.node} already" if bound else None
    if not reserved.is_bound:
        return None
    try:
        pod = await context.api.read_pod(request.namespace, request.name)
    except (ApiRefusedError, ApiUnknownError) as error:
        return f"{pod_text} may be bound already, and reading it failed: {error}"
    if pod is not None and pod["metadata"].get("uid") == request.uid and pod["spec"].get("nodeName"):
        context.cluster.put_read(pod)
        return f"{pod_text} is bound to node {pod['spec']['nodeName']} already"
    return None


def _report_refusal(context: Context, pod: Object, kind: str, explain: Callable[[], str]) -> None:
    """Log why *pod* gets no Node and write an Event, once per *kind* of reason."""
    uid = (pod.get("metadata") or {}).get("uid") or ""
    if context.events.is_news(uid, kind, context.clock.steady()):
        sentence = explain()
        logger.info("No node chosen", pod=pod_name(pod), decision=sentence)
        context.api.queue_event(pod, "FilteringFailed", sentence, is_warning=True)


def _with_objects(answer: FilterAnswer, nodes: Sequence[Object]) -> FilterAnswer:
    """Return *answer* with the objects of *nodes* that it names, instead of the names."""
    if answer.node_names is None:
        return answer
    named = set(answer.node_names)
    return replace(answer, node_names=None, nodes=[node for node in nodes if node_name(node) in named])


def _sample_size(node_count: int) -> int:
    """
    Return how many of *node_count* Nodes kube-scheduler sends without `percentageOfNodesToScore`.

    Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/scheduler/schedule_one.go
    (`numFeasibleNodesToFind`)

    >>> [_sample_size(count) for count in (100, 500, 1000, 5000, 10_000)]
    [100, 230, 420, 500, 500]
    """
    if node_count <= _LEAST_NODES:
        return node_count
    percent = max(50 - node_count // 125, _LEAST_PERCENT)
    return max(node_count * percent // 100, _LEAST_NODES)
