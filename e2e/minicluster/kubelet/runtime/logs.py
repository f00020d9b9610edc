"""
The kubelet's HTTP endpoint for container logs, which the API server calls for `kubectl logs`.

Owns reading log files. Must never serve anything else of a Pod. Neighbours: `containers` knows the files, `main` the
Pods.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

POLL_SECONDS = 0.1
CHUNK_BYTES = 65536


class LogServer:
    """
    A server of plain HTTP on the loopback address.

    `find(namespace, pod, container, is_previous)` returns the log file, and a function that says whether it may still
    grow. It raises LookupError with the message for the client.
    """

    def __init__(self, find: Callable[[str, str, str, bool], tuple[Path, Callable[[], bool]]]) -> None:
        self._find = find
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        application.router.add_get("/healthz", self._health)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        self.port = 0

    async def start(self) -> None:
        """Serve on a free port."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _log(self, request: web.Request) -> web.StreamResponse:
        where = request.match_info
        wants_previous = _flag(request, "previous")
        try:
            path, may_grow = self._find(where["namespace"], where["pod"], where["container"], wants_previous)
            tail_lines = int(request.query.get("tailLines", "-1"))
            limit_bytes = int(request.query.get("limitBytes", "-1"))
        except LookupError as error:
            return web.Response(status=404, text=str(error.args[0]))
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        with path.open("rb") as file:
            file.seek(_start_of_tail(file.read(), tail_lines) if tail_lines >= 0 else 0)
            if limit_bytes >= 0:
                await response.write(file.read(limit_bytes))
                return response
            while True:
                grows = _flag(request, "follow") and may_grow()
                while chunk := file.read(CHUNK_BYTES):
                    await response.write(chunk)
                if not grows:
                    return response
                await asyncio.sleep(POLL_SECONDS)


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "false") in {"true", "1"}


def _start_of_tail(content: bytes, lines: int) -> int:
    """Return the offset of the last *lines* lines."""
    position = len(content) - content.endswith(b"\n")
    for _ in range(lines):
        position = content.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1 if lines else len(content)
