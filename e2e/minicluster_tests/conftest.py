"""
An API server and a client for the tests of the embedded cluster.

The server runs in the test's loop, on a real socket. Tests of the process start `python -m minicluster`.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conformance.peers.objects import Api
from minicluster.apiserver.main import Server, write_kubeconfig


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """Yield the URL of an API server without objects."""
    running = Server()
    yield await running.start("127.0.0.1", 0)
    await running.stop()


@pytest.fixture
async def api(server: str) -> AsyncIterator[Api]:
    """Yield a client of `server`."""
    async with Api(server, "test") as client:
        yield client


@pytest.fixture
def kubeconfig(server: str, tmp_path: Path) -> Path:
    """Return a kubeconfig for `server`."""
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, server)
    return path
