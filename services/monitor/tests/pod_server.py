"""
An API server that knows Pods only.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

Object = dict[str, Any]


class PodServer:
    """An API server that lists and watches Pods."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.queries: list[dict[str, str]] = []
        self.is_down = False
        self._version = 1
        self._watches: set[asyncio.Queue[Object | None]] = set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End every watch and stop listening."""
        for queue in self._watches:
            queue.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig for this server."""
        path = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {}}
        content = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | content))
        return path

    def put(self, pod: Object) -> None:
        """Add or replace *pod*."""
        uid = pod["metadata"]["uid"]
        kind = "MODIFIED" if uid in self.pods else "ADDED"
        self.pods[uid] = pod
        self._tell(kind, pod)

    def remove(self, uid: str) -> None:
        """Delete the Pod *uid*."""
        self._tell("DELETED", self.pods.pop(uid))

    def _tell(self, kind: str, pod: Object) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        for queue in self._watches:
            queue.put_nowait({"type": kind, "object": pod})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if self.is_down:
            return web.json_response({"kind": "Status", "reason": "ServiceUnavailable"}, status=503)
        if request.query.get("watch") not in {"1", "true", "True"}:
            metadata = {"resourceVersion": str(self._version)}
            return web.json_response({"kind": "PodList", "metadata": metadata, "items": list(self.pods.values())})
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[Object | None] = asyncio.Queue()
        self._watches.add(queue)
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watches.discard(queue)
        return response
