"""
Write Events one after another, so that nobody waits for the API server.

An Event is a hint for people: if too many wait, or the API server refuses one, it is lost and the log says so.
Neighbours: `kube` makes Events and writes them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from hamicommon.runtime.api.api_errors import KubeError

logger = structlog.get_logger()


class EventQueue:
    """Events that wait to be written, in their order."""

    def __init__(self, most: int) -> None:
        """Let at most *most* Events wait; `run` writes them."""
        self._waiting: asyncio.Queue[tuple[str, Callable[[], Awaitable[object]]]] = asyncio.Queue(most)

    def put(self, reason: str, write: Callable[[], Awaitable[object]]) -> None:
        """Queue an Event with *reason*, which *write* writes; never waits, never fails."""
        try:
            self._waiting.put_nowait((reason, write))
        except asyncio.QueueFull:
            logger.warning("Event lost, too many wait", reason=reason)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            reason, write = await self._waiting.get()
            try:
                await write()
            except KubeError as error:
                logger.warning("Event not written", reason=reason, error=str(error))
            finally:
                self._waiting.task_done()

    async def drain(self, seconds: float) -> None:
        """Wait until the Events so far are written, *seconds* at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._waiting.join()
