"""A kubelet may be killed at any time. Containers keep running, and it finds them and their devices again."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hamicommon.model import Object
from minicluster.kubelet.devices.checkpoint import FILE_NAME
from minicluster_tests.kubelet_peers import NODE, RESOURCE, Cluster, a_cluster, a_container, a_pod, processes
from testbed.waiting import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A new cluster."""
    with processes(tmp_path, "--cpu", "4") as kubelet:
        async with a_cluster(tmp_path, kubelet) as cluster:
            yield cluster


def pid_of(cluster: Cluster, pod: Object, container: str = "main") -> int:
    """Return the pid of a container's first process."""
    return int((cluster.root / "pods" / pod["metadata"]["uid"] / container / "pid").read_text())


async def restart(cluster: Cluster, how: signal.Signals = signal.SIGKILL) -> None:
    """End the kubelet, start it again, and wait until it serves."""
    cluster.kubelet.end(how)
    (cluster.root / "pod-resources" / "kubelet.sock").unlink(missing_ok=True)
    cluster.kubelet.start()
    await eventually((cluster.root / "pod-resources" / "kubelet.sock").exists)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_running_containers_are_found_again(cluster: Cluster, how: signal.Signals) -> None:
    """Same process, no restart, same ids, no call to the plugin."""
    plugin = await cluster.plugin()
    sidecar = a_container("side", devices=1, restartPolicy="Always")
    inits = [a_container("init", "true"), sidecar]
    await cluster.create(a_pod("stays", a_container(devices=2), initContainers=inits))
    pod = await cluster.phase("stays", "Running")
    pid, owned = pid_of(cluster, pod), await cluster.host.owners()

    await restart(cluster, how)
    await plugin.stop()
    successor = await cluster.plugin()

    after = await cluster.pod("stays")
    assert (pid, owned, []) == (pid_of(cluster, pod), await cluster.host.owners(), successor.calls)
    assert pod["status"]["containerStatuses"] == after["status"]["containerStatuses"]
    assert pod["status"]["startTime"] == after["status"]["startTime"]


async def test_container_that_ended_meanwhile_is_reported_and_restarted(cluster: Cluster) -> None:
    """The shim has recorded the exit code."""
    await cluster.create(a_pod("ends", a_container(script="sleep 0.5; exit 5")))
    await cluster.phase("ends", "Running")
    cluster.kubelet.end(signal.SIGKILL)
    await asyncio.sleep(0.6)

    cluster.kubelet.start()

    pod = await cluster.until("ends", lambda status: status["containerStatuses"][0]["restartCount"] == 1)
    assert 5 == pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"]


async def test_pod_deleted_meanwhile_is_ended(cluster: Cluster) -> None:
    """Its containers end, whether it was deleted with a grace period or by force."""
    for name in ("asked", "forced"):
        await cluster.create(a_pod(name))
    pods = [await cluster.phase(name, "Running") for name in ("asked", "forced")]
    pids = [pid_of(cluster, pod) for pod in pods]
    cluster.kubelet.end(signal.SIGKILL)
    for name, grace_seconds in (("asked", 5), ("forced", 0)):
        await cluster.client.delete(f"/api/v1/namespaces/default/pods/{name}", grace_seconds=grace_seconds)

    cluster.kubelet.start()

    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    await eventually(lambda: not any((cluster.root / "pods").iterdir()))


async def test_pods_bound_meanwhile_are_admitted_by_age(cluster: Cluster) -> None:
    """Of two Pods that each need the whole Node, the older gets it, although the list has the younger first."""
    cluster.kubelet.end(signal.SIGKILL)
    for name in ("z-older", "a-younger"):
        main = a_container()
        main["resources"] = {"requests": {"cpu": "4"}}
        await cluster.create(a_pod(name, main))
        await asyncio.sleep(1.1)  # creation times are whole seconds

    cluster.kubelet.start()

    await cluster.phase("z-older", "Running")
    assert "OutOfcpu" == (await cluster.phase("a-younger", "Failed"))["status"]["reason"]


async def test_pod_that_was_being_created_needs_its_plugin_first(cluster: Cluster) -> None:
    """No container ran, so it is admitted again, and the devices are unhealthy until the plugin is back."""
    plugin = await cluster.plugin()

    def refuse(ids: list[str]) -> None:
        raise ValueError("not yet")

    plugin.before_start = refuse
    await cluster.create(a_pod("half", a_container(devices=1)))
    await cluster.until("half", lambda status: "waiting" in status["containerStatuses"][0]["state"])
    await restart(cluster)

    status = (await cluster.phase("half", "Failed"))["status"]

    error = f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}"
    assert f"Pod was rejected: Allocate failed due to {error}, which is unexpected" == status["message"]


async def test_damaged_checkpoint_does_not_stop_the_kubelet(cluster: Cluster) -> None:
    """It starts without the checkpoint, and prints why."""
    await cluster.plugin()
    cluster.kubelet.end(signal.SIGKILL)
    (cluster.root / "device-plugins" / FILE_NAME).write_text("{}")

    cluster.kubelet.start()

    await eventually(lambda: "device allocations may not be up to date" in cluster.kubelet.log.read_text())
    assert NODE == (await cluster.client.get(f"/api/v1/nodes/{NODE}"))["metadata"]["name"]
