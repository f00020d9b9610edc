"""
Ray's workers on shares: what each gets, how Ray's autoscaler adds and removes them, and what waits.
"""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from harness.client import asked_json, until_explained
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from neighbours import kuberay
from neighbours.charts import example
from neighbours.objects import apply
from testbed.waiting import NotInTimeError, eventually

NEIGHBOUR = kuberay.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]
HALF = {"gpu": 1, "gpumem": 30000, "gpucores": 30}
"""One such worker fits each of the two devices with 40960 MiB, and none fits the two with 16384."""
TASK = """
import os, ray
ray.init(address="auto", log_to_driver=False)
@ray.remote(num_gpus={gpus})
def task(number):
    import time, pynvml
    pynvml.nvmlInit()
    time.sleep({seconds})
    total = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total
    return ray.util.get_node_ip_address(), total >> 20
import json
print(json.dumps(ray.get([task.remote(number) for number in range({count})])))
"""
"""Runs tasks at the same time, and prints for each the address of its worker and the memory in MiB that NVML shows."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_kuberay(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with KubeRay's operator."""
    await real_cluster.deploy()
    async with kuberay.running(real_cluster):
        yield real_cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_kuberay: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with no RayCluster and no RayJob after the test."""
    async with own_namespace(with_kuberay):
        yield with_kuberay
        await kuberay.nothing_left(with_kuberay)


async def test_worker_has_its_share_and_ray_counts_it_as_a_gpu(cluster: RealCluster) -> None:
    """Each worker has exactly its share, the head has none, and a task with `num_gpus=1` sees the share's memory."""
    await apply(cluster, kuberay.a_cluster("a", workers=2))
    workers = await kuberay.running_workers(cluster, "a", 2)

    [head] = await kuberay.pods_of(cluster, "a", "head")
    answers = json.loads(await kuberay.driven(cluster, "a", TASK.format(gpus=1, seconds=5, count=2)))

    assert [["12000m 30"]] * 2 == [cluster.shares_in(pod, kuberay.WORKER) for pod in workers]
    assert not cluster.shares_in(head, kuberay.HEAD)
    assert {(pod["status"]["podIP"], 12000) for pod in workers} == set(map(tuple, answers))


async def test_autoscaler_adds_workers_for_tasks_and_removes_idle_ones(cluster: RealCluster) -> None:
    """Ray's autoscaler adds a worker with its share for each task that needs one, and removes them when they idle."""
    await apply(cluster, kuberay.a_cluster("a", workers=0, scales=True))

    answers = json.loads(await kuberay.driven(cluster, "a", TASK.format(gpus=1, seconds=30, count=2)))

    assert [12000, 12000] == [mib for _, mib in answers]
    assert 2 == len({worker for worker, _ in answers})

    async def is_empty() -> bool:
        return not await kuberay.pods_of(cluster, "a")

    await eventually(is_empty, "the autoscaler removes the idle workers", kuberay.WAIT_SECONDS)


async def test_fractions_of_a_gpu_are_tasks_in_one_share(cluster: RealCluster) -> None:
    """Two tasks with `num_gpus=0.5` run in one worker, and both have its one share."""
    await apply(cluster, kuberay.a_cluster("a", workers=1))
    [worker] = await kuberay.running_workers(cluster, "a", 1)

    answers = json.loads(await kuberay.driven(cluster, "a", TASK.format(gpus=0.5, seconds=5, count=2)))

    assert [[worker["status"]["podIP"], 12000]] * 2 == answers


async def test_worker_beyond_the_cards_waits_until_another_is_removed(cluster: RealCluster) -> None:
    """With full cards the next worker waits, `explain` names the memory, and it gets the share of a removed one."""
    await apply(cluster, kuberay.a_cluster("a", workers=3, limits=HALF))
    first, second = await kuberay.running_workers(cluster, "a", 2)
    waiting = await kuberay.waiting_worker(cluster, "a")
    await until_explained(cluster, waiting)
    report = await asked_json(cluster, "explain", waiting, "-n", cluster.namespace)

    await kuberay.change(cluster, "a", replicas=2, delete=[first["metadata"]["name"]])

    workers = await kuberay.running_workers(cluster, "a", 2)
    assert (report["verdict"], "30000 MiB" in report["summary"]) == ("refused", True)
    assert {second["metadata"]["name"], waiting} == {pod["metadata"]["name"] for pod in workers}
    assert [["30000m 30"]] * 2 == [cluster.shares_in(pod, kuberay.WORKER) for pod in workers]


async def test_deleted_worker_comes_back(cluster: RealCluster) -> None:
    """A worker that is deleted comes back as another Pod with the same share."""
    await apply(cluster, kuberay.a_cluster("a", workers=1, limits=HALF))
    [worker] = await kuberay.running_workers(cluster, "a", 1)
    await cluster.delete_pod(worker["metadata"]["name"])

    async def is_another() -> bool:
        pods = await kuberay.pods_of(cluster, "a")
        return any(pod["metadata"]["uid"] != worker["metadata"]["uid"] for pod in pods)

    await eventually(is_another, "KubeRay makes another worker", kuberay.WAIT_SECONDS)
    [other] = await kuberay.running_workers(cluster, "a", 1)
    assert ["30000m 30"] == cluster.shares_in(other, kuberay.WORKER)


async def test_job_runs_on_shares_and_frees_them(cluster: RealCluster) -> None:
    """A RayJob runs its tasks on shares, and its workers are gone when it has ended."""
    [job] = yaml.safe_load_all(example("kuberay", "job.yaml").read_text())
    await apply(cluster, job)
    path = f"{kuberay.API}/namespaces/{cluster.namespace}/rayjobs/{job['metadata']['name']}"

    async def has_ended() -> bool:
        status = (await cluster.api.get(path)).get("status", {})
        if status.get("jobStatus") in ("FAILED", "STOPPED"):
            raise NotInTimeError(f"the RayJob ended with {status}")
        return bool(status.get("jobStatus") == "SUCCEEDED")

    await eventually(has_ended, "the RayJob succeeds", 2 * kuberay.WAIT_SECONDS)

    async def are_gone() -> bool:
        pods, _ = await cluster.api.list(
            f"/api/v1/namespaces/{cluster.namespace}/pods", labelSelector=f"{kuberay.TYPE}=worker"
        )
        return not pods

    await eventually(are_gone, "the workers of the RayJob are gone", kuberay.WAIT_SECONDS)
