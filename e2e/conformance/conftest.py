"""
One cluster for the whole run, one namespace for each test, and a record of the results.

    pytest e2e/conformance --cluster embedded|real
"""

import asyncio
import contextlib
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from conformance.page import record
from conformance.peers.clusters import EmbeddedPeer, Peer, RealPeer
from conformance.peers.objects import Api
from controlplane.programs.build import DEFAULT_KUBERNETES
from minicluster.client import ApiError

_outcomes: dict[str, bool] = {}
"""By `module::function`, whether all cases of a behaviour held."""
_otherwise: dict[str, str] = {}
"""By `module::function`, what this version of Kubernetes does instead."""
_version = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the behaviours that the minor of a real cluster does not have."""
    if config.getoption("--cluster") != "real":
        return
    minor = config.getoption("--kubernetes") or DEFAULT_KUBERNETES
    left_out = []
    for item in items:
        for mark in item.iter_markers("other_in"):
            if mark.args[0] == minor:
                left_out.append(item)
                _otherwise[_behaviour(item.nodeid)] = mark.args[1]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _behaviour(node_id: str) -> str:
    """Return `module::function` of a node id, without the case and the group of a worker."""
    module, _, case = node_id.partition("::")
    function = re.split(r"[\[@]", case)[0]
    return f"{Path(module).stem}::{function}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record whether setup, call and teardown of a test passed."""
    behaviour = _behaviour(report.nodeid)
    _outcomes[behaviour] = _outcomes.get(behaviour, True) and report.passed


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the results for the page."""
    if _version in session.config.stash:
        record(session.config.stash[_version], _outcomes, _otherwise)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def peer(pytestconfig: pytest.Config) -> AsyncIterator[Peer]:
    """The tested cluster."""
    # A short path, because the path of a Unix socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="hami-conformance-"))
    is_real = pytestconfig.getoption("--cluster") == "real"
    peer = RealPeer(folder, pytestconfig.getoption("--kubernetes")) if is_real else EmbeddedPeer(folder)
    try:
        await asyncio.to_thread(peer.up)
        pytestconfig.stash[_version] = peer.version
        yield peer
    finally:
        await asyncio.to_thread(peer.down)
        shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(loop_scope="session")
async def api(peer: Peer) -> AsyncIterator[Api]:
    """Yield a client in a new namespace. Its Pods are deleted afterwards."""
    async with Api.from_kubeconfig(peer.kubeconfig, "conformance") as api:
        await api.enter_new_namespace()
        yield api
        await api.remove_namespace()


@pytest_asyncio.fixture(loop_scope="session")
async def cleanup(api: Api) -> AsyncIterator[list[str]]:
    """Yield a list of paths of cluster-wide objects that are deleted after the test."""
    paths: list[str] = []
    yield paths
    for path in reversed(paths):
        with contextlib.suppress(ApiError):
            await api.delete(path, grace_seconds=0)
