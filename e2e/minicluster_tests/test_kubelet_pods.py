"""Real back-offs, many Pods at once, and invalid flags of the kubelet."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hamicommon.model import Object
from minicluster.client import ApiError
from minicluster_tests.kubelet_peers import Cluster, Process, a_cluster, a_container, a_pod, processes


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Process]]:
    """The API server and the kubelet of all tests of this module."""
    root = tmp_path_factory.mktemp("pods")
    with processes(root, "--cpu", "2") as kubelet:
        yield root, kubelet


@pytest.fixture
async def cluster(running: tuple[Path, Process]) -> AsyncIterator[Cluster]:
    """The module's cluster, with a client for one test."""
    async with a_cluster(*running) as cluster:
        yield cluster


def states(pod: Object, group: str = "containerStatuses") -> dict[str, Object]:
    """Return the container statuses by name."""
    return {status["name"]: status for status in pod["status"][group]}


async def test_signal_that_ends_a_container_is_its_exit_code(cluster: Cluster) -> None:
    """It is 128 and the number of the signal. `$$$$` is the shell's `$$`, because Kubernetes expands commands."""
    await cluster.create(a_pod("signal", a_container(script="kill -9 $$$$"), restartPolicy="Never"))

    assert 137 == states(await cluster.phase("signal", "Failed"))["main"]["state"]["terminated"]["exitCode"]


async def test_container_that_fails_is_started_again_and_backs_off(cluster: Cluster) -> None:
    """The first restart is immediate. From the second on, the container waits in CrashLoopBackOff."""
    await cluster.create(a_pod("crash", a_container(script="exit 7")))

    def backs_off(status: Object) -> bool:
        waiting = status["containerStatuses"][0]["state"].get("waiting", {})
        return waiting.get("reason") == "CrashLoopBackOff" and "back-off 20s" in waiting["message"]

    state = states(await cluster.until("crash", backs_off))["main"]

    assert (2, 7) == (state["restartCount"], state["lastState"]["terminated"]["exitCode"])
    assert "restarting failed container=main pod=crash_default" in state["state"]["waiting"]["message"]


async def test_forty_pods_at_once_all_run(cluster: Cluster) -> None:
    """All can be deleted, too."""
    names = [f"many-{index}" for index in range(40)]
    await asyncio.gather(*(cluster.create(a_pod(name)) for name in names))
    await asyncio.gather(*(cluster.phase(name, "Running", 60) for name in names))

    await asyncio.gather(*(cluster.delete(name, 5) for name in names))

    with pytest.raises(ApiError):
        await cluster.pod(names[0])


async def test_long_root_is_rejected_with_the_reason(tmp_path: Path) -> None:
    """The path of a Unix socket may have 107 bytes."""
    config = tmp_path / "kubeconfig"
    config.write_text("{}")
    arguments = ["kubelet", "--kubeconfig", str(config), "--node", "n", "--root", str(tmp_path / ("x" * 100))]
    kubelet = Process(arguments, tmp_path / "log")
    kubelet.start()

    assert 1 == kubelet.wait()
    assert "is too long: its sockets would need" in kubelet.log.read_text()
