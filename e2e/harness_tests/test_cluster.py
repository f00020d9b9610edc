"""What the harness does with the objects of a cluster."""

import pytest

from hamicommon.model import Object
from harness.cluster import Cluster
from harness.manifests import a_pod


async def test_a_pod_may_end_while_all_pods_are_deleted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evicted Pod may be listed and be gone when its deletion is asked for."""
    await cluster.create(a_pod("evicted"))
    await cluster.create(a_pod("stays"))
    list_objects = cluster.api.list

    async def list_then_end(path: str) -> tuple[list[Object], str]:
        found, version = await list_objects(path)
        if any(pod["metadata"]["name"] == "evicted" for pod in found):
            await cluster.api.delete(f"{path}/evicted", 0)
        return found, version

    monkeypatch.setattr(cluster.api, "list", list_then_end)
    await cluster.delete_all_pods()

    assert [] == (await list_objects(f"/api/v1/namespaces/{cluster.namespace}/pods"))[0]
