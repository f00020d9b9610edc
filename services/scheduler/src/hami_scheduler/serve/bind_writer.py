"""
Write a bind: lock the Node where it needs a lock, write the Binding, and find out the outcome.

Must never free a reservation whose Binding may have been written. Neighbours: `bind` decides what to write,
`bind_plan` owns the annotations, `locking` takes the locks, `kube` does the requests.
"""

from collections.abc import Sequence

import structlog

from hami_scheduler.decide.bind_plan import BindPlan, locks_needed, node_label
from hami_scheduler.decide.node_lock import Lock
from hami_scheduler.explain import wording
from hami_scheduler.serve.context import Context
from hami_scheduler.serve.errors import ApiConflictError, ApiRefusedError, ApiUnknownError, BindError
from hami_scheduler.state.ledger import shortfall
from hami_scheduler.values.grant import Grant
from hamicommon.wire import keys

logger = structlog.get_logger()


async def write_bind(context: Context, plan: BindPlan, grant: Grant | None) -> None:
    """
    Lock if needed, write *plan*, and keep or free the reservation of *grant* according to the outcome.

    Raises:
        ApiRefusedError: the Pod is not bound as planned, and this Binding will not change that.
        ApiUnknownError: the Pod may be bound.
        BindError: nothing was written.
    """
    cluster = context.cluster
    entry = cluster.ledger.node(plan.node)
    finds_owners = entry is not None and not entry.inventory.needs_lock
    locks = locks_needed(grant, cluster.vendors, finds_owners=finds_owners) if grant else ()
    if locks:
        try:
            _check(context, grant)
            await _lock(context, plan, locks)
        except BaseException:
            context.give_up(plan.uid)
            raise
    try:
        await _write(context, plan, grant)
    except (BindError, ApiRefusedError):
        context.give_up(plan.uid)
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
    Write the Binding. If the answer leaves the outcome open, read the Pod, and write once more if it is unbound.

    Raises:
        ApiRefusedError: the Pod is not bound as planned, and this Binding will not change that.
        ApiUnknownError: the Pod may be bound.
        BindError: nothing was written: we lost the Lease, or the devices, since the bind began.
    """
    for is_last in (False, True):
        reason = context.blocked()
        if reason:
            raise BindError(reason)
        _check(context, grant)
        try:
            await context.api.bind(plan)
        except (ApiConflictError, ApiUnknownError) as error:
            if isinstance(error, ApiUnknownError) and plan.uid in context.cluster.reservations:
                context.cluster.reservations.doubt(plan.uid)
            pod = await context.api.read_pod(plan.namespace, plan.name)
            if pod is not None and plan.is_done_by(pod):
                context.cluster.put_pod(pod)  # The watch may have reported the end of the Pod already.
                return
            is_open = isinstance(error, ApiUnknownError) and plan.is_possible_for(pod)
            if not is_open:
                text = f"Pod {plan.namespace}/{plan.name} was not bound to {plan.node}: {error}"
                raise ApiRefusedError(text) from error
            if is_last:
                raise
        else:
            return


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
            logger.warning("Node lock stays until it expires", node=plan.node, lock=lock.key, error=str(error))


async def _label(context: Context, plan: BindPlan, value: str) -> None:
    try:
        await context.api.label_pod(plan.namespace, plan.name, keys.POD_NODE, value)
    except (ApiRefusedError, ApiUnknownError) as error:
        logger.warning("Pod stays without its node label", pod=f"{plan.namespace}/{plan.name}", error=str(error))
