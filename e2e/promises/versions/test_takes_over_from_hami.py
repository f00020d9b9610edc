"""
The services take over a cluster with HAMi's annotations without touching a running Pod.
"""

import asyncio

import pytest

from harness.cluster import Settings
from harness.clusters.real import RealCluster
from harness.manifests import a_pod
from harness.residents import settle

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", ["2.8", "2.9", "2.10"])
async def test_services_take_over_hamis_grants(cluster: RealCluster, version: str) -> None:
    """
    Pods placed with HAMi's lock in the forms of *version* keep running. Their shares are counted, and others fit.

    Our services stand for HAMi. They write the forms of that version. Then they are removed, with the annotations that
    HAMi does not have.
    """
    await cluster.deploy(Settings(wire_version=version, allocation="lock"))
    residents = await settle(cluster)
    await asyncio.to_thread(cluster.release.remove)
    for node in cluster.nodes:
        foreign = {"hami.io/node-handshake": "Requesting_2026-01-01 00:00:00"}
        await cluster.api.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": foreign}})

    await cluster.deploy()

    await cluster.create(a_pod("beside", gpu=1, gpumem=3000))
    await cluster.pod_in_phase("beside", "Running")
    await residents.check_untouched(cluster)
