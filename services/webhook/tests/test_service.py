"""
The service as a process: TLS, quotas from a watch, hostile bodies, metrics, and its end.
"""

import asyncio
import base64
import datetime
import ipaddress
import json
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PROGRAM = Path(sys.executable).with_name("hami-webhook")

PodBuilder = Callable[..., dict[str, Any]]


class Service:
    """A running `hami-webhook` and a client of it."""

    def __init__(self, process: asyncio.subprocess.Process, session: aiohttp.ClientSession, url: str) -> None:
        self.process = process
        self.session = session
        self.url = url

    async def review(self, pod: Any) -> dict[str, Any]:
        """Return the response to the creation of *pod* in namespace ns."""
        request = {"uid": "u", "operation": "CREATE", "namespace": "ns", "object": pod}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        async with self.session.post(f"{self.url}/webhook", json=body) as response:
            assert 200 == response.status
            answer: dict[str, Any] = (await response.json())["response"]
            return answer


@asynccontextmanager
async def a_service(
    device_config_file: str, *flags: str, ca: Path | None = None, environment: dict[str, str] | None = None
) -> AsyncIterator[Service]:
    """Start the service on free ports and end it with SIGTERM."""
    process = await asyncio.create_subprocess_exec(
        *(PROGRAM, "--http_bind=127.0.0.1:0"),
        *("--metrics-bind-address=", "--scheduler-name=hami-scheduler", f"--device-config-file={device_config_file}"),
        *flags,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": "/nonexistent", "PATH": "", **(environment or {})},
    )
    assert process.stderr is not None
    try:
        line: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while line.get("event") != "Serving":
                line = json.loads(await process.stderr.readline())
        context = ssl.create_default_context(cafile=str(ca)) if ca else None
        connector = aiohttp.TCPConnector(ssl=context) if context else None
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Service(process, session, f"{'https' if ca else 'http'}://127.0.0.1:{line['port']}")
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert 0 == process.returncode


async def test_a_pod_is_decided_on_and_counted(device_config_file: str, a_pod: PodBuilder) -> None:
    """From body to patch to metric; SIGTERM ends it with exit code 0."""
    async with a_service(device_config_file) as service:
        response = await service.review(a_pod({"gpumem": "3000"}))
        patch = orjson.loads(base64.b64decode(response["patch"]))
        assert {
            "/spec/schedulerName": "hami-scheduler",
            "/spec/containers/0/resources/limits/nvidia.com~1gpu": "1",
        } == {operation["path"]: operation["value"] for operation in patch}
        assert {"uid": "u", "allowed": True} == await service.review(a_pod())
        for path in ("/livez", "/readyz", "/healthz"):
            async with service.session.get(service.url + path) as answer:
                assert 200 == answer.status
        async with service.session.get(service.url + "/metrics") as answer:
            metrics = await answer.text()
        assert 'hami_webhook_admissions_total{outcome="changed"} 1.0' in metrics
        assert 'hami_webhook_admissions_total{outcome="not_asking"} 1.0' in metrics
        assert 'hami_webhook_admission_duration_seconds_count{outcome="changed"} 1.0' in metrics
        assert 'hami_webhook_admission_duration_seconds_count{outcome="bad_amount"} 0.0' in metrics


def resident_mib(process: asyncio.subprocess.Process) -> int:
    """Return the memory that *process* has."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.parametrize(
    ("count", "sent"),
    [
        pytest.param(1000, b"", id="idle"),
        pytest.param(1000, b"\x16\x03\x01\x02\x00\x01", id="handshakes that do not end"),
    ],
)
async def test_strangers_take_no_memory_and_do_not_keep_the_api_server_out(
    device_config_file: str, a_pod: PodBuilder, tmp_path: Path, count: int, sent: bytes
) -> None:
    """A thousand connections of one peer cost at most 100 MiB, with the buffers of TLS, and a Pod is decided on."""
    certificate, key = write_certificate(tmp_path)
    async with a_service(
        device_config_file, f"--cert_file={certificate}", f"--key_file={key}", ca=certificate
    ) as service:
        await service.review(a_pod())
        before, port = resident_mib(service.process), int(service.url.rpartition(":")[2])
        strangers = []
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
            writer.write(sent)
            strangers.append(writer)
        assert (await service.review(a_pod({"gpumem": "3000"})))["allowed"]
        assert resident_mib(service.process) - before <= 100
        for writer in strangers:
            writer.transport.abort()


async def test_bodies_that_never_end_take_bounded_memory(device_config_file: str, a_pod: PodBuilder) -> None:
    """Sixty of almost 4 MiB would be 240 MiB; some are answered with 503 instead, and a Pod is decided on."""
    head = b"POST /webhook HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 4194304\r\n\r\n"
    async with a_service(device_config_file) as service:
        await service.review(a_pod())
        before, port = resident_mib(service.process), int(service.url.rpartition(":")[2])
        strangers = []
        for _ in range(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
            writer.write(head + b" " * 4_194_000)
            strangers.append((reader, writer))
        assert b"503" in await asyncio.wait_for(strangers[0][0].readline(), 30)
        assert (await service.review(a_pod({"gpumem": "3000"})))["allowed"]
        assert resident_mib(service.process) - before <= 100
        for _, writer in strangers:
            writer.transport.abort()


async def test_bodies_that_are_no_review_get_4xx(device_config_file: str) -> None:
    """Each with a sentence, and the next request is served."""
    async with a_service(device_config_file) as service:
        for body, kind, status in [
            (b"{", "application/json", 400),
            (b"[" * 1_000_000, "application/json", 400),
            (b"{}", "text/plain", 415),
            (b" " * (9 * 1024 * 1024), "application/json", 413),
        ]:
            async with service.session.post(
                f"{service.url}/webhook", data=body, headers={"Content-Type": kind}
            ) as response:
                assert status == response.status
                assert "text/plain" == response.content_type
        response_body = await service.review({"spec": 1})
        assert {"code": 400, "message": "spec: must be an object, not a number"} == response_body["status"]


async def test_the_service_speaks_tls(device_config_file: str, tmp_path: Path, a_pod: PodBuilder) -> None:
    """With the given certificate."""
    certificate, key = write_certificate(tmp_path)
    async with a_service(
        device_config_file, f"--cert_file={certificate}", f"--key_file={key}", ca=certificate
    ) as service:
        assert (await service.review(a_pod({"gpu": "1"})))["allowed"]
        async with service.session.get(service.url + "/metrics") as answer:
            metrics = await answer.text()
    end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    (shown,) = re.findall(r"^hami_webhook_certificate_expiry_timestamp_seconds (\S+)$", metrics, re.MULTILINE)
    assert end == float(shown)


async def test_a_quota_that_the_watch_has_seen_refuses(
    device_config_file: str, tmp_path: Path, a_pod: PodBuilder
) -> None:
    """Watches deliver limits and grants; no request waits for the API server."""
    quota = {
        "metadata": {"name": "q", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "4000"}},
    }
    running, unreadable = a_running_pod("old", "GPU-a,NVIDIA,3000,0:;"), a_running_pod("bad", "a,b;")
    selectors: list[str] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"")
            await asyncio.sleep(60)
            return response
        items = [quota] if request.path.endswith("resourcequotas") else [unreadable, running]
        selectors.append(request.query.get("fieldSelector", ""))
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})

    async with (
        an_api_server(serve, tmp_path) as kubeconfig,
        a_service(device_config_file, f"--kubeconfig={kubeconfig}") as service,
    ):
        async with asyncio.timeout(60):
            while (await service.review(a_pod({"gpu": "1", "gpumem": "1001"})))["allowed"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        refused = await service.review(a_pod({"gpu": "1", "gpumem": "1001"}))
        assert refused["status"]["message"].startswith("exceeding resource quota: namespace ns: ")
        assert (await service.review(a_pod({"gpu": "1", "gpumem": "1000"})))["allowed"]
    assert ["", "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"] == selectors


async def test_a_quota_with_scopes_is_told_of(device_config_file: str, tmp_path: Path, a_pod: PodBuilder) -> None:
    """The log has its name, a metric the number; no Pod is rejected for it."""
    hard = {"limits.nvidia.com/gpumem": "0", "pods": "3"}
    quota = {
        "metadata": {"name": "q", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"hard": hard, "scopes": ["Terminating"]},
    }

    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.sleep(60)
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": [quota]})

    async with (
        an_api_server(serve, tmp_path) as kubeconfig,
        a_service(device_config_file, f"--kubeconfig={kubeconfig}") as service,
    ):
        assert service.process.stderr is not None
        line: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while "quota" not in line:
                line = json.loads(await service.process.stderr.readline())
        assert ("warning", "ns/q", ["nvidia.com/gpumem"]) == (line["level"], line["quota"], line["resources"])
        async with service.session.get(service.url + "/metrics") as answer:
            assert "hami_webhook_unapplied_quotas 1.0" in await answer.text()
        assert (await service.review(a_pod({"gpu": "1", "gpumem": "1"})))["allowed"]


async def test_a_device_config_that_changes_is_followed(tmp_path: Path, a_pod: PodBuilder) -> None:
    """A new vendor's Pods are managed within seconds; an invalid config changes nothing."""
    file = tmp_path / "device-config.yaml"
    file.write_text("nvidia: {resourceCountName: nvidia.com/gpu}\n")
    pod = a_pod()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"hygon.com/dcunum": "1"}}

    async def shown(service: Service, text: str) -> None:
        async with asyncio.timeout(60):
            while True:
                async with service.session.get(service.url + "/metrics") as answer:
                    if text in await answer.text():
                        return
                await asyncio.sleep(0.1)

    async with a_service(str(file)) as service:
        assert "patch" not in await service.review(pod)
        before = "hami_device_config_refused 0.0"
        await shown(service, before)
        file.write_text("nvidia: {memoryFactor: x}\n")
        await shown(service, "hami_device_config_refused 1.0")
        assert "patch" in await service.review(a_pod({"gpu": "1"}))
        file.write_text("hygon: {resourceCountName: hygon.com/dcunum}\n")
        await shown(service, before)
        assert "patch" in await service.review(pod)
        assert "patch" not in await service.review(a_pod({"gpu": "1"}))


async def test_a_wrong_device_config_is_one_line_and_exit_code_one(tmp_path: Path) -> None:
    """With every problem and no traceback."""
    config = tmp_path / "device-config.yaml"
    config.write_text("nvidia: {memoryFactor: x, overwriteEnv: 7}\n")
    process = await asyncio.create_subprocess_exec(
        *(PROGRAM, f"--device-config-file={config}"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    (line,) = err.decode().splitlines()

    assert 1 == process.returncode
    assert "nvidia.overwriteEnv: line 1: must be true or false, not '7'" in line
    assert "nvidia.memoryFactor: line 1: must be a whole number, not 'x'" in line


def a_running_pod(name: str, granted: str) -> dict[str, Any]:
    """Return a bound Pod of one container with this grant."""
    annotations = {"hami.io/vgpu-devices-allocated": granted}
    return {
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
    }


@asynccontextmanager
async def an_api_server(handle: Any, folder: Path) -> AsyncIterator[Path]:
    """Answer API requests with *handle*, and yield a kubeconfig for it."""
    app = web.Application()
    app.router.add_get("/{tail:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{runner.addresses[0][1]}'}}}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
    )
    try:
        yield kubeconfig
    finally:
        await runner.cleanup()


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(pem)
    return folder / "tls.crt", folder / "tls.key"


pytestmark = pytest.mark.timeout(180)
