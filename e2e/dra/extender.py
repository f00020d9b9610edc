"""
The extender that kube-scheduler calls: our scheduler, one that accepts every Node, or none.

Owns the port. kube-scheduler keeps its configuration while the answers change. Neighbour: `conformance.peers.extenders`
has the extender that accepts and records.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import Enum

import aiohttp
from aiohttp import web

from conformance.peers.extenders import Extender


class Answers(Enum):
    """Who answers kube-scheduler."""

    OURS = "our scheduler"
    ANY = "any Node"
    NONE = "nobody"


class SwitchedExtender:
    """The extender on one port of this machine."""

    def __init__(self, port: int, ours: str) -> None:
        """Listen on *port* while somebody answers; *ours* is the URL of our scheduler."""
        self.url = f"http://127.0.0.1:{port}"
        self.accepting = Extender()
        """It answers in `Answers.ANY`."""
        self.before: Callable[[str], Awaitable[None]] | None = None
        """What to do before a call of a verb, such as `bind`, reaches our scheduler."""
        self._port = port
        self._ours = ours

    @asynccontextmanager
    async def answering(self, answers: Answers) -> AsyncIterator[None]:
        """During a block, answer as *answers* says. Connections end with the block."""
        if answers is Answers.NONE:
            yield
            return
        application = web.Application()
        application.router.add_post("/{verb}", self.accepting.handle if answers is Answers.ANY else self._forward)
        runner = web.AppRunner(application, keepalive_timeout=120.0, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, reuse_address=True).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.Response:
        body, headers = await request.read(), {"Content-Type": "application/json"}
        if self.before is not None:
            await self.before(request.match_info["verb"])
        try:
            async with (
                aiohttp.ClientSession(self._ours) as session,
                session.post(request.path, data=body, headers=headers) as answer,
            ):
                return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")
        except aiohttp.ClientError as error:
            return web.Response(status=502, text=str(error))
