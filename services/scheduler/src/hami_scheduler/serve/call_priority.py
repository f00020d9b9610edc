"""
Let urgent calls go first: filters before binds, binds before Events.

kube-scheduler waits for a filter before it looks at the next Pod; it waits for no bind, and nothing waits for an Event.
Neighbours: `http` delays binds while a filter runs, `kube` delays Events while a bind runs.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class CallPriority:
    """Knows whether an urgent call is running, and delays others until none is."""

    def __init__(self, calm_seconds: float = 0.0) -> None:
        """Delay others until *calm_seconds* after the last urgent call."""
        self._calm_seconds = calm_seconds
        self._running = 0
        self._is_calm = asyncio.Event()
        self._is_calm.set()
        self._calming: asyncio.TimerHandle | None = None

    @contextmanager
    def first(self) -> Iterator[None]:
        """Mark the block as an urgent call."""
        self._running += 1
        self._is_calm.clear()
        if self._calming is not None:
            self._calming.cancel()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._calming = asyncio.get_running_loop().call_later(self._calm_seconds, self._is_calm.set)

    async def wait(self, patience_seconds: float) -> None:
        """Wait until no urgent call is running, at most *patience_seconds*."""
        if not self._is_calm.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_seconds):
                    await self._is_calm.wait()
