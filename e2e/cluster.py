"""
The embedded cluster with the four services on it, each its own process, as a test or a person uses it.

Owns how the parts are started and where their files are. Knows the services by their commands and flags only.
Neighbours: `processes` starts and ends, `minicluster` is the Kubernetes, `invariants` says what must hold.
"""

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import yaml

from certificates import issue
from hardware import TWO_NODES, FakeNode
from minicluster.client import ApiError, Client, Object
from minicluster.kubelet.containers import kill_all
from processes import Process, Supervisor, stop_leftovers

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
NATIVE = ROOT / "build/native"
DEVICE_CONFIG = ROOT / "e2e/device-config.yaml"
SCHEDULER_NAME = "hami-scheduler"
POLL_SECONDS = 0.05

T = TypeVar("T")


class NotInTimeError(Exception):
    """Something did not become true in time; the message says what and how it stood."""


_ports = itertools.count(20_000 + os.getpid() % 10_000)


def free_port() -> int:
    """Return a port of the loopback that nobody listens on, below those the kernel hands to clients."""
    while True:
        port = next(_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


async def eventually(probe: Callable[[], Awaitable[T]], what: str, timeout_seconds: float = 20.0) -> T:
    """
    Ask *probe* until it answers something true, and return that.

    An API error counts as "not yet". Raises: NotInTimeError naming *what* and the last answer.
    """
    deadline = time.monotonic() + timeout_seconds
    last: T | Exception | None = None
    while time.monotonic() < deadline:
        try:
            last = await probe()
        except (ApiError, aiohttp.ClientError, OSError) as error:
            last = error
        else:
            if last:
                return last
        await asyncio.sleep(POLL_SECONDS)
    raise NotInTimeError(f"{what}: not within {timeout_seconds:g} s; last answer: {last!r}")


class Cluster:
    """
    A running cluster below one folder.

    `api` talks to its API server; `processes[name]` are `apiserver`, `webhook`, `scheduler`, `kube-scheduler`, and for
    each Node `kubelet-<node>`, `plugin-<node>`, `monitor-<node>`.
    """

    def __init__(
        self,
        folder: Path,
        nodes: tuple[FakeNode, ...] = TWO_NODES,
        *,
        service_flags: Mapping[str, tuple[str, ...]] | None = None,
        service_environment: Mapping[str, str] | None = None,
        outlives_us: bool = False,
    ) -> None:
        self.folder = folder
        self.nodes = nodes
        self.api: Client
        self.kubeconfig = folder / "kubeconfig"
        self.namespace = "default"
        """Where Pods are made and looked for."""
        self.ports: dict[str, int] = {}
        self._supervisor = Supervisor(folder, outlives_us=outlives_us)
        self._flags = service_flags or {}
        self._environment = service_environment or {}

    @property
    def processes(self) -> dict[str, Process]:
        """All processes, by name."""
        return self._supervisor.processes

    def node_folder(self, node: str) -> Path:
        """Return the folder that plays *node*'s host."""
        return self.folder / node

    async def start(self, step: Callable[[str], None] = lambda _: None) -> None:
        """
        Bring all parts up, telling *step* what happens, until every device is allocatable.

        Raises: NotInTimeError with the log's end of the part that did not come up.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        step("API server")
        self._start_apiserver()
        await self._until(self.kubeconfig.exists, "apiserver")
        self.api = Client.from_kubeconfig(self.kubeconfig, "e2e")
        step("webhook, scheduler, kube-scheduler")
        authority = issue(self.folder / "tls")
        self._start_control_plane()
        for node in self.nodes:
            step(f"{node.name}: kubelet, device plugin, monitor")
            self._start_node(node)
        await asyncio.gather(*(self.ready(name) for name in ("webhook", "scheduler")))
        await self.api.create(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", self._webhook_object(authority)
        )
        step("devices allocatable")
        await asyncio.gather(*(self.node_ready(node.name) for node in self.nodes))
        await asyncio.gather(*(self.ready(f"monitor-{node.name}") for node in self.nodes))

    async def leave(self) -> None:
        """Let go of the cluster without ending anything."""
        if hasattr(self, "api"):
            await self.api.close()

    async def stop(self) -> None:
        """End every process, containers included."""
        await self.leave()
        self._supervisor.stop()

    # --- parts -----------------------------------------------------------------------------------------------------

    def _start_apiserver(self) -> None:
        port = self.ports.setdefault("apiserver", free_port())
        self._minicluster(
            "apiserver",
            *("apiserver", f"--listen=127.0.0.1:{port}", f"--kubeconfig={self.kubeconfig}"),
            f"--data={self.folder / 'apiserver'}",
        )

    def _start_control_plane(self) -> None:
        for name in ("webhook", "webhook-metrics", "scheduler", "scheduler-metrics"):
            self.ports[name] = free_port()
        self._service(
            "webhook",
            *("--cert_file", str(self.folder / "tls/tls.crt"), "--key_file", str(self.folder / "tls/tls.key")),
        )
        self._service("scheduler")
        config = self.folder / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(self._kube_scheduler_config()))
        self._minicluster("kube-scheduler", "kube-scheduler", f"--kubeconfig={self.kubeconfig}", f"--config={config}")

    def _start_node(self, node: FakeNode) -> None:
        host = self.node_folder(node.name)
        node.write_hardware(host / "hardware")
        hook = host / "hook"
        (hook / "vgpu").mkdir(parents=True, exist_ok=True)
        self.ports[f"monitor-{node.name}"] = free_port()
        self.ports[f"plugin-{node.name}"] = free_port()
        self._minicluster(
            f"kubelet-{node.name}",
            *("kubelet", f"--kubeconfig={self.kubeconfig}", f"--node={node.name}", f"--root={host}"),
            *(f"--driver-libs={NATIVE / 'fake_driver'}", f"--hardware={host / 'hardware'}"),
            *("--backoff-scale=0.1", "--stop-containers-on-exit"),
        )
        driver = {
            "LD_LIBRARY_PATH": str(NATIVE / "fake_driver"),
            "FAKE_DRIVER_DIR": str(host / "hardware"),
            "NODE_NAME": node.name,
            **self._environment,
        }
        self._supervisor.start(
            f"plugin-{node.name}",
            [
                *(str(BIN / "hami-device-plugin"), f"--kubeconfig={self.kubeconfig}"),
                f"--config-file={DEVICE_CONFIG}",
                f"--kubelet-socket={host / 'device-plugins/kubelet.sock'}",
                f"--pod-resources-socket={host / 'pod-resources/kubelet.sock'}",
                f"--cdi-root={host / 'cdi'}",
                f"--lock-directory={host / 'vgpulock'}",
                f"--library={NATIVE / 'libvgpu.so'}",
                f"--metrics-bind-address=127.0.0.1:{self.ports[f'plugin-{node.name}']}",
                *self._flags.get("device-plugin", ()),
            ],
            {**driver, "HOOK_PATH": str(hook)},
        )
        self._supervisor.start(
            f"monitor-{node.name}",
            [
                *(str(BIN / "hami-monitor"), f"--kubeconfig={self.kubeconfig}"),
                f"--metrics-bind-address=127.0.0.1:{self.ports[f'monitor-{node.name}']}",
                *self._flags.get("monitor", ()),
            ],
            {**driver, "HOOK_PATH": str(hook / "vgpu")},
        )

    def _minicluster(self, name: str, *arguments: str) -> None:
        # Containers inherit the kubelet's PATH, as they would an image's: the workloads are installed beside Python.
        path = f"{BIN}:{os.environ.get('PATH', os.defpath)}"
        self._supervisor.start(name, [str(BIN / "python"), "-m", "minicluster", *arguments], {"PATH": path})

    def _service(self, name: str, *arguments: str) -> None:
        self._supervisor.start(
            name,
            [
                *(str(BIN / f"hami-{name}"), f"--kubeconfig={self.kubeconfig}"),
                f"--http_bind=127.0.0.1:{self.ports[name]}",
                f"--metrics-bind-address=127.0.0.1:{self.ports[f'{name}-metrics']}",
                *(f"--scheduler-name={SCHEDULER_NAME}", f"--device-config-file={DEVICE_CONFIG}"),
                *arguments,
                *self._flags.get(name, ()),
            ],
            self._environment,
        )

    def _kube_scheduler_config(self) -> Object:
        names = ("gpu", "gpumem", "gpucores", "gpumem-percentage", "priority")
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "percentageOfNodesToScore": 100,
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": SCHEDULER_NAME}, {"schedulerName": "default-scheduler"}],
            "extenders": [
                {
                    "urlPrefix": f"http://127.0.0.1:{self.ports['scheduler']}",
                    "filterVerb": "filter",
                    "bindVerb": "bind",
                    "nodeCacheCapable": True,
                    "weight": 1,
                    "httpTimeout": "30s",
                    "managedResources": [{"name": f"nvidia.com/{name}", "ignoredByScheduler": True} for name in names],
                }
            ],
        }

    def _webhook_object(self, authority: bytes) -> Object:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "hami-webhook"},
            "webhooks": [
                {
                    "name": "vgpu.hami.io",
                    "admissionReviewVersions": ["v1", "v1beta1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 10,
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{self.ports['webhook']}/webhook",
                        "caBundle": base64.b64encode(authority).decode(),
                    },
                    "rules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                    ],
                    "objectSelector": {
                        "matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]
                    },
                }
            ],
        }

    # --- waiting ---------------------------------------------------------------------------------------------------

    async def _until(self, holds: Callable[[], bool], name: str) -> None:
        async def probe() -> bool:
            if not self.processes[name].is_running:
                raise NotInTimeError(f"{name} ended; its log:\n{self.processes[name].tail()}")
            return holds()

        await eventually(probe, f"{name} is up")

    def _metrics_port(self, name: str) -> int:
        """Return where the service *name* serves health and metrics."""
        return self.ports[name] if name.startswith(("monitor-", "plugin-")) else self.ports[f"{name}-metrics"]

    async def ready(self, name: str, timeout_seconds: float = 20.0) -> None:
        """Wait until the service *name* says it is ready on its metrics address."""
        port = self._metrics_port(name)

        async def probe() -> bool:
            if not self.processes[name].is_running:
                raise NotInTimeError(f"{name} ended; its log:\n{self.processes[name].tail()}")
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return answer.status == 200

        try:
            await eventually(probe, f"{name} is ready", timeout_seconds)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}\n{self.processes[name].tail()}") from error

    async def node_ready(self, node: str, timeout_seconds: float = 20.0) -> None:
        """Wait until *node* offers devices: to the kubelet and in its inventory."""

        async def probe() -> bool:
            found = await self.api.get(f"/api/v1/nodes/{node}")
            offered = int(found.get("status", {}).get("allocatable", {}).get("nvidia.com/gpu", 0))
            return offered > 0 and "hami.io/node-nvidia-register" in found["metadata"].get("annotations", {})

        try:
            await eventually(probe, f"{node} offers devices", timeout_seconds)
        except NotInTimeError as error:
            logs = "\n".join(self.processes[f"{part}-{node}"].tail() for part in ("kubelet", "plugin"))
            raise NotInTimeError(f"{error}\n{logs}") from error

    # --- objects ---------------------------------------------------------------------------------------------------

    async def apply(self, source: Path | str) -> list[Object]:
        """Create every object of a manifest and return them as the API server made them."""
        text = source.read_text() if isinstance(source, Path) else source
        made = []
        for manifest in yaml.safe_load_all(text):
            made.append(await self.create(manifest))
        return made

    async def create(self, manifest: Object) -> Object:
        """Create one core object; what has a namespace goes into this cluster's `namespace`."""
        plural = manifest["kind"].lower() + "s"
        within = "" if manifest["kind"] in {"Namespace", "Node"} else f"/namespaces/{self.namespace}"
        made: Object = await self.api.create(f"/api/v1{within}/{plural}", manifest)
        return made

    async def pod(self, name: str) -> Object:
        """Return the Pod as it is now."""
        found: Object = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return found

    async def pod_in_phase(self, name: str, phase: str, timeout_seconds: float = 20.0) -> Object:
        """Wait until the Pod is in *phase*, and for Running until every container runs; return it."""

        async def probe() -> Object | None:
            found = await self.pod(name)
            statuses = found["status"].get("containerStatuses", [])
            running = bool(statuses) and all("running" in status["state"] for status in statuses)
            return found if found["status"]["phase"] == phase and (phase != "Running" or running) else None

        try:
            found = await eventually(probe, f"Pod {self.namespace}/{name} is {phase}", timeout_seconds)
        except NotInTimeError as error:
            events = "\n".join(f"  {event['reason']}: {event['message']}" for event in await self.events(name))
            raise NotInTimeError(f"{error}\nits Events:\n{events}") from error
        assert found is not None
        return found

    async def events(self, pod: str) -> list[Object]:
        """Return the Events about a Pod, oldest first."""
        found, _ = await self.api.list(f"/api/v1/namespaces/{self.namespace}/events")
        return [event for event in found if event["involvedObject"].get("name") == pod]

    async def log(self, pod: str, container: str = "main") -> str:
        """Return what a container has printed so far."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        address = f"{self.api.server}{path}"
        async with aiohttp.ClientSession() as session, session.get(address, params={"container": container}) as answer:
            return await answer.text()

    async def log_line(self, text: str, pod: str, container: str = "main") -> str:
        """Wait until a container has printed a line with *text*, and return that line."""

        async def probe() -> str | None:
            lines = (await self.log(pod, container)).splitlines()
            return next((line for line in lines if text in line), None)

        found = await eventually(probe, f"{self.namespace}/{pod} {container} prints {text!r}")
        assert found is not None
        return found

    async def delete_pod(self, name: str, grace_seconds: int = 1) -> None:
        """Delete the Pod and wait until it is gone."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        await self.api.delete(path, grace_seconds)

        async def probe() -> bool:
            try:
                await self.api.get(path)
            except ApiError as error:
                return error.status == 404
            return False

        await eventually(probe, f"Pod {self.namespace}/{name} is gone")

    async def delete_all_pods(self) -> None:
        """Delete every Pod of the namespace and wait until all are gone."""
        pods, _ = await self.api.list(f"/api/v1/namespaces/{self.namespace}/pods")
        await asyncio.gather(*(self.delete_pod(pod["metadata"]["name"]) for pod in pods))

    async def metrics(self, name: str) -> str:
        """Return what the service *name* exports."""
        port = self._metrics_port(name)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            return await answer.text()

    async def restart(self, name: str) -> None:
        """Start a process again after it was killed, and wait until it is ready."""
        self._supervisor.restart(name)
        if name.startswith(("webhook", "scheduler", "monitor-", "plugin-")):
            await self.ready(name)
        elif name == "apiserver":
            await eventually(lambda: self.api.get("/version"), "the API server answers")


def sweep(folder: Path) -> list[str]:
    """End all that an earlier run left in *folder*, containers included, empty it, and return the processes' names."""
    ended = stop_leftovers(folder)
    for pods in folder.glob("*/pods"):
        kill_all(pods.parent)
    for path in folder.glob("*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return ended


@asynccontextmanager
async def running(folder: Path, nodes: tuple[FakeNode, ...] = TWO_NODES, **options: Any) -> AsyncIterator[Cluster]:
    """A cluster for the length of a block; what an earlier run left in *folder* is ended first."""
    sweep(folder)
    cluster = Cluster(folder, nodes, **options)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
