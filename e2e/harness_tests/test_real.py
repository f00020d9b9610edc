"""What a test of the real cluster leaves to the next one."""

import pytest

from harness.cluster import Settings
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.isolation import own_namespace
from harness.manifests import a_pod
from testbed.driver.hardware import FakeNode

pytestmark = pytest.mark.real_only

NODE = FakeNode.of("node-short-lived", "Tesla T4", 16384, 1)
SERVICES = ("hami-webhook", "hami-scheduler")


async def test_services_stay_when_the_nodes_of_a_test_are_gone(real_cluster: RealCluster) -> None:
    """On such a Node they would end with it, and the next test would meet neither a webhook nor a leader."""
    variable: dict[str, object] = {"name": "REPLACES", "value": "every Pod of these services"}
    other = Settings(values={"webhook.extraEnv": [variable], "scheduler.extraEnv": [variable]})
    async with real_cluster.reshaped((NODE,), other):
        pods, _ = await real_cluster.api.list(f"/api/v1/namespaces/{HAMI}/pods")
        places = {
            pod["spec"]["nodeName"]
            for pod in pods
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] in SERVICES
        }
    await real_cluster.deploy(other)

    assert places <= {node.name for node in real_cluster.nodes}
    async with own_namespace(real_cluster):
        await real_cluster.create(a_pod("p", gpu=1))
        await real_cluster.pod_in_phase("p", "Running")
