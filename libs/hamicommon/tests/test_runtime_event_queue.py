"""
Events are written in order, and nobody waits for them.
"""

import asyncio
from collections.abc import Awaitable, Callable

from structlog.testing import capture_logs

from hamicommon.runtime.api.event_queue import EventQueue
from hamicommon.runtime.api.kube import KubeError

FOREVER_SECONDS = 60.0


def writing(text: str, written: list[str]) -> Callable[[], Awaitable[None]]:
    """Return the function that writes *text* to *written*."""

    async def write() -> None:
        written.append(text)

    return write


async def test_events_are_written_in_order_and_one_that_fails_is_lost() -> None:
    """The log names it, and the next ones are written."""
    written: list[str] = []

    async def fail() -> None:
        raise KubeError("/api/v1/namespaces/ns/events", 403, "Forbidden", "no rights")

    queue = EventQueue(10)
    queue.put("First", writing("first", written))
    queue.put("Refused", fail)
    queue.put("Last", writing("last", written))
    with capture_logs() as logs:
        running = asyncio.create_task(queue.run())
        await queue.drain(FOREVER_SECONDS)
    running.cancel()

    assert ["first", "last"] == written
    assert [("Event not written", "Refused")] == [(line["event"], line["reason"]) for line in logs]


async def test_event_that_does_not_fit_is_lost_at_once() -> None:
    """A burst costs bounded memory, and the caller goes on."""
    written: list[str] = []
    queue = EventQueue(1)
    with capture_logs() as logs:
        for name in ("kept", "lost"):
            queue.put(name, writing(name, written))
    running = asyncio.create_task(queue.run())
    await queue.drain(FOREVER_SECONDS)
    running.cancel()

    assert ["kept"] == written
    assert [("Event lost, too many wait", "lost")] == [(line["event"], line["reason"]) for line in logs]


async def test_drain_gives_up_in_time() -> None:
    """A process that ends does not hang on an API server that is silent."""
    queue = EventQueue(1)
    queue.put("Silent", asyncio.Event().wait)
    running = asyncio.create_task(queue.run())

    async with asyncio.timeout(FOREVER_SECONDS):
        await queue.drain(0.01)
    running.cancel()
