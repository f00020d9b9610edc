"""
Kueue admits gangs whole, and takes back what half a gang holds. The cluster has four devices, two of 40960 MiB.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.client import asked_json
from harness.clusters.real import RealCluster
from harness.manifests import SLEEP, a_pod
from neighbours import kueue, objects
from neighbours.charts import example
from testbed.waiting import eventually

NEIGHBOUR = kueue.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]
TIMEOUT_SECONDS = 60
"""How long half a gang may hold devices here. The example has five minutes, as images must be pulled."""
SHORTER = {"timeout: 5m": f"timeout: {TIMEOUT_SECONDS}s", "backoffBaseSeconds: 60": "backoffBaseSeconds: 2"}
SLACK_SECONDS = 30.0
"""What Kueue and the kubelets take to end Pods on a busy machine."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_kueue(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealCluster]:
    """The real cluster with Kueue, which waits for the Pods of a gang, with shorter times."""
    await real_cluster.deploy()
    values = tmp_path_factory.mktemp("kueue") / "values.yaml"
    await asyncio.to_thread(write_shorter, values)
    await asyncio.to_thread(kueue.CHART.install, real_cluster.control_plane, str(values))
    yield real_cluster
    await asyncio.to_thread(kueue.CHART.remove, real_cluster.control_plane)


def write_shorter(path: Path) -> None:
    """Write the values of the example with shorter times."""
    text = example("kueue", "gangs-values.yaml").read_text()
    for long, short in SHORTER.items():
        assert long in text
        text = text.replace(long, short)
    path.write_text(text)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_kueue: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with the example's queue of all devices."""
    async with kueue.queued(with_kueue, *kueue.manifests("gangs.yaml")):
        yield with_kueue


async def all_bound(cluster: RealCluster, gang: str, pods: int, seconds: float = kueue.WAIT_SECONDS) -> None:
    """Wait until *pods* Pods of a gang have a Node."""

    async def probe() -> bool:
        return await kueue.bound(cluster, gang) == pods

    await eventually(probe, f"{pods} Pods of {gang} have a Node", seconds)


async def test_two_groups_beyond_the_devices_take_turns(cluster: RealCluster) -> None:
    """Of two Pod groups that each need three of four devices, one waits whole until the other has ended."""
    red, blue = (kueue.a_group(name, 3, gpu=1, gpumem=16000, gpucores=100) for name in ("red", "blue"))
    for pod in red:
        pod["spec"] |= {"restartPolicy": "Never"}
        pod["spec"]["containers"][0]["command"] = ["sleep", "60"]
    await objects.apply(cluster, *red)
    await all_bound(cluster, "red", 3)
    await objects.apply(cluster, *blue)

    said = await kueue.pending(cluster, "blue")
    report = await asked_json(cluster, "explain", "blue-0", "-n", cluster.namespace)
    assert "2 more needed" in said
    assert ("gated", f"Kueue, queue gangs: {said}") == (report["verdict"], report["queue"])
    assert "gang blue (Kueue Pod group): 3 of 3 Pods exist, 0 have a node, 3 wait" == report["gang"]
    assert await kueue.bound(cluster, "blue") == 0

    await all_bound(cluster, "blue", 3, 120)


async def test_half_a_group_gives_its_devices_back(cluster: RealCluster) -> None:
    """An admitted Pod group of which two of three Pods fit is deleted after `waitForPodsReady.timeout`."""
    await objects.apply(cluster, *kueue.a_group("split", 3, gpu=1, gpumem=30000))
    await all_bound(cluster, "split", 2)
    half, [waits] = (
        time.monotonic(),
        [pod["metadata"]["name"] for pod in await kueue.members(cluster, "split") if "nodeName" not in pod["spec"]],
    )
    report = await asked_json(cluster, "explain", waits, "-n", cluster.namespace)
    assert f"3 of 3 Pods exist, 2 have a node, 1 wait; {waits} fits nowhere beside the others" in report["gang"]

    async def is_free() -> bool:
        return await kueue.bound(cluster, "split") == 0

    await eventually(is_free, "half of the group is gone", TIMEOUT_SECONDS + SLACK_SECONDS)
    assert time.monotonic() - half > TIMEOUT_SECONDS - SLACK_SECONDS / 2
    await cluster.create(a_pod("lone", command=SLEEP, gpu=1, gpumem=40000))
    await cluster.pod_in_phase("lone", "Running", SLACK_SECONDS)


async def test_two_admitted_jobs_do_not_hold_half_each(cluster: RealCluster) -> None:
    """Two Jobs of two Pods, created at once for the two devices large enough, run whole one after the other."""
    jobs = {name: kueue.a_job(name, queue="gangs", pods=2, gpu=1, gpumem=30000) for name in ("red", "blue")}
    await objects.apply(cluster, *jobs.values())

    async def first() -> str | None:
        for name in jobs:
            if await kueue.bound(cluster, name) == 2:
                return name
        return None

    runs = await eventually(first, "one Job runs whole", kueue.WAIT_SECONDS)
    waits = "blue" if runs == "red" else "red"
    assert await kueue.bound(cluster, waits) == 0
    await kueue.running(cluster, runs, 2)

    await objects.delete(cluster, jobs[runs])
    await all_bound(cluster, waits, 2)
