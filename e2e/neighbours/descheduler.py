"""
The descheduler on a real cluster, installed by its chart, with a short interval.

Owns how its rounds are counted. Must never change a plugin of a profile.
"""

import asyncio

from harness.clusters.real import RealCluster
from neighbours.charts import Charted
from neighbours.page import Neighbour
from neighbours.programs import DESCHEDULER, DESCHEDULER_MODULE, DESCHEDULER_VERSION
from testbed.waiting import eventually

NEIGHBOUR = Neighbour((("descheduler", DESCHEDULER_VERSION),), ())
CHART = Charted(
    name="descheduler",
    product=DESCHEDULER,
    program="/bin/descheduler",
    module=DESCHEDULER_MODULE,
    chart="charts/descheduler",
    namespace="kube-system",
    values={
        "image.repository": "{image}",
        "image.tag": "{tag}",
        # A CronJob would run every two minutes.
        "kind": "Deployment",
        "deschedulingInterval": "5s",
    },
)
ROUND = "Number of evictions/requests"
"""Its log has a line with this after each round."""
WAIT_SECONDS = 90


async def rounds(cluster: RealCluster, count: int) -> None:
    """Wait until the running descheduler has done *count* more rounds."""

    async def done() -> int:
        log = await asyncio.to_thread(
            cluster.control_plane.kubectl, "logs", "deployment/descheduler", f"--namespace={CHART.namespace}"
        )
        return log.count(ROUND)

    begun = await done()

    async def is_done() -> bool:
        return await done() >= begun + count

    await eventually(is_done, f"the descheduler does {count} rounds", WAIT_SECONDS)


async def residents(cluster: RealCluster) -> dict[str, str]:
    """Return the UIDs of all Pods but the descheduler's own, by namespace and name."""
    pods, _ = await cluster.api.list("/api/v1/pods")
    return {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["metadata"]["uid"]
        for pod in pods
        if pod["metadata"]["namespace"] != CHART.namespace
    }
