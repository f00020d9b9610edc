"""
The API server believes the webhook, whose certificate nobody made by hand, and goes on doing so.
"""

import base64

import pytest

from cluster import eventually
from manifests import SLEEP, a_pod
from minicluster.client import ApiError, Object
from real import RealCluster
from release import HAMI

pytestmark = pytest.mark.real_only

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"
SECRET = f"/api/v1/namespaces/{HAMI}/secrets/hami-webhook-tls"


async def ca_bundle(cluster: RealCluster) -> bytes:
    """Return by what the API server believes the webhook now, PEM."""
    found = await cluster.api.get(CONFIGURATION)
    [webhook] = found["webhooks"]
    return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))


async def admitted(cluster: RealCluster, name: str) -> Object:
    """Create a Pod that asks for a share and return it as it was stored; the webhook's failure policy is Fail."""
    return await cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=1000))


async def test_pod_is_admitted_over_tls_through_the_webhook_service(cluster: RealCluster) -> None:
    """The stored Pod has our scheduler, so the API server believed the certificate."""
    pod = await admitted(cluster, "p")

    assert "hami-scheduler" == pod["spec"]["schedulerName"]
    assert (await ca_bundle(cluster)).startswith(b"-----BEGIN CERTIFICATE-----")


async def test_trust_is_restored_when_somebody_takes_it_away(cluster: RealCluster) -> None:
    """As an upgrade that renders the configuration anew would."""
    before = await ca_bundle(cluster)
    empty = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    await cluster.api.patch(CONFIGURATION, empty, "json")

    async def restored() -> bool:
        return await ca_bundle(cluster) == before

    await eventually(restored, "the caBundle is back")
    assert "hami-scheduler" == (await admitted(cluster, "p"))["spec"]["schedulerName"]


async def test_lost_secret_is_made_anew_and_believed(cluster: RealCluster) -> None:
    """Another authority, another certificate, the API server told of it, and admission works."""
    before = await ca_bundle(cluster)
    secret = await cluster.api.get(SECRET)
    await cluster.api.replace(SECRET, {**secret, "data": None})

    async def believed_anew() -> bool:
        return await ca_bundle(cluster) not in {b"", before}

    await eventually(believed_anew, "another authority is published", 30)

    async def admits() -> Object:
        try:
            return await admitted(cluster, "p")
        except ApiError as error:
            if error.status == 409:
                return await cluster.pod("p")
            raise

    assert "hami-scheduler" == (await eventually(admits, "a Pod is admitted"))["spec"]["schedulerName"]
