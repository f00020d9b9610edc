"""
An API server with a small cluster, and a scheduler that serves it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from .support.api_server import ApiServer, an_api_server
from .support.builders import a_device, a_node, a_pod
from .support.hypothesis_profiles import LAW_SECONDS
from .support.service import Running, running


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let tests run on the event loop that the program runs on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give laws the time that it takes to try them thoroughly."""
    for item in items:
        if item.get_closest_marker("property"):
            item.add_marker(pytest.mark.timeout(LAW_SECONDS))


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """An API server with one Pod, one Node that needs no lock, and one that does."""
    async with an_api_server() as server:
        server.put("nodes", a_node("exact", a_device("GPU-a", finds_owners=True)))
        server.put("nodes", a_node("locked", a_device("GPU-l")))
        server.put("pods", a_pod())
        yield server


@pytest.fixture
async def scheduler(api: ApiServer, tmp_path: Path) -> AsyncIterator[Running]:
    """A scheduler that is ready."""
    async with running(api, tmp_path) as found:
        yield found
