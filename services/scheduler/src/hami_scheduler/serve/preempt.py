"""
The verb `/preempt`: on which Nodes the planned evictions help, and which Pods must leave there as well.

Neighbours: `search.preempt` judges one Node, `http` calls this.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.search.preempt import Victims, must_leave
from hami_scheduler.serve.context import Context, pod_name
from hami_scheduler.values.request import PodRequest
from hamicommon.model import Object

_NODES_READ = 8
"""Nodes whose Pods are read again for one call. If more are in doubt, kube-scheduler asks again soon anyway."""

logger = structlog.get_logger()


async def preempt_pods(context: Context, pod: Object, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
    """
    Return those Nodes of *victims* where *pod* gets its devices once the named Pods have left.

    Pods of lower priority whose devices are needed too are added to the victims.

    Raises:
        NotReadyError: decisions cannot be made now.
    """
    request = await context.read_when_ready(pod)
    if not request.asks_for_devices:
        return victims
    priority = (pod.get("spec") or {}).get("priority") or 0
    found = _helpful(context, request, priority, victims)
    doubtful = [node for node, named in victims.items() if found.get(node) != named]
    if doubtful:
        await _forget_ended(context, doubtful[:_NODES_READ])
        found = _helpful(context, request, priority, victims)
    count = sum(len(named.uids) for named in found.values())
    logger.info("Preemption judged", pod=pod_name(pod), nodes=len(victims), helpful=len(found), victims=count)
    return found


def _helpful(
    context: Context, request: PodRequest, priority: int, victims: Mapping[str, Victims]
) -> dict[str, Victims]:
    """Return the Nodes of *victims* where evictions help, with all Pods that must leave there."""
    view = context.cluster.view
    unbound = {reserved.grant.uid for reserved in context.cluster.reservations.all()}
    found = {}
    for node, named in victims.items():
        uids = must_leave(request, priority, node, named.uids, view, unbound)
        if uids is not None:
            found[node] = replace(named, uids=uids)
    return found


async def _forget_ended(context: Context, nodes: Sequence[str]) -> None:
    """
    Forget the Pods of *nodes* that have ended.

    When a Pod ends, kube-scheduler may ask before our watch has reported the end. It asks again only when another Pod
    ends, or minutes later, so the Pods are read here. The watch may report the same end meanwhile.
    """
    await asyncio.gather(*(_forget_ended_on(context, node) for node in nodes))


async def _forget_ended_on(context: Context, node: str) -> None:
    cluster = context.cluster
    bound = [
        grant.uid for grant in cluster.ledger.grants_on(node) if not grant.is_claim and cluster.is_bound(grant.uid)
    ]
    try:
        living = await context.api.living_uids(node) if bound else set()
    except (ApiRefusedError, ApiUnknownError) as error:
        logger.warning("Preemption is judged by the watch alone", node=node, error=str(error))
        return
    for uid in bound:
        if uid not in living:
            context.cluster.drop_pod({"metadata": {"uid": uid}})
