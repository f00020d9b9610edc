"""
A flag gives the address of a webhook's Service, because there is no service network.
"""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from conformance.peers.objects import Api, a_pod
from conformance.peers.webhooks import CONFIGURATIONS, Webhook
from minicluster.apiserver.main import Server

SERVICE = "hami-webhook.kube-system.svc"


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1 and the name of the service, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName(SERVICE)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1).not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    )
    made = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    cert_file, key_file = folder / "tls.crt", folder / "tls.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


@asynccontextmanager
async def asked(folder: Path) -> AsyncIterator[tuple[Webhook, Api]]:
    """Run an API server with a webhook for Pods, whose Service has its address in a flag."""
    cert_file, key_file = certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert_file, key_file)
    application, hook = web.Application(), Webhook("", base64.b64encode(cert_file.read_bytes()).decode())
    application.router.add_post("/mutate", hook.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server = Server({"kube-system/hami-webhook": f"127.0.0.1:{runner.addresses[0][1]}"})
    url = await server.start("127.0.0.1", 0)
    service = {"namespace": "kube-system", "name": "hami-webhook", "path": "/mutate"}
    async with Api(url, "test") as api:
        described = hook.described(api, clientConfig={"service": service, "caBundle": hook.bundle})
        await api.create(CONFIGURATIONS, {"metadata": {"name": "a"}, "webhooks": [described]})
        yield hook, api
    await server.stop()
    await runner.cleanup()


async def test_service_of_a_webhook_is_reached_at_the_flags_address(tmp_path: Path) -> None:
    """
    The certificate must be for the name of the service, whatever the address.
    """
    async with asked(tmp_path) as (hook, api):
        await api.create_pod()

    assert 1 == len(hook.reviews)


@pytest.mark.parametrize(("is_allowed", "status"), [(True, 201), (False, 400)])
async def test_warnings_of_a_webhook_reach_the_client(tmp_path: Path, is_allowed: bool, status: int) -> None:
    """
    Each once, also if the Pod is denied, and none that would end the header.
    """
    async with asked(tmp_path) as (hook, api), aiohttp.ClientSession() as session:
        hook.answer = lambda _: {"allowed": is_allowed, "warnings": ['say "a"', "one", "one", "two\nlines"]}
        async with session.post(f"{api.server}{api.pods}", json=a_pod()) as response:
            found = response.headers.getall("Warning")
        async with session.get(f"{api.server}{api.pods}") as other:
            unwarned = other.headers.getall("Warning", [])

    assert (status, ['299 - "say \\"a\\""', '299 - "one"'], []) == (response.status, found, unwarned)
