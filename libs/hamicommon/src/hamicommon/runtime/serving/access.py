"""
Decide who may scrape, if an operator asks for that: clients that the API server knows and allows.

Owns how long a decision holds, and how many the API server is asked for at once. Tokens are kept as hashes only.
Neighbours: `http` asks for each scrape, `hamicommon.runtime.api.reviews` asks the API server.
Source: https://github.com/kubernetes-sigs/controller-runtime/blob/v0.22.1/pkg/metrics/filters/filters.go
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import Enum

import structlog

from hamicommon.errors import HamiError

HELD_SECONDS = 60.0
"""How long a decision counts: a right that was taken away works on for that long."""
ANSWERS_HELD = 256
ASKED_AT_ONCE = 4
_TOKEN_CHARACTERS = 16 * 1024

logger = structlog.get_logger()


class Verdict(Enum):
    """What becomes of a scrape, as a status of HTTP."""

    ALLOWED = 200
    UNKNOWN = 401
    """The API server does not know the token."""
    FORBIDDEN = 403
    """Its owner may not `get` the path."""
    UNDECIDED = 503
    """The API server cannot be asked."""


class Access:
    """Decisions on bearer tokens."""

    def __init__(self, ask: Callable[[str], Awaitable[bool | None]]) -> None:
        """Get decisions from *ask*: whether a token's owner may scrape, None if nobody owns it."""
        self._ask = ask
        self._held: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def verdict(self, authorization: str) -> Verdict:
        """Return the verdict on a request with the header *authorization*."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _TOKEN_CHARACTERS:
            return Verdict.UNKNOWN
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        async with self._turns:
            found, until = self._held.get(key, (Verdict.UNDECIDED, 0.0))
            if found is Verdict.UNDECIDED or time.monotonic() >= until:
                found = await self._decide(token)
                self._held[key] = found, time.monotonic() + HELD_SECONDS
                self._held.move_to_end(key)
                if len(self._held) > ANSWERS_HELD:
                    self._held.popitem(last=False)
        return found

    async def _decide(self, token: str) -> Verdict:
        try:
            is_allowed = await self._ask(token)
        except HamiError as error:
            logger.warning("The right to scrape cannot be checked", error=str(error))
            return Verdict.UNDECIDED
        if is_allowed is None:
            return Verdict.UNKNOWN
        return Verdict.ALLOWED if is_allowed else Verdict.FORBIDDEN
