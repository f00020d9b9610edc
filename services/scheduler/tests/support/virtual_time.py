"""
A whole scheduler in virtual time: minutes pass in milliseconds, and every request to the API server is dated.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from hami_scheduler.config import Config
from hami_scheduler.main import Service
from testbed.virtual.api import MemoryApi
from testbed.virtual.config import UnchangingConfig
from testbed.waiting import eventually

from .builders import VECTORS


@asynccontextmanager
async def a_scheduler(api: MemoryApi, **settings: Any) -> AsyncIterator[Service]:
    """Let a scheduler follow *api* and do all it does by itself, until the block ends."""
    kube: Any = api
    devices = UnchangingConfig(str(VECTORS / "device-config-default.yaml"))
    service = Service(Config(scheduler_name="s", **settings), kube, devices, CollectorRegistry())
    tasks = [asyncio.create_task(actor) for actor in service.actors()]
    try:
        await eventually(lambda: service.takeover.not_ready() is None, seconds=60.0)
        yield service
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
