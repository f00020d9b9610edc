"""
The way between a machine and the API server: messages come late, after those sent later, or never.

Owns the faults of one machine's network, and a client that sends its requests over it. A request that was sent arrives
whatever becomes of its sender, as with a real server. Neighbour: `testbed.virtual.api` is the server.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from hamicommon.model import Object
from hamicommon.runtime.api.api_errors import KubeError, Unreachable
from hamicommon.runtime.api.watch_stream import Event
from testbed.virtual.api import MemoryApi
from testbed.virtual.loop import VirtualProcess

REQUEST_SECONDS = 30.0
"""The time limit of a request, as hamicommon's client has it."""
USUAL_SECONDS = (0.001, 0.01)
"""How long a message is on its way where nothing is wrong."""
REFUSALS = ((429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout"))
MAYBE_DONE = {500, 504}
"""After these the request may be carried out all the same."""
LAG_SECONDS = 40.0
"""By how much a write lags behind at most: longer than a Lease lasts, and than the sender waits."""

T = TypeVar("T")


@dataclass(frozen=True)
class Trouble:
    """How bad a network is; 0 is well."""

    slow_seconds: float = 0.0
    """The longest time by which a message is late."""
    late_watch_seconds: float = 0.0
    """The longest time by which an event of a watch is late, behind those before it."""
    slow_write_seconds: float = 0.0
    """The longest time by which a write takes effect late."""
    lagging: float = 0.0
    """The part of the writes that lag behind."""
    lost: float = 0.0
    """The part of the messages that are lost."""
    refused: float = 0.0
    """The part of the requests that a busy server refuses."""


class Network:
    """The network of one machine."""

    def __init__(self, draw: random.Random) -> None:
        """Be well."""
        self.trouble = Trouble()
        self.process = VirtualProcess("network")
        """Carries what was sent, also for senders that have ended."""
        self._draw = draw
        self._is_whole = asyncio.Event()
        self._is_whole.set()

    def cut(self) -> None:
        """Carry nothing. What is sent meanwhile arrives afterwards, as TCP sends again."""
        self._is_whole.clear()

    def join(self) -> None:
        """Carry again, and what was sent meanwhile."""
        self._is_whole.set()

    def heal(self) -> None:
        """Be well again."""
        self.trouble = Trouble()
        self.join()

    async def carry(self) -> bool:
        """Take a message to the other side, and return whether it has arrived."""
        is_lost = self._draw.random() < self.trouble.lost
        await asyncio.sleep(self._draw.uniform(*USUAL_SECONDS) + self._draw.uniform(0.0, self.trouble.slow_seconds))
        await self._is_whole.wait()
        return not is_lost

    async def hold_back(self) -> None:
        """Wait as long as a watch is late, which requests are not."""
        if self.trouble.late_watch_seconds:
            await asyncio.sleep(self._draw.uniform(0.0, self.trouble.late_watch_seconds))

    async def wait_to_write(self) -> None:
        """Wait until a write is carried out: on a slow server for long, and on any a few writes lag behind."""
        seconds = self._draw.uniform(0.0, self.trouble.slow_write_seconds)
        if self._draw.random() < self.trouble.lagging:
            seconds += LAG_SECONDS * self._draw.random() ** 2
        if seconds:
            await asyncio.sleep(seconds)

    async def tarry(self) -> None:
        """Wait as long as a write that lags behind."""
        await asyncio.sleep(LAG_SECONDS * self._draw.random() ** 4)

    def refusal(self, path: str) -> KubeError | None:
        """Return the error that a busy server answers to a request, None if it is not busy."""
        if self._draw.random() >= self.trouble.refused:
            return None
        status, reason = self._draw.choice(REFUSALS)
        return KubeError(path, status, reason, "too busy")


class Connection:
    """The API client of the processes of one machine: what `hamicommon.runtime.api.kube` offers."""

    def __init__(self, api: MemoryApi, network: Network) -> None:
        """Ask *api* over *network*."""
        self._api = api
        self._network = network

    async def get(self, path: str) -> Object:
        """Return an object."""
        return await self._ask(path, lambda: self._api.get(path))

    async def create(self, path: str, body: Object) -> Object:
        """Create an object, or a Binding."""
        return await self._write(path, lambda: self._api.create(path, body))

    async def replace(self, path: str, body: Object) -> Object:
        """Put *body* in the place of an object."""
        return await self._write(path, lambda: self._api.replace(path, body))

    async def merge_patch(self, path: str, body: Object) -> Object:
        """Change parts of an object."""
        return await self._write(path, lambda: self._api.merge_patch(path, body))

    async def strategic_patch(self, path: str, body: Object) -> Object:
        """Change parts of an object."""
        return await self._write(path, lambda: self._api.strategic_patch(path, body))

    async def pages(self, path: str, **query: Any) -> AsyncIterator[tuple[list[Object], str]]:
        """Yield one page."""

        async def read() -> tuple[list[Object], str]:
            return await anext(self._api.pages(path, **query))

        yield await self._ask(path, read)

    async def items(self, path: str, **query: Any) -> AsyncIterator[Object]:
        """Yield each object."""
        async for page, _ in self.pages(path, **query):
            for item in page:
                yield item

    async def watch(
        self, path: str, timeout_seconds: int, _readers: object = None, /, **query: Any
    ) -> AsyncIterator[Event]:
        """Yield each event, in their order and late."""
        async for event in self._api.watch(path, timeout_seconds, **query):
            await self._network.hold_back()
            if not await self._network.carry():
                raise Unreachable(path, 0, "Broken", "the stream broke")
            yield event

    async def _write(self, path: str, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def carry_out() -> T:
            await self._network.wait_to_write()
            return await request()

        return await self._ask(path, carry_out)

    async def _ask(self, path: str, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._network.process.start(self._serve(path, request, answer))
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await answer
        except TimeoutError as error:
            raise Unreachable(path, 0, "Timeout", f"no answer within {REQUEST_SECONDS:g} s") from error

    async def _serve(
        self, path: str, request: Callable[[], Coroutine[Any, Any, T]], answer: "asyncio.Future[T]"
    ) -> None:
        """Carry the request there and its answer back."""
        if not await self._network.carry():
            return
        result: T | None = None
        refusal = self._network.refusal(path)
        if refusal is None:
            try:
                result = await request()
            except KubeError as error:
                refusal = error
        elif refusal.status in MAYBE_DONE:
            self._network.process.start(self._serve_after_all(request))
        has_arrived = await self._network.carry()
        if not has_arrived or answer.done():
            return
        if refusal is not None:
            answer.set_exception(refusal)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    async def _serve_after_all(self, request: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Carry a request out that was refused, some time later."""
        await self._network.tarry()
        with suppress(KubeError):
            await request()
