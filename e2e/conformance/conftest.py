"""
One cluster of the chosen kind for the whole run, one namespace for each test, and a record of what held.

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
from minicluster.client import ApiError

_outcomes: dict[str, bool] = {}
"""Whether a behaviour held, in all its cases, by module and function."""
_otherwise: dict[str, str] = {}
"""What the cluster's version of Kubernetes does in place of a behaviour."""
_version = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the chosen minor is known to do otherwise."""
    minor = config.getoption("--kubernetes")
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
    """Return `module::function`, without the case and the group that a worker adds to a node id."""
    module, _, case = node_id.partition("::")
    function = re.split(r"[\[@]", case)[0]
    return f"{Path(module).stem}::{function}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note whether a test's body, and all around it, passed."""
    behaviour = _behaviour(report.nodeid)
    _outcomes[behaviour] = _outcomes.get(behaviour, True) and report.passed


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what held, for the page."""
    if _version in session.config.stash:
        record(session.config.stash[_version], _outcomes, _otherwise)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def peer(pytestconfig: pytest.Config) -> AsyncIterator[Peer]:
    """The cluster that is tested."""
    # A short path, because a Unix socket's path may have 107 bytes.
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
    """Yield a client in a namespace of the test's own; afterwards its Pods are gone."""
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
