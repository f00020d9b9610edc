"""
Kueue's quotas count shares, and its gates, preemption and cohorts work with them.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hamicommon.wire.pod_devices import decode_pod_devices
from harness.client import asked, asked_json
from harness.clusters.real import RealCluster
from neighbours import kueue, objects
from testbed.waiting import eventually

NEIGHBOUR = kueue.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_kueue(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with Kueue on it."""
    await real_cluster.deploy()
    await asyncio.to_thread(kueue.CHART.install, real_cluster.control_plane)
    yield real_cluster
    await asyncio.to_thread(kueue.CHART.remove, real_cluster.control_plane)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_kueue: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with the example's queues, and no Jobs after the test."""
    async with kueue.queued(with_kueue, *kueue.manifests("queues.yaml")):
        yield with_kueue


async def test_job_costs_the_amounts_of_its_shares(cluster: RealCluster) -> None:
    """An admitted Job takes the counts, the memory and the compute of all its Pods from the quota."""
    [job] = kueue.manifests("job.yaml")
    await objects.apply(cluster, job)

    workload = await kueue.admitted(cluster, "train")
    pods = await kueue.running(cluster, "train", 2)

    assert {"gpu": 2, "gpumem": 12000, "gpucores": 60} == kueue.cost(workload)
    environments = [cluster.environment(pod) for pod in pods]
    assert [("6000m", "30")] * 2 == [
        (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]) for env in environments
    ]


async def test_amount_of_each_device_counts_once_for_each(cluster: RealCluster) -> None:
    """`gpumem` and `gpucores` of a Pod with two devices are taken twice, because they are amounts of each device."""
    [pod] = kueue.manifests("pod.yaml")
    await objects.apply(cluster, pod)

    workload = await kueue.admitted(cluster, "notebook")
    await cluster.pod_in_phase("notebook", "Running", kueue.WAIT_SECONDS)

    assert {"gpu": 2, "gpumem": 16000, "gpucores": 40} == kueue.cost(workload)


async def test_job_beyond_the_quota_waits_for_another_to_end(cluster: RealCluster) -> None:
    """A Job that would pass the quota of memory makes no Pod, Kueue names the lacking amount, and it starts later."""
    await objects.apply(cluster, kueue.a_job("first", pods=2, gpu=1, gpumem=20000))
    await kueue.running(cluster, "first", 2)
    await objects.apply(cluster, kueue.a_job("second", pods=1, gpu=1, gpumem=12000))

    said = await kueue.pending(cluster, "second")
    assert "insufficient unused quota for nvidia.com/gpumem in flavor shares, 4k more needed" in said
    assert not await objects.pods_of(cluster, "second")

    await objects.delete(cluster, kueue.a_job("first"))
    await kueue.running(cluster, "second", 1)


async def test_pod_without_a_job_waits_at_a_gate_and_explain_says_why(cluster: RealCluster) -> None:
    """A plain Pod is gated, `kubectl hami explain` and `waiting` have the queue's reason, and the Pod runs later."""
    await objects.apply(cluster, kueue.a_job("first", pods=2, gpu=1, gpumem=20000))
    await kueue.running(cluster, "first", 2)
    await objects.apply(cluster, *kueue.manifests("pod.yaml"))

    said = await kueue.pending(cluster, "notebook")
    explained = await asked(cluster, "explain", "notebook", "-n", cluster.namespace)
    report = await asked_json(cluster, "explain", "notebook", "-n", cluster.namespace)
    waiting = await asked_json(cluster, "waiting", "-n", cluster.namespace)

    gates = (await cluster.pod("notebook"))["spec"]["schedulingGates"]
    assert kueue.GATE in {gate["name"] for gate in gates}
    assert ("gated", f"Kueue, queue team-a: {said}") == (report["verdict"], report["queue"])
    assert f"Kueue, queue team-a: {said}" in " ".join(explained.output.split())
    assert f"Kueue, queue team-a: {said}" in waiting["clusters"][0]["waiting"][0]["help"]["cause"]

    await objects.delete(cluster, kueue.a_job("first"))
    await cluster.pod_in_phase("notebook", "Running", kueue.WAIT_SECONDS)


async def test_group_of_pods_is_admitted_together(cluster: RealCluster) -> None:
    """Of a Pod group, no Pod starts until the quota has room for all."""
    await objects.apply(cluster, kueue.a_job("first", gpu=1, gpumem=30000))
    await kueue.running(cluster, "first", 1)
    await objects.apply(cluster, *kueue.manifests("pod-group.yaml"))

    said = await kueue.pending(cluster, "ranks")
    assert "2k more needed" in said
    for name in ("rank-0", "rank-1"):
        assert (await cluster.pod(name))["spec"]["schedulingGates"]

    await objects.delete(cluster, kueue.a_job("first"))
    for name in ("rank-0", "rank-1"):
        await cluster.pod_in_phase(name, "Running", kueue.WAIT_SECONDS)


async def test_urgent_job_evicts_a_job_of_its_queue(cluster: RealCluster) -> None:
    """A Job of a higher WorkloadPriorityClass takes the shares of one below it, which waits again."""
    await objects.apply(cluster, *kueue.manifests("priority.yaml"))
    low, high = (kueue.a_job(name, pods=2, gpu=1, gpumem=12000) for name in ("low", "high"))
    high["metadata"]["labels"][kueue.PRIORITY] = "urgent"
    other = kueue.a_job("other", queue="team-b", pods=2, gpu=1, gpumem=12000)  # or the urgent Job would borrow
    await objects.apply(cluster, low, other)
    for job in ("low", "other"):
        await kueue.running(cluster, job, 2)

    await objects.apply(cluster, high)

    await kueue.running(cluster, "high", 2)
    assert not await objects.pods_of(cluster, "low")
    assert "insufficient unused quota for nvidia.com/gpumem" in await kueue.pending(cluster, "low")


async def test_team_borrows_what_another_does_not_use_and_gives_it_back(cluster: RealCluster) -> None:
    """A queue admits more memory than its quota while its cohort has room, and the lender's Job takes it back."""
    await objects.apply(cluster, kueue.a_job("borrower", pods=2, gpu=1, gpumem=14000))
    workload = await kueue.admitted(cluster, "borrower")
    await kueue.running(cluster, "borrower", 2)
    assert {"gpu": 2, "gpumem": 28000} == kueue.cost(workload)

    await objects.apply(cluster, kueue.a_job("lender", queue="team-b", pods=2, gpu=1, gpumem=12000))

    await kueue.running(cluster, "lender", 2)
    assert not await objects.pods_of(cluster, "borrower")


async def test_job_starts_with_fewer_pods(cluster: RealCluster) -> None:
    """Partial admission starts a Job with as many Pods as the quota of memory has room for."""
    await objects.apply(cluster, kueue.a_job("wide", pods=6, least=2, gpu=1, gpumem=12000))

    workload = await kueue.admitted(cluster, "wide")

    await kueue.running(cluster, "wide", 4)
    assert {"gpu": 4, "gpumem": 48000} == kueue.cost(workload)


@pytest.mark.limit
async def test_job_beyond_the_quota_of_its_namespace_holds_that_of_its_queue(cluster: RealCluster) -> None:
    """A Job beyond the namespace's ResourceQuota makes no Pod, has an Event, and still holds its queue's quota."""
    quota = {"hard": {"limits.nvidia.com/gpumem": "10000"}}
    await cluster.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": quota})
    await objects.apply(cluster, kueue.a_job("large", gpu=1, gpumem=12000))

    async def is_rejected() -> bool:
        return any("exceeding resource quota" in event["message"] for event in await cluster.events("large"))

    await eventually(is_rejected, "an Event of the Job has the reason", kueue.WAIT_SECONDS)
    assert not await objects.pods_of(cluster, "large")
    assert {"gpu": 1, "gpumem": 12000} == kueue.cost(await kueue.admitted(cluster, "large"))


async def test_admitted_job_that_fits_no_device_is_explained(cluster: RealCluster) -> None:
    """A Pod that Kueue admits and no device has room for waits, and `explain` names the lacking memory."""
    await objects.apply(cluster, kueue.a_job("large", gpu=1, gpumem=45000))
    await kueue.admitted(cluster, "large")

    async def is_explained() -> bool:
        for pod in await objects.pods_of(cluster, "large"):
            report = await asked_json(cluster, "explain", pod["metadata"]["name"], "-n", cluster.namespace)
            return report["verdict"] == "refused" and "lack 45000 MiB" in report["summary"]
        return False

    await eventually(is_explained, "explain names the memory", kueue.WAIT_SECONDS)


@pytest.mark.limit
async def test_half_a_job_holds_its_devices_without_a_timeout(cluster: RealCluster) -> None:
    """Without `waitForPodsReady`, a Job of which four of five Pods fit holds their devices for ever."""
    await objects.apply(cluster, kueue.a_job("split", pods=5, gpu=1))
    await kueue.admitted(cluster, "split")

    async def is_half() -> bool:
        return await kueue.bound(cluster, "split") == 4

    await eventually(is_half, "four Pods have a Node", kueue.WAIT_SECONDS)
    await asyncio.sleep(20.0)
    assert await kueue.bound(cluster, "split") == 4


@pytest.mark.limit
async def test_job_without_memory_costs_a_device_alone(cluster: RealCluster) -> None:
    """A Job without `gpumem` gets whole devices, and its queue counts the devices and no memory."""
    await objects.apply(cluster, kueue.a_job("whole", gpu=1))

    workload = await kueue.admitted(cluster, "whole")
    [pod] = await kueue.running(cluster, "whole", 1)

    assert {"gpu": 1} == kueue.cost(workload)
    granted = (await cluster.pod(pod["metadata"]["name"]))["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    [device] = decode_pod_devices(granted)[0]
    assert device.memory_mib in {gpu.memory_mib for node in cluster.nodes for gpu in node.gpus}


@pytest.mark.limit
async def test_percentage_of_memory_is_in_no_quota(cluster: RealCluster) -> None:
    """A Job with `gpumem-percentage` waits for ever, because no queue counts that resource."""
    await objects.apply(cluster, kueue.a_job("half", gpu=1, gpumem_percentage=50))

    said = await kueue.pending(cluster, "half")

    assert "nvidia.com/gpumem-percentage" in said


@pytest.mark.limit
async def test_two_containers_cost_more_than_they_get(cluster: RealCluster) -> None:
    """A Pod whose two containers get 3000 MiB each costs 12000 MiB: Kueue adds all containers before it multiplies."""
    job = kueue.a_job("pair", gpu=1, gpumem=3000)
    [container] = job["spec"]["template"]["spec"]["containers"]
    job["spec"]["template"]["spec"]["containers"].append({**container, "name": "other"})
    await objects.apply(cluster, job)

    workload = await kueue.admitted(cluster, "pair")
    [pod] = await kueue.running(cluster, "pair", 1)

    assert {"gpu": 2, "gpumem": 12000} == kueue.cost(workload)
    limits = [cluster.environment(pod, name)["CUDA_DEVICE_MEMORY_LIMIT_0"] for name in ("main", "other")]
    assert ["3000m", "3000m"] == limits
