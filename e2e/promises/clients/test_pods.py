"""
`kubectl hami pods` shows who is on a card, and its lines move them away; labels narrow; TAB knows what the cluster has.
"""

from typing import Any

import pytest

from harness.client import asked, asked_json, at_shell
from harness.cluster import Cluster
from harness.manifests import a_pod
from testbed.waiting import eventually


async def running(cluster: Cluster, name: str, **labels: str) -> None:
    """Create a Pod with a small share, and wait until it runs."""
    pod = a_pod(name, gpu=1, gpumem=1000)
    pod["metadata"]["labels"] = labels
    await cluster.create(pod)
    await cluster.pod_in_phase(name, "Running")


async def place_of(cluster: Cluster, pod: str) -> str:
    """Return the UUID of the device on which *pod* is."""

    def devices(answer: Any) -> list[str]:
        [found] = answer["clusters"]
        return [
            device["id"]
            for node in found["nodes"]
            for device in node["devices"]
            if (cluster.namespace, pod) in {(share["namespace"], share["pod"]) for share in device["shares"]}
        ]

    [uuid] = devices(await asked_json(cluster, "top"))
    return uuid


@pytest.mark.usefixtures("kubectl")
async def test_lines_of_a_card_move_its_pods_away(cluster: Cluster) -> None:
    """The card is closed, and the Pod is evicted."""
    await running(cluster, "moves")
    uuid = await place_of(cluster, "moves")
    [found] = (await asked_json(cluster, "pods", uuid))["clusters"]
    assert ("moves", uuid) in {(one["share"]["pod"], one["device"]) for one in found["residents"]}
    node = next(one["node"] for one in found["residents"])
    close, evict = found["moves"][0], next(line for line in found["moves"] if "/pods/moves/eviction" in line)

    try:
        assert 0 == (await at_shell(cluster, close))[0]
        assert 0 == (await at_shell(cluster, evict))[0]
        await eventually(lambda: gone(cluster, "moves"), "the Pod is gone")
        rows = (await asked(cluster, "top", "devices", "--node", node, "-o", "wide")).output.splitlines()
        assert any(uuid in row and "cordoned" in row for row in rows)
    finally:
        await at_shell(cluster, f"kubectl annotate node {node} hami.io/device-cordon-")


async def gone(cluster: Cluster, name: str) -> bool:
    """Return whether the Pod does not exist."""
    pods = (await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods"))[0]
    return name not in {pod["metadata"]["name"] for pod in pods}


@pytest.mark.parametrize("command", [("top", "pods"), ("grants",)], ids=" ".join)
async def test_labels_narrow(cluster: Cluster, command: tuple[str, ...]) -> None:
    """As the API server compares them; a selector that is none is its error."""
    await running(cluster, "train", app="train")
    await running(cluster, "serve", app="serve")

    answer = await asked(cluster, *command, "-n", cluster.namespace, "-l", "app in (train)", "--no-headers")

    assert ["train"] == [row.split()[1] for row in answer.output.splitlines()]
    wrong = await asked(cluster, *command, "-l", "app in train")
    assert 2 == wrong.code
    assert "app in train" in wrong.errors or "unable to parse" in wrong.errors


@pytest.mark.usefixtures("kubectl")
async def test_tab_knows_what_the_cluster_has(cluster: Cluster) -> None:
    """Nodes, namespaces, devices and contexts, asked by kubectl as its completion does."""
    await running(cluster, "completes")
    uuid = await place_of(cluster, "completes")

    async def after(*words: str) -> list[str]:
        code, output = await at_shell(cluster, f"kubectl __complete hami {' '.join(words)} 2>/dev/null")
        assert 0 == code
        return [line for line in output.splitlines() if not line.startswith(":")]

    assert {node.name for node in cluster.nodes} <= set(await after("top", "--node", "''"))
    assert [cluster.namespace] == await after("waiting", "-n", cluster.namespace)
    assert ["completes"] == await after("grants", "-n", cluster.namespace, "comp")
    assert [uuid] == await after("pods", uuid)
