"""
Replicas of the webhook as processes that make their certificate, beside an API server.
"""

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from hami_webhook.certificates import renewal
from hami_webhook.certificates.renewal import Material
from hamicommon.model import Object
from minicluster.client import ApiError, Client
from testbed.ports import free_port
from testbed.processes import Process, Supervisor
from testbed.waiting import eventually

BIN = Path(sys.executable).parent
SECRET = "/api/v1/namespaces/default/secrets/hami-webhook-tls"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"
PODS = "/api/v1/namespaces/default/pods"
NAMES = ("hami-webhook.hami.svc", "127.0.0.1")

until = partial(eventually, seconds=60.0)
"""Replicas agree on a certificate in some rounds of their loop."""


class Cluster:
    """An API server and replicas of the webhook, as processes; the test ends them."""

    def __init__(self, folder: Path, device_config_file: str) -> None:
        self.api: Client
        self._kubeconfig = folder / "kubeconfig"
        self.device_config_file = device_config_file
        self._supervisor = Supervisor(folder)
        self._apiserver = [
            *(str(BIN / "python"), "-m", "minicluster", "apiserver", f"--listen=127.0.0.1:{free_port()}"),
            *(f"--kubeconfig={self._kubeconfig}", f"--data={folder / 'data'}"),
        ]

    async def start_apiserver(self) -> None:
        """Start the API server with the objects it had."""
        self._kubeconfig.unlink(missing_ok=True)
        self._supervisor.start("apiserver", self._apiserver)

        async def is_up() -> bool:
            return self._kubeconfig.exists()

        await until(is_up)
        if not hasattr(self, "api"):
            self.api = Client.from_kubeconfig(self._kubeconfig, "test")

    def kill_apiserver(self) -> None:
        """Kill the API server."""
        self._supervisor.processes["apiserver"].kill()

    async def start(self, port: int | None = None, names: tuple[str, ...] = NAMES) -> "Replica":
        """Start a replica that serves at *port*; without *names* it serves without TLS."""
        ports = port or free_port(), free_port()
        arguments = [
            *(str(BIN / "hami-webhook"), f"--device-config-file={self.device_config_file}"),
            *(f"--http_bind=127.0.0.1:{ports[0]}", f"--metrics-bind-address=127.0.0.1:{ports[1]}"),
            *(f"--kubeconfig={self._kubeconfig}", "--scheduler-name=hami-scheduler"),
            "--webhook-configuration=hami-webhook",
            *(("--tls-secret=default/hami-webhook-tls", f"--tls-names={','.join(names)}") if names else ()),
        ]
        replica = Replica(self._supervisor.start(f"webhook-{len(self._supervisor.processes)}", arguments), *ports)
        await replica.event("Serving metrics")
        return replica

    async def stop(self) -> None:
        """End all processes."""
        await self.api.close()
        self._supervisor.stop()

    async def create_secret(self) -> None:
        """Create the Secret as the chart does, empty."""
        collection, name = SECRET.rsplit("/", 1)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque"}
        await self.api.create(collection, secret)

    async def secret(self) -> Material:
        """Return the usable contents of the Secret."""
        return renewal.read_material((await self.api.get(SECRET)).get("data") or {})[0]

    async def write(self, data: dict[str, Any] | None) -> None:
        """Replace the data of the Secret by *data*."""
        await self.api.patch(SECRET, [{"op": "add", "path": "/data", "value": data}], kind="json")

    async def bundles(self) -> list[bytes]:
        """Return the bundle of each webhook."""
        found = (await self.api.get(CONFIGURATION))["webhooks"]
        return [base64.b64decode(webhook["clientConfig"].get("caBundle", "")) for webhook in found]

    async def configure(self, *ports: int) -> None:
        """
        Register a webhook for each of *ports*, with an empty bundle. No Pod can be created without a working webhook.
        """
        collection, name = CONFIGURATION.rsplit("/", 1)
        await self.api.create(collection, a_configuration(name, *ports))

    async def fault(self, **fault: Any) -> None:
        """Make the API server misbehave."""
        await self.api.create("/minicluster/faults", fault)

    async def is_faulted(self) -> bool:
        """Return whether every fault has happened."""
        return not await self.api.get("/minicluster/faults")

    async def admitted(self, name: str) -> bool:
        """Create a Pod that requests a device; return whether every webhook was called."""
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {"containers": [container]}}
        made = await self.api.create(PODS, pod)
        return bool(made["spec"]["schedulerName"] == "hami-scheduler")


class Replica:
    """A running `hami-webhook` and its log."""

    def __init__(self, process: Process, port: int, metrics_port: int) -> None:
        self.process = process
        self.port = port
        self.metrics_port = metrics_port

    async def event(self, text: str, times: int = 1) -> None:
        """Wait until *text* was logged *times* times."""

        async def is_logged() -> bool:
            assert self.process.is_running, self.process.tail()
            return self.count(text) >= times

        await until(is_logged)

    def count(self, text: str) -> int:
        """Return how often *text* was logged."""
        lines = self.process.log.read_text().splitlines(keepends=True)
        return sum(json.loads(line)["event"] == text for line in lines if line.endswith("\n"))

    async def get(self, path: str) -> tuple[int, str]:
        """Return the answer of the metrics address."""
        url = f"http://127.0.0.1:{self.metrics_port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def is_ready(self) -> bool:
        """Return whether `/readyz` says so."""
        return (await self.get("/readyz"))[0] == 200

    async def shown(self, bundle: bytes) -> bytes | None:
        """Return the certificate, as PEM, that a client with *bundle* sees; None if it rejects it."""
        context = ssl.create_default_context(cadata=bundle.decode()) if bundle else ssl.create_default_context()
        try:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context, server_hostname="hami-webhook.hami.svc"
            )
        except (ssl.SSLError, ConnectionError):
            return None
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return ssl.DER_cert_to_PEM_cert(found).encode()


def a_configuration(name: str, *ports: int) -> Object:
    """Return a configuration with a webhook for each of *ports*."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"port{port}.hami.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "clientConfig": {"url": f"https://127.0.0.1:{port}/webhook"},
                "rules": [rule],
            }
            for port in ports
        ],
    }


@asynccontextmanager
async def calling(cluster: Cluster) -> AsyncIterator[list[str]]:
    """Create Pods without a pause, and yield the list of failures."""
    failures: list[str] = []

    async def call() -> None:
        number = 0
        while True:
            number += 1
            try:
                assert await cluster.admitted(f"caller-{number}")
            except ApiError as error:
                failures.append(str(error))
            await asyncio.sleep(0.005)

    task = asyncio.create_task(call())
    try:
        yield failures
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
