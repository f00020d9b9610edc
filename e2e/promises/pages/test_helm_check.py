"""
`helm test`, as the guide writes it, passes on a healthy release and says what is broken in another.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from harness.clusters import names
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.documents.commands import DocumentError
from harness.documents.reader import Reader

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(600)]

WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"


@pytest_asyncio.fixture(loop_scope="session")
async def page(cluster: RealCluster, tmp_path: Path) -> AsyncIterator[Reader]:
    """Return the guide, on a cluster whose Pods find Services by name. The Pod of the last check is deleted."""
    async with names.served(cluster.control_plane):
        yield Reader(cluster, "docs/install.md", tmp_path)
    await asyncio.to_thread(
        cluster.control_plane.kubectl, "delete", "pod", "hami-check", "--namespace=hami", "--ignore-not-found"
    )


@asynccontextmanager
async def without(cluster: RealCluster, service: str) -> AsyncIterator[None]:
    """Run no Pod of a service during a block."""
    path = f"/apis/apps/v1/namespaces/{HAMI}/deployments/hami-{service}"
    replicas = (await cluster.api.get(path))["spec"]["replicas"]
    await cluster.api.patch(path, {"spec": {"replicas": 0}})
    try:
        yield
    finally:
        await cluster.api.patch(path, {"spec": {"replicas": replicas}})
        await cluster.ready(service)


async def complaint(cluster: RealCluster, page: Reader) -> str:
    """Run a check that fails, and return what the log says, as the guide tells to read it."""
    with pytest.raises(DocumentError, match="pod hami-check failed"):
        await page.does("check")
    return await asyncio.to_thread(cluster.control_plane.kubectl, "logs", "--namespace=hami", "hami-check")


async def test_check_fails_until_the_webhook_sees_pods_with_a_share(cluster: RealCluster, page: Reader) -> None:
    """All services are ready, but such a Pod would go to the default scheduler. A check that passes leaves no Pod."""
    hooks = (await cluster.api.get(WEBHOOK))["webhooks"]
    blind = [{**hook, "objectSelector": {"matchLabels": {"never": "set"}}} for hook in hooks]
    await cluster.api.patch(WEBHOOK, {"webhooks": blind})
    try:
        said = await complaint(cluster, page)
    finally:
        await cluster.api.patch(WEBHOOK, {"webhooks": hooks})

    assert "a Pod with nvidia.com/gpu would go to the scheduler default-scheduler, not to hami-scheduler" in said
    await page.does("check")
    pods, _ = await cluster.api.list(f"/api/v1/namespaces/{HAMI}/pods")
    assert "hami-check" not in {pod["metadata"]["name"] for pod in pods}


async def test_service_without_a_pod_is_named(cluster: RealCluster, page: Reader) -> None:
    """Without the webhook, the API server also says why it admits no Pod with a share."""
    async with without(cluster, "webhook"):
        webhook = await complaint(cluster, page)
    async with without(cluster, "scheduler"):
        scheduler = await complaint(cluster, page)

    refused = "[Errno 111] Connection refused: look at the Pods of this service"
    assert f"http://hami-webhook.hami.svc:9395/readyz: {refused}" in webhook
    assert "does not admit a Pod with nvidia.com/gpu: Internal error occurred: failed calling webhook" in webhook
    assert f"http://hami-scheduler.hami.svc:31993/readyz: {refused}" in scheduler
    assert 1 == len(scheduler.splitlines())
