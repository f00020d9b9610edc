"""
An extender on a socket, and a scheduler in the test's loop that calls it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from conformance.peers.extenders import Extender
from hamicommon.model import Object
from minicluster.client import Client
from minicluster.kubescheduler.config import parse
from minicluster.kubescheduler.main import Scheduler

GPU = "nvidia.com/gpu"


@contextlib.asynccontextmanager
async def extender() -> AsyncIterator[tuple[Extender, str]]:
    """Yield a listening extender and its URL."""
    peer = Extender()
    application = web.Application()
    application.router.add_post("/{verb}", peer.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield peer, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def configured(url: str = "", **fields: Any) -> Object:
    """Return a configuration, with an extender at *url* for GPU Pods where one is given."""
    made: Object = {"profiles": [{"schedulerName": "default-scheduler"}], "leaderElection": {"leaderElect": False}}
    if url:
        made["extenders"] = [
            {
                "urlPrefix": url,
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "managedResources": [{"name": GPU, "ignoredByScheduler": True}],
                **fields,
            }
        ]
    return made


@contextlib.asynccontextmanager
async def scheduling(server: str, configuration: Object) -> AsyncIterator[None]:
    """Run a scheduler until the block ends."""
    async with Client(server, "kube-scheduler") as client:
        task = asyncio.create_task(Scheduler(client, parse(configuration)).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def asking(amount: int = 1, **limits: Any) -> Object:
    """Return a Pod spec that asks for GPUs."""
    return {"containers": [{"name": "main", "image": "i", "resources": {"limits": {GPU: amount, **limits}}}]}
