"""
Who goes first: kube-scheduler waits for a filter before it looks at another Pod, for no bind, and nobody for an Event.

Owns how what can wait stands back while something that goes first is under way. Neighbours: `http` lets binds stand
back for filters, `kube` Events for binds.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Precedence:
    """Knows whether something that goes first is under way."""

    def __init__(self, calm_seconds: float = 0.0) -> None:
        """Know of nothing; *calm_seconds* after the last of it has ended, others go on."""
        self._calm_seconds = calm_seconds
        self._under_way = 0
        self._is_calm = asyncio.Event()
        self._is_calm.set()
        self._calming: asyncio.TimerHandle | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether something that goes first has not ended."""
        return self._under_way > 0

    @contextmanager
    def going_first(self) -> Iterator[None]:
        """Let others stand back for the length of a block."""
        self._under_way += 1
        self._is_calm.clear()
        if self._calming is not None:
            self._calming.cancel()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._calming = asyncio.get_running_loop().call_later(self._calm_seconds, self._is_calm.set)

    async def stand_back(self, patience_seconds: float) -> None:
        """Wait until nothing that goes first is under way, at most *patience_seconds*."""
        if not self._is_calm.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_seconds):
                    await self._is_calm.wait()
