"""
What the scheduler does at intervals, to its own state and to what others left behind.

Neighbours: `context` has the state, `main` runs these until the process ends.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from hami_scheduler.bind.fences import find_outcomes
from hami_scheduler.explain import wording
from hami_scheduler.serve.background.node_resources import NodeResources
from hami_scheduler.serve.context import Context
from hami_scheduler.state.ledger import above_capacity
from hamicommon.runtime.api.reflector import Backoff

EXPIRY_SECONDS = 0.5
"""How often reservations expire, apart from each filter. A Pod that waits for the devices waits this much longer."""
RECOUNT_SECONDS = 60.0
OUTCOME_SECONDS = 0.5
"""How often the outcome of Bindings without an answer is looked for."""
_OUTCOME_LAST_SECONDS = 10.0
"""The same, while the API server does not answer."""
TIDY_SECONDS = 1.0
"""How often the leader looks for node locks that nobody needs."""
CAPACITY_SECONDS = 5.0
"""How often the leader looks for devices of which too much is granted."""
REVIEW_SECONDS = 10.0
"""
How often the leader looks for DeviceClasses, the first time when it begins to decide. A Pod that needs a name that its
Node does not list waits this long.
"""
UNBLOCKED_SECONDS = 0.05
"""How often a scheduler that starts looks whether it may decide."""
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
        if await context.wake_one():
            count_woken()

    backoff = Backoff(OUTCOME_SECONDS, _OUTCOME_LAST_SECONDS)

    async def find() -> None:
        """Find out what became of Bindings without an answer."""
        if context.blocked() is not None or await find_outcomes(context.cluster, context.api, context.marks):
            backoff.reset()
        else:
            await asyncio.sleep(backoff.next_seconds())

    above_before: set[tuple[str, str]] = set()

    async def look() -> None:
        """Report each device of which more is granted than it offers, once until that has ended."""
        found = above_capacity(context.cluster.ledger, context.cluster.vendors) if context.blocked() is None else []
        for excess in found:
            if (excess.node, excess.uuid) not in above_before:
                sentence = wording.above(excess)
                logger.error("More is granted than there is", node=excess.node, excess=sentence)
                regarding = {"kind": "Node", "metadata": {"name": excess.node, "uid": excess.node}}
                context.api.queue_event(regarding, "GrantedAboveCapacity", sentence, is_warning=True)
        above_before.clear()
        above_before.update((excess.node, excess.uuid) for excess in found)

    return [
        _every(EXPIRY_SECONDS, expire),
        _every(RECOUNT_SECONDS, recount),
        _every(OUTCOME_SECONDS, find),
        _every(CAPACITY_SECONDS, look),
        _every(WAKE_SECONDS, wake, context.blocked),
        _every(REVIEW_SECONDS, resources.review, context.blocked, first_seconds=UNBLOCKED_SECONDS),
        _every(TIDY_SECONDS, context.locks.tidy, context.blocked),
    ]


async def _every(
    seconds: float,
    act: Callable[[], Awaitable[None]],
    blocked: Callable[[], str | None] = lambda: None,
    first_seconds: float | None = None,
) -> None:
    """
    Act again and again, each time unless *blocked* says why not.

    The first time may come earlier, when a look every *first_seconds* finds that nothing is blocked.
    """
    pause = first_seconds or seconds
    while True:
        await asyncio.sleep(pause)
        if blocked() is None:
            await act()
            pause = seconds
