"""
The verb `/bind`: bind a Pod to its Node with the devices reserved for it there.

If the reservation is gone, the devices are chosen again on exactly that Node. Neighbours: `bind.plan` owns what is
written, `bind_writer` writes it, `http` calls this.
"""

from dataclasses import replace

import structlog

from hami_scheduler.bind.claim import claim_name, claim_problem
from hami_scheduler.bind.plan import BindPlan, plan_bind
from hami_scheduler.errors import ApiRefusedError, ApiUnknownError, BindError
from hami_scheduler.explain import wording
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import grant_of
from hami_scheduler.serve.bind_writer import write_bind
from hami_scheduler.serve.context import Context, pod_version
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.reasons import Misfit
from hami_scheduler.values.request import read_request
from hamicommon.vendors import nvidia
from hamicommon.wire.errors import DecodeError

logger = structlog.get_logger()


async def bind_pod(context: Context, uid: str, namespace: str, name: str, node: str) -> None:
    """
    Bind a Pod to *node* with what was reserved for it there.

    Raises:
        BindError: the Pod is not bound; kube-scheduler will ask for a Node again.
    """
    reference = {"metadata": {"uid": uid, "namespace": namespace, "name": name}}
    bound = context.cluster.ledger.grant(uid)
    if bound is not None and bound.node == node and context.cluster.is_bound(uid):
        return
    try:
        plan, grant = await _prepare(context, uid, namespace, name, node)
        await write_bind(context, plan, grant)
    except (BindError, ApiRefusedError, ApiUnknownError) as error:
        context.api.queue_event(reference, "BindingFailed", str(error), is_warning=True)
        logger.warning("Bind failed", pod=f"{namespace}/{name}", node=node, error=str(error))
        raise BindError(str(error)) from error
    text = f"Successfully binding node [{node}] to {namespace}/{name}"
    context.api.queue_event(reference, "BindingSucceed", text, is_warning=False)
    logger.debug("Pod bound", pod=f"{namespace}/{name}", node=node)


async def _prepare(context: Context, uid: str, namespace: str, name: str, node: str) -> tuple[BindPlan, Grant | None]:
    """Return the Binding to write. If it grants devices, their reservation now stays until the outcome is known."""
    reason = await context.wait_until_ready()
    if reason:
        raise BindError(reason)
    busy = context.bind_in_progress(uid)
    if busy:
        raise BindError(busy)
    reserved = context.cluster.reservations.get(uid)
    grant = reserved.grant if reserved is not None and reserved.grant.node == node else None
    if grant is None:
        grant = await _decide_again(context, uid, namespace, name, node)
    if grant is None:
        return BindPlan(uid, namespace, name, node, {}), None  # It asks for no device.
    inventory = context.cluster.view.inventory(node)
    if nvidia.KEY in grant.shares and (inventory.is_mapped or inventory.gives_claims):
        await _look_again(context, grant, needs_claim=inventory.gives_claims)
    seconds = int(context.clock.now().timestamp())
    plan = plan_bind(grant, context.cluster.vendors, seconds, context.settings.wire_version)
    context.cluster.begin_bind(grant.uid, plan.annotations)
    context.gangs.bound(grant.uid, context.cluster, context.clock.steady())
    return plan, grant


async def _look_again(context: Context, grant: Grant, *, needs_claim: bool) -> None:
    """
    Know the Pod of *grant* as kube-scheduler has left it, and check that it has tokens of its Node if it *needs_claim*.

    If a DeviceClass maps what a Pod asks for, kube-scheduler writes the Pod's status between filter and bind. A Binding
    for the version of the filter would fail.

    Raises:
        BindError: the Pod cannot be bound there, and the devices are free again.
        ApiRefusedError, ApiUnknownError: that cannot be read.
    """
    pod = await context.api.read_pod(grant.namespace, grant.name)
    if pod is None:
        problem: str | None = "it does not exist"
    elif needs_claim:
        name = claim_name(pod)
        problem = claim_problem(pod, await context.api.read_claim(grant.namespace, name) if name else None, grant.node)
    else:
        problem = None
    if problem:
        context.cluster.give_up(grant.uid)
        raise BindError(f"Pod {grant.namespace}/{grant.name} cannot be bound to {grant.node}: {problem}")
    reserved = context.cluster.reservations.get(grant.uid)
    if pod is None or reserved is None or reserved.basis is None:
        return
    if context.is_unchanged(reserved.basis, pod):
        reserved.basis = replace(reserved.basis, version=pod_version(pod))


async def _decide_again(context: Context, uid: str, namespace: str, name: str, node: str) -> Grant | None:
    """
    Choose devices on *node* for a Pod without a reservation there; return None if the Pod asks for none.

    This happens after a restart between filter and bind, and for a Pod that we never filtered.
    """
    pod = await context.api.read_pod(namespace, name)
    if pod is not None and not uid:
        uid = pod["metadata"].get("uid") or ""
    busy = context.bind_in_progress(uid)
    if busy:
        raise BindError(busy)
    if pod is None or (uid and pod["metadata"].get("uid") != uid):
        context.cluster.give_up(uid)
        raise BindError(f"Pod {namespace}/{name} with uid {uid} does not exist")
    bound_to = (pod.get("spec") or {}).get("nodeName")
    if bound_to:
        context.cluster.put_read(pod)
        raise BindError(f"Pod {namespace}/{name} is already bound to node {bound_to}")
    try:
        request = read_request(pod, context.cluster.vendors, context.settings.policies)
    except DecodeError as error:
        raise BindError(f"Pod {namespace}/{name}, hami.io/device-scoring-weights: {error}") from error
    if not request.asks_for_devices:
        return None
    reason = context.blocked_for(request.constraints)
    if reason:
        raise BindError(reason)
    context.cluster.give_up(request.uid)
    view = context.cluster.view
    allowances = view.allowances(request)
    found = try_node(request, node, view.ledger, allowances)
    if isinstance(found, Misfit):
        raise BindError(wording.refusal(request, {node: found}, view.ledger, allowances))
    grant = grant_of(request, view.inventory(node), found, int(context.clock.now().timestamp() * 10**9))
    context.cluster.reserve(grant, context.clock.steady(), context.basis(pod, request))
    return grant
