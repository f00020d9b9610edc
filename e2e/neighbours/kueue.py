"""
Kueue on a real cluster, installed by its chart with the values of `examples/neighbours/kueue`.

Owns how its objects are made and read. Must never change a quota of an example.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import yaml

from hamicommon.model import Object
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from neighbours.charts import Charted, example
from neighbours.objects import apply, delete, pods_of, pods_with
from neighbours.page import Neighbour
from neighbours.programs import KUEUE, KUEUE_MODULE, KUEUE_VERSION
from testbed.waiting import eventually

NEIGHBOUR = Neighbour((("Kueue", KUEUE_VERSION),), ())
CHART = Charted(
    name="kueue",
    product=KUEUE,
    program="/manager",
    module=KUEUE_MODULE,
    chart="charts/kueue",
    namespace="kueue-system",
    values={
        "controllerManager.manager.image.repository": "{image}",
        "controllerManager.manager.image.tag": "{tag}",
        "controllerManager.manager.image.pullPolicy": "IfNotPresent",
        # The chart asks for a user that is not root, and leaves its number to the image.
        "controllerManager.manager.podSecurityContext.runAsUser": "65532",
    },
)
API = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
GATE = "kueue.x-k8s.io/admission"
GROUP = "kueue.x-k8s.io/pod-group-name"
WAIT_SECONDS = 60


def manifests(file: str) -> list[Object]:
    """Return the objects of a manifest of the example."""
    return list(yaml.safe_load_all(example("kueue", file).read_text()))


def a_job(name: str, queue: str = "team-a", pods: int = 1, least: int | None = None, **limits: int) -> Object:
    """
    Return a Job of the example with another name, queue, number of Pods and limits.

    least       the number of Pods with which it starts if its queue has no room for all; None: only with all
    limits      of a Pod: `gpu=1, gpumem_percentage=50`
    """
    [job] = manifests("job.yaml")
    job["metadata"] |= {"name": name, "labels": {QUEUE: queue}}
    if least is not None:
        job["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": str(least)}
    job["spec"] |= {"parallelism": pods, "completions": pods}
    if limits:
        named = {f"nvidia.com/{key.replace('_', '-')}": amount for key, amount in limits.items()}
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": named}
    return job


def a_group(name: str, pods: int, **limits: int) -> list[Object]:
    """Return a Pod group of the example with another name, number of Pods and limits, in the queue `gangs`."""
    found = []
    for number in range(pods):
        [pod, _] = manifests("pod-group.yaml")
        pod["metadata"] |= {
            "name": f"{name}-{number}",
            "labels": {QUEUE: "gangs", GROUP: name},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(pods)},
        }
        named = {f"nvidia.com/{key}": amount for key, amount in limits.items()}
        pod["spec"]["containers"][0]["resources"] = {"limits": named}
        found.append(pod)
    return found


async def members(cluster: RealCluster, gang: str) -> list[Object]:
    """Return the Pods of a Pod group or of a Job that are not being deleted."""
    return [*await pods_with(cluster, f"{GROUP}={gang}"), *await pods_of(cluster, gang)]


async def bound(cluster: RealCluster, gang: str) -> int:
    """Return how many Pods of a Pod group or of a Job have a Node and are not being deleted."""
    return sum("nodeName" in pod["spec"] for pod in await members(cluster, gang))


@asynccontextmanager
async def queued(cluster: RealCluster, *queues: Object) -> AsyncIterator[None]:
    """Use a namespace with *queues* during a block. Afterwards none of its Jobs and Pods is left, and no queue."""
    async with own_namespace(cluster):
        await apply(cluster, *queues)
        yield
        # A Pod of a group has a finalizer until its Workload is gone.
        for kinds in ("jobs,workloads", "pods"):
            flags = ("--all", "--timeout=60s", f"--namespace={cluster.namespace}")
            await asyncio.to_thread(cluster.control_plane.kubectl, "delete", kinds, *flags)
        await delete(cluster, *reversed(queues))


async def workload_of(cluster: RealCluster, owner: str) -> Object | None:
    """Return the Workload of a Job, a Pod or a group of Pods, None if there is none yet."""
    workloads, _ = await cluster.api.list(f"{API}/namespaces/{cluster.namespace}/workloads")
    return next((each for each in workloads if _is_of(each, owner)), None)


def _is_of(workload: Object, owner: str) -> bool:
    metadata = workload["metadata"]
    return metadata["name"] == owner or owner in {each["name"] for each in metadata.get("ownerReferences", ())}


def condition(workload: Object | None, kind: str) -> Mapping[str, Any]:
    """Return the condition *kind*, empty if there is none."""
    found = (workload or {}).get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == kind), {})


async def admitted(cluster: RealCluster, owner: str) -> Object:
    """Wait until the Workload of *owner* is admitted, and return it."""

    async def probe() -> Object | None:
        workload = await workload_of(cluster, owner)
        return workload if condition(workload, "Admitted").get("status") == "True" else None

    return await eventually(probe, f"Kueue admits {owner}", WAIT_SECONDS)


async def pending(cluster: RealCluster, owner: str) -> str:
    """Wait until Kueue has said why the Workload of *owner* has no quota, and return what it says."""

    async def probe() -> str | None:
        reserved = condition(await workload_of(cluster, owner), "QuotaReserved")
        return str(reserved["message"]) if reserved.get("status") == "False" else None

    return await eventually(probe, f"Kueue says why {owner} is pending", WAIT_SECONDS)


def cost(workload: Object) -> dict[str, int]:
    """Return what an admitted Workload takes of its quota, over all its Pods, without `nvidia.com/` in the names."""
    usages = [each.get("resourceUsage", {}) for each in workload["status"]["admission"]["podSetAssignments"]]
    total: Counter[str] = Counter()
    for usage in usages:
        total.update({name.removeprefix("nvidia.com/"): _number(amount) for name, amount in usage.items()})
    return dict(total)


def _number(amount: str) -> int:
    """Return a quantity as a number: `6k` is 6000."""
    return int(amount.removesuffix("k")) * (1000 if amount.endswith("k") else 1)


async def running(cluster: RealCluster, job: str, pods: int) -> list[Object]:
    """Wait until *pods* Pods of a Job run and no others exist, and return them."""

    async def probe() -> list[Object] | None:
        found = await pods_of(cluster, job)
        return found if len(found) == pods and all(pod["status"]["phase"] == "Running" for pod in found) else None

    return await eventually(probe, f"{pods} Pods of Job {job} run", WAIT_SECONDS)
