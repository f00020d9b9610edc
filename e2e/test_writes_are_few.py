"""
Placing a Pod costs the API server little: one Binding, one phase patch, one Event, and no write to any Node.
"""

import asyncio

from cluster import Cluster
from manifests import SLEEP, a_pod

PODS = 8


async def test_placed_pod_costs_one_binding_one_patch_and_one_event(cluster: Cluster) -> None:
    """Counted at the API server, for the writes of the scheduler and the device plugins."""
    await asyncio.sleep(0.5)
    await cluster.api.request("DELETE", "/minicluster/requests")
    names = [f"p{number}" for number in range(PODS)]

    for name in names:
        await cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=1000))
    for name in names:
        await cluster.pod_in_phase(name, "Running")

    counts = await cluster.api.get("/minicluster/requests")
    writes = {
        (row["user_agent"].split("/")[0], row["verb"], row["resource"]): row["count"]
        for row in counts
        if row["user_agent"].startswith("hami-") and row["verb"] not in {"GET", "LIST", "WATCH"}
    }
    assert {
        ("hami-scheduler", "POST", "pods/binding"): PODS,
        ("hami-scheduler", "POST", "events"): PODS,
        ("hami-device-plugin", "PATCH", "pods"): PODS,
    } == writes
