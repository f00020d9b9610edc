"""
Carry out a bind: locks where the Node needs them, then one write whose outcome is always found out.

Must never free a reservation whose Binding may have been written. Neighbours: `extender` decides what to bind,
`bind_plan` owns what is written, `locking` the locks, `kube` does the writes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import structlog

from hami_scheduler.decide.bind_plan import BindPlan, locks_needed, node_label
from hami_scheduler.explain import wording
from hami_scheduler.serve.errors import ApiConflictError, ApiRefusedError, ApiUnknownError, BindError
from hami_scheduler.serve.locking import NodeLocks
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import shortfall
from hami_scheduler.values.grant import Grant
from hamicommon.wire import keys
from hamicommon.wire.node_lock import Lock

logger = structlog.get_logger()


class BindApi(Protocol):
    """What a bind needs of the API server."""

    async def read_pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the Pod, None where there is none."""

    async def bind(self, plan: BindPlan) -> None:
        """Write the Binding of *plan*."""

    async def label_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set one label of a Pod."""


class Binder:
    """Writes Bindings."""

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        api: BindApi,
        locks: NodeLocks,
        blocked: Callable[[], str | None],
        steady: Callable[[], float],
        lock_wait_seconds: float,
    ) -> None:
        """
        Write through *api* for reservations in *cluster*, which may be another at each call.

        *blocked* returns why nothing may be written, None when it may; *steady* returns seconds that never go back.
        """
        self._cluster = cluster
        self._api = api
        self._locks = locks
        self._blocked = blocked
        self._steady = steady
        self._lock_wait_seconds = lock_wait_seconds

    async def carry_out(self, plan: BindPlan, grant: Grant | None) -> None:
        """
        Lock where needed, write, and keep or give back the reservation of *grant* by what became of it.

        Raises:
            ApiRefusedError: the Pod is not bound as planned, and will not be by this.
            ApiUnknownError: it may be.
            BindError: nothing was written.
        """
        entry = self._cluster().ledger.node(plan.node)
        finds_owners = entry is not None and not entry.inventory.needs_lock
        locks = locks_needed(grant, self._cluster().vendors, finds_owners=finds_owners) if grant else ()
        if locks:
            try:
                self._check(grant)
                await self._lock(plan, locks)
            except BaseException:
                self._cluster().give_up(plan.uid, self._steady())
                raise
        try:
            await self._write(plan, grant)
        except (BindError, ApiRefusedError):
            self._cluster().give_up(plan.uid, self._steady())
            await self._unlock(plan, locks)
            raise
        except BaseException:
            # Unknown, or cancelled: the write may be on its way.
            self._cluster().reservations.written(plan.uid, is_certain=False)
            raise
        self._cluster().reservations.written(plan.uid)
        label = node_label(plan.node)
        if grant is not None and not finds_owners and label is not None:
            await self._label(plan, label)

    def _check(self, grant: Grant | None) -> None:
        """
        See that what *grant* promises can still be kept.

        Raises:
            BindError: since it was chosen a device has gone, or another scheduler has taken from it.
        """
        problems = shortfall(self._cluster().ledger, grant, self._cluster().vendors) if grant else None
        if grant and problems:
            raise BindError(wording.short_by(grant, problems))

    async def _write(self, plan: BindPlan, grant: Grant | None) -> None:
        """
        Write the Binding; where the answer leaves it open, find out by reading the Pod, and write once more if it is
        unbound.

        Raises:
            ApiRefusedError: the Pod is not bound as planned, and will not be by this.
            ApiUnknownError: it may be.
            BindError: nothing was written, for since the bind began the decisions, or the devices, are somebody else's.
        """
        for is_last in (False, True):
            reason = self._blocked()
            if reason:
                raise BindError(reason)
            self._check(grant)
            try:
                await self._api.bind(plan)
            except (ApiConflictError, ApiUnknownError) as error:
                if isinstance(error, ApiUnknownError) and plan.uid in self._cluster().reservations:
                    self._cluster().reservations.doubt(plan.uid)
                pod = await self._api.read_pod(plan.namespace, plan.name)
                if pod is not None and plan.is_done_by(pod):
                    self._cluster().put_pod(pod)  # the watch may have told of its end already
                    return
                is_open = isinstance(error, ApiUnknownError) and plan.is_possible_for(pod)
                if not is_open:
                    text = f"Pod {plan.namespace}/{plan.name} was not bound to {plan.node}: {error}"
                    raise ApiRefusedError(text) from error
                if is_last:
                    raise
            else:
                return

    async def _lock(self, plan: BindPlan, locks: Sequence[Lock]) -> None:
        """Take *locks* in their order, all or none."""
        until = self._steady() + self._lock_wait_seconds
        for position, lock in enumerate(locks):
            try:
                wait = max(0.0, until - self._steady())
                await self._locks.acquire(plan.node, lock, plan.namespace, plan.name, wait)
            except BaseException:
                await self._unlock(plan, locks[:position])
                raise

    async def _unlock(self, plan: BindPlan, locks: Sequence[Lock]) -> None:
        for lock in reversed(locks):
            try:
                await self._locks.release(plan.node, lock, plan.namespace, plan.name)
            except (ApiRefusedError, ApiUnknownError) as error:
                logger.warning("Node lock stays until it expires", node=plan.node, lock=lock.key, error=str(error))

    async def _label(self, plan: BindPlan, value: str) -> None:
        try:
            await self._api.label_pod(plan.namespace, plan.name, keys.POD_NODE, value)
        except (ApiRefusedError, ApiUnknownError) as error:
            logger.warning("Pod stays without its node label", pod=f"{plan.namespace}/{plan.name}", error=str(error))
