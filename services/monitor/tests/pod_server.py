"""
An API server that knows Pods and one Node, and takes Events and evictions.
"""

import asyncio
import json
from pathlib import Path

from aiohttp import web

from hamicommon.model import Object


def a_pod(
    uid: str = "u1", *containers: str, granted: str = "", priority: int | None = None, node: str = "n1"
) -> Object:
    """Return a running Pod of *node* whose annotation grants its containers *granted*."""
    annotations = {"hami.io/vgpu-node": node} | ({"hami.io/vgpu-devices-allocated": granted} if granted else {})
    environment = [] if priority is None else [{"name": "CUDA_TASK_PRIORITY", "value": str(priority)}]
    return {
        "metadata": {"uid": uid, "namespace": "ns", "name": f"pod-{uid}", "annotations": annotations},
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": name, "resources": {"limits": {"nvidia.com/gpu": "1"}}, "env": environment}
                for name in containers or ("main",)
            ],
        },
        "status": {"phase": "Running"},
    }


class PodServer:
    """An API server that lists and watches Pods and the Node."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.node: Object = {"metadata": {"name": "n1", "resourceVersion": "1"}}
        self.events: list[Object] = []
        self.evictions: list[Object] = []
        self.eviction_status = 201
        """The answer to the next evictions. 429 is that of a PodDisruptionBudget."""
        self.queries: list[dict[str, str]] = []
        self.is_down = False
        self._version = 1
        self._watches: dict[asyncio.Queue[Object | None], str] = {}
        """The path that each watch watches."""
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._handle)
        app.router.add_get("/api/v1/nodes", self._handle)
        app.router.add_post("/api/v1/namespaces/{namespace}/events", self._create_event)
        app.router.add_post("/api/v1/namespaces/{namespace}/pods/{name}/eviction", self._evict)
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

    def change_node(self, **metadata: dict[str, str]) -> None:
        """Give the Node other labels or annotations."""
        self.node = {"metadata": {"name": self.node["metadata"]["name"], **metadata}}
        self._tell("MODIFIED", self.node, "/api/v1/nodes")

    def _tell(self, kind: str, item: Object, path: str = "/api/v1/pods") -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        for queue, watched in self._watches.items():
            if watched == path:
                queue.put_nowait({"type": kind, "object": item})

    async def _create_event(self, request: web.Request) -> web.Response:
        self.events.append(await request.json())
        return web.json_response(self.events[-1], status=201)

    async def _evict(self, request: web.Request) -> web.Response:
        self.evictions.append(await request.json())
        answer = {"kind": "Status", "code": self.eviction_status, "message": "the budget needs 1 healthy Pod"}
        return web.json_response(answer, status=self.eviction_status)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/pods":
            self.queries.append(dict(request.query))
        if self.is_down:
            return web.json_response({"kind": "Status", "reason": "ServiceUnavailable"}, status=503)
        if request.query.get("watch") not in {"1", "true", "True"}:
            metadata = {"resourceVersion": str(self._version)}
            items = list(self.pods.values()) if request.path == "/api/v1/pods" else [self.node]
            return web.json_response({"kind": "List", "metadata": metadata, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[Object | None] = asyncio.Queue()
        self._watches[queue] = request.path
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watches.pop(queue, None)
        return response
