"""
One embedded cluster for the whole run, one namespace for each test, and the invariants after each.
"""

import inspect
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cluster import Cluster, running
from hardware import TWO_NODES
from invariants import check

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run every coroutine test in the loop the session's cluster lives in."""
    for item in items:
        is_async = inspect.iscoroutinefunction(getattr(item, "function", None))
        if is_async and "minicluster_tests" not in item.path.parts:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def folder() -> Path:
    """A short path, because a Unix socket's path may have 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="hami-e2e-"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Two nodes, four devices, all four services."""
    async with running(folder / "c", TWO_NODES) as cluster:
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(shared_cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """The shared cluster; afterwards every service runs, the invariants hold, and no Pod of the test is left."""
    shared_cluster.namespace = f"test-{next(_numbers)}"
    await shared_cluster.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": shared_cluster.namespace}}
    )
    yield shared_cluster
    for name, process in shared_cluster.processes.items():
        if not process.is_running:
            await shared_cluster.restart(name)
    try:
        await check(shared_cluster)
    finally:
        await shared_cluster.delete_all_pods()
    await check(shared_cluster)
