"""
Write a bind: lock the Node where it needs a lock, write the Binding, and find out the outcome.

Must never free a reservation whose Binding may have been written. Neighbours: `bind` decides what to write,
`bind.plan` owns the annotations, `locking` takes the locks, `kube` does the requests.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import structlog

from hami_scheduler.bind.fences import PodName, find_out, is_bound, take_outcome
from hami_scheduler.bind.node_lock import Lock
from hami_scheduler.bind.plan import BindPlan, locks_needed, node_label
from hami_scheduler.errors import ApiConflictError, ApiRefusedError, ApiUnknownError, BindError
from hami_scheduler.explain import wording
from hami_scheduler.serve.context import Context, pod_version
from hami_scheduler.state.ledger import shortfall
from hami_scheduler.state.reservation import Basis
from hami_scheduler.values.grant import Grant
from hamicommon.model import Object
from hamicommon.wire import keys

_TRIES = 5
"""Bindings sent for one call, if the Pod changes each time. Each is preceded by two reads, which is pause enough."""
_UNANSWERED = 2
"""Bindings without an answer after which a call ends; each may take as long as a request."""

logger = structlog.get_logger()


async def write_bind(context: Context, plan: BindPlan, grant: Grant | None) -> None:
    """
    Lock if needed, write *plan*, and keep or free the reservation of *grant* according to the outcome.

    Raises:
        ApiRefusedError: the Pod is not bound as planned, and this Binding will not change that.
        ApiUnknownError: the Pod may be bound.
        BindError: nothing was written.
    """
    entry = context.cluster.ledger.node(plan.node)
    finds_owners = entry is not None and not entry.inventory.needs_lock
    locks = locks_needed(grant, context.cluster.vendors, finds_owners=finds_owners) if grant else ()
    with context.locks.binding(plan.node, plan.namespace, plan.name) if locks else nullcontext():
        try:
            if locks:
                _check(context, grant)
                await _lock(context, plan, locks)
        except BaseException:
            context.cluster.give_up(plan.uid)
            raise
        try:
            await _write(context, plan, grant)
        except (BindError, ApiRefusedError):
            context.cluster.give_up(plan.uid)
            await _unlock(context, plan, locks)
            raise
        except BaseException:
            # Unknown or cancelled: the write may be on its way.
            context.cluster.reservations.written(plan.uid, is_certain=False)
            raise
        context.cluster.reservations.written(plan.uid)
    label = node_label(plan.node)
    if grant is not None and not finds_owners and label is not None:
        await _label(context, plan, label)


def _check(context: Context, grant: Grant | None) -> None:
    """
    Check that *grant* can still be kept.

    Raises:
        BindError: since the choice a device has gone, or another scheduler has taken from it.
    """
    cluster = context.cluster
    problems = shortfall(cluster.ledger, grant, cluster.vendors) if grant else None
    if grant and problems:
        raise BindError(wording.short_by(grant, problems))


async def _write(context: Context, plan: BindPlan, grant: Grant | None) -> None:
    """
    Write the Binding. If the Pod has changed, or there was no answer, find out what became of it and try again.

    Each try has the version of the Pod that was read last, and the Lease is read after that. A replica that takes the
    Lease later knows the Pod too, and its fence makes this Binding fail.

    Raises:
        ApiRefusedError: the Pod is not bound as planned, and this Binding will not change that.
        ApiUnknownError: the Pod may be bound.
        BindError: nothing was written: we lost the Lease, if only for a while, or the devices, or the Pod asks for
            something else.
    """
    reserved = context.cluster.reservations.get(plan.uid)
    basis = reserved.basis if reserved is not None else None
    version = basis.version if basis is not None else ""
    unanswered = 0
    for is_last in (*[False] * (_TRIES - 1), True):
        if grant is not None and not version:
            pod = await context.api.read_pod(plan.namespace, plan.name)
            version = _version_to_bind(context, plan, basis, pod, "it cannot be bound")
        reason = (await context.confirm() if grant is not None else None) or context.blocked()
        reason = reason or (context.blocked_for(grant.shares) if grant is not None else None)
        if basis is not None and basis.term != context.term():
            reason = reason or "the devices were chosen in an earlier term; another scheduler may have decided since"
        if reason:
            raise BindError(reason)
        _check(context, grant)
        try:
            await context.api.bind(plan, version)
        except (ApiConflictError, ApiUnknownError) as error:
            is_unknown = isinstance(error, ApiUnknownError)
            unanswered += is_unknown
            pod = await (_find_out(context, plan, grant) if is_unknown else _read(context, plan))
            if plan.is_done_by(pod):
                return
            has_changed = is_unknown or (grant is not None and pod is not None and pod_version(pod) != version)
            if is_last or not has_changed or unanswered == _UNANSWERED:
                raise ApiRefusedError(_not_bound(plan, pod, str(error))) from error
            version = _version_to_bind(context, plan, basis, pod, str(error))
        else:
            return


def _not_bound(plan: BindPlan, pod: Object | None, why: str) -> str:
    """Return a sentence about *pod* as it is now: its Node says more than *why*."""
    node = (pod.get("spec") or {}).get("nodeName") if pod is not None else None
    why = f"it is already assigned to node {node}" if node else why
    return f"Pod {plan.namespace}/{plan.name} was not bound to {plan.node}: {why}"


def _version_to_bind(context: Context, plan: BindPlan, basis: Basis | None, pod: Object | None, why_not: str) -> str:
    """
    Return the version at which *pod* can be bound by *plan*, which was decided for the Pod of *basis*.

    Raises:
        ApiRefusedError: it cannot, because of *why_not*.
        BindError: the Pod asks for something else now.
    """
    if pod is None or not plan.is_possible_for(pod):
        raise ApiRefusedError(_not_bound(plan, pod, why_not))
    if basis is not None and not context.is_unchanged(basis, pod):
        raise BindError(f"Pod {plan.namespace}/{plan.name} was changed after its devices were chosen")
    return pod_version(pod)


async def _read(context: Context, plan: BindPlan) -> dict[str, Any] | None:
    """Return the Pod as it is now, None if it is gone."""
    pod = await context.api.read_pod(plan.namespace, plan.name)
    if pod is not None and is_bound(pod):
        context.cluster.put_read(pod)
    return pod


async def _find_out(context: Context, plan: BindPlan, grant: Grant | None) -> dict[str, Any] | None:
    """
    Return the Pod after a Binding without an answer, None if it is gone. If it is unbound, that Binding has failed.

    Raises:
        ApiUnknownError: the Pod may be bound.
    """
    if grant is None:
        return await _read(context, plan)
    context.cluster.reservations.doubt(plan.uid)
    if (reason := context.blocked()) is not None:
        raise ApiUnknownError(f"Pod {plan.namespace}/{plan.name} may be bound to {plan.node}: {reason}")
    name = PodName(plan.uid, plan.namespace, plan.name)
    try:
        pod = await find_out(context.api, name, context.marks)
    except ApiRefusedError as error:
        raise ApiUnknownError(f"Pod {name} may be bound to {plan.node}: {error}") from error
    take_outcome(context.cluster, plan.uid, pod)
    return pod


async def _lock(context: Context, plan: BindPlan, locks: Sequence[Lock]) -> None:
    """Take *locks* in their order, all or none."""
    steady = context.clock.steady
    until = steady() + context.settings.lock_wait_seconds
    for position, lock in enumerate(locks):
        try:
            wait = max(0.0, until - steady())
            await context.locks.acquire(plan.node, lock, plan.namespace, plan.name, wait)
        except BaseException:
            await _unlock(context, plan, locks[:position])
            raise


async def _unlock(context: Context, plan: BindPlan, locks: Sequence[Lock]) -> None:
    for lock in reversed(locks):
        try:
            await context.locks.release(plan.node, lock, plan.namespace, plan.name)
        except (ApiRefusedError, ApiUnknownError) as error:
            logger.warning("A node lock may stay for some seconds", node=plan.node, lock=lock.key, error=str(error))


async def _label(context: Context, plan: BindPlan, value: str) -> None:
    try:
        await context.api.label_pod(plan.uid, plan.namespace, plan.name, (keys.POD_NODE, value))
    except (ApiRefusedError, ApiUnknownError) as error:
        logger.warning("Pod stays without its node label", pod=f"{plan.namespace}/{plan.name}", error=str(error))
