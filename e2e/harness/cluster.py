"""
A cluster with the four services on it, embedded or real.

Owns what works the same on both: objects, Events and logs through the API server, and waiting. Must never know how a
part is started. Neighbours: `embedded` and `real` are the clusters, `invariants` says what must hold.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hamicommon.dra.names import DRA, PLUGIN, node_kind
from hamicommon.model import Object, Share
from hamicommon.pod.reading import read_pod
from hamicommon.wire import keys
from minicluster.client import Client
from testbed.driver.hardware import FakeNode
from testbed.waiting import NotInTimeError, eventually

if TYPE_CHECKING:
    from harness.history.recorder import Recorder

ROOT = Path(__file__).resolve().parents[2]
SCHEDULER_NAME = "hami-scheduler"
ALLOCATED = "hami.io/vgpu-devices-allocated"

Requests = Counter[tuple[str, str, str]]
"""Number of requests by user agent (the part before `/`), verb (`create`, `patch`) and resource (`pods/binding`)."""


@dataclass(frozen=True)
class Settings:
    """Settings of the services that differ from the defaults."""

    wire_version: str = ""
    """The HAMi release whose wire forms are written. Empty means the newest."""
    allocation: str = "auto"
    """How the device plugins find the Pod an allocation is for: `auto`, `identity` or `lock`."""
    prioritize_weight: int = 0
    """Weight of the extender's ranks if kube-scheduler chooses the Node. 0 means that the extender names one Node."""
    gpu_scheduler_policy: str = "spread"
    """The device policy of Pods without the annotation."""
    device_config: Path | None = None
    """None means a device config with NVIDIA devices."""
    node_config: Path | None = None
    """Settings of single Nodes, HAMi's `config.json`. None means none."""
    driver_root: str = ""
    """The driver root on the Nodes. Empty means that the container runtime gives the services the driver."""
    plugin_flags: tuple[str, ...] = ("--cdi-generator=",)
    """More flags of the device plugins of an embedded cluster, whose runtime gives containers the driver."""
    node_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Still more of them on single Nodes of an embedded cluster, by Node. The last of equal flags counts."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """More values of the chart on a real cluster, by name."""
    status_seconds: float = 0.3
    """How often the kubelets of an embedded cluster write a changed status of their Nodes. Real ones do every 10 s."""


class Cluster(ABC):
    """
    A running cluster.

    Its parts are named `apiserver`, `webhook`, `scheduler`, `kube-scheduler`, and for each Node `kubelet-<node>`,
    `plugin-<node>` and `monitor-<node>`.
    """

    nodes: tuple[FakeNode, ...]
    api: Client
    folder: Path
    """All its files. It is gone after the run."""
    kubeconfig: Path
    recorder: "Recorder | None" = None
    """Of its history; see `harness.recording`."""
    namespace: str = "default"
    """The namespace of all Pods that are created and read."""
    gives_percentages = True
    """Whether a Pod can ask for a part of a device's memory in percent."""

    @property
    def search_path(self) -> str:
        """The PATH of the commands with which people work on this cluster, such as kubectl."""
        return os.environ.get("PATH", os.defpath)

    @property
    def serves_claims(self) -> bool:
        """Whether its API server has ResourceClaims and ResourceSlices, which its history then has."""
        return False

    # --- parts -----------------------------------------------------------------------------------------------------

    @abstractmethod
    async def kill(self, part: str) -> None:
        """Kill every process of *part* (SIGKILL)."""

    @abstractmethod
    async def restart(self, part: str) -> None:
        """Start *part* again after it was killed, and wait until it is ready."""

    @abstractmethod
    async def heal(self) -> None:
        """Start every part that does not run."""

    @abstractmethod
    async def metrics(self, part: str) -> str:
        """Return the metrics of the service *part*."""

    @abstractmethod
    async def ask_filter(self, question: Object) -> Object:
        """Return the scheduler's answer to `POST /filter`."""

    @abstractmethod
    def counted(self) -> AbstractAsyncContextManager[Requests]:
        """Count the API server's requests during a block. The counter is filled when the block ends."""

    @abstractmethod
    async def pid(self, part: str) -> int:
        """Return the pid on this machine of the only process of *part*, a service of a Node."""

    @abstractmethod
    async def device_config(self) -> str:
        """Return the device config of the services, empty if there is none yet."""

    # --- nodes -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def environment(self, pod: Object, container: str = "main") -> dict[str, str]:
        """
        Return the initial environment of a running container's first process.

        Raises: OSError if the container has ended.
        """

    def shares_in(self, pod: Object, container: str = "main") -> list[str]:
        """Return memory and compute of each device in a running container's environment, such as `3000m 25`."""
        env = self.environment(pod, container)
        limits = [env[key] for key in sorted(env) if key.startswith("CUDA_DEVICE_MEMORY_LIMIT_")]
        return [f"{limit} {env['CUDA_DEVICE_SM_LIMIT']}" for limit in limits]

    @abstractmethod
    def vgpu_folder(self, node: str) -> Path:
        """Return the Node's folder `/usr/local/vgpu`. Its folder `containers` holds the region files."""

    @abstractmethod
    def cdi_folder(self, node: str) -> Path:
        """Return the folder where the Node's container runtime reads CDI specs."""

    @abstractmethod
    def driver_folder(self, node: str) -> Path:
        """Return the folder of the Node's fake driver, FAKE_DRIVER_DIR."""

    @abstractmethod
    def device_plugins_folder(self, node: str) -> Path:
        """Return the folder with the sockets of the Node's kubelet and plugins, and the kubelet's checkpoint."""

    async def node_ready(self, node: str, timeout_seconds: float = 20.0) -> None:
        """Wait until *node* is of the kind that its label says, offers devices and has an inventory."""

        async def probe() -> bool:
            found = await self.api.get(f"/api/v1/nodes/{node}")
            kind = found["metadata"].get("labels", {}).get(keys.NODE_KIND, PLUGIN)
            is_told = "hami.io/node-nvidia-register" in found["metadata"].get("annotations", {})
            return is_told and kind == node_kind(found) and await self._offers(found, kind)

        await eventually(probe, f"{node} offers devices", timeout_seconds)

    async def _offers(self, node: Object, kind: str) -> bool:
        if kind != DRA:
            return int(node.get("status", {}).get("allocatable", {}).get("nvidia.com/gpu", 0)) > 0
        slices = "/apis/resource.k8s.io/v1/resourceslices"
        return bool((await self.api.list(slices, fieldSelector=f"spec.nodeName={node['metadata']['name']}"))[0])

    async def offered(self, node: str) -> int:
        """Return how many shares the devices of *node* that take new ones have at most."""
        found = await self.api.get(f"/api/v1/nodes/{node}")
        return int(found["status"]["allocatable"].get("nvidia.com/gpu", 0))

    async def granted(self, pod: Object) -> list[tuple[Share, ...]]:
        """Return the shares of each container of *pod*, init containers first."""
        return list(read_pod(pod).granted(ALLOCATED).shares)

    # --- objects ---------------------------------------------------------------------------------------------------

    async def use_namespace(self, name: str) -> None:
        """Create a namespace, and use it from now on."""
        await self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.namespace = name

    async def apply(self, source: Path | str) -> list[Object]:
        """Create every object of a manifest, and return the API server's answers."""
        text = source.read_text() if isinstance(source, Path) else source
        made = []
        for manifest in yaml.safe_load_all(text):
            made.append(await self.create(manifest))
        return made

    async def create(self, manifest: Object) -> Object:
        """Create one core object, in `namespace` unless its kind has none."""
        plural = manifest["kind"].lower() + "s"
        within = "" if manifest["kind"] in {"Namespace", "Node"} else f"/namespaces/{self.namespace}"
        made: Object = await self.api.create(f"/api/v1{within}/{plural}", manifest)
        return made

    async def pod(self, name: str) -> Object:
        """Return the Pod as it is now."""
        found: Object = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return found

    async def pod_in_phase(self, name: str, phase: str, timeout_seconds: float = 20.0) -> Object:
        """Wait until the Pod is in *phase*, and return it. Running also means that every container runs."""

        async def probe() -> Object | None:
            found = await self.pod(name)
            statuses = found["status"].get("containerStatuses", [])
            running = bool(statuses) and all("running" in status["state"] for status in statuses)
            return found if found["status"]["phase"] == phase and (phase != "Running" or running) else None

        try:
            return await eventually(probe, f"Pod {self.namespace}/{name} is {phase}", timeout_seconds)
        except NotInTimeError as error:
            events = "\n".join(f"  {event['reason']}: {event['message']}" for event in await self.events(name))
            raise NotInTimeError(f"{error}\nits Events:\n{events}") from error

    async def events(self, pod: str) -> list[Object]:
        """Return the Events about a Pod, oldest first."""
        found, _ = await self.api.list(f"/api/v1/namespaces/{self.namespace}/events")
        return [event for event in found if event["involvedObject"].get("name") == pod]

    async def log(self, pod: str, container: str = "main") -> str:
        """Return the log of a container."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        return await self.api.text(path, container=container)

    async def log_line(self, text: str, pod: str, container: str = "main") -> str:
        """Wait until the log of a container has a line with *text*, and return that line."""

        async def probe() -> str | None:
            lines = (await self.log(pod, container)).splitlines()
            return next((line for line in lines if text in line), None)

        return await eventually(probe, f"{self.namespace}/{pod} {container} prints {text!r}")

    async def pod_gone(self, name: str, timeout_seconds: float = 20.0) -> None:
        """Wait until the Pod does not exist."""

        async def probe() -> bool:
            return not await self.api.exists(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

        await eventually(probe, f"Pod {self.namespace}/{name} is gone", timeout_seconds)

    async def delete_pod(self, name: str, grace_seconds: int = 1) -> None:
        """Delete the Pod and wait until it is gone."""
        await self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}", grace_seconds)
        await self.pod_gone(name)

    async def delete_all_pods(self, grace_seconds: int = 1) -> None:
        """Delete every Pod of the namespace and wait until all are gone. Some may be ending already."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        pods, _ = await self.api.list(path)
        names = [pod["metadata"]["name"] for pod in pods]
        await asyncio.gather(*(self.api.delete_if_exists(f"{path}/{name}", grace_seconds) for name in names))

        async def none_left() -> bool:
            return not (await self.api.list(path))[0]

        await eventually(none_left, f"every Pod of {self.namespace} is gone", 60)


ClusterOf = Callable[[tuple[FakeNode, ...], Settings], AbstractAsyncContextManager[Cluster]]
"""The type of the fixture `cluster_of`: it yields a cluster with other nodes or settings."""
