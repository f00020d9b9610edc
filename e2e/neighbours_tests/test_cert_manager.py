"""
cert-manager issues and renews the webhook's certificate.
"""

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml
from cryptography import x509

from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.invariants import samples
from harness.isolation import own_namespace
from harness.manifests import SLEEP, a_pod
from minicluster.client import ApiError
from neighbours import cert_manager
from neighbours.charts import example
from testbed.waiting import eventually

NEIGHBOUR = cert_manager.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(600)]
SECRET = f"/api/v1/namespaces/{HAMI}/secrets/hami-webhook-tls"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"
VALUES = {"webhook.tls": yaml.safe_load(example("cert-manager", "values.yaml").read_text())["webhook"]["tls"]}
WAIT_SECONDS = 180
"""A kubelet brings a changed Secret to its containers within two minutes."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_cert_manager(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with cert-manager, and the webhook's own certificate still in use."""
    await real_cluster.deploy()
    async with cert_manager.running(real_cluster):
        yield real_cluster
        # Helm takes over no Secret that cert-manager made.
        flags = (f"--namespace={HAMI}", "--ignore-not-found")
        for what in ("certificates/hami-webhook", "secrets/hami-webhook-tls"):
            await asyncio.to_thread(real_cluster.control_plane.kubectl, "delete", what, *flags)
        await real_cluster.deploy()


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_cert_manager: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own."""
    async with own_namespace(with_cert_manager):
        yield with_cert_manager


async def certificate(cluster: RealCluster) -> tuple[bytes, bytes]:
    """Return the webhook's certificate and its authority, PEM; empty if there is no Secret."""
    if not await cluster.api.exists(SECRET):
        return b"", b""
    content = (await cluster.api.get(SECRET)).get("data") or {}
    found, authority = (base64.b64decode(content.get(name, "")) for name in ("tls.crt", "ca.crt"))
    return found, authority.strip()


async def is_injected(cluster: RealCluster) -> bool:
    """Return whether the bundle of the webhook's configuration has the authority of its certificate."""
    _, authority = await certificate(cluster)
    webhooks = (await cluster.api.get(CONFIGURATION))["webhooks"]
    bundles = [base64.b64decode(webhook["clientConfig"].get("caBundle", "")) for webhook in webhooks]
    return bool(authority) and all(authority in bundle for bundle in bundles)


async def is_served(cluster: RealCluster) -> bool:
    """Return whether the webhook serves the certificate of its Secret."""
    pem, _ = await certificate(cluster)
    expiry = samples(await cluster.metrics("webhook"))["hami_webhook_certificate_expiry_timestamp_seconds"]
    return bool(pem) and [x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()] == [
        value for _, value in expiry
    ]


async def is_admitted(cluster: RealCluster) -> bool:
    """Return whether the API server would take a Pod with a share now."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    try:
        await cluster.api.create(path, a_pod("dry", gpu=1, gpumem=1000), dryRun="All")
    except ApiError as error:
        if "x509" not in error.message:
            raise
        return False
    return True


async def renewed(cluster: RealCluster) -> list[bool]:
    """Renew the webhook's certificate, and return whether Pods were admitted, again and again until it is served."""
    await eventually(lambda: is_served(cluster), "the webhook serves its certificate", WAIT_SECONDS)
    before, _ = await certificate(cluster)
    await cluster.api.delete(SECRET)
    answers = []

    async def is_over() -> bool:
        answers.append(await is_admitted(cluster))
        after, _ = await certificate(cluster)
        return after not in (b"", before) and await is_served(cluster) and await is_injected(cluster)

    await eventually(is_over, "the webhook serves another certificate", WAIT_SECONDS)
    return answers


async def test_certificate_of_a_self_signed_issuer(cluster: RealCluster) -> None:
    """With `webhook.tls.mode=cert-manager` alone, cert-manager issues a certificate, and Pods get their shares."""
    await cluster.deploy(values={"webhook.replicas": 1, "webhook.tls.mode": "cert-manager"})

    await eventually(lambda: is_injected(cluster), "cert-manager injects the authority", WAIT_SECONDS)
    await eventually(lambda: is_admitted(cluster), "the API server trusts the webhook", WAIT_SECONDS)
    await cluster.create(a_pod("p", command=SLEEP, gpu=1, gpumem=3000))
    await cluster.pod_in_phase("p", "Running", 60)


async def test_renewal_of_a_self_signed_certificate_rejects_no_pod(cluster: RealCluster) -> None:
    """A renewed self-signed certificate rejects no Pod: cert-manager keeps the previous authority in the `caBundle`."""
    await cluster.deploy(values={"webhook.replicas": 1, "webhook.tls.mode": "cert-manager"})

    answers = await renewed(cluster)

    assert {True} == set(answers)


async def test_renewal_by_an_authority_rejects_no_pod(cluster: RealCluster) -> None:
    """With an Issuer that has an authority, a renewed certificate is served within minutes, and no Pod is rejected."""
    flags = (f"--namespace={HAMI}", "-f", str(example("cert-manager", "issuer.yaml")))
    await asyncio.to_thread(cluster.control_plane.kubectl, "apply", *flags)
    await cluster.deploy(values={"webhook.replicas": 1, **VALUES})
    await eventually(lambda: is_injected(cluster), "cert-manager injects the authority", WAIT_SECONDS)
    await eventually(lambda: is_admitted(cluster), "the API server trusts the webhook", WAIT_SECONDS)

    answers = await renewed(cluster)

    assert {True} == set(answers)
