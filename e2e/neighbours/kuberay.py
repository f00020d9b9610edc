"""
KubeRay's operator beside a real cluster, and Ray in its Pods.

Owns how RayClusters are made and read. The operator asks Ray through the API server's proxy, because this machine is
not in the Pod network. Its webhook, which only validates, is off, as by default.
Must never change what a worker of the example asks for, unless a test says so.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import yaml

from controlplane.programs.build import made
from hamicommon.model import Object
from harness.clusters import names
from harness.clusters.real import RealCluster
from neighbours import ray_image
from neighbours.beside import beside
from neighbours.charts import example
from neighbours.objects import pods_with
from neighbours.page import Neighbour
from neighbours.programs import KUBERAY, KUBERAY_MODULE, KUBERAY_VERSION, module_folder
from testbed.ports import free_port
from testbed.waiting import eventually

NEIGHBOUR = Neighbour((("KubeRay", KUBERAY_VERSION), ("Ray", ray_image.VERSION)), ())
API = "/apis/ray.io/v1"
HEAD, WORKER = "ray-head", "ray-worker"
"""The containers of the example."""
TYPE = "ray.io/node-type"
WAIT_SECONDS = 240
"""Ray needs half a minute to start on an idle machine of two cores."""


@asynccontextmanager
async def running(cluster: RealCluster) -> AsyncIterator[None]:
    """Run the operator during a block, with a name server, by which workers find their head."""
    program = await asyncio.to_thread(made, KUBERAY, print) / "ray-operator"
    module = await asyncio.to_thread(module_folder, KUBERAY_MODULE)
    await asyncio.to_thread(cluster.control_plane.load_image, await asyncio.to_thread(ray_image.archive))
    flags = (
        "--enable-leader-election=false",
        f"--metrics-addr=127.0.0.1:{free_port()}",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        "--use-kubernetes-proxy=true",
    )
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    async with (
        names.served(cluster.control_plane),
        beside(cluster, [str(program), *flags], [module / "config/crd/bases"], environment),
    ):
        yield


def a_cluster(name: str, workers: int = 1, limits: Mapping[str, int] | None = None, *, scales: bool = False) -> Object:
    """
    Return the RayCluster of the example with another name and number of workers.

    limits      of a worker, without `nvidia.com/` in the names; None: those of the example
    scales      whether Ray's autoscaler runs
    """
    manifest: Object
    [manifest] = yaml.safe_load_all(example("kuberay", "cluster.yaml").read_text())
    manifest["metadata"]["name"] = name
    manifest["spec"]["enableInTreeAutoscaling"] = scales
    [group] = manifest["spec"]["workerGroupSpecs"]
    group["replicas"] = workers
    if limits:
        named = {f"nvidia.com/{resource}": amount for resource, amount in limits.items()}
        group["template"]["spec"]["containers"][0]["resources"]["limits"] = named
    return manifest


async def change(cluster: RealCluster, name: str, replicas: int, delete: Sequence[str] = ()) -> None:
    """Write the number of workers, and which to delete, as Ray's autoscaler does."""
    path = f"{API}/namespaces/{cluster.namespace}/rayclusters/{name}"
    [group] = (await cluster.api.get(path))["spec"]["workerGroupSpecs"]
    group |= {"replicas": replicas, "scaleStrategy": {"workersToDelete": list(delete)}}
    await cluster.api.patch(path, {"spec": {"workerGroupSpecs": [group]}})


async def pods_of(cluster: RealCluster, name: str, kind: str = "worker") -> list[Object]:
    """Return the Pods of a RayCluster that are not being deleted. *kind* is `head` or `worker`."""
    return await pods_with(cluster, f"ray.io/cluster={name},{TYPE}={kind}")


async def running_workers(cluster: RealCluster, name: str, count: int) -> list[Object]:
    """Wait until *count* workers are ready, and no others exist but Pods without a Node, and return them."""

    async def probe() -> list[Object] | None:
        found = [pod for pod in await pods_of(cluster, name) if pod["spec"].get("nodeName")]
        return found if len(found) == count and all(map(_is_ready, found)) else None

    return await eventually(probe, f"{count} workers of {name} are ready", WAIT_SECONDS)


async def ready_head(cluster: RealCluster, name: str) -> str:
    """Wait until the head is ready, and return the name of its Pod."""

    async def probe() -> str | None:
        found = await pods_of(cluster, name, "head")
        return found[0]["metadata"]["name"] if found and _is_ready(found[0]) else None

    return await eventually(probe, f"the head of {name} is ready", WAIT_SECONDS)


async def waiting_worker(cluster: RealCluster, name: str) -> str:
    """Wait until a worker has no Node, and return the name of its Pod."""

    async def probe() -> str | None:
        found = [pod for pod in await pods_of(cluster, name) if not pod["spec"].get("nodeName")]
        return found[0]["metadata"]["name"] if len(found) == 1 else None

    return await eventually(probe, f"a worker of {name} waits", WAIT_SECONDS)


async def driven(cluster: RealCluster, name: str, program: str) -> str:
    """Run a Ray *program* in the head of a RayCluster, and return the last line that it prints."""
    head = await ready_head(cluster, name)
    command = ("exec", head, f"--namespace={cluster.namespace}", f"--container={HEAD}", "--", "python", "-c", program)
    return (await asyncio.to_thread(cluster.control_plane.kubectl, *command)).splitlines()[-1]


async def nothing_left(cluster: RealCluster) -> None:
    """Delete all RayJobs and RayClusters of the cluster's namespace, and wait until they are gone."""
    for kinds in ("rayjobs", "rayclusters"):
        flags = ("--all", "--timeout=60s", f"--namespace={cluster.namespace}")
        await asyncio.to_thread(cluster.control_plane.kubectl, "delete", kinds, *flags)


def _is_ready(pod: Any) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
