"""
Fixtures: a node's peers as real servers on real sockets, and where its files are.
"""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet


@pytest.fixture
def host() -> Iterator[Path]:
    """A folder that plays the host's file system; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        yield Path(folder)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """An API server with no objects."""
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def kubelet(host: Path) -> AsyncIterator[Kubelet]:
    """A kubelet that serves Registration and PodResources below *host*."""
    async with Kubelet(host) as server:
        yield server
