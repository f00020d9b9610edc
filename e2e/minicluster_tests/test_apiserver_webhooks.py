"""
Mutating webhooks are called over TLS, obeyed, and survived.
"""

import base64
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minicluster.apiserver.main import Server
from minicluster_tests.apiserver_peers import Api, a_pod, error_of

Object = dict[str, Any]

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SERVICE = "hami-webhook.kube-system.svc"


@dataclass
class Peer:
    """A webhook that remembers what it was asked and answers what it is told to."""

    url: str = ""
    bundle: str = ""
    reviews: list[Object] = field(default_factory=list)
    answer: Callable[[Object], Object] = lambda request: {"allowed": True}
    headers: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one AdmissionReview in the version it came in."""
        review = orjson.loads(await request.read())
        self.reviews.append(review)
        self.headers.append(request.query_string)
        response = {"uid": review["request"]["uid"], **self.answer(review["request"])}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})


def certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1 and the service's name, and its key."""
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


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    """Yield a webhook that listens."""
    cert_file, key_file = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert_file, key_file)
    peer = Peer(bundle=base64.b64encode(cert_file.read_bytes()).decode())
    application = web.Application()
    application.router.add_post("/mutate", peer.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    peer.url = f"https://127.0.0.1:{runner.addresses[0][1]}/mutate"
    yield peer
    await runner.cleanup()


def configuration(peer: Peer, name: str = "a.hami.io", **fields: Any) -> Object:
    """Return a configuration with one webhook for new Pods."""
    webhook = {
        "name": name,
        "clientConfig": {"url": peer.url, "caBundle": peer.bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **fields,
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}


def patching(*operations: Object) -> Callable[[Object], Object]:
    """Return an answer that applies a JSON patch."""
    patch = base64.b64encode(orjson.dumps(list(operations))).decode()
    return lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


SET_SCHEDULER = {"op": "replace", "path": "/spec/schedulerName", "value": "hami-scheduler"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_webhook_sees_the_defaulted_pod_and_its_patch_is_applied(api: Api, peer: Peer, version: str) -> None:
    """
    The object arrives with the scheduler's name filled in and without a uid, in the version the configuration prefers.
    """
    await api.create(CONFIGURATIONS, configuration(peer, admissionReviewVersions=[version]))
    peer.answer = patching(SET_SCHEDULER)

    pod = await api.create_pod()

    review = peer.reviews[0]
    request = review["request"]
    assert "hami-scheduler" == pod["spec"]["schedulerName"]
    assert f"admission.k8s.io/{version}" == review["apiVersion"]
    assert "default-scheduler" == request["object"]["spec"]["schedulerName"]
    assert None is request["object"]["metadata"].get("uid")
    assert ("CREATE", "default", "p", False) == tuple(
        request[key] for key in ("operation", "namespace", "name", "dryRun")
    )
    assert {"group": "", "version": "v1", "resource": "pods"} == request["resource"]
    assert ["timeout=10s"] == peer.headers


async def test_generated_name_is_not_known_yet_at_admission(api: Api, peer: Peer) -> None:
    """
    As in the real server: neither the request nor the object has one.
    """
    await api.create(CONFIGURATIONS, configuration(peer))

    await api.create(api.pods, {**a_pod(), "metadata": {"generateName": "x-"}})

    request = peer.reviews[0]["request"]
    assert ("x-", None, None) == (
        request["object"]["metadata"]["generateName"],
        request["object"]["metadata"].get("name"),
        request.get("name"),
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"code": 403, "reason": "Forbidden", "message": "no"},
            (403, "Forbidden", 'admission webhook "a.hami.io" denied the request: no'),
        ),
        ({"message": "no"}, (400, "", 'admission webhook "a.hami.io" denied the request: no')),
        ({}, (400, "", 'admission webhook "a.hami.io" denied the request without explanation')),
    ],
)
async def test_denial_reaches_the_user_with_its_code(api: Api, peer: Peer, status: Any, expected: Any) -> None:
    """
    The webhook's name is in front of its words.
    """
    await api.create(CONFIGURATIONS, configuration(peer))
    peer.answer = lambda request: {"allowed": False, "status": status}

    error = await error_of(api.create_pod())

    assert expected == (error.status, error.reason, error.message)


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", None)])
async def test_failure_policy_decides_what_a_dead_webhook_means(api: Api, peer: Peer, policy: str, status: Any) -> None:
    """
    Fail refuses with a text that names webhook and URL, Ignore goes on.
    """
    peer.url = "https://127.0.0.1:1/mutate"
    await api.create(CONFIGURATIONS, configuration(peer, failurePolicy=policy))

    if status is None:
        assert "p" == (await api.create_pod())["metadata"]["name"]
    else:
        error = await error_of(api.create_pod())
        head = 'Internal error occurred: failed calling webhook "a.hami.io": failed to call webhook: Post "https://127.0.0.1:1'
        assert (status, head) == (error.status, error.message[: len(head)])


async def test_webhook_with_a_foreign_certificate_is_not_trusted(api: Api, peer: Peer) -> None:
    """
    The bundle of the configuration is the only authority.
    """
    made = configuration(peer)
    del made["webhooks"][0]["clientConfig"]["caBundle"]
    await api.create(CONFIGURATIONS, made)

    error = await error_of(api.create_pod())

    assert (500, []) == (error.status, peer.reviews)
    assert "certificate" in error.message


@pytest.mark.parametrize(
    ("fields", "is_called"),
    [
        ({}, True),
        (
            {
                "objectSelector": {
                    "matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]
                }
            },
            False,
        ),
        ({"objectSelector": {"matchLabels": {"hami.io/webhook": "ignore"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, False),
        ({"matchConditions": [{"name": "gpu-only", "expression": "true"}]}, True),
    ],
)
async def test_selectors_decide_who_is_asked(api: Api, peer: Peer, fields: Object, is_called: bool) -> None:
    """
    Labels of the Pod and of its namespace.
    """
    await api.create(CONFIGURATIONS, configuration(peer, **fields))

    await api.create(api.pods, {**a_pod(), "metadata": {"name": "p", "labels": {"hami.io/webhook": "ignore"}}})

    assert is_called is (len(peer.reviews) == 1)


async def test_webhook_is_asked_again_when_a_later_one_changed_the_object(api: Api, peer: Peer) -> None:
    """
    Only with IfNeeded, and once.
    """
    await api.create(CONFIGURATIONS, configuration(peer, "a.hami.io", reinvocationPolicy="IfNeeded"))
    await api.create(CONFIGURATIONS, configuration(peer, "b.hami.io"))
    label = {"op": "add", "path": "/metadata/labels", "value": {"changed": "yes"}}

    def answer(request: Object) -> Object:
        return patching(*([label] if len(peer.reviews) == 2 else []))(request)

    peer.answer = answer

    pod = await api.create_pod()

    assert {"changed": "yes"} == pod["metadata"]["labels"]
    assert [None, None, {"changed": "yes"}] == [r["request"]["object"]["metadata"].get("labels") for r in peer.reviews]


async def test_service_of_a_webhook_is_reached_where_the_flag_says(peer: Peer) -> None:
    """
    The certificate must be the service's, whatever the address.
    """
    address = peer.url.removeprefix("https://").removesuffix("/mutate")
    server = Server({"kube-system/hami-webhook": address})
    url = await server.start("127.0.0.1", 0)
    made = configuration(peer)
    service = {"namespace": "kube-system", "name": "hami-webhook", "path": "/mutate"}
    made["webhooks"][0]["clientConfig"] = {"service": service, "caBundle": peer.bundle}
    async with Api(url, "test") as api:
        await api.create(CONFIGURATIONS, made)
        await api.create_pod()
    await server.stop()

    assert 1 == len(peer.reviews)


async def test_configuration_that_could_never_work_is_refused(api: Api, peer: Peer) -> None:
    """
    The API server checks what it would need at the first call.
    """
    for fields, expected in (
        ({"sideEffects": "Some"}, 'webhooks[0].sideEffects: Unsupported value: "Some"'),
        ({"admissionReviewVersions": ["v2"]}, "webhooks[0].admissionReviewVersions: Invalid value"),
        ({"clientConfig": {"url": "http://x"}}, "webhooks[0].clientConfig.url: Invalid value"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: Invalid value: 31"),
    ):
        error = await error_of(api.create(CONFIGURATIONS, configuration(peer, **fields)))
        assert (422, True) == (error.status, expected in error.message)
