"""What a test breaks on purpose it declares; a history that was broken otherwise fails the test."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import pytest_asyncio

from harness import recording
from harness.cluster import Cluster
from harness.clusters import embedded
from harness.history.events import decode_events
from harness.history.findings import Rule
from harness_tests.test_judge import environment
from harness_tests.test_recorder import NODE, PODS, a_granted_pod
from minicluster.apiserver.main import Server, write_kubeconfig
from minicluster.client import Client

DECLARED = [(Rule.MEMORY, "two Pods of 30000 MiB")]


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A cluster with an API server only, whose containers have 1000 MiB, and which nobody else judges."""
    server = Server()
    write_kubeconfig(tmp_path / "kubeconfig", await server.start("127.0.0.1", 0))
    monkeypatch.setattr(recording, "running", [])
    monkeypatch.setattr(recording, "HISTORIES", tmp_path / "histories")

    async def config() -> str:
        return await asyncio.to_thread(embedded.DEVICE_CONFIG.read_text)

    async with Client.from_kubeconfig(tmp_path / "kubeconfig", "test") as api:
        await api.create("/api/v1/namespaces", {"metadata": {"name": "d"}})
        await api.create("/api/v1/nodes", NODE)
        found = SimpleNamespace(
            serves_claims=False,
            api=api,
            kubeconfig=tmp_path / "kubeconfig",
            device_config=config,
            environment=lambda _pod, _container: environment(),
            vgpu_folder=lambda _node: tmp_path,
            recorder=None,
        )
        yield cast(Cluster, found)
        if found.recorder:
            await found.recorder.stop()
    await server.stop()


async def double(cluster: Cluster) -> recording.Verdict:
    """Return the verdict of a test that grants memory twice."""
    verdict = recording.Verdict()
    verdict.begin()
    await recording.begin(cluster)
    for name in "ab":
        await cluster.api.create(PODS, a_granted_pod(name, 30000))
    async with recording.judged(cluster):
        pass
    verdict.end()
    return verdict


async def test_finding_fails_the_test_unless_it_is_declared(cluster: Cluster) -> None:
    """Another declaration does not help."""
    verdict = await double(cluster)

    [problem] = verdict.problems([])
    assert "60000 MiB of 40000" in problem
    assert [] == verdict.problems(DECLARED)
    assert problem in verdict.problems([(Rule.CORES, "other")])


async def test_declared_rule_that_is_not_broken_fails_the_test(cluster: Cluster) -> None:
    """The declaration would hide the next defect."""
    verdict = recording.Verdict()
    verdict.begin()
    await recording.begin(cluster)
    verdict.end()

    assert ["memory: declared (two Pods of 30000 MiB), and did not happen"] == verdict.problems(DECLARED)


async def test_next_test_is_judged_by_itself(cluster: Cluster) -> None:
    """What one test broke is not another's, and its history goes to a new file."""
    first = await double(cluster)
    second = recording.Verdict()
    second.begin()
    second.end()
    first.forget()

    assert [] == second.problems([])


async def test_cluster_that_has_stopped_is_judged_once(cluster: Cluster) -> None:
    """A test's own cluster ends before the test."""
    verdict = await double(cluster)
    assert cluster.recorder is not None
    await cluster.recorder.stop()
    recording.Verdict().end()

    assert ([], 1) == (recording.running, len(verdict.findings))


async def test_history_of_a_failed_test_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    """Its lines up to the finding show the defect."""
    verdict = await double(cluster)
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed/history-7.jsonl").write_text("of an earlier run")
    verdict.keep(tmp_path / "failed")

    [file] = (tmp_path / "failed").iterdir()
    with file.open("rb") as lines:
        events = list(decode_events(lines))
    assert "b" == events[verdict.findings[0].line - 1].object["metadata"]["name"]


async def test_cluster_that_is_not_recorded_is_judged_as_it_is(cluster: Cluster) -> None:
    """Two grants of the same memory are found where they are."""
    for name in "ab":
        await cluster.api.create(PODS, a_granted_pod(name, 30000))
    async with recording.judged(cluster) as recorder:
        found = recorder.findings

    assert [Rule.MEMORY] == [finding.rule for finding in found]
    assert cluster.recorder is None
