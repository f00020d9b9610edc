"""
A container starts with its own share, in any order, and whichever container used its replica IDs before.
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hamicommon.model import Object
from hamicommon.wire.pod_devices import decode_pod_devices
from harness.cluster import Cluster
from harness.clusters.embedded import EmbeddedCluster
from harness.load import kept_running
from harness.manifests import SLEEP, a_container, a_pod
from testbed.processes import Process
from testbed.waiting import eventually

A100 = {"nvidia.com/use-gputype": "A100"}
GATE = {"schedulingGates": [{"name": "test/hold"}]}


def replicas_match(cluster: EmbeddedCluster, pod: Object) -> bool:
    """Return whether each container of *pod* has the kubelet's replicas of the devices that it was granted."""
    path = cluster.device_plugins_folder(pod["spec"]["nodeName"]) / "kubelet_internal_checkpoint"
    held: dict[str, list[str]] = {}
    for entry in json.loads(path.read_text())["Data"]["PodDeviceEntries"]:
        if entry["PodUID"] == pod["metadata"]["uid"]:
            replicas = [replica for of_node in entry["DeviceIDs"].values() for replica in of_node]
            held[entry["ContainerName"]] = sorted(replica.rpartition("-")[0] for replica in replicas)
    granted = decode_pod_devices(pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"])
    names = [container["name"] for container in pod["spec"]["containers"]]
    return held == {
        name: sorted(share.uuid for share in shares) for name, shares in zip(names, granted, strict=False) if shares
    }


def limit_of(cluster: Cluster, pod: Object, container: str = "main") -> str | None:
    """Return the memory limit in the environment of a running container."""
    return cluster.environment(pod, container).get("CUDA_DEVICE_MEMORY_LIMIT_0")


async def bound(cluster: Cluster, name: str) -> None:
    """Wait until the Pod has a Node."""

    async def probe() -> bool:
        return bool((await cluster.pod(name))["spec"].get("nodeName"))

    await eventually(probe, f"{name} is bound")


@contextmanager
def frozen(process: Process) -> Iterator[None]:
    """Stop a process during a block (SIGSTOP)."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.embedded_only
async def test_kubelets_replicas_are_of_the_granted_devices(cluster: EmbeddedCluster) -> None:
    """In a Pod of two containers and in a burst of Pods: dcgm-exporter names a device's Pod by that list."""
    pair = [a_container(name, SLEEP, gpu=1, gpumem=22000) for name in ("one", "two")]
    names = [f"p{number}" for number in range(8)]
    await cluster.create(a_pod("pair", pair, annotations=A100))
    pods = [await cluster.pod_in_phase("pair", "Running")]
    await asyncio.gather(*(cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=1000)) for name in names))
    pods += [await cluster.pod_in_phase(name, "Running") for name in names]

    assert [] == [pod["metadata"]["name"] for pod in pods if not replicas_match(cluster, pod)]


@pytest.mark.embedded_only
async def test_pods_admitted_in_another_order_than_bound_get_their_own_shares(cluster: EmbeddedCluster) -> None:
    """A kubelet that was stopped lists its Pods again and admits them by creation time. The older was bound last."""
    # A kubelet stopped before it has published the plugin's devices would never publish them.
    await kept_running(cluster, "first", annotations=A100)
    await cluster.create(a_pod("older", annotations=A100, spec=GATE, gpu=1, gpumem=1111))
    await cluster.create(a_pod("younger", annotations=A100, spec=GATE, gpu=1, gpumem=2222))
    with frozen(cluster.processes["kubelet-node-a"]):
        for name in ("younger", "older"):
            path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"
            await cluster.api.patch(path, {"spec": {"schedulingGates": None}})
            await bound(cluster, name)
        await cluster.api.create("/minicluster/watches/drop", {})

    older = await cluster.pod_in_phase("older", "Running")
    younger = await cluster.pod_in_phase("younger", "Running")
    assert ("1111m", "2222m") == (limit_of(cluster, older), limit_of(cluster, younger))


async def test_init_container_that_shares_replica_ids_with_the_main_one_has_its_own_share(cluster: Cluster) -> None:
    """The kubelet gives both the same IDs, and names only the main container as their owner."""
    init = a_container("prepare", ("gpu-hold", "--mib", "50", "--seconds", "0.1"), gpu=1, gpumem=700)
    main = a_container("main", gpu=1, gpumem=2500)
    await cluster.create(a_pod("p", annotations=A100, init_containers=[init], containers=[main]))

    pod = await cluster.pod_in_phase("p", "Running")

    line = await cluster.log_line("allocated", "p", "prepare")
    assert "allocated 50 MiB of 700 MiB visible" == line
    assert "2500m" == limit_of(cluster, pod)


async def test_pod_with_a_device_only_in_its_init_container_is_served(cluster: Cluster) -> None:
    """The kubelet names no owner for those IDs."""
    init = a_container("prepare", ("gpu-hold", "--mib", "50", "--seconds", "0.1"), gpu=1, gpumem=700)
    plain = a_container("main", ("sleep", "infinity"))
    await cluster.create(a_pod("p", annotations=A100, init_containers=[init], containers=[plain]))

    await cluster.pod_in_phase("p", "Running")

    assert "allocated 50 MiB of 700 MiB visible" == await cluster.log_line("allocated", "p", "prepare")


async def test_stale_spec_of_the_same_replica_ids_is_never_used(cluster: Cluster) -> None:
    """The next Pod uses the same IDs, and the spec of the last one is gone or replaced."""
    for number, memory_mib in enumerate((1200, 1300, 1400)):
        name = f"p{number}"
        await cluster.create(a_pod(name, annotations=A100, gpu=1, gpumem=memory_mib))
        pod = await cluster.pod_in_phase(name, "Running")
        assert f"{memory_mib}m" == limit_of(cluster, pod)
        specs = sorted(cluster.cdi_folder("node-a").glob("*.json"))
        kept = {path: path.read_bytes() for path in specs}
        await cluster.delete_pod(name)
        for path, content in kept.items():
            if not path.exists():
                json.loads(content)
                path.write_bytes(content)


async def test_container_restarted_by_the_kubelet_has_the_same_share(cluster: Cluster) -> None:
    """PreStartContainer is called again with the same IDs, and finds the same owner."""
    once = "test -e /state/ran || { touch /state/ran; exit 1; }; exec gpu-hold --mib 50"
    container = a_container(command=("sh", "-c", once), gpu=1, gpumem=900)
    container["volumeMounts"] = [{"name": "state", "mountPath": "/state"}]
    volumes = {"volumes": [{"name": "state", "emptyDir": {}}]}
    await cluster.create(a_pod("p", annotations=A100, containers=[container], spec=volumes))

    await cluster.log_line("allocated", "p")

    pod = await cluster.pod_in_phase("p", "Running")
    assert 1 == pod["status"]["containerStatuses"][0]["restartCount"]
    assert "900m" == limit_of(cluster, pod)
