"""
Filters first: kube-scheduler places one Pod after another and waits for each filter, but binds beside that.

Owns who stands back for whom while several calls are under way. Neighbours: `http` serves the calls.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE_SECONDS = 0.02
"""Longest that other work stands back once: a filter's body may never come."""


class Precedence:
    """Knows whether a filter is under way."""

    def __init__(self) -> None:
        """Know of none."""
        self._filters = 0
        self._is_free = asyncio.Event()
        self._is_free.set()

    @contextmanager
    def filtering(self) -> Iterator[None]:
        """Let others stand back for the length of a block."""
        self._filters += 1
        self._is_free.clear()
        try:
            yield
        finally:
            self._filters -= 1
            if not self._filters:
                self._is_free.set()

    async def stand_back(self) -> None:
        """Wait until no filter is under way, or for PATIENCE_SECONDS."""
        if self._filters:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._is_free.wait()
