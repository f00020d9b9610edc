"""
The real cluster with the four services on it, deployed by the chart from built images.

Owns how a part is found, killed and waited for: by its Pod. Neighbours: `controlplane` is the Kubernetes, `release`
installs the chart, `tools/images.py` builds the images.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from controlplane import nvidia
from controlplane.cluster import ControlPlane
from controlplane.machines.machine import MachineError
from controlplane.programs.build import DEFAULT_KUBERNETES, binaries
from hamicommon.model import Object
from harness import recording
from harness.claims import is_new_enough
from harness.cluster import ROOT, Cluster, Requests, Settings
from harness.clusters.release import CHART, DEPLOY_SECONDS, HAMI, HOME_LABEL, Release, Value
from harness.isolation import enter_new_namespace
from minicluster.client import ApiError, Client
from testbed.driver.hardware import TWO_NODES, FakeNode
from testbed.processes import environment
from testbed.waiting import eventually

FOLDER = Path("/var/tmp") / "-".join(["hami-e2e", *filter(None, [os.environ.get("PYTEST_XDIST_WORKER")])])
"""The folder of the cluster. Each worker of pytest-xdist has its own."""
IMAGES = ROOT / "build/images"
RELEASED = IMAGES / "released"
"""The images of the newest release of each service, and its chart in `chart`. Missing in a shallow clone."""
LEADER_SECONDS = 30
"""A scheduler that was killed holds its Lease for up to 14.4 s."""
DEVICE_CONFIG = "device-config.yaml"
"""The key of the device config in its ConfigMap."""
ROLES = {"webhook": "webhook", "scheduler": "scheduler", "kube-scheduler": "scheduler"}
"""For each part that is not of one Node, the component whose Pod holds its container."""
NODE_ROLES = {"plugin": "device-plugin", "monitor": "monitor"}
_ASK = """
import sys, urllib.request
request = urllib.request.Request("http://127.0.0.1:8080/filter", sys.stdin.buffer.read())
request.add_header("Content-Type", "application/json")
sys.stdout.buffer.write(urllib.request.urlopen(request, timeout=10).read())
"""


class RealCluster(Cluster):
    """A control plane with Nodes, and the chart's release on it."""

    def __init__(self, control_plane: ControlPlane, nodes: tuple[FakeNode, ...], release: Release) -> None:
        self.control_plane = control_plane
        self.nodes = nodes
        self.release = release
        self.folder = control_plane.folder
        self.kubeconfig = control_plane.kubeconfig
        self.api = Client.from_kubeconfig(self.kubeconfig, "e2e")
        self._killed: set[str] = set()

    @classmethod
    @asynccontextmanager
    async def running(
        cls, kubernetes: str | None = None, nodes: tuple[FakeNode, ...] = TWO_NODES, *, is_kept: bool = False
    ) -> AsyncIterator[Self]:
        """Run a cluster during a block, with the release on it. It is removed afterwards unless *is_kept*."""
        images = [*sorted(IMAGES.glob("*.tar")), *sorted(RELEASED.glob("*.tar"))]
        control_plane = ControlPlane(FOLDER, kubernetes or DEFAULT_KUBERNETES, images=images, outlives_us=is_kept)
        try:
            await asyncio.to_thread(control_plane.up, nodes, print)
            cluster = cls(control_plane, nodes, Release(control_plane))
            for node in nodes:
                await cluster.api.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": dict(HOME_LABEL)}})
            await cluster.deploy()
            await recording.begin(cluster)
            yield cluster
            if cluster.recorder:
                await cluster.recorder.stop()
            await cluster.api.close()
        finally:
            if not is_kept:
                await asyncio.to_thread(control_plane.down)

    @property
    def search_path(self) -> str:
        """Kubernetes' own programs come first."""
        return f"{binaries(self.control_plane.kubernetes)}:{super().search_path}"

    @property
    def serves_claims(self) -> bool:
        """Whether a device can be shared by claims; older versions may have the API, and no claims of ours."""
        return is_new_enough(self.control_plane.kubernetes)

    # --- the release -----------------------------------------------------------------------------------------------

    async def deploy(
        self, settings: Settings | None = None, values: Mapping[str, Value] | None = None, chart: Path = CHART
    ) -> None:
        """Install *chart* with *settings* and *values*, and wait until every Node offers devices."""
        settings = settings or Settings()
        told: dict[str, Value] = {
            "wireVersion": settings.wire_version,
            "devicePlugin.allocation": settings.allocation,
            "devicePlugin.nvidiaDriverRoot": settings.driver_root,
            "scheduler.prioritizeWeight": settings.prioritize_weight,
            "scheduler.gpuSchedulerPolicy": settings.gpu_scheduler_policy,
        }
        await asyncio.to_thread(self.release.deploy, {**told, **settings.values, **(values or {})}, chart)
        await self.replaced()

    async def replaced(self) -> None:
        """Wait until every Pod of the DaemonSets is of the last release, and every Node offers devices."""
        await eventually(self._are_replaced, "every Pod of the DaemonSets is of the new release", DEPLOY_SECONDS)
        for node in self.nodes:
            await self.node_ready(node.name, DEPLOY_SECONDS)

    async def _are_replaced(self) -> bool:
        """Return whether all DaemonSets have only new Pods, all available. helm is content while one is not."""
        found, _ = await self.api.list(f"/apis/apps/v1/namespaces/{HAMI}/daemonsets")
        return all(
            each["metadata"]["generation"] == each["status"].get("observedGeneration")
            and each["status"]["desiredNumberScheduled"]
            == each["status"].get("updatedNumberScheduled", 0)
            == each["status"].get("numberAvailable", 0)
            for each in found
        )

    async def roll(self, workload: str) -> None:
        """Restart a workload (`deployment/hami-webhook`) Pod by Pod, and wait until it is complete."""
        for verb in ("restart", "status"):
            await asyncio.to_thread(self.control_plane.kubectl, "rollout", verb, workload, f"--namespace={HAMI}")

    @asynccontextmanager
    async def reshaped(self, nodes: tuple[FakeNode, ...], settings: Settings) -> AsyncIterator["RealCluster"]:
        """
        Yield a cluster in which only *nodes* take Pods, with *settings*. The release keeps *settings* afterwards.

        Nodes of this cluster are used as they are, and the others are added and removed again.
        """
        new = [node for node in nodes if node not in self.nodes]
        taken = {node.name for node in new} & {node.name for node in self.nodes}
        assert not taken, f"nodes {sorted(taken)} have other hardware in this cluster: take other names"
        for node in new:
            await asyncio.to_thread(self.control_plane.add_node, node)
        others = [node for node in self.nodes if node not in nodes]
        await self._cordon(others, True)
        other = RealCluster(self.control_plane, nodes, self.release)
        other.recorder = self.recorder
        try:
            await other.deploy(settings)
            await enter_new_namespace(other)
            yield other
            await other.delete_all_pods()
            if other.recorder:
                await other.recorder.settle()
        finally:
            await other.api.close()
            for node in new:
                await self._remove_node(node.name)
            await self._cordon(others, False)

    async def _remove_node(self, name: str) -> None:
        """Remove a Node, and its Pods, which the garbage collector would leave for a minute."""
        await asyncio.to_thread(self.control_plane.remove_node, name)
        pods, _ = await self.api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
        for pod in pods:
            meta = pod["metadata"]
            await self.api.delete_if_exists(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", 0)

    async def _cordon(self, nodes: Sequence[FakeNode], is_cordoned: bool) -> None:
        for node in nodes:
            await self.api.patch(f"/api/v1/nodes/{node.name}", {"spec": {"unschedulable": is_cordoned or None}})

    # --- parts -----------------------------------------------------------------------------------------------------

    async def kill(self, part: str) -> None:
        """Kill the processes of a part in all its containers."""
        if part == "apiserver":
            self.control_plane.control.kill_service("kube-apiserver")
        elif part.startswith("kubelet-"):
            self.control_plane.node(part.removeprefix("kubelet-")).kill_kubelet()
        else:
            for pod, status in await self._containers(part):
                self._killed.add(status["containerID"])
                os.kill(self._pid(pod, status), signal.SIGKILL)

    async def send_signal(self, part: str, pod: str, number: signal.Signals) -> None:
        """Send a signal to the processes of a part in one of its Pods."""
        for found, status in await self._containers(part):
            if found["metadata"]["name"] == pod:
                os.kill(self._pid(found, status), number)

    async def restart(self, part: str) -> None:
        """Start a process again, or wait until the kubelet has started a container again."""
        if part == "apiserver":
            await asyncio.to_thread(self.control_plane.control.serve_again)
            await eventually(lambda: self.api.get("/version"), "the API server answers", 60)
        elif part.startswith("kubelet-"):
            node = part.removeprefix("kubelet-")
            await asyncio.to_thread(self.control_plane.node(node).start_kubelet)
            await self.node_ready(node, 60)
        else:
            await self.ready(part)

    async def ready(self, part: str, timeout_seconds: float = 60.0) -> None:
        """Wait until every container of a part is ready and none is a killed one."""

        async def probe() -> bool:
            found = await self._containers(part)
            return bool(found) and all(
                status["ready"] and status["containerID"] not in self._killed for _, status in found
            )

        await eventually(probe, f"{part} is ready", timeout_seconds)

    async def heal(self) -> None:
        """Start the machines' processes that have ended, and wait for all containers of the release and a leader."""
        await asyncio.to_thread(self.control_plane.heal)
        for part in ROLES:
            await self.ready(part)
        await eventually(lambda: self.metrics("scheduler"), "a scheduler leads", LEADER_SECONDS)
        for node in self.nodes:
            for role in NODE_ROLES:
                await self.ready(f"{role}-{node.name}")

    async def _containers(self, part: str) -> list[tuple[Object, Object]]:
        """Return the Pods of a part that are not being deleted, each with the status of the part's container."""
        role, _, node = part.partition("-")
        component = ROLES.get(part) or NODE_ROLES[role]
        container = part if part in ROLES else component
        pods, _ = await self.api.list(
            f"/api/v1/namespaces/{HAMI}/pods",
            labelSelector=f"app.kubernetes.io/component=hami-{component}",
            **({} if part in ROLES else {"fieldSelector": f"spec.nodeName={node}"}),
        )
        return [
            (pod, status)
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
            for status in pod["status"].get("containerStatuses", [])
            if status["name"] == container and "containerID" in status
        ]

    def _pid(self, pod: Object, status: Object) -> int:
        node = self.control_plane.node(pod["spec"]["nodeName"])
        try:
            return node.container_pid(status["containerID"])
        except MachineError as error:
            raise ProcessLookupError(str(error)) from error

    # --- the interface of Cluster ----------------------------------------------------------------------------------

    async def pid(self, part: str) -> int:
        """Find it by its container."""
        [(pod, status)] = await self._containers(part)
        return self._pid(pod, status)

    async def metrics(self, part: str) -> str:
        """
        Read them through the API server's proxy, because this machine is not in the Pod network.

        Of several schedulers the leader's are returned: only it exports what is the cluster's.
        """
        found = await self._containers(part)
        if not found:
            raise ApiError(0, "Unreachable", f"no container of {part} has started yet")
        texts = [await self._scrape(pod) for pod, _ in found]
        leading = [text for text in texts if "\nhami_scheduler_leader 1.0\n" in text]
        if part == "scheduler" and not leading:
            raise ApiError(0, "Unreachable", "no scheduler leads yet")
        return (leading or texts)[0]

    async def _scrape(self, pod: Object) -> str:
        name = pod["metadata"]["name"]
        [port] = [
            port["containerPort"]
            for container in pod["spec"]["containers"]
            for port in container.get("ports", [])
            if port["name"] == "metrics"
        ]
        return await self.api.text(f"/api/v1/namespaces/{HAMI}/pods/{name}:{port}/proxy/metrics")

    async def ask_filter(self, question: Object) -> Object:
        """Send the request from the scheduler's Pod, because the extender listens on the Pod's loopback."""
        [(pod, status)] = await self._containers("scheduler")
        asking = await asyncio.create_subprocess_exec(
            *("nsenter", f"--target={self._pid(pod, status)}", "--net", sys.executable, "-c", _ASK),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        answer, _ = await asking.communicate(json.dumps(question).encode())
        if asking.returncode:
            raise ApiError(0, "Unreachable", f"the extender in {pod['metadata']['name']} did not answer")
        found: Object = json.loads(answer)
        return found

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[Requests]:
        """Read the audit log of the API server."""
        counted = Requests()
        with self.control_plane.audit_log.open() as log:
            log.seek(0, os.SEEK_END)
            yield counted
            for entry in _entries(log.read()):
                reference = entry.get("objectRef", {})
                resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
                counted[entry.get("userAgent", "").split("/")[0], entry["verb"], resource] += 1

    async def device_config(self) -> str:
        """Read the ConfigMap of the release."""
        found, _ = await self.api.list(f"/api/v1/namespaces/{HAMI}/configmaps")
        texts = [each["data"][DEVICE_CONFIG] for each in found if DEVICE_CONFIG in each.get("data", {})]
        return texts[0] if texts else ""

    def environment(self, pod: Object, container: str = "main") -> dict[str, str]:
        """Read it from /proc."""
        [status] = [found for found in pod["status"]["containerStatuses"] if found["name"] == container]
        return environment(self._pid(pod, status))

    def vgpu_folder(self, node: str) -> Path:
        """Return where this machine keeps the Node's folder."""
        return self.control_plane.node(node).path("/usr/local/vgpu")

    def cdi_folder(self, node: str) -> Path:
        """Return where this machine keeps the Node's folder."""
        return self.control_plane.node(node).path("/var/run/cdi")

    def driver_folder(self, node: str) -> Path:
        """Return where this machine keeps the Node's folder."""
        return self.control_plane.node(node).path(nvidia.HARDWARE)

    def device_plugins_folder(self, node: str) -> Path:
        """Return where this machine keeps the Node's folder."""
        return self.control_plane.node(node).path("/var/lib/kubelet/device-plugins")

    async def use_namespace(self, name: str) -> None:
        """Create it, and wait for its ServiceAccount, which every Pod needs."""
        await super().use_namespace(name)
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        await eventually(lambda: self.api.get(path), f"{name} has a ServiceAccount")


def _entries(log: str) -> Iterator[Object]:
    """Yield one entry for each request that was answered."""
    for line in log.splitlines():
        entry = json.loads(line)
        if entry["stage"] == "ResponseComplete":
            yield entry


@asynccontextmanager
async def without_release(kubernetes: str | None = None, images: Iterable[Path] = ()) -> AsyncIterator[RealCluster]:
    """
    Run another cluster during a block, on which nothing is installed, and whose Nodes pull all but *images*.

    A kubelet of 1.35 or newer that has pulled an image does not start the same image under a name that was imported.
    So a cluster uses a registry or the archives of the services, and never both.
    """
    place = FOLDER.with_name(f"{FOLDER.name}-bare")
    control_plane = ControlPlane(place, kubernetes or DEFAULT_KUBERNETES, images=images)
    try:
        await asyncio.to_thread(control_plane.up, TWO_NODES, print)
        cluster = RealCluster(control_plane, TWO_NODES, Release(control_plane))
        await enter_new_namespace(cluster)
        yield cluster
        await cluster.api.close()
    finally:
        await asyncio.to_thread(control_plane.down)
