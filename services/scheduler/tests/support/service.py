"""
A scheduler that runs in this process, over its real sockets, and how to talk to it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from hami_scheduler.config import Config
from hami_scheduler.main import Service
from hamicommon.model import Object
from hamicommon.runtime.api.api_metrics import ApiMetrics
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.program.device_config import DeviceConfigFile
from testbed.waiting import eventually

from .api_server import ApiServer
from .builders import VECTORS


@dataclass
class Running:
    """A scheduler that serves, and how to talk to it."""

    api: ApiServer
    service: Service
    url: str
    metrics_url: str
    session: aiohttp.ClientSession
    explain_port: int | None

    async def post(self, path: str, body: Any) -> Object:
        """Return the JSON answer to a POST."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + path, data=data) as answer:
            assert 200 == answer.status
            assert "application/json" == answer.content_type
            found: Object = await answer.json()
            return found

    async def filter(self, pod: Object, *names: str) -> Object:
        """Ask for a Node among *names*."""
        return await self.post("/filter", {"Pod": pod, "Nodes": None, "NodeNames": list(names)})

    async def bind(self, pod: Object, node: str) -> str:
        """Ask to bind, and return the error, empty where there is none."""
        metadata = pod["metadata"]
        names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        return str((await self.post("/bind", {**names, "Node": node}))["Error"])

    async def get(self, url: str) -> tuple[int, str]:
        """Return status and text of a GET."""
        async with self.session.get(url) as answer:
            return answer.status, await answer.text()

    @property
    def cluster(self) -> Any:
        """What the scheduler knows."""
        return self.service.feed.cluster

    @property
    def explain_url(self) -> str:
        """Where people ask."""
        return f"http://127.0.0.1:{self.explain_port}"


@asynccontextmanager
async def running(api: ApiServer, folder: Path, *, is_synced: bool = True, **settings: Any) -> AsyncIterator[Running]:
    """Run a scheduler against *api* until the block ends."""
    defaults: Object = {
        "device_config_file": str(VECTORS / "device-config-default.yaml"),
        "http_bind": "127.0.0.1:0",
        "metrics_bind_address": "127.0.0.1:0",
        "explain_bind_address": "127.0.0.1:0",
        "scheduler_name": "hami-scheduler",
        "lock_wait_seconds": 2.0,
    }
    config = Config(**{**defaults, **settings})
    async with AsyncExitStack() as stack:
        registry = CollectorRegistry()
        metrics = ApiMetrics(registry, "hami_scheduler")
        kube = await stack.enter_async_context(await Kube.connect(api.kubeconfig(folder), "test", metrics))
        service = Service(config, kube, DeviceConfigFile(config.device_config_file), registry)
        port, metrics_port, explain_port = await service.start(stack)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        actors = [asyncio.create_task(actor) for actor in service.actors()]
        try:
            if is_synced:
                await eventually(lambda: service.takeover.blocked_for(("NVIDIA",)) is None)
            api.writes.clear()  # It has fenced the Pods that waited before it.
            url = "http://127.0.0.1:{}"
            yield Running(api, service, url.format(port), url.format(metrics_port), session, explain_port)
        finally:
            for actor in actors:
                actor.cancel()
            await asyncio.gather(*actors, return_exceptions=True)
