"""
Kubernetes' own gangs: PodGroups whose Pods ask for shares. The cluster has four devices, two of 40960 MiB.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.client import asked, asked_json
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from harness.manifests import SLEEP, a_pod
from neighbours import objects, pod_groups
from testbed.waiting import eventually

NEIGHBOUR = pod_groups.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]
SOON_SECONDS = 10.0
"""A gang that is given up holds nothing after a second. The rest is for a busy machine."""
OBSERVED_SECONDS = 8.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_gangs(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster, whose kube-scheduler places PodGroups."""
    if real_cluster.control_plane.kubernetes not in pod_groups.FEATURES:
        pytest.skip("kube-scheduler places Pods with `schedulingGroup` since Kubernetes 1.36")
    async with pod_groups.switched_on(real_cluster):
        yield real_cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_gangs: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, and no gangs after the test."""
    async with own_namespace(with_gangs):
        yield with_gangs
        await pod_groups.delete(with_gangs, "--all")


async def never_bound(cluster: RealCluster, gang: str, seconds: float = OBSERVED_SECONDS) -> None:
    """Check for *seconds* that no Pod of *gang* has a Node."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert await pod_groups.bound(cluster, gang) == 0
        await asyncio.sleep(0.2)


async def test_gang_that_fits_runs_whole(cluster: RealCluster) -> None:
    """A gang of three whole devices gets three of four, and every Pod of it runs."""
    await objects.apply(cluster, *pod_groups.a_gang(cluster, "ranks", 3))

    await pod_groups.running(cluster, "ranks", 3)


async def test_gang_that_does_not_fit_holds_nothing(cluster: RealCluster) -> None:
    """Of a gang of five on four devices no Pod is bound, and another Pod gets a device within 10 s."""
    await objects.apply(cluster, *pod_groups.a_gang(cluster, "large", 5))
    await pod_groups.refused(cluster, "large")

    await cluster.create(a_pod("lone", command=SLEEP, gpu=1))

    await cluster.pod_in_phase("lone", "Running", SOON_SECONDS + 10.0)
    await never_bound(cluster, "large")


async def test_two_gangs_beyond_the_devices_take_turns(cluster: RealCluster) -> None:
    """Of two gangs of three, created at once for four devices, one runs whole, and the other when it has ended."""
    gangs = [pod_groups.a_gang(cluster, name, 3) for name in ("red", "blue")]
    await objects.apply(cluster, *gangs[0], *gangs[1])

    async def first() -> str | None:
        counts = {name: await pod_groups.bound(cluster, name) for name in ("red", "blue")}
        return next((name for name, count in counts.items() if count == 3), None)

    runs = await eventually(first, "one gang is bound whole", pod_groups.WAIT_SECONDS)
    waits = "blue" if runs == "red" else "red"
    await never_bound(cluster, waits)
    await pod_groups.running(cluster, runs, 3)

    await pod_groups.delete(cluster, runs)
    await pod_groups.running(cluster, waits, 3)


async def test_gang_that_never_fits_starves_no_smaller_one(cluster: RealCluster) -> None:
    """A gang of three runs beside an older one of five, while Pods come and go and wake both."""
    await objects.apply(cluster, *pod_groups.a_gang(cluster, "large", 5))
    await pod_groups.refused(cluster, "large")
    await cluster.create(a_pod("lone", command=SLEEP, gpu=1))
    await cluster.pod_in_phase("lone", "Running", SOON_SECONDS + 10.0)

    async def churn() -> None:
        for number in range(1000):
            await cluster.create(a_pod(f"visitor-{number}", command=("true",), spec={"restartPolicy": "Never"}))
            await asyncio.sleep(0.3)

    visitors = asyncio.create_task(churn())
    try:
        await objects.apply(cluster, *pod_groups.a_gang(cluster, "small", 3))
        await pod_groups.running(cluster, "small", 3)
    finally:
        visitors.cancel()
    assert await pod_groups.bound(cluster, "large") == 0


async def test_gang_runs_with_its_least(cluster: RealCluster) -> None:
    """A gang of five that needs three runs with four on four devices, and the fifth follows when one is free."""
    await objects.apply(cluster, *pod_groups.a_gang(cluster, "elastic", 5, least=3))
    await pod_groups.running(cluster, "elastic", 4)

    [ended, *_] = await pod_groups.running(cluster, "elastic", 4)
    await cluster.delete_pod(ended["metadata"]["name"])

    await pod_groups.running(cluster, "elastic", 4)


async def test_gang_whose_devices_are_fragmented_waits_whole(cluster: RealCluster) -> None:
    """Three Pods of 30000 MiB fit no three devices: none is bound, and `explain` and `waiting` name the third."""
    await objects.apply(cluster, *pod_groups.a_gang(cluster, "split", 3, gpu=1, gpumem=30000))
    await pod_groups.refused(cluster, "split")
    await never_bound(cluster, "split", 3.0)
    pods = sorted(await objects.pods_of(cluster, "split"), key=lambda pod: str(pod["metadata"]["name"]))
    names = [pod["metadata"]["name"] for pod in pods]

    reports = {name: await asked_json(cluster, "explain", name, "-n", cluster.namespace) for name in names}
    waiting = await asked(cluster, "waiting", "-n", cluster.namespace, "-o", "json")

    said = {report["gang"] for report in reports.values()}
    [sentence] = said
    assert sentence.startswith("gang split (PodGroup): 3 Pods, 0 have a node, 3 wait; ")
    [misfit] = [name for name in names if f"{name} fits nowhere beside the others" in sentence]
    assert "lack 30000 MiB" in sentence
    assert {"gang"} == {report["verdict"] for name, report in reports.items() if name != misfit}
    assert sentence in waiting.output


async def test_gang_that_kube_scheduler_ranks_is_bound_whole(cluster: RealCluster) -> None:
    """With `scheduler.prioritizeWeight`, too, no Pod of a gang of five is bound on four devices."""
    [flag] = pod_groups.FEATURES[cluster.control_plane.kubernetes].flags
    values = {"scheduler.kubeScheduler.extraArgs": [flag]}
    await cluster.deploy(values={**values, "scheduler.prioritizeWeight": 1})
    try:
        await objects.apply(cluster, *pod_groups.a_gang(cluster, "large", 5))
        await pod_groups.refused(cluster, "large")
        await never_bound(cluster, "large")
    finally:
        await cluster.deploy(values=values)


@pytest.mark.limit
async def test_member_without_devices_needs_the_name_of_our_scheduler(cluster: RealCluster) -> None:
    """A gang with a Pod without devices is not bound unless that Pod has `schedulerName: hami-scheduler` itself."""
    for gang, name in (("mixed", {}), ("named", {"schedulerName": "hami-scheduler"})):
        [group, _] = pod_groups.a_gang(cluster, gang, 2)
        await objects.apply(cluster, group)
        spec = {"schedulingGroup": {"podGroupName": gang}}
        await cluster.create(a_pod(f"{gang}-worker", command=SLEEP, gpu=1, spec=spec))
        await cluster.create(a_pod(f"{gang}-launcher", command=SLEEP, spec={**spec, **name}))

    for pod in ("named-worker", "named-launcher"):
        await cluster.pod_in_phase(pod, "Running", pod_groups.WAIT_SECONDS)
    for pod in ("mixed-worker", "mixed-launcher"):
        assert "nodeName" not in (await cluster.pod(pod))["spec"]
