"""
Forty Pods at once on one Node of eight devices all run, each with its share, without a lock.
"""

import asyncio
import time
from collections.abc import Callable

from harness.cluster import ClusterOf, Settings
from harness.invariants import check
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import FakeNode

PODS = 40
EIGHT_DEVICES = (FakeNode.of("big", "NVIDIA H100 80GB HBM3", 81559, 8),)


async def test_forty_pods_at_once_on_one_node_all_run(
    cluster_of: ClusterOf, record_property: Callable[[str, object], None]
) -> None:
    """Forty Pods created together are all Running with exact shares, and no Pod met a lock."""
    names = [f"p{number:02d}" for number in range(PODS)]
    async with cluster_of(EIGHT_DEVICES, Settings()) as cluster:
        await asyncio.gather(
            *(cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=8000, gpucores=10)) for name in names)
        )
        created = time.monotonic()

        for name in names:
            await cluster.pod_in_phase(name, "Running", timeout_seconds=60)

        record_property("seconds_to_all_running", round(time.monotonic() - created, 2))
        failures = [
            event["message"]
            for name in names
            for event in await cluster.events(name)
            if event["reason"] in {"BindingFailed", "UnexpectedAdmissionError"}
        ]
        assert [] == failures
        await check(cluster)
