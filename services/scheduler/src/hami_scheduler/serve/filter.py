"""
The verb `/filter`: choose a Node and reserve its devices.

Choosing and reserving happen without an `await` in between, so no two Pods get the same devices. Neighbours:
`decide.memo` chooses, `wording` says why not, `http` calls this.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from hami_scheduler.decide.bind_plan import promise
from hami_scheduler.decide.filter import FilterResult, filter_nodes
from hami_scheduler.explain import wording
from hami_scheduler.serve.context import Context, Object, node_name, pod_name
from hami_scheduler.serve.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.state.ledger import Ledger, shortfall
from hami_scheduler.state.reservation import Stage
from hami_scheduler.state.view import ClusterView
from hami_scheduler.values.inventory import read_inventory
from hami_scheduler.values.request import PodRequest, read_request
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
    reason = await context.wait_until_ready() or await _bound_already(context, request)
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
    again = _same_node_again(context, request, candidates)
    if again is not None:
        return FilterAnswer(node_names=[again])
    cluster.give_up(request.uid, now)
    context.sampled_filters += _looks_sampled(len(candidates), cluster.node_count)
    view, names_all = cluster.view, context.settings.names_all
    result = context.memo.filter_nodes(request, candidates, view, explain_all=names_all)
    if result.node is None or result.placement is None:
        _report_refusal(context, pod, result.refusal.kind, lambda: _sentence(request, result, view))
        context.wakeups.refused(request, candidates, view)
        created = str((pod.get("metadata") or {}).get("creationTimestamp") or "")
        context.waits.refused(request.uid, created, context.clock.now())
        context.count_refusal(result.refusal.leading_cause)
        return FilterAnswer(failed_nodes=result.failed_nodes)
    context.events.forget(request.uid)
    context.wakeups.forget(request.uid)
    context.waits.ended(request.uid)
    if names_all:
        fit = [name for name in candidates if name not in result.misfits]
        return FilterAnswer(node_names=fit, failed_nodes=result.failed_nodes)
    unix_nanoseconds = int(context.clock.now().timestamp() * 10**9)
    cluster.reserve(promise(request, view.inventory(result.node), result.placement, unix_nanoseconds), now)
    # kube-scheduler waits for the answer, and for nothing after it.
    asyncio.get_running_loop().call_soon(_after_choice, context, request, result)
    return FilterAnswer(node_names=[result.node])


def _after_choice(context: Context, request: PodRequest, result: FilterResult) -> None:
    """Log *result*, and look ahead: the next Pod is often a replica of this one."""
    logger.info("Node chosen", decision=wording.choice(request, result))
    context.memo.look_ahead(request, context.cluster.view)


def _same_node_again(context: Context, request: PodRequest, candidates: Sequence[str]) -> str | None:
    """
    Return the Node of an earlier bind that may still arrive, None if there is none.

    The second Binding then grants the same as the first, so either may arrive.
    """
    cluster = context.cluster
    held = cluster.reservations.get(request.uid)
    if held is None or held.is_certain or held.grant.node not in candidates:
        return None
    if shortfall(cluster.ledger, held.grant, cluster.vendors):
        return None
    logger.info("Node chosen again", pod=f"{request.namespace}/{request.name}", node=held.grant.node)
    return held.grant.node


def _simulate(context: Context, request: PodRequest, nodes: Sequence[Object]) -> FilterAnswer:
    """
    Answer for Nodes that do not exist, as if they were idle; reserve nothing. Autoscalers ask like this.

    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/scheduler.go (`Filter`)
    """
    ledger = Ledger()
    for node in nodes:
        inventory, _ = read_inventory(node, context.cluster.vendors)
        ledger.put_node(inventory)
    names = [node_name(node) for node in nodes]
    result = filter_nodes(request, names, ClusterView(ledger, context.cluster.quotas), explain_all=True)
    chosen = [node for node, name in zip(nodes, names, strict=True) if name == result.node]
    return FilterAnswer(nodes=chosen[:1], failed_nodes=result.failed_nodes)


async def _bound_already(context: Context, request: PodRequest) -> str | None:
    """Return a sentence if the Pod is bound, or may be; None if it can be decided."""
    pod_text = f"Pod {request.namespace}/{request.name}"
    held = context.cluster.reservations.get(request.uid)
    if held is None:
        bound = context.cluster.ledger.grant(request.uid)
        return f"{pod_text} is bound to node {bound.node} already" if bound else None
    if held.stage is not Stage.WRITTEN:
        return None
    try:
        pod = await context.api.read_pod(request.namespace, request.name)
    except (ApiRefusedError, ApiUnknownError) as error:
        return f"{pod_text} may be bound already, and reading it failed: {error}"
    if pod is not None and pod["metadata"].get("uid") == request.uid and pod["spec"].get("nodeName"):
        context.cluster.put_pod(pod)
        return f"{pod_text} is bound to node {pod['spec']['nodeName']} already"
    return None


def _report_refusal(context: Context, pod: Object, kind: str, explain: Callable[[], str]) -> None:
    """Log why *pod* gets no Node and write an Event, once per *kind* of reason."""
    uid = (pod.get("metadata") or {}).get("uid") or ""
    if context.events.is_news(uid, kind, context.clock.steady()):
        sentence = explain()
        logger.info("No node chosen", pod=pod_name(pod), decision=sentence)
        context.api.queue_event(pod, "FilteringFailed", sentence, is_warning=True)


def _sentence(request: PodRequest, result: FilterResult, view: ClusterView) -> str:
    return wording.refusal(request, result.misfits, view.ledger, view.allowances(request))


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


def _looks_sampled(candidate_count: int, node_count: int) -> bool:
    """Return whether *candidate_count* of *node_count* Nodes is exactly the size of a sample."""
    return candidate_count < node_count and candidate_count == _sample_size(node_count)
