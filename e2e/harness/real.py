"""
The real cluster with the four services on it, deployed by the chart from built images.

Owns how a part is found, killed and waited for: by its Pod. Neighbours: `controlplane` is the Kubernetes, `release` the
chart on it, `tools/images.py` makes the images.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane.cluster import ControlPlane
from controlplane.machines.machine import MachineError
from controlplane.programs.build import DEFAULT_KUBERNETES
from harness.cluster import ROOT, Cluster, Requests, Settings, eventually
from harness.release import DEPLOY_SECONDS, HAMI, Release, Value
from minicluster.client import ApiError, Client, Object
from testbed.hardware import TWO_NODES, FakeNode
from testbed.processes import environment

FOLDER = Path("/var/tmp") / "-".join(["hami-e2e", *filter(None, [os.environ.get("PYTEST_XDIST_WORKER")])])
"""Of the cluster; each of several runs side by side has its own."""
IMAGES = ROOT / "build/images"
PREVIOUS_TAG = "previous"
"""Of the images built from the commit before this one."""
PREVIOUS_IMAGES = IMAGES / PREVIOUS_TAG
ROLES = {"webhook": "webhook", "scheduler": "scheduler", "kube-scheduler": "scheduler"}
"""The component that a part's container is in, where the part is not of one Node."""
NODE_ROLES = {"plugin": "device-plugin", "monitor": "monitor"}
_ASK = """
import sys, urllib.request
request = urllib.request.Request("http://127.0.0.1:8080/filter", sys.stdin.buffer.read())
request.add_header("Content-Type", "application/json")
sys.stdout.buffer.write(urllib.request.urlopen(request, timeout=10).read())
"""


class RealCluster(Cluster):
    """A control plane with Nodes, and the release on it."""

    def __init__(self, control_plane: ControlPlane, nodes: tuple[FakeNode, ...], release: Release) -> None:
        self.control_plane = control_plane
        self.nodes = nodes
        self.release = release
        self.kubeconfig = control_plane.kubeconfig
        self.api = Client.from_kubeconfig(self.kubeconfig, "e2e")
        self._killed: set[str] = set()

    # --- the release -----------------------------------------------------------------------------------------------

    async def deploy(self, settings: Settings | None = None, values: Mapping[str, Value] | None = None) -> None:
        """See that the release has *settings* and *values* of the chart, and that every Node offers devices."""
        settings = settings or Settings()
        told: dict[str, Value] = {
            "wireVersion": settings.wire_version,
            "devicePlugin.allocation": settings.allocation,
            "scheduler.prioritizeWeight": settings.prioritize_weight,
        }
        await asyncio.to_thread(self.release.deploy, {**told, **(values or {})})
        for node in self.nodes:
            await self.node_ready(node.name, DEPLOY_SECONDS)

    async def roll(self, workload: str) -> None:
        """Restart a workload (`deployment/hami-webhook`) Pod by Pod, and wait until that is done."""
        for verb in ("restart", "status"):
            await asyncio.to_thread(self.control_plane.kubectl, "rollout", verb, workload, f"--namespace={HAMI}")

    @asynccontextmanager
    async def reshaped(
        self, nodes: tuple[FakeNode, ...], settings: Settings, namespace: str
    ) -> AsyncIterator["RealCluster"]:
        """For the length of a block, a cluster in which only *nodes* take Pods; the release keeps *settings*."""
        for node in nodes:
            await asyncio.to_thread(self.control_plane.add_node, node)
        await self._cordon(True)
        other = RealCluster(self.control_plane, nodes, self.release)
        try:
            await other.deploy(settings)
            await other.use_namespace(namespace)
            yield other
            await other.delete_all_pods()
        finally:
            await other.api.close()
            for node in nodes:
                await self._remove_node(node.name)
            await self._cordon(False)

    async def _remove_node(self, name: str) -> None:
        """Take a Node away, and with it the Pods that the garbage collector would leave on it for a minute."""
        await asyncio.to_thread(self.control_plane.remove_node, name)
        pods, _ = await self.api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
        for pod in pods:
            meta = pod["metadata"]
            await self.api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", 0)

    async def _cordon(self, is_cordoned: bool) -> None:
        for node in self.nodes:
            await self.api.patch(f"/api/v1/nodes/{node.name}", {"spec": {"unschedulable": is_cordoned or None}})

    # --- parts -----------------------------------------------------------------------------------------------------

    async def kill(self, part: str) -> None:
        """End the processes of a part, in whichever containers they are."""
        if part == "apiserver":
            self.control_plane.control.kill_service("kube-apiserver")
        elif part.startswith("kubelet-"):
            self.control_plane.node(part.removeprefix("kubelet-")).kill_kubelet()
        else:
            for pod, status in await self._containers(part):
                self._killed.add(status["containerID"])
                os.kill(self._pid(pod, status), signal.SIGKILL)

    async def send_signal(self, part: str, pod: str, number: signal.Signals) -> None:
        """Send the processes of a part in one of its Pods a signal."""
        for found, status in await self._containers(part):
            if found["metadata"]["name"] == pod:
                os.kill(self._pid(found, status), number)

    async def restart(self, part: str) -> None:
        """Start a process again; a container is started by its kubelet, and here only waited for."""
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
        """Wait until every container of a part is ready, and none of them is one that was killed."""

        async def probe() -> bool:
            found = await self._containers(part)
            return bool(found) and all(
                status["ready"] and status["containerID"] not in self._killed for _, status in found
            )

        await eventually(probe, f"{part} is ready", timeout_seconds)

    async def heal(self) -> None:
        """See that all processes of ours run, and that all containers of the release are ready."""
        await asyncio.to_thread(self.control_plane.heal)
        for part in ROLES:
            await self.ready(part)
        for node in self.nodes:
            for role in NODE_ROLES:
                await self.ready(f"{role}-{node.name}")

    async def _containers(self, part: str) -> list[tuple[Object, Object]]:
        """Return the Pods of a part that are to stay, and in each the status of the part's container."""
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

    # --- what tests ask --------------------------------------------------------------------------------------------

    async def metrics(self, part: str) -> str:
        """Ask through the API server, as somebody without a way into the Pod network would."""
        found = await self._containers(part)
        if not found:
            raise ApiError(0, "Unreachable", f"no container of {part} was started yet")
        pod = found[0][0]
        name = pod["metadata"]["name"]
        [port] = [
            port["containerPort"]
            for container in pod["spec"]["containers"]
            for port in container.get("ports", [])
            if port["name"] == "metrics"
        ]
        return await self.api.text(f"/api/v1/namespaces/{HAMI}/pods/{name}:{port}/proxy/metrics")

    async def ask_filter(self, question: Object) -> Object:
        """Ask from within the scheduler's Pod, where kube-scheduler is: the extender listens on its loopback."""
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
        """Read what the API server audited."""
        counted = Requests()
        with self.control_plane.audit_log.open() as log:
            log.seek(0, os.SEEK_END)
            yield counted
            for entry in _entries(log.read()):
                reference = entry.get("objectRef", {})
                resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
                counted[entry.get("userAgent", "").split("/")[0], entry["verb"], resource] += 1

    def environment(self, pod: Object, container: str = "main") -> dict[str, str]:
        """Read it where the kernel keeps it."""
        [status] = [found for found in pod["status"]["containerStatuses"] if found["name"] == container]
        return environment(self._pid(pod, status))

    def vgpu_folder(self, node: str) -> Path:
        """Return the Node's own."""
        return self.control_plane.node(node).path("/usr/local/vgpu")

    def cdi_folder(self, node: str) -> Path:
        """Return the Node's own."""
        return self.control_plane.node(node).path("/var/run/cdi")

    async def use_namespace(self, name: str) -> None:
        """Make it, and wait for the ServiceAccount without which no Pod is admitted."""
        await super().use_namespace(name)
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        await eventually(lambda: self.api.get(path), f"{name} has a ServiceAccount")


def _entries(log: str) -> Iterator[Object]:
    """Yield what is complete of an audit log: one entry a request, when it was answered."""
    for line in log.splitlines():
        entry = json.loads(line)
        if entry["stage"] == "ResponseComplete":
            yield entry


@asynccontextmanager
async def running(
    kubernetes: str | None = None, nodes: tuple[FakeNode, ...] = TWO_NODES, *, is_kept: bool = False
) -> AsyncIterator[RealCluster]:
    """The cluster for the length of a block: brought up with its images, release installed; down again unless kept."""
    images = [*sorted(IMAGES.glob("*.tar")), *sorted(PREVIOUS_IMAGES.glob("*.tar"))]
    control_plane = ControlPlane(FOLDER, kubernetes or DEFAULT_KUBERNETES, images=images, outlives_us=is_kept)
    try:
        await asyncio.to_thread(control_plane.up, nodes, print)
        cluster = RealCluster(control_plane, nodes, Release(control_plane))
        await cluster.deploy()
        yield cluster
        await cluster.api.close()
    finally:
        if not is_kept:
            await asyncio.to_thread(control_plane.down)
