"""
`kubectl hami top` shows what the Pods of a cluster were granted and use.
"""

from typing import Any

import pytest

from harness.client import asked_by_kubectl, asked_json
from harness.cluster import ROOT, Cluster
from testbed.waiting import eventually

MANIFEST = ROOT / "examples/share/share-a-gpu/pods.yaml"


def shares_of(answer: Any, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the shares of a namespace in the answer of `top`, by Pod."""
    [cluster] = answer["clusters"]
    return {
        share["pod"]: share
        for node in cluster["nodes"]
        for device in node["devices"]
        for share in device["shares"]
        if share["namespace"] == namespace
    }


@pytest.mark.usefixtures("kubectl")
async def test_kubectl_finds_the_command(cluster: Cluster) -> None:
    """It hands everything on, the exit code too."""
    answer = await asked_by_kubectl(cluster, "top", "nodes")

    assert {node.name for node in cluster.nodes} <= {line.split()[0] for line in answer.output.splitlines()}
    assert 2 == (await asked_by_kubectl(cluster, "explain", "nobody")).code


async def test_top_shows_what_each_pod_was_granted_and_uses(cluster: Cluster) -> None:
    """Granted is the Pods' own, and use comes from the monitors, through the API server alone."""
    for pod in await cluster.apply(MANIFEST):
        await cluster.pod_in_phase(pod["metadata"]["name"], "Running")

    async def is_measured() -> dict[str, dict[str, Any]]:
        found = shares_of(await asked_json(cluster, "top"), cluster.namespace)
        return found if len(found) == 3 and all(share["usedMemoryMib"] for share in found.values()) else {}

    shares = await eventually(is_measured, "top shows the use of all three Pods", 30)

    assert {(3000, 25, 3000)} == {
        (share["memoryMib"], share["corePercent"], share["limitMemoryMib"]) for share in shares.values()
    }
    assert 2000 <= shares["share-1"]["usedMemoryMib"] <= 3000
