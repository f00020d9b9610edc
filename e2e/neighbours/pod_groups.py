"""
Kubernetes' own gangs on a real cluster: PodGroups, which kube-scheduler of 1.36 or newer places whole behind a gate.

Owns how they are switched on, made and read. Must never change a Pod of the example beyond its number and its limits.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import yaml

from controlplane.parts import DEFAULTS, Features
from hamicommon.model import Object
from harness.clusters.real import RealCluster
from neighbours.charts import example
from neighbours.objects import pods_of
from neighbours.page import Neighbour
from testbed.waiting import eventually

NEIGHBOUR = Neighbour((("PodGroups of kube-scheduler", "1.36 and newer"),), ("scheduler.kubeScheduler.extraArgs",))
FEATURES = {
    "1.36": Features(("GenericWorkload", "GangScheduling"), ("scheduling.k8s.io/v1alpha2",)),
    "1.37": Features(("GenericWorkload",), ("scheduling.k8s.io/v1beta1",)),
}
"""What each minor needs. Source: kubernetes, pkg/features/kube_features.go and pkg/controlplane/instance.go."""
WAIT_SECONDS = 60


@asynccontextmanager
async def switched_on(cluster: RealCluster) -> AsyncIterator[None]:
    """Switch PodGroups on during a block, in Kubernetes and in the chart's kube-scheduler."""
    features = FEATURES[cluster.control_plane.kubernetes]
    await asyncio.to_thread(cluster.control_plane.use, features)
    try:
        await cluster.deploy(values={"scheduler.kubeScheduler.extraArgs": list(features.flags)})
        yield
    finally:
        await asyncio.to_thread(cluster.control_plane.use, DEFAULTS)
        await cluster.deploy()


def a_gang(cluster: RealCluster, name: str, pods: int, least: int | None = None, **limits: int) -> list[Object]:
    """
    Return PodGroup and Job of the example with another name, number of Pods and limits.

    least       how many of its Pods must get a Node at once; None: all
    limits      of a Pod: `gpu=1, gpumem=3000`; a whole device by default
    """
    group, job = yaml.safe_load_all(example("pod-groups", "gang.yaml").read_text())
    [group["apiVersion"]] = FEATURES[cluster.control_plane.kubernetes].apis
    group["metadata"]["name"] = job["metadata"]["name"] = name
    group["spec"]["schedulingPolicy"]["gang"]["minCount"] = pods if least is None else least
    job["spec"] |= {"parallelism": pods, "completions": pods}
    template = job["spec"]["template"]["spec"]
    template["schedulingGroup"]["podGroupName"] = name
    if limits:
        named = {f"nvidia.com/{key}": amount for key, amount in limits.items()}
        template["containers"][0]["resources"] = {"limits": named}
    return [group, job]


async def delete(cluster: RealCluster, *gangs: str) -> None:
    """Delete the Jobs, Pods and PodGroups *gangs*, and wait until they are gone. A PodGroup outlives its Pods."""
    flags = ("--ignore-not-found", "--timeout=60s", f"--namespace={cluster.namespace}")
    for kind in ("jobs", "pods", "podgroups"):
        await asyncio.to_thread(cluster.control_plane.kubectl, "delete", kind, *gangs, *flags)


async def bound(cluster: RealCluster, gang: str) -> int:
    """Return how many Pods of a gang have a Node."""
    return sum("nodeName" in pod["spec"] for pod in await pods_of(cluster, gang))


async def running(cluster: RealCluster, gang: str, pods: int) -> list[Object]:
    """Wait until *pods* Pods of a gang run, and return them."""

    async def probe() -> list[Object] | None:
        found = [pod for pod in await pods_of(cluster, gang) if pod["status"]["phase"] == "Running"]
        return found if len(found) == pods else None

    return await eventually(probe, f"{pods} Pods of {gang} run", WAIT_SECONDS)


async def refused(cluster: RealCluster, gang: str) -> str:
    """Wait until kube-scheduler has said on its PodGroup that a gang gets no Nodes, and return what it says."""
    [api] = FEATURES[cluster.control_plane.kubernetes].apis

    async def probe() -> str | None:
        found = await cluster.api.get(f"/apis/{api}/namespaces/{cluster.namespace}/podgroups/{gang}")
        conditions = found.get("status", {}).get("conditions", ())
        return next((str(each["message"]) for each in conditions if each["status"] == "False"), None)

    return await eventually(probe, f"kube-scheduler says why {gang} waits", WAIT_SECONDS)
