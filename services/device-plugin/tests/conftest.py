"""
Fixtures: the plugin's peers as servers on sockets, and the host's directory.
"""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet


@pytest.fixture
def host() -> Iterator[Path]:
    """Return a directory that stands for the host's file system; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        yield Path(folder)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """Yield an API server without objects."""
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def kubelet(host: Path) -> AsyncIterator[Kubelet]:
    """Yield a kubelet that serves Registration and PodResources below *host*."""
    async with Kubelet(host) as server:
        yield server
