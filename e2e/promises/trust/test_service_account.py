"""
The services work as in a Pod: a uid without passwd entry or home, and a mounted token that changes.
"""

import asyncio
import os
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from controlplane.pki import issue_serving
from harness.cluster import ClusterOf, Settings
from harness.clusters.embedded import EmbeddedCluster
from harness.manifests import a_pod
from testbed.driver.hardware import TWO_NODES
from testbed.waiting import eventually

pytestmark = [
    pytest.mark.embedded_only,
    pytest.mark.skipif(
        subprocess.run(["unshare", "--user", "--mount", "true"], check=False, capture_output=True).returncode != 0,
        reason="needs a user namespace with private mounts",
    ),
]

NODE = TWO_NODES[0]
SERVICES = ("webhook", "scheduler", f"plugin-{NODE.name}", f"monitor-{NODE.name}")
AGENTS = {"hami-webhook", "hami-scheduler", "hami-device-plugin", "hami-monitor"}
IN_A_POD = (
    "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io"
    ' && ln -s "$0" /run/secrets/kubernetes.io/serviceaccount'
    ' && exec unshare --user --map-user=65532 --map-group=65532 env -i "$@"'
)
"""Shell for the root of a user namespace: mount folder $0 as the service account, and continue as uid 65532."""


class Guard:
    """A TLS proxy of an API server that rejects requests without the current token."""

    def __init__(self, server: str, folder: Path) -> None:
        self.accepted: Counter[str] = Counter()
        """Requests since the token changed, by the first part of their user agent."""
        self.refused: Counter[str] = Counter()
        self._server = server
        self._folder = folder
        self._token = ""
        self._streams: set[asyncio.Task[None] | None] = set()

    def change_token(self) -> None:
        """Replace the token by renaming, as the kubelet does, reject the old one, and end all watches."""
        self._token = os.urandom(8).hex()
        (self._folder / "new").write_text(self._token)
        (self._folder / "new").rename(self._folder / "token")
        self.accepted.clear()
        self.refused.clear()
        for stream in self._streams:
            assert stream is not None
            stream.cancel()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Forward a request that has the token."""
        agent = request.headers["User-Agent"].split("/")[0]
        if request.headers.get("Authorization") != f"bearer {self._token}":
            self.refused[agent] += 1
            return web.json_response({"kind": "Status", "reason": "Unauthorized", "message": "bad token"}, status=401)
        self.accepted[agent] += 1
        passed_on = {name: request.headers[name] for name in ("Content-Type", "User-Agent") if name in request.headers}
        task = asyncio.current_task()
        self._streams.add(task)
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(
                    request.method, self._server + request.path_qs, data=await request.read(), headers=passed_on
                ) as answer,
            ):
                response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response
        finally:
            self._streams.discard(task)


@asynccontextmanager
async def guarding(server: str, folder: Path) -> AsyncIterator[tuple[Guard, int]]:
    """Yield a guard of *server* and its port. *folder* is mounted as the service account."""
    authority = issue_serving(folder)
    (folder / "ca.crt").write_bytes(authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    guard = Guard(server, folder)
    guard.change_token()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", guard.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield guard, runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def move_into_a_pod(cluster: EmbeddedCluster, name: str, folder: Path, port: int) -> None:
    """Start service *name* again as in a Pod: without kubeconfig and home, as a uid without a name."""
    process = cluster.processes[name]
    process.terminate()
    environment = {
        **process.environment,
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(port),
        "PATH": os.environ["PATH"],
    }
    flags = [argument for argument in process.argv if not argument.startswith("--kubeconfig=")]
    variables = (f"{key}={value}" for key, value in environment.items())
    process.argv = [
        *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", IN_A_POD, str(folder)),
        *variables,
        *flags,
    ]
    await cluster.restart(name)


async def test_services_use_a_changed_mounted_token(cluster_of: ClusterOf, tmp_path: Path) -> None:
    """All four run as user 65532 without a home. Each uses the new token, and Pods run as before."""
    async with cluster_of((NODE,), Settings()) as cluster:
        assert isinstance(cluster, EmbeddedCluster)
        async with guarding(cluster.api.server, tmp_path) as (guard, port):
            for name in SERVICES:
                await move_into_a_pod(cluster, name, tmp_path, port)
            await cluster.node_ready(NODE.name)
            await cluster.create(a_pod("before", gpu=1, gpumem=1000))
            await cluster.pod_in_phase("before", "Running")

            guard.change_token()

            await cluster.create(a_pod("after", gpu=1, gpumem=1000))
            await cluster.pod_in_phase("after", "Running")

            async def all_asked() -> bool:
                return set(guard.accepted) == AGENTS

            await eventually(all_asked, "every service sends the new token")
            assert set(guard.refused) <= AGENTS
            assert max(guard.refused.values(), default=0) <= 10
