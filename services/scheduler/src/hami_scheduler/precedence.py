"""
Who goes first: kube-scheduler looks at no other Pod while it waits for a filter, and waits for no bind.

Owns who stands back for whom while several calls are under way. Neighbours: `http` serves the calls.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE_SECONDS = 0.02
"""Longest that a call stands back: the body of one that goes first may never come."""


class Precedence:
    """Knows whether a call that goes first is under way."""

    def __init__(self) -> None:
        """Know of none."""
        self._first = 0
        self._is_free = asyncio.Event()
        self._is_free.set()

    @contextmanager
    def going_first(self) -> Iterator[None]:
        """Let others stand back for the length of a block."""
        self._first += 1
        self._is_free.clear()
        try:
            yield
        finally:
            self._first -= 1
            if not self._first:
                self._is_free.set()

    async def stand_back(self) -> None:
        """Wait until no call that goes first is under way, or for PATIENCE_SECONDS."""
        if self._first:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._is_free.wait()
