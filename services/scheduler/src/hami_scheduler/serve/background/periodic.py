"""
What the scheduler does at intervals: expire reservations, recount the ledger, wake Pods, review what Nodes list.

Neighbours: `context` has the state, `main` runs these until the process ends.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from hami_scheduler.serve.background.node_resources import NodeResources
from hami_scheduler.serve.context import Context

EXPIRY_SECONDS = 0.5
"""How often reservations expire, apart from each filter. A Pod that waits for the devices waits this much longer."""
RECOUNT_SECONDS = 60.0
REVIEW_SECONDS = 10.0
"""How often the leader looks for DeviceClasses. A Pod that needs a name that its Node does not list waits this long."""
WAKE_SECONDS = 0.25
"""How often refused Pods are tried again; kube-scheduler itself usually asks within 10 ms of an event."""

logger = structlog.get_logger()


def jobs(
    context: Context, resources: NodeResources, count_woken: Callable[[], None]
) -> list[Coroutine[Any, Any, None]]:
    """Return what runs until cancelled; *count_woken* is called for each Pod that is woken."""

    async def expire() -> None:
        """Free the devices of Pods that were never bound."""
        for uid in context.cluster.expire(time.monotonic()):
            logger.info("Reservation expired, no bind came", uid=uid)

    async def recount() -> None:
        """Repair the ledger if it has drifted."""
        drift = context.cluster.recount()
        if drift:
            logger.error("The ledger had drifted and was repaired; this is a bug", numbers=drift)

    async def wake() -> None:
        """Wake one Pod that fits now."""
        if context.blocked() is None and await context.wake_one():
            count_woken()

    async def review() -> None:
        """Let Nodes list what kube-scheduler looks for."""
        if context.blocked() is None:
            await resources.review()

    return [
        _every(EXPIRY_SECONDS, expire),
        _every(RECOUNT_SECONDS, recount),
        _every(WAKE_SECONDS, wake),
        _every(REVIEW_SECONDS, review),
    ]


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await act()
