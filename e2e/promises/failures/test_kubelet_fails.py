"""
Kubelet and device plugin lose each other: no container notices, and the next Pod gets its share.

These are the failures that Kubernetes' own tests of device plugins provoke, and those of the kubelet's checkpoint.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/test/e2e_node/device_plugin_test.go
"""

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from hamicommon.model import Object
from hamicommon.wire import keys
from hamicommon.wire.node_devices import decode_node_devices
from harness.cluster import Cluster
from harness.invariants import INVENTORY, check, environments_of, samples
from harness.load import kept_running
from harness.manifests import a_pod
from testbed.waiting import eventually

pytestmark = pytest.mark.timeout(400)

NODE, KUBELET, PLUGIN = "node-a", "kubelet-node-a", "plugin-node-a"
ON_NODE = {"nvidia.com/use-gputype": "A100"}
CHECKPOINT = "kubelet_internal_checkpoint"
UNKNOWN_FORM = '{"Data": {"Pods": []}, "Checksum": 1}\n'
RECOVERED_SECONDS = 120.0


def runs(pod: Object) -> list[tuple[Any, ...]]:
    """Return what changes when a container of *pod* is started again."""
    return [(each["containerID"], each["restartCount"], each["state"]) for each in pod["status"]["containerStatuses"]]


@asynccontextmanager
async def unnoticed(cluster: Cluster) -> AsyncIterator[None]:
    """Check that a container does not notice what happens in a block, and that the next Pod gets its share after it."""
    await cluster.create(a_pod("before", annotations=ON_NODE, gpu=1, gpumem=1500))
    before = await cluster.pod_in_phase("before", "Running", RECOVERED_SECONDS)
    environments = await environments_of(cluster)
    yield
    await kept_running(cluster, "after", RECOVERED_SECONDS, ON_NODE)

    assert runs(before) == runs(await cluster.pod("before"))
    assert environments.items() <= (await environments_of(cluster)).items()
    await check(cluster)


async def registrations(cluster: Cluster) -> float:
    """Return how often the plugin's process has registered with the kubelet."""
    found = samples(await cluster.metrics(PLUGIN))["hami_device_plugin_registrations_total"]
    return sum(value for labels, value in found if labels["result"] == "ok")


async def until_registered_again(cluster: Cluster, before: float) -> None:
    """Wait until the plugin's process has registered since it had *before* registrations."""

    async def has_registered() -> bool:
        return await registrations(cluster) > before

    await eventually(has_registered, "the plugin has registered again", RECOVERED_SECONDS)


async def cannot_be_prepared(cluster: Cluster, name: str) -> bool:
    """Return whether an Event says that the plugin could open no file for a Pod's container."""
    return any("Too many open files" in event["message"] for event in await cluster.events(name))


async def finds_owners(cluster: Cluster) -> bool:
    """Return whether all devices of the Node have the mark of identity."""
    node = await cluster.api.get(f"/api/v1/nodes/{NODE}")
    return all(each.finds_owners for each in decode_node_devices(node["metadata"]["annotations"][INVENTORY]))


async def test_removed_socket_of_the_plugin_is_made_again(cluster: Cluster) -> None:
    """Somebody cleaned the folder. The kubelet did not restart."""
    async with unnoticed(cluster):
        before = await registrations(cluster)
        (cluster.device_plugins_folder(NODE) / "nvidia-gpu.sock").unlink()
        await until_registered_again(cluster, before)


async def test_plugin_registers_with_a_restarted_kubelet(cluster: Cluster) -> None:
    """Its process goes on."""
    async with unnoticed(cluster):
        before = await registrations(cluster)
        await cluster.kill(KUBELET)
        await cluster.restart(KUBELET)
        await until_registered_again(cluster, before)


async def test_restarted_plugin_registers_with_the_kubelet(cluster: Cluster) -> None:
    """The kubelet goes on, and keeps what each container holds."""
    async with unnoticed(cluster):
        await cluster.kill(PLUGIN)
        await cluster.restart(PLUGIN)
        await cluster.node_ready(NODE, RECOVERED_SECONDS)


async def test_kubelet_and_plugin_that_end_together_find_each_other_again(cluster: Cluster) -> None:
    """Whichever comes back first."""
    async with unnoticed(cluster):
        await cluster.kill(PLUGIN)
        await cluster.kill(KUBELET)
        await cluster.restart(KUBELET)
        await cluster.restart(PLUGIN)
        await cluster.node_ready(NODE, RECOVERED_SECONDS)


async def test_plugin_killed_between_allocate_and_pre_start_prepares_the_container_afterwards(cluster: Cluster) -> None:
    """It can open no file, so Pods are allocated and cannot be prepared. The next process prepares them."""
    async with unnoticed(cluster):
        pid = await cluster.pid(PLUGIN)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
        for number in range(3):
            await cluster.create(a_pod(f"p{number}", annotations=ON_NODE, gpu=1, gpumem=1000 + number))

        for number in range(3):
            found = partial(cannot_be_prepared, cluster, f"p{number}")
            await eventually(found, f"p{number} is allocated", RECOVERED_SECONDS)
        await cluster.kill(PLUGIN)
        await cluster.restart(PLUGIN)
        for number in range(3):
            pod = await cluster.pod_in_phase(f"p{number}", "Running", RECOVERED_SECONDS)
            assert f"{1000 + number}m" == cluster.environment(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_checkpoint_of_unknown_form_costs_no_container(cluster: Cluster) -> None:
    """
    The kubelet forgets which container holds which replicas, and gives them to the next Pod, which gets its own share.

    The plugin uses the lock and says why on its Node, until the kubelet has written the checkpoint again.
    """
    async with unnoticed(cluster):
        await cluster.kill(KUBELET)
        (cluster.device_plugins_folder(NODE) / CHECKPOINT).write_text(UNKNOWN_FORM)
        await cluster.restart(KUBELET)

        async def uses_the_lock() -> bool:
            return not await finds_owners(cluster)

        await eventually(uses_the_lock, "the plugin uses the lock", RECOVERED_SECONDS)
        node = await cluster.api.get(f"/api/v1/nodes/{NODE}")
        assert "unknown form" in node["metadata"]["annotations"][keys.NODE_DEVICE_LIST]
        await kept_running(cluster, "locked", RECOVERED_SECONDS, ON_NODE)

        await eventually(
            partial(finds_owners, cluster), "the plugin asks the kubelet for owners again", RECOVERED_SECONDS
        )
