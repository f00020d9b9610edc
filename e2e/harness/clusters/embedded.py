"""
The embedded cluster with the four services on it, each a process.

Owns how the parts are started and where their files are. Knows only the commands and flags of the services.
Neighbours: `testbed.processes` starts and ends processes, `minicluster` is the Kubernetes.
"""

import asyncio
import base64
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

from controlplane.pki import issue_serving
from hamicommon.config.device_config import load_device_config
from hamicommon.model import Object
from harness import recording
from harness.cluster import ROOT, SCHEDULER_NAME, Cluster, Requests, Settings
from harness.clusters.service_pods import HAMI, config_map, mirror
from minicluster.client import Client
from minicluster.kubelet.runtime.containers import kill_all
from testbed.driver.hardware import CGROUPS, TWO_NODES, FakeNode, StandInCgroups
from testbed.ports import free_port
from testbed.processes import Process, Supervisor, environment, stop_leftovers
from testbed.waiting import NotInTimeError, eventually

BIN = Path(sys.executable).parent
NATIVE = ROOT / "build/native"
FAKE_DRIVER = NATIVE / "fake_driver"
DEVICE_CONFIG = Path(__file__).with_name("device-config.yaml")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class EmbeddedCluster(Cluster):
    """A cluster below one folder. `processes` are its parts by name."""

    start_seconds = 20.0
    """How long a part may take to start."""

    def __init__(
        self,
        folder: Path,
        nodes: tuple[FakeNode, ...] = TWO_NODES,
        settings: Settings | None = None,
        *,
        outlives_us: bool = False,
        is_recorded: bool = False,
    ) -> None:
        self.folder = folder
        self.nodes = nodes
        self.kubeconfig = folder / "kubeconfig"
        self._settings = settings or Settings()
        self._device_config = self._settings.device_config or DEVICE_CONFIG
        self._ports: dict[str, int] = {}
        self._is_recorded = is_recorded
        self._supervisor = Supervisor(folder, outlives_us=outlives_us)

    @property
    def processes(self) -> dict[str, Process]:
        """All processes, by name."""
        return self._supervisor.processes

    async def start(self, step: Callable[[str], None] = lambda _: None) -> None:
        """
        Start all parts, report each step to *step*, and wait until every device is allocatable.

        Raises: NotInTimeError with the end of the log of the part that did not start.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        step("API server")
        self._start_apiserver()
        await self._until(self.kubeconfig.exists, "apiserver")
        self.api = Client.from_kubeconfig(self.kubeconfig, "e2e")
        if self._is_recorded:
            await recording.begin(self)
        step("webhook, scheduler, kube-scheduler")
        authority = issue_serving(self.folder / "tls")
        self._start_control_plane()
        for node in self.nodes:
            step(f"{node.name}: kubelet, device plugin, monitor")
            self._start_node(node)
        await asyncio.gather(*(self.ready(name) for name in ("webhook", "scheduler")))
        await self.api.create(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", self._webhook_object(authority)
        )
        step("waiting for the devices")
        await asyncio.gather(*(self.node_ready(node.name) for node in self.nodes))
        await asyncio.gather(*(self.ready(f"monitor-{node.name}") for node in self.nodes))
        await self._mirror_services()

    async def leave(self) -> None:
        """End the recording, close the connections, and leave all processes running."""
        if self.recorder:
            await self.recorder.stop()
        if hasattr(self, "api"):
            await self.api.close()

    async def stop(self) -> None:
        """End every process, including containers."""
        await self.leave()
        self._supervisor.stop()

    # --- the interface of Cluster ------------------------------------------------------------------------------------

    async def kill(self, part: str) -> None:
        """Kill the process of a part (SIGKILL)."""
        self.processes[part].kill()

    async def restart(self, part: str) -> None:
        """Start a part again after it was killed, and wait until it is ready."""
        self._supervisor.restart(part)
        if part.startswith(("webhook", "scheduler", "monitor-", "plugin-")):
            await self.ready(part)
        elif part == "apiserver":
            await eventually(lambda: self.api.get("/version"), "the API server answers")

    async def replace_plugin(self, node: FakeNode, allocation: str) -> None:
        """Start another device plugin in place of a killed one, and wait until the Node's devices are allocatable."""
        self._start_plugin(node, allocation)
        await self.ready(f"plugin-{node.name}")
        await self.node_ready(node.name)

    async def heal(self) -> None:
        """Start every process that has ended."""
        for name, process in self.processes.items():
            if not process.is_running:
                await self.restart(name)

    async def pid(self, part: str) -> int:
        """Return that of the process."""
        return self.processes[part].pid

    async def metrics(self, part: str) -> str:
        """Return the metrics of the service *part*."""
        address = f"http://127.0.0.1:{self._metrics_port(part)}/metrics"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return await answer.text()

    async def ask_filter(self, question: Object) -> Object:
        """Send the request to the address that kube-scheduler uses."""
        address = f"http://127.0.0.1:{self._ports['scheduler']}/filter"
        async with aiohttp.ClientSession() as session, session.post(address, json=question) as answer:
            found: Object = await answer.json()
            return found

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[Requests]:
        """Use the counter of the API server."""
        await self.api.request("DELETE", "/minicluster/requests")
        counted = Requests()
        yield counted
        for row in await self.api.get("/minicluster/requests"):
            verb = VERBS.get(row["verb"], row["verb"].lower())
            counted[row["user_agent"].split("/")[0], verb, row["resource"]] += row["count"]

    @property
    def explain_url(self) -> str:
        """The URL at which the scheduler explains decisions."""
        return f"http://127.0.0.1:{self._ports['scheduler-explain']}"

    async def device_config(self) -> str:
        """Read the file of the services."""
        return self._device_config.read_text()

    def environment(self, pod: Object, container: str = "main") -> dict[str, str]:
        """Read it from /proc."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        pid = int((self.folder / node / "pods" / uid / container / "pid").read_text())
        return environment(pid)

    def vgpu_folder(self, node: str) -> Path:
        """Return a folder below the Node's folder."""
        return self.folder / node / "hook/vgpu"

    def cdi_folder(self, node: str) -> Path:
        """Return a folder below the Node's folder."""
        return self.folder / node / "cdi"

    def driver_folder(self, node: str) -> Path:
        """Return a folder below the Node's folder."""
        return self.folder / node / "hardware"

    def device_plugins_folder(self, node: str) -> Path:
        """Return a folder below the Node's folder."""
        return self.folder / node / "device-plugins"

    # --- parts -----------------------------------------------------------------------------------------------------

    def _start_apiserver(self) -> None:
        port = self._ports.setdefault("apiserver", free_port())
        self._minicluster(
            "apiserver",
            *("apiserver", f"--listen=127.0.0.1:{port}", f"--kubeconfig={self.kubeconfig}"),
            f"--data={self.folder / 'apiserver'}",
        )

    def _start_control_plane(self) -> None:
        for name in ("webhook", "webhook-metrics", "scheduler", "scheduler-metrics", "scheduler-explain"):
            self._ports[name] = free_port()
        self._service(
            "webhook",
            *("--cert_file", str(self.folder / "tls/tls.crt"), "--key_file", str(self.folder / "tls/tls.key")),
        )
        self._service(
            "scheduler",
            f"--explain-bind-address=127.0.0.1:{self._ports['scheduler-explain']}",
            f"--prioritize={'true' if self._settings.prioritize_weight else 'false'}",
            f"--gpu-scheduler-policy={self._settings.gpu_scheduler_policy}",
        )
        config = self.folder / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(self._kube_scheduler_config()))
        self._minicluster("kube-scheduler", "kube-scheduler", f"--kubeconfig={self.kubeconfig}", f"--config={config}")

    def port(self, name: str) -> int:
        """Return the port of a service, or of one of its listeners, by its name."""
        return self._ports[name]

    async def start_replica(self, host: str, election: Object) -> None:
        """
        Start one more kube-scheduler with its scheduler, as if on *host*, with the leader *election* of its config.

        They are named `kube-scheduler-<host>` and `scheduler-<host>`.
        """
        metrics, explain = f"scheduler-{host}-metrics", f"scheduler-{host}-explain"
        for name in (f"scheduler-{host}", metrics, explain):
            self._ports[name] = free_port()
        self._start_service(
            f"scheduler-{host}",
            [
                *(sys.executable, "-m", "testbed.launch.named", host, str(BIN / "hami-scheduler")),
                *self._service_flags(f"scheduler-{host}"),
                *(f"--explain-bind-address=127.0.0.1:{self._ports[explain]}", "--leader-elect=true"),
                f"--leader-elect-resource-name={election['resourceName']}",
                f"--leader-elect-resource-namespace={election['resourceNamespace']}",
            ],
            self._environment(),
        )
        config = {**self._kube_scheduler_config(f"scheduler-{host}"), "leaderElection": election}
        path = self.folder / f"kube-scheduler-{host}.yaml"
        path.write_text(yaml.safe_dump(config))
        self._supervisor.start(
            f"kube-scheduler-{host}",
            [
                *(sys.executable, "-m", "testbed.launch.named", host, "-m", "minicluster"),
                *("kube-scheduler", f"--kubeconfig={self.kubeconfig}", f"--config={path}"),
            ],
        )
        await self.ready(f"scheduler-{host}")
        if self.nodes:  # a client finds the leader by the Pod's name, which is its hostname
            ports = {"metrics": self._ports[metrics], "explain": self._ports[explain]}
            await mirror(self.api, host, "scheduler", self.nodes[0].name, ports)

    async def _mirror_services(self) -> None:
        """Create the Pods by which clients find the services, and the chart's ConfigMaps."""
        await self.api.create("/api/v1/namespaces", {"metadata": {"name": HAMI}})
        await config_map(self.api, "hami-scheduler-device", "device-config.yaml", self._device_config.read_text())
        await config_map(self.api, "hami-scheduler", "config.yaml", yaml.safe_dump(self._kube_scheduler_config()))
        if not self.nodes:
            return  # Nothing that could run the services' Pods.
        first = self.nodes[0].name
        ports = {"metrics": self._ports["scheduler-metrics"], "explain": self._ports["scheduler-explain"]}
        await mirror(self.api, "hami-scheduler", "scheduler", first, ports)
        await mirror(self.api, "hami-webhook", "webhook", first, {"metrics": self._ports["webhook-metrics"]})
        for node in self.nodes:
            for short, component in (("monitor", "monitor"), ("plugin", "device-plugin")):
                metrics = {"metrics": self._ports[f"{short}-{node.name}"]}
                await mirror(self.api, f"hami-{component}-{node.name}", component, node.name, metrics)

    def _start_node(self, node: FakeNode) -> None:
        host = self.folder / node.name
        node.write_hardware(host / "hardware")
        (host / "hook/vgpu").mkdir(parents=True, exist_ok=True)
        self._ports[f"monitor-{node.name}"] = free_port()
        self._ports[f"plugin-{node.name}"] = free_port()
        self._minicluster(
            f"kubelet-{node.name}",
            *("kubelet", f"--kubeconfig={self.kubeconfig}", f"--node={node.name}", f"--root={host}"),
            *(f"--driver-libs={FAKE_DRIVER}", f"--hardware={host / 'hardware'}"),
            *("--backoff-scale=0.1", "--stop-containers-on-exit"),
            f"--status-seconds={self._settings.status_seconds}",
        )
        self._start_plugin(node, self._settings.allocation)
        self._start_service(
            f"monitor-{node.name}",
            [
                *(str(BIN / "hami-monitor"), f"--kubeconfig={self.kubeconfig}"),
                f"--metrics-bind-address=127.0.0.1:{self._ports[f'monitor-{node.name}']}",
            ],
            {**self._node_environment(node), "HOOK_PATH": str(host / "hook/vgpu")},
        )

    def _start_plugin(self, node: FakeNode, allocation: str) -> None:
        host = self.folder / node.name
        self._start_service(
            f"plugin-{node.name}",
            [
                *(str(BIN / "hami-device-plugin"), f"--kubeconfig={self.kubeconfig}"),
                f"--config-file={self._device_config}",
                f"--kubelet-socket={host / 'device-plugins/kubelet.sock'}",
                f"--pod-resources-socket={host / 'pod-resources/kubelet.sock'}",
                f"--cdi-root={host / 'cdi'}",
                f"--library={NATIVE / 'libvgpu.so'}",
                f"--metrics-bind-address=127.0.0.1:{self._ports[f'plugin-{node.name}']}",
                f"--allocation={allocation}",
                f"--node-config-file={self._settings.node_config or host / 'none'}",
                *self._settings.plugin_flags,
                *self._settings.node_flags.get(node.name, ()),
            ],
            {
                **self._node_environment(node),
                "HOOK_PATH": str(host / "hook"),
                "ENABLE_TOPOLOGY_SCORE": str("topology-aware" in self._settings.gpu_scheduler_policy).lower(),
            },
        )

    def _node_environment(self, node: FakeNode) -> dict[str, str]:
        """Return what services on *node* are told beside their flags."""
        return {
            "LD_LIBRARY_PATH": str(FAKE_DRIVER),
            "FAKE_DRIVER_DIR": str(self.folder / node.name / "hardware"),
            "NODE_NAME": node.name,
            **self._groups_of(node),
            **self._environment(),
        }

    def _groups_of(self, node: FakeNode) -> dict[str, str]:
        """Return the variables by which the driver finds a stand-in for cgroup v2, on a Node that names its driver."""
        groups = StandInCgroups(self.folder / node.name / "hardware" / CGROUPS) if node.driver else None
        return groups.variables("/") if groups else {}

    def _minicluster(self, name: str, *arguments: str) -> None:
        # Containers inherit this PATH, as they would inherit an image's. The workloads are installed beside Python.
        path = f"{BIN}:{os.environ.get('PATH', os.defpath)}"
        self._supervisor.start(name, [str(BIN / "python"), "-m", "minicluster", *arguments], {"PATH": path})

    def _service(self, name: str, *arguments: str) -> None:
        command = [str(BIN / f"hami-{name}"), *self._service_flags(name), *arguments]
        self._start_service(name, command, self._environment())

    def _start_service(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the process *name* of one of our services."""
        self._supervisor.start(name, argv, environment)

    def _service_flags(self, name: str) -> list[str]:
        """Return the flags of the webhook or of a scheduler, by its name."""
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--http_bind=127.0.0.1:{self._ports[name]}",
            f"--metrics-bind-address=127.0.0.1:{self._ports[f'{name}-metrics']}",
            *(f"--scheduler-name={SCHEDULER_NAME}", f"--device-config-file={self._device_config}"),
            *("--enable-ascend", "--enable-iluvatar"),
        ]

    def _environment(self) -> dict[str, str]:
        """Return the environment variables that every service gets."""
        version = self._settings.wire_version
        return {"HAMI_WIRE_VERSION": version} if version else {}

    def _kube_scheduler_config(self, scheduler: str = "scheduler") -> Object:
        weight = self._settings.prioritize_weight
        vendors = load_device_config(self._device_config.read_text()).vendors()
        names = {name for vendor in vendors for name in vendor.resource_names}
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "percentageOfNodesToScore": 100,
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": SCHEDULER_NAME}, {"schedulerName": "default-scheduler"}],
            "extenders": [
                {
                    "urlPrefix": f"http://127.0.0.1:{self._ports[scheduler]}",
                    "filterVerb": "filter",
                    "bindVerb": "bind",
                    **({"prioritizeVerb": "prioritize", "weight": weight} if weight else {}),
                    "nodeCacheCapable": True,
                    "httpTimeout": "30s",
                    "managedResources": [{"name": name, "ignoredByScheduler": True} for name in sorted(names)],
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
                        "url": f"https://127.0.0.1:{self._ports['webhook']}/webhook",
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

        await eventually(probe, f"{name} is up", self.start_seconds)

    def _metrics_port(self, name: str) -> int:
        """Return the port at which the service *name* serves health and metrics."""
        return self._ports[name] if name.startswith(("monitor-", "plugin-")) else self._ports[f"{name}-metrics"]

    async def ready(self, name: str, timeout_seconds: float | None = None) -> None:
        """Wait until the service *name* is ready."""
        port = self._metrics_port(name)

        async def probe() -> bool:
            if not self.processes[name].is_running:
                raise NotInTimeError(f"{name} ended; its log:\n{self.processes[name].tail()}")
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return answer.status == 200

        try:
            await eventually(probe, f"{name} is ready", timeout_seconds or self.start_seconds)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}\n{self.processes[name].tail()}") from error

    async def node_ready(self, node: str, timeout_seconds: float | None = None) -> None:
        """Wait until *node* offers devices. The error holds the end of the logs of its parts."""
        try:
            await super().node_ready(node, timeout_seconds or self.start_seconds)
        except NotInTimeError as error:
            logs = "\n".join(self.processes[f"{part}-{node}"].tail() for part in ("kubelet", "plugin"))
            raise NotInTimeError(f"{error}\n{logs}") from error


def sweep(folder: Path) -> list[str]:
    """End what an earlier run left in *folder*, containers included; empty it; return the names of the processes."""
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
async def running(
    folder: Path, nodes: tuple[FakeNode, ...] = TWO_NODES, settings: Settings | None = None
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster during a block, in an empty *folder* that is removed afterwards. Its history is recorded."""
    cluster = EmbeddedCluster(folder, nodes, settings, is_recorded=True)
    try:
        await cluster.start()
        yield cluster
        if cluster.recorder and cluster.processes["apiserver"].is_running:
            await cluster.recorder.settle()
    finally:
        await cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
