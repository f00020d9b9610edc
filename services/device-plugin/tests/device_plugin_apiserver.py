"""
An API server for Nodes, Pods, Events, ResourceClaims and ResourceSlices over HTTP, with watches, patches and conflicts.
"""

import asyncio
import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from hamicommon.model import Object
from testbed.resource_slices import problems

Key = tuple[str, str, str]
"""Plural, namespace (empty for Nodes) and name."""


class ApiServer:
    """The server; tests may read and change its objects directly."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.patches: list[tuple[Key, Object]] = []
        self.slice_writes: list[Object] = []
        """Each ResourceSlice that was created or replaced."""
        self.gate = asyncio.Event()
        """Cleared, every patch waits."""
        self.gate.set()
        self.before_patch: Callable[[Key], None] = lambda _key: None
        self.port = 0
        self._versions = itertools.count(1)
        self._watchers: list[tuple[str, asyncio.Queue[Object]]] = []
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/api/v1/{plural:nodes|pods}", self._list)
        app.router.add_get("/api/v1/{plural:nodes}/{name}", self._get)
        app.router.add_get("/api/v1/namespaces/{namespace}/{plural:pods}/{name}", self._get)
        app.router.add_patch("/api/v1/{plural:nodes}/{name}", self._patch)
        app.router.add_patch("/api/v1/namespaces/{namespace}/{plural:pods}/{name}", self._patch)
        app.router.add_post("/api/v1/namespaces/{namespace}/{plural:events}", self._create)
        app.router.add_get("/api/v1/namespaces/{namespace}/{plural:events}/{name}", self._get)
        app.router.add_patch("/api/v1/namespaces/{namespace}/{plural:events}/{name}", self._patch)
        app.router.add_get("/apis/resource.k8s.io/v1/{plural:resourceslices}", self._list)
        app.router.add_post("/apis/resource.k8s.io/v1/{plural:resourceslices}", self._create_slice)
        app.router.add_put("/apis/resource.k8s.io/v1/{plural:resourceslices}/{name}", self._replace_slice)
        app.router.add_delete("/apis/resource.k8s.io/v1/{plural:resourceslices}/{name}", self._delete)
        app.router.add_get("/apis/resource.k8s.io/v1/namespaces/{namespace}/{plural:resourceclaims}/{name}", self._get)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop serving; a second call does nothing."""
        for _plural, queue in self._watchers:
            queue.put_nowait({})
        assert self._runner is not None
        await self._runner.cleanup()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server to *path*."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {}}],
                    "current-context": "c",
                }
            )
        )
        return path

    def put(self, plural: str, item: Object) -> Object:
        """Store *item* as new or changed, and send it to the watches."""
        metadata = item["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        kind = "MODIFIED" if key in self.objects else "ADDED"
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[key] = item
        self._tell(plural, kind, item)
        return item

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object, and send that to the watches."""
        self._tell(plural, "DELETED", self.objects.pop((plural, namespace, name)))

    def annotations(self, plural: str, namespace: str, name: str) -> dict[str, str]:
        """Return an object's annotations."""
        found: dict[str, str] = self.objects[plural, namespace, name]["metadata"].get("annotations") or {}
        return found

    def events(self, reason: str) -> list[Object]:
        """Return the Events with *reason*."""
        return [item for key, item in self.objects.items() if key[0] == "events" and item["reason"] == reason]

    def _tell(self, plural: str, kind: str, item: Object) -> None:
        for watched, queue in self._watchers:
            if watched == plural:
                queue.put_nowait({"type": kind, "object": copy.deepcopy(item)})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        plural, selector = request.match_info["plural"], request.query.get("fieldSelector", "")
        if request.query.get("watch"):
            return await self._watch(request, plural, selector)
        items = [item for key, item in self.objects.items() if key[0] == plural and _selects(selector, item)]
        version = str(next(self._versions))
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": version}, "items": items})

    async def _watch(self, request: web.Request, plural: str, selector: str) -> web.StreamResponse:
        response = web.StreamResponse()
        queue: asyncio.Queue[Object] = asyncio.Queue()
        since = int(request.query.get("resourceVersion", "0"))
        for key, item in self.objects.items():
            if key[0] == plural and int(item["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "MODIFIED", "object": copy.deepcopy(item)})
        self._watchers.append((plural, queue))
        await response.prepare(request)
        try:
            while event := await queue.get():
                if _selects(selector, event["object"]):
                    await response.write(json.dumps(event).encode() + b"\n")
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._watchers.remove((plural, queue))
        return response

    async def _get(self, request: web.Request) -> web.Response:
        item = self.objects.get(_key(request))
        return _missing(request) if item is None else web.json_response(item)

    async def _create(self, request: web.Request) -> web.Response:
        return web.json_response(self.put(request.match_info["plural"], await request.json()), status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        plural, namespace, name = _key(request)
        if (plural, namespace, name) not in self.objects:
            return _missing(request)
        self.remove(plural, namespace, name)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _create_slice(self, request: web.Request) -> web.Response:
        item = await request.json()
        metadata = item["metadata"]
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{next(self._versions):05d}")
        if ("resourceslices", "", metadata["name"]) in self.objects:
            return _status(409, "AlreadyExists", f"{metadata['name']} already exists")
        return self._take_slice(item, None)

    async def _replace_slice(self, request: web.Request) -> web.Response:
        item, old = await request.json(), self.objects.get(_key(request))
        if old is None:
            return _missing(request)
        if item["metadata"].get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            return _status(409, "Conflict", "the object has been modified")
        return self._take_slice(item, old)

    def _take_slice(self, item: Object, old: Object | None) -> web.Response:
        """Store a slice if kube would, with the times of its taints, which kube fills in."""
        found = problems(item, old)
        if found:
            return _status(422, "Invalid", "; ".join(found))
        for device in item["spec"].get("devices", ()):
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", f"2026-01-01T00:00:{next(self._versions) % 60:02d}Z")
        self.slice_writes.append(copy.deepcopy(item))
        return web.json_response(self.put("resourceslices", item), status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        key, patch = _key(request), await request.json()
        self.before_patch(key)
        await self.gate.wait()
        item = self.objects.get(key)
        if item is None:
            return _missing(request)
        wanted = patch.get("metadata", {})
        for field in ("resourceVersion", "uid"):
            if field in wanted and wanted[field] != item["metadata"].get(field):
                return _status(409, "Conflict", f"{field} is not {wanted[field]}")
        self.patches.append((key, patch))
        return web.json_response(self.put(key[0], _merged(item, patch)))


def _merged(target: Any, patch: Any) -> Any:
    """Return *target* with *patch* merged by RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _selects(selector: str, item: Object) -> bool:
    spec = item.get("spec", {})
    found = {
        "metadata.name": item["metadata"]["name"],
        "spec.nodeName": spec.get("nodeName"),
        "spec.driver": spec.get("driver"),
    }
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(found[name] == value for name, value in wanted.items())


def _key(request: web.Request) -> Key:
    found = request.match_info
    return found["plural"], found.get("namespace", ""), found["name"]


def _missing(request: web.Request) -> web.Response:
    plural, _, name = _key(request)
    return _status(404, "NotFound", f'{plural} "{name}" not found')


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)
