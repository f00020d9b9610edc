"""
An API server with only what a scheduler reads: lists in pages, and watches of given events.

Owns objects made from a seed. Their bytes are encoded once, so that mostly the reader is measured. It accepts Events,
rejects every other write, and counts both.
"""

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from aiohttp import web

from bench.load.simulation import DEVICE_MIB, REPLICAS, a_node
from hamicommon.model import Object
from testbed.driver.hardware import FakeNode

SHARE_MIB = 3000
SHARE_CORE_PERCENT = 10
MODEL = "NVIDIA H100 80GB HBM3"
_PADDING: Object = {f"f:field-{number}": {"f:value": {}} for number in range(60)}
"""The managedFields that API servers keep, about 1.5 KiB of nearly every Pod."""


def node_name(index: int) -> str:
    """Return the name of a Node."""
    return f"gpu-node-{index:05}"


def made_nodes(count: int, device_count: int) -> list[Object]:
    """Return *count* Nodes with *device_count* devices each."""
    nodes = [a_node(node_name(index), device_count) for index in range(count)]
    for node in nodes:
        node["metadata"]["resourceVersion"] = "1"
    return nodes


def made_pods(count: int, node_count: int, device_count: int, seed: int) -> list[Object]:
    """Return *count* Pods, each bound to a random device with a free replica, by *seed*."""
    draw = random.Random(seed)
    room = [REPLICAS] * (node_count * device_count)
    pods = []
    for number in range(count):
        place = draw.randrange(len(room))
        while not room[place]:
            place = draw.randrange(len(room))
        room[place] -= 1
        node, device = divmod(place, device_count)
        pods.append(a_bound_pod(number, node, device))
    return pods


def a_bound_pod(number: int, node: int, device: int) -> Object:
    """Return a running Pod with a share of one device."""
    name = node_name(node)
    uuid = FakeNode.of(name, MODEL, DEVICE_MIB, device + 1).gpus[device].uuid
    pod = asking_pod(f"bound-{number}", SHARE_MIB)
    pod["spec"]["nodeName"] = name
    pod["status"] = {"phase": "Running"}
    pod["metadata"]["annotations"] = {
        "hami.io/vgpu-node": name,
        "hami.io/bind-phase": "success",
        "hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,{SHARE_MIB},{SHARE_CORE_PERCENT}:;",
    }
    return pod


def asking_pod(name: str, memory_mib: int) -> Object:
    """Return a Pod that requests *memory_mib* of a device, or no device if that is 0."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib), "nvidia.com/gpucores": "10"}
    container = {"name": "main", "image": "localhost/none", "resources": {"limits": limits if memory_mib else {}}}
    managed = [{"manager": "kubelet", "operation": "Update", "fieldsV1": _PADDING}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "managedFields": managed,
        },
        "spec": {"schedulerName": "hami-scheduler", "containers": [container]},
        "status": {"phase": "Pending"},
    }


@dataclass
class FrozenApi:
    """The server."""

    collections: dict[str, list[bytes]]
    """Every encoded object, by collection."""
    port: int = 0
    writes: int = 0
    """Rejected writes, without Events."""
    _watches: dict[str, asyncio.Queue[bytes]] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    @classmethod
    async def serving(cls, **collections: list[Object]) -> "FrozenApi":
        """Return a listening server with the objects of each collection."""
        api = cls({name: [orjson.dumps(item) for item in items] for name, items in collections.items()})
        app = web.Application()
        app.router.add_get("/api/v1/{collection}", api._read)
        app.router.add_route("*", "/{path:.*}", api._write)
        api._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await api._runner.setup()
        site = web.TCPSite(api._runner, "127.0.0.1", 0)
        await site.start()
        api.port = api._runner.addresses[0][1]
        return api

    async def close(self) -> None:
        """Stop the server."""
        if self._runner:
            await self._runner.cleanup()

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig for this server."""
        parts = {"cluster": {"server": f"http://127.0.0.1:{self.port}"}, "user": {}}
        context = {"name": "t", "context": {"cluster": "t", "user": "t"}}
        config = {f"{kind}s": [{"name": "t", kind: found}] for kind, found in parts.items()}
        path.write_text(json.dumps({**config, "contexts": [context], "current-context": "t"}))

    def tell(self, collection: str, kind: str, item: Object) -> None:
        """Send *item* to the watches of *collection*."""
        self._watches[collection].put_nowait(orjson.dumps({"type": kind, "object": item}) + b"\n")

    async def _read(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["collection"]
        if request.query.get("watch"):
            return await self._watch(request, name)
        items, start = self.collections.get(name, []), int(request.query.get("continue") or 0)
        stop = start + int(request.query.get("limit") or len(items) or 1)
        more = b',"continue":"%d"' % stop if stop < len(items) else b""
        body = b'{"metadata":{"resourceVersion":"1"%s},"items":[%s]}' % (more, b",".join(items[start:stop]))
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, name: str) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        told = self._watches[name] = asyncio.Queue()
        while True:
            lines = [await told.get()]
            while not told.empty():
                lines.append(told.get_nowait())
            await stream.write(b"".join(lines))

    async def _write(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.path.endswith("/events"):
            return web.Response(body=body, status=201, content_type="application/json")
        self.writes += 1
        return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden"}, status=403)
