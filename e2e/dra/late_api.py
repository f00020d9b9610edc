"""
The API server by a port of its own, whose watches can be late.

A watch keeps its order, and what it tells comes later. Every other request passes at once. So a scheduler that uses it
decides, writes and leads by an old picture of the cluster.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from minicluster.client import Client
from testbed.ports import free_port

PASSED_ON = ("Accept", "Content-Type", "User-Agent")


class LateApi:
    """What passes requests on to the API server of *client*, as its user."""

    def __init__(self, client: Client) -> None:
        self.watch_delay_seconds = 0.0
        """How late each event of a watch is from now on."""
        self.late_pieces = 0
        """How many pieces of watches were late."""
        self._client = client
        self._port = free_port()

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig of those who use it."""
        named = {"name": "late", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}
        context = {"name": "late", "context": {"cluster": "late", "user": ""}}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [named], "contexts": [context], "users": []}
        path.write_text(yaml.safe_dump({**config, "current-context": "late"}))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["LateApi"]:
        """During a block, pass requests on."""
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(application, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        content = await request.read()
        async with self._client.pass_on(request.method, request.raw_path, headers, content) as answer:
            found = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            with suppress(ConnectionResetError):  # who asked is gone
                await found.prepare(request)
                if request.query.get("watch", "false") not in {"false", "0"}:
                    await self._tell_late(answer, found)
                else:
                    async for piece in answer.content.iter_any():
                        await found.write(piece)
            return found

    async def _tell_late(self, answer: aiohttp.ClientResponse, found: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def tell() -> None:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - loop.time())
                await found.write(piece)

        try:
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(tell())
                async for piece in answer.content.iter_any():
                    self.late_pieces += self.watch_delay_seconds > 0
                    pieces.put_nowait((loop.time() + self.watch_delay_seconds, piece))
                telling.cancel()
        except* (aiohttp.ClientError, OSError):
            pass  # One of the two ends has closed the watch.
