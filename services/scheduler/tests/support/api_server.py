"""
A small API server for tests: real HTTP, list and watch, the writes of the scheduler, and faults on demand.

A fault is one of: a status (the request is refused), `lost` (the connection drops before it is carried out), `late` (it
drops after), `none` (nothing happens).
"""

import asyncio
import copy
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from hamicommon.model import Object

Fault = int | str
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class ApiServer:
    """Objects by kind and name, and every write that was made."""

    objects: dict[str, dict[str, Object]] = field(default_factory=dict)
    writes: list[tuple[str, str, Object]] = field(default_factory=list)
    """Method, path and body of every write asked for, Events left out."""
    events: list[Object] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    """Per end of a path: what happens to the next requests there."""
    is_mute: bool = False
    """Lists are not answered: the scheduler never learns what there is."""
    is_silent: bool = False
    """Watches tell nothing."""
    is_slow_to_bind: bool = False
    """Bindings are not answered."""
    url: str = ""
    _version: int = 1
    _journal: list[tuple[int, str, Object]] = field(default_factory=list)
    """Version, kind and event of every change told."""

    def put(self, kind: str, item: Object) -> Object:
        """Create or change an object, and tell the watches."""
        self._version += 1
        item = copy.deepcopy(item)
        item["metadata"]["resourceVersion"] = str(self._version)
        name = self._name(item)
        word = "MODIFIED" if name in self.objects.setdefault(kind, {}) else "ADDED"
        self.objects[kind][name] = item
        self._tell(kind, word, item)
        return item

    def remove(self, kind: str, name: str) -> None:
        """Delete an object, and tell the watches."""
        self._version += 1
        self._tell(kind, "DELETED", self.objects[kind].pop(name))

    def pod(self, name: str, namespace: str = "default") -> Object:
        """Return a Pod as it is."""
        return self.objects["pods"][f"{namespace}/{name}"]

    def writes_to(self, *ends: str) -> list[Object]:
        """Return the bodies of writes to paths with one of these *ends*."""
        return [body for _, path, body in self.writes if path.endswith(ends)]

    def fail(self, end: str, *faults: Fault) -> None:
        """Let the next requests to paths that end in *end* go wrong."""
        self.faults.setdefault(end, deque()).extend(faults)

    def kubeconfig(self, folder: Path) -> str:
        """Write a kubeconfig for this server and return its path."""
        path = folder / "kubeconfig"
        context = {"name": "t", "context": {"cluster": "t", "user": "t"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "t", "cluster": {"server": self.url}}],
            "users": [{"name": "t", "user": {}}],
            "contexts": [context],
            "current-context": "t",
        }
        path.write_text(json.dumps(config))
        return str(path)

    def _name(self, item: Object) -> str:
        metadata = item["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])

    def _tell(self, kind: str, word: str, item: Object) -> None:
        if not self.is_silent:
            item = copy.deepcopy(item)
            item["metadata"]["resourceVersion"] = str(self._version)
            self._journal.append((self._version, kind, {"type": word, "object": item}))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        path = request.path
        fault = next((queue.popleft() for end, queue in self.faults.items() if queue and path.endswith(end)), None)
        if isinstance(fault, int):
            return _status(fault, f"refused with {fault}")
        if fault == "lost":
            return _drop(request)
        answer = await self._read(request) if request.method == "GET" else await self._write(request)
        return _drop(request) if fault == "late" else answer

    async def _read(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        kind = parts[-1]
        if kind in {"pods", "nodes", "resourcequotas", "leases", "deviceclasses", "resourceclaims", "resourceslices"}:
            while self.is_mute:  # noqa: ASYNC110 - a test flips a plain attribute
                await asyncio.sleep(0.01)
            return await (self._watch(request, kind) if request.query.get("watch") else self._list(kind))
        name = f"{parts[-3]}/{parts[-1]}" if "namespaces" in parts else parts[-1]
        item = self.objects.get(parts[-2], {}).get(name)
        return _status(404, f"{parts[-2]} {name!r} not found") if item is None else web.json_response(item)

    async def _list(self, kind: str) -> web.StreamResponse:
        items = list(self.objects.get(kind, {}).values())
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        seen, position = int(request.query["resourceVersion"]), 0
        while True:
            for version, changed, event in self._journal[position:]:
                if changed == kind and version > seen:
                    await stream.write(json.dumps(event).encode() + b"\n")
            position = len(self._journal)
            await asyncio.sleep(0.002)

    async def _write(self, request: web.Request) -> web.StreamResponse:
        body: Object = await request.json()
        parts = request.path.strip("/").split("/")
        if parts[-1] == "events":
            self.events.append(body)
            return web.json_response(body, status=201)
        self.writes.append((request.method, request.path, body))
        if parts[-1] == "binding":
            while self.is_slow_to_bind:  # noqa: ASYNC110 - a test flips a plain attribute
                await asyncio.sleep(0.01)
            return self._bind(f"{parts[3]}/{parts[5]}", body)
        if parts[-1] == "status" and "namespaces" in parts:
            return self._mark(f"{parts[3]}/{parts[5]}", body)
        if parts[-1] == "status":
            return self._patch_status(parts[-3], parts[-2], body["status"])
        kind, name = (parts[-2], parts[-1]) if "namespaces" not in parts else (parts[4], f"{parts[3]}/{parts[5]}")
        item = self.objects.get(kind, {}).get(name)
        if item is None:
            return _status(404, "not found")
        expected = body["metadata"].pop("resourceVersion", None)
        if expected not in {None, item["metadata"]["resourceVersion"]}:
            return _status(409, "the object has been modified")
        changed = copy.deepcopy(item)
        for part in ("annotations", "labels"):
            for key, value in body["metadata"].get(part, {}).items():
                changed["metadata"].setdefault(part, {}).pop(key, None)
                if value is not None:
                    changed["metadata"][part][key] = value
        return web.json_response(self.put(kind, changed))

    def _patch_status(self, kind: str, name: str, status: Object) -> web.StreamResponse:
        """Merge the members of *status*, as a merge patch does."""
        changed = copy.deepcopy(self.objects[kind][name])
        for part, values in status.items():
            merged = {**changed.setdefault("status", {}).get(part, {}), **values}
            changed["status"][part] = {key: value for key, value in merged.items() if value is not None}
        return web.json_response(self.put(kind, changed))

    def _mark(self, name: str, body: Object) -> web.StreamResponse:
        """Set a condition, as a strategic merge patch does."""
        pod = self.objects["pods"].get(name)
        if pod is None:
            return _status(404, f"pods {name!r} not found")
        if body["metadata"]["uid"] != pod["metadata"]["uid"]:
            return _status(422, "metadata.uid: field is immutable")
        [condition] = body["status"]["conditions"]
        changed = copy.deepcopy(pod)
        known = changed["status"].get("conditions", [])
        changed["status"]["conditions"] = [c for c in known if c["type"] != condition["type"]] + [condition]
        return web.json_response(self.put("pods", changed))

    def _bind(self, name: str, body: Object) -> web.StreamResponse:
        pod = self.objects["pods"].get(name)
        if pod is None:
            return _status(404, f"pods {name!r} not found")
        if body["metadata"].get("uid") not in {None, pod["metadata"]["uid"]}:
            return _status(409, "Precondition failed: UID in precondition")
        if body["metadata"].get("resourceVersion") not in {None, pod["metadata"]["resourceVersion"]}:
            return _status(409, "Precondition failed: ResourceVersion in precondition")
        if pod["spec"].get("nodeName"):
            return _status(409, f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
        pod = copy.deepcopy(pod)
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations", {}))
        self.put("pods", pod)
        return _status(201, "bound")


def _status(code: int, message: str) -> web.Response:
    reason = {404: "NotFound", 409: "Conflict"}.get(code, "Other")
    return web.json_response({"kind": "Status", "code": code, "message": message, "reason": reason}, status=code)


def _drop(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def an_api_server() -> AsyncIterator[ApiServer]:
    """Serve an empty API until the block ends."""
    api = ApiServer()
    async with serving(api.handle) as api.url:
        yield api


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Let *handler* answer every request until the block ends; yield the URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
