"""
No Pod is sent to a kubelet that would reject it, or that would run it without devices.

A rejection is final for a Pod, and its controller makes the next one at once.
"""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controlplane import nvidia
from hamicommon.model import Object
from harness.cluster import Cluster, ClusterOf, Settings
from harness.manifests import SLEEP, a_container, a_pod
from testbed.driver.hardware import TWO_NODES, FakeDriver, FakeNode
from testbed.waiting import eventually

pytestmark = pytest.mark.timeout(400)

NODE, OTHER = "node-a", "node-b"
ON_NODE: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
REPLICAS = 20
"""Of each of the two Nodes: two devices, ten each."""
ONE_NODE = replace(FakeNode.of("two", "NVIDIA A100-SXM4-40GB", 40960, 2), kind=nvidia.OPERATOR.name)
STATUS_LAG_SECONDS = 12.0
"""A kubelet writes a changed status within 10 s."""
STUBBORN = ("sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 0.1; done")


def small(name: str, count: int = 1, **more: Any) -> Object:
    """Return a Pod that asks for *count* small shares."""
    return a_pod(name, command=SLEEP, gpu=count, gpumem=100, **more)


def foreign(name: str, count: int, node: str = NODE) -> Object:
    """Return a Pod that nobody schedules: it names its Node, holds replicas there, and has no grant."""
    pod = small(name, count, spec={"nodeName": node, "schedulerName": "nobody"})
    pod["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    return pod


async def phases(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """Return the phase of each Pod."""
    return [(await cluster.pod(name))["status"]["phase"] for name in names]


async def rejected(cluster: Cluster) -> list[str]:
    """Return what kubelets said of the Pods that failed."""
    pods, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods")
    return [
        f"{pod['metadata']['name']}: {pod['status'].get('reason')}: {pod['status'].get('message')}"
        for pod in pods
        if pod["status"].get("phase") == "Failed"
    ]


async def offers(cluster: Cluster, node: str, count: int) -> None:
    """Wait until the status of *node* has *count* replicas."""

    async def probe() -> bool:
        found = (await cluster.api.get(f"/api/v1/nodes/{node}"))["status"]["allocatable"]
        return int(found.get("nvidia.com/gpu", 0)) == count

    await eventually(probe, f"{node} offers {count} replicas", 60)


async def replicate(cluster: Cluster, count: int, seconds: float) -> int:
    """Be a controller of *count* Pods that makes a new one at once; return how many it made."""
    path, made, until = f"/api/v1/namespaces/{cluster.namespace}/pods", 0, time.monotonic() + seconds
    while time.monotonic() < until:
        pods, _ = await cluster.api.list(path)
        living = sum(pod["status"].get("phase") in {"Pending", "Running"} for pod in pods)
        for _ in range(count - living):
            await cluster.create(small(f"replica-{made}"))
            made += 1
        await asyncio.sleep(0.1)
    return made


async def test_upgrade_of_scheduler_and_plugins_fails_no_pod(cluster: Cluster) -> None:
    """Both are replaced at once, and a controller wants two Pods meanwhile: they wait and then run."""
    for node in (NODE, OTHER):
        await cluster.kill(f"plugin-{node}")
    await cluster.kill("scheduler")
    for node in (NODE, OTHER):
        await offers(cluster, node, 0)
    await cluster.restart("scheduler")

    assert 2 == await replicate(cluster, 2, 5)
    for node in (NODE, OTHER):
        await cluster.restart(f"plugin-{node}")
    for name in ("replica-0", "replica-1"):
        await cluster.pod_in_phase(name, "Running", 60)
    assert [] == await rejected(cluster)


@pytest.mark.embedded_only
async def test_plugin_that_does_not_come_back_after_a_reboot_gets_no_pod(cluster: Cluster) -> None:
    """
    Also from a scheduler that has never seen it alive; the other Node goes on, and says why this one does not.

    A real kubelet starts a killed plugin again at once.
    """
    await cluster.kill(f"plugin-{NODE}")
    await cluster.kill(f"kubelet-{NODE}")
    await cluster.kill("scheduler")
    await cluster.restart(f"kubelet-{NODE}")
    await offers(cluster, NODE, 0)
    await cluster.restart("scheduler")

    await cluster.create(small("here", spec=ON_NODE))
    await cluster.create(small("anywhere"))
    await cluster.pod_in_phase("anywhere", "Running", 60)

    async def says_why() -> bool:
        return any("its device plugin does not run" in event["message"] for event in await cluster.events("here"))

    await eventually(says_why, "an Event names the plugin")
    assert "Pending" == (await cluster.pod("here"))["status"]["phase"]
    await cluster.restart(f"plugin-{NODE}")
    await cluster.pod_in_phase("here", "Running", 60)
    assert [] == await rejected(cluster)


async def test_pods_of_others_hold_replicas(cluster: Cluster) -> None:
    """One that names its Node takes all replicas but one; the scheduler's Pods take that one, and wait for more."""
    await cluster.create(foreign("greedy", REPLICAS - 1))
    await asyncio.sleep(1)
    for name in ("first", "second"):
        await cluster.create(small(name, spec=ON_NODE))
    await cluster.pod_in_phase("first", "Running")
    await asyncio.sleep(2)

    assert "Pending" == (await cluster.pod("second"))["status"]["phase"]
    await cluster.delete_pod("greedy", 0)
    await cluster.pod_in_phase("second", "Running", 60)
    assert [] == await rejected(cluster)


async def test_replicas_of_an_init_container_count_for_life(cluster: Cluster) -> None:
    """It asks for two and the other for one: ten such Pods have twenty replicas, and two more wait."""
    inits = [a_container("init", ("true",), gpu=2, gpumem=100)]
    names = [f"p{number}" for number in range(REPLICAS // 2 + 2)]
    for name in names:
        await cluster.create(a_pod(name, [a_container("main", SLEEP, gpu=1, gpumem=100)], inits, spec=ON_NODE))

    async def ten_run() -> bool:
        return (await phases(cluster, names)).count("Running") == REPLICAS // 2

    await eventually(ten_run, "ten Pods run", 90)
    await asyncio.sleep(2)
    assert sorted([*["Pending"] * 2, *["Running"] * (REPLICAS // 2)]) == sorted(await phases(cluster, names))


async def test_pod_deleted_by_force_holds_its_replica_until_it_has_ended(cluster: Cluster) -> None:
    """Its object is gone at once, its containers are not; the Pod that wants the replica waits for them."""
    await cluster.create(foreign("greedy", REPLICAS - 1))
    stubborn = a_pod(
        "stubborn", command=STUBBORN, gpu=1, gpumem=100, spec={**ON_NODE, "terminationGracePeriodSeconds": 4}
    )
    await cluster.create(stubborn)
    await cluster.log_line("deaf", "stubborn")
    await cluster.delete_pod("stubborn", 0)

    await cluster.create(small("next", spec=ON_NODE))
    await cluster.pod_in_phase("next", "Running", 60)
    assert [] == await rejected(cluster)


async def test_lost_card_takes_its_own_places_and_no_others(cluster_of: ClusterOf) -> None:
    """Whatever replica IDs the kubelet chose: each healthy place is filled, and one Pod more waits."""
    async with cluster_of((ONE_NODE,), Settings(driver_root=nvidia.DRIVER_ROOT)) as cluster:
        kept, lost = (gpu.uuid for gpu in ONE_NODE.gpus)
        for number in range(10):
            on = {"nvidia.com/use-gpuuuid": (kept, lost)[number % 2]}
            await cluster.create(small(f"before-{number}", annotations=on))
        for number in range(10):
            await cluster.pod_in_phase(f"before-{number}", "Running", 60)
        FakeDriver(cluster.driver_folder(ONE_NODE.name)).lose(lost)
        await offers(cluster, ONE_NODE.name, REPLICAS // 2)

        names = [f"after-{number}" for number in range(6)]
        for name in names:
            await cluster.create(small(name))

        async def five_run() -> bool:
            return (await phases(cluster, names)).count("Running") == 5

        await eventually(five_run, "five Pods run on the other card", 60)
        assert [] == await rejected(cluster)


@pytest.mark.embedded_only
async def test_plugin_that_stops_is_left_before_its_nodes_status_says_so(cluster_of: ClusterOf) -> None:
    """The status lags 10 s behind: the plugin says that it goes, as in every rolling update."""
    async with cluster_of(TWO_NODES, Settings(status_seconds=10)) as cluster:
        for node in (NODE, OTHER):
            os.kill(await cluster.pid(f"plugin-{node}"), signal.SIGTERM)
        await asyncio.sleep(1)

        made = await replicate(cluster, 2, STATUS_LAG_SECONDS)
        for node in (NODE, OTHER):
            await cluster.restart(f"plugin-{node}")
        for number in range(made):
            await cluster.pod_in_phase(f"replica-{number}", "Running", 60)
        assert [] == await rejected(cluster)


@pytest.mark.embedded_only
async def test_kubelets_rejection_is_the_last_on_its_node(cluster_of: ClusterOf) -> None:
    """A plugin that is killed says nothing. Each Node may lose the Pods on their way, and no more."""
    async with cluster_of(TWO_NODES, Settings(status_seconds=10)) as cluster:
        for node in (NODE, OTHER):
            await cluster.kill(f"plugin-{node}")

        await replicate(cluster, 1, STATUS_LAG_SECONDS)
        assert len(await rejected(cluster)) <= 2
