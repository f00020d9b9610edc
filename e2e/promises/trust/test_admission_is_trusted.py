"""
The API server trusts the webhook's self-managed certificate, and Pods without a managed resource need no webhook.
"""

import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hamicommon.model import Object
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.manifests import SLEEP, a_container, a_pod
from minicluster.client import ApiError
from testbed.waiting import eventually

pytestmark = pytest.mark.real_only

GROUP, KIND = "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"
CONFIGURATIONS = f"/apis/{GROUP}/mutatingwebhookconfigurations"
CONFIGURATION = f"{CONFIGURATIONS}/hami-webhook"
SECRET = f"/api/v1/namespaces/{HAMI}/secrets/hami-webhook-tls"


async def ca_bundle(cluster: RealCluster) -> bytes:
    """Return the caBundle that the API server trusts now (PEM)."""
    found = await cluster.api.get(CONFIGURATION)
    [webhook] = found["webhooks"]
    return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))


async def admitted(cluster: RealCluster, name: str) -> Object:
    """Create a Pod that requests a share, and return it as stored. The failure policy of the webhook is Fail."""
    return await cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=1000))


async def test_pod_is_admitted_over_tls_through_the_webhook_service(cluster: RealCluster) -> None:
    """The stored Pod has our scheduler, so the API server trusted the certificate."""
    pod = await admitted(cluster, "p")

    assert "hami-scheduler" == pod["spec"]["schedulerName"]
    assert (await ca_bundle(cluster)).startswith(b"-----BEGIN CERTIFICATE-----")


async def test_removed_ca_bundle_is_restored(cluster: RealCluster) -> None:
    """An upgrade that renders the configuration again would remove it."""
    before = await ca_bundle(cluster)
    empty = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    await cluster.api.patch(CONFIGURATION, empty, "json")

    async def restored() -> bool:
        return await ca_bundle(cluster) == before

    await eventually(restored, "the caBundle is back")
    assert "hami-scheduler" == (await admitted(cluster, "p"))["spec"]["schedulerName"]


async def test_lost_secret_is_replaced_and_trusted(cluster: RealCluster) -> None:
    """The webhook makes a new authority and certificate, publishes the caBundle, and admission works."""
    before = await ca_bundle(cluster)
    secret = await cluster.api.get(SECRET)
    await cluster.api.replace(SECRET, {**secret, "data": None})

    async def is_replaced() -> bool:
        return await ca_bundle(cluster) not in {b"", before}

    await eventually(is_replaced, "another authority is published", 30)

    async def admits() -> Object:
        try:
            return await admitted(cluster, "p")
        except ApiError as error:
            if error.status == 409:
                return await cluster.pod("p")
            raise

    assert "hami-scheduler" == (await eventually(admits, "a Pod is admitted"))["spec"]["schedulerName"]


@pytest_asyncio.fixture(loop_scope="session")
async def outage(cluster: RealCluster) -> AsyncIterator[None]:
    """During a block, let the API server call an address without a listener for Pods of this namespace."""
    [webhook] = (await cluster.api.get(CONFIGURATION))["webhooks"]
    assert "Fail" == webhook["failurePolicy"]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}}
    nobody = {**webhook, "clientConfig": {"url": "https://127.0.0.1:1/webhook"}, "namespaceSelector": selector}
    name = f"outage-{cluster.namespace}"
    configuration = {"metadata": {"name": name}, "webhooks": [nobody]}
    await cluster.api.create(CONFIGURATIONS, {"apiVersion": GROUP, "kind": KIND, **configuration})
    try:

        async def is_felt() -> bool:
            return not await is_created(cluster, a_pod("first", command=SLEEP, gpu=1, gpumem=1000))

        await eventually(is_felt, "Pods that request a share are rejected")
        yield
    finally:
        await cluster.api.delete(f"{CONFIGURATIONS}/{name}")


async def is_created(cluster: RealCluster, pod: Object) -> bool:
    """Return whether a dry run creates the Pod. Only the missing webhook may prevent it."""
    try:
        await cluster.api.create(f"/api/v1/namespaces/{cluster.namespace}/pods", pod, dryRun="All")
    except ApiError as error:
        if "failed calling webhook" not in error.message:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("pod", "goes_on"),
    [
        (a_pod("p", [{**a_container(), "resources": {}}]), True),
        (a_pod("p", [{**a_container(), "resources": {"requests": {"cpu": "1m"}}}]), True),
        (a_pod("p", gpu=1, spec={"schedulerName": "another"}), True),
        (a_pod("p", gpu=1), False),
        (a_pod("p", gpucores=10, spec={"schedulerName": "hami-scheduler"}), False),
        (a_pod("p", [{**a_container(), "resources": {}}, a_container("last", gpumem=1)]), False),
        (a_pod("p", [{**a_container(), "resources": {}}], init_containers=[a_container("init", gpu=1)]), False),
    ],
    ids=["nothing", "time", "another's", "device", "ours", "last", "init"],
)
async def test_outage_of_the_webhook_stops_only_pods_that_ask(
    cluster: RealCluster, outage: None, pod: Object, goes_on: bool
) -> None:
    """A Pod without a managed resource, or of another scheduler, is created as if there were no webhook."""
    assert goes_on == await is_created(cluster, pod)
