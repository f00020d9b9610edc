"""
One cluster for the whole run, embedded or real. Each test has a namespace, and the invariants are checked after it.
"""

import inspect
import shutil
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from xdist.remote import Producer

from conformance import kinds
from harness import evidence, order, recording
from harness.cluster import Cluster, ClusterOf, Settings
from harness.clusters import embedded
from harness.history.findings import Rule
from harness.isolation import own_namespace
from testbed.driver.hardware import TWO_NODES, FakeNode
from testbed.folders import short_folder

if TYPE_CHECKING:
    from harness.clusters.claiming import ClaimingCluster
    from harness.clusters.real import RealCluster
    from harness.clusters.tokens import TokenCluster

HAS_FAILED = pytest.StashKey[bool]()
"""Whether a phase of a test has failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the cluster."""
    parser.addoption("--cluster", choices=("embedded", "real"), default="embedded", help="the Kubernetes to test on")
    parser.addoption("--kubernetes", help="minor version of the real cluster, such as 1.34")
    parser.addoption("--keep", action="store_true", help="leave the real cluster running for the next run")
    parser.addoption("--pictures", type=Path, help="also write pictures of the page to this folder, such as docs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run every coroutine test in the loop of the session's cluster, and deselect tests of the other cluster."""
    is_real = config.getoption("--cluster") == "real"
    for item in items:
        is_async = inspect.iscoroutinefunction(getattr(item, "function", None))
        if is_async and "minicluster_tests" not in item.path.parts:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    other = "embedded_only" if is_real else "real_only"
    left_out = [item for item in items if item.get_closest_marker(other)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if is_real:
        order.arrange(items)
        kinds.promises()  # read now: CPython 3.11 cannot parse in two threads, and later a recorder may log a traceback


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> order.Workers | None:
    """Distribute the tests on a real cluster as `harness.order` says."""
    return order.Workers(config, log) if config.getoption("--cluster") == "real" else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record which promises hold on which kind of node."""
    if report.when == "call" or report.failed:
        kinds.record(report.nodeid, has_passed=report.passed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Copy the logs of the cluster when a test fails, and name the copy in the report."""
    report = yield
    item.stash[HAS_FAILED] = report.failed or item.stash.get(HAS_FAILED, False)
    used = getattr(item, "funcargs", {}).values()
    cluster = next((found for found in used if isinstance(found, Cluster)), None)
    if report.failed and cluster is not None:
        report.sections.append(("logs of the cluster", str(evidence.keep(cluster.folder, item.nodeid))))
    return report


@pytest.fixture(autouse=True)
def judged(request: pytest.FixtureRequest) -> Iterator[None]:
    """
    Judge the histories of the clusters that the test uses; the last step, after every other fixture has ended.

    The mark `breaks` declares what the test breaks on purpose. Another finding fails the test.
    """
    verdict = recording.Verdict()
    verdict.begin()
    yield
    verdict.end()
    marks = request.node.iter_markers("breaks")
    problems = verdict.problems((Rule(mark.args[0]), mark.args[1]) for mark in marks)
    if problems or request.node.stash.get(HAS_FAILED, False):
        place = evidence.place_of(request.node.nodeid)
        verdict.keep(place)
        problems = problems and [*problems, f"replay: python -m harness.history {place}/history-1.jsonl"]
    verdict.forget()
    assert not problems, "\n".join(problems)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_cluster(request: pytest.FixtureRequest) -> AsyncIterator["RealCluster | None"]:
    """The real cluster with the chart on it, or None if the tests run on the embedded one."""
    if request.config.getoption("--cluster") != "real":
        yield None
        return
    from harness.clusters.real import RealCluster  # imported here, because only the real cluster needs its dependencies

    minor, is_kept = request.config.getoption("--kubernetes"), request.config.getoption("--keep")
    async with RealCluster.running(minor, TWO_NODES, is_kept=is_kept) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_cluster(real_cluster: "RealCluster | None") -> AsyncIterator[Cluster]:
    """Two nodes, four devices, all four services."""
    if real_cluster:
        yield real_cluster
        return
    async with embedded.running(short_folder(), TWO_NODES) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(shared_cluster: Cluster, real_cluster: "RealCluster | None") -> AsyncIterator[Cluster]:
    """The shared cluster. After the test, all services run, the invariants hold, and the Pods are deleted."""
    if real_cluster:
        await real_cluster.deploy()
    async with own_namespace(shared_cluster):
        yield shared_cluster


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def claiming_cluster(real_cluster: "RealCluster") -> AsyncIterator["ClaimingCluster"]:
    """The real cluster, whose last Node gives its devices by ResourceClaims."""
    from harness.clusters.claiming import claiming

    _needs_claims(real_cluster)
    async with claiming(real_cluster) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def token_cluster(real_cluster: "RealCluster") -> AsyncIterator["TokenCluster"]:
    """The real cluster, whose last Node gives tokens to Pods that ask by resources."""
    from harness.clusters.tokens import giving_tokens

    _needs_claims(real_cluster)
    async with giving_tokens(real_cluster) as cluster:
        yield cluster


def _needs_claims(cluster: "RealCluster") -> None:
    if not cluster.serves_claims:
        pytest.skip("devices are shared by claims since Kubernetes 1.36")


@pytest.fixture
def kubectl(cluster: Cluster) -> None:
    """Skip the test where kubectl is not installed. A real cluster has its own."""
    if shutil.which("kubectl", path=cluster.search_path) is None:
        pytest.skip("kubectl is not installed")


@pytest.fixture
def cluster_of(real_cluster: "RealCluster | None") -> ClusterOf:
    """A function that makes another cluster: one more embedded one, or the real one with other nodes and settings."""

    def made(nodes: tuple[FakeNode, ...], settings: Settings) -> AbstractAsyncContextManager[Cluster]:
        if real_cluster:
            return real_cluster.reshaped(nodes, settings)
        return embedded.running(short_folder(), nodes, settings)

    return made
