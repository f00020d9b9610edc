"""
A real control plane with simulated Nodes, for schedulers that place the same load alternately.

Owns the processes beside the control plane. Every Pod is deleted when a run ends. Neighbours: `chart` has the command
lines, `simulation` makes Nodes and Pods, `audit`, `usage` and `extender_clock` record.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import yaml

from bench.load.chart import Chart
from bench.load.control import Control
from bench.load.simulation import (
    NAMESPACE,
    PODS,
    a_pod,
    all_of,
    lock_needed,
    slices_of,
    with_moved_limits,
)
from bench.record.audit import AuditLog, Request
from bench.record.extender_clock import ExtenderClock
from bench.record.measurement import By, Case, Load, Records, Run, is_binding, is_running, run_of
from bench.record.usage import Usage
from bench.record.yardstick import Yardstick
from controlplane.machines import cgroups
from hamicommon.model import Object
from harness.claims import API, with_claim
from harness.cluster import SCHEDULER_NAME
from minicluster.client import ApiError, Client
from testbed.processes import Supervisor
from testbed.waiting import NotInTimeError, eventually

BIN = Path(sys.executable).parent
TRIVIAL = Path(__file__).with_name("trivial_extender.py")
EXTENDER_PORT = 18080
METRICS_PORT = 19395
KUBE_SCHEDULER_PORT = 18259
KWOK = ("--manage-all-nodes", "--node-lease-duration-seconds=40", "--v=ERROR")
"""Every Node renews a Lease each LEASE_SECONDS, like a kubelet."""
LEASE_SECONDS = 10.0
NODE_STAGE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-is-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector: {matchExpressions: [{key: .status.phase, operator: NotIn, values: [Running]}]}
  next: {statusTemplate: '{phase: Running, conditions: [{type: Ready, status: "True", reason: KubeletReady}]}'}
"""
"""
The only stage of a Node. With kwok's default stages, each Node would write its status every 20 s, and a kubelet does so
every five minutes.
"""
ONE_OF_MANY_MILLICORES = 100
"""The CPU request for each process that stands for the rest of the cluster."""
CPU_MILLICORES = {
    "etcd": 100,
    "kube-apiserver": 250,
    "kube-controller-manager": 200,
    "default kube-scheduler": 100,
}
"""
The CPU requests of kubeadm's control plane.

Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/cmd/kubeadm/app/phases/controlplane/manifests.go and
https://github.com/kubernetes/kubernetes/blob/v1.34.4/cmd/kubeadm/app/phases/etcd/local.go
"""
CLAIMS = f"{API}/namespaces/{NAMESPACE}/resourceclaims"
TEMPLATE = "share"
"""The ResourceClaimTemplate of Pods that ask by claims."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
READY_SECONDS = 90.0
RUNNING_SECONDS = 240.0


class Rig:
    """A control plane, and the schedulers on it. See `started`."""

    def __init__(self, control: Control, client: Client, chart: Chart, folder: Path) -> None:
        self.client = client
        self._control = control
        self._chart = chart
        self._folder = folder
        self._number = 0
        """The number of the run, in the names of its Pods, because those of the last run may not be gone yet."""
        self._supervisor = Supervisor(folder)
        self.audit = AuditLog(control.audit_log)

    @classmethod
    @asynccontextmanager
    async def started(cls, control: Control, chart: Chart, folder: Path) -> "AsyncIterator[Rig]":
        """During a block, use *control*, with files in *folder*."""
        async with Client.from_kubeconfig(control.kubeconfig, "load") as client:
            rig = cls(control, client, chart, folder)
            try:
                for part, pid in control.pids.items():
                    rig._weigh(part, pid)
                folder.mkdir(parents=True, exist_ok=True)
                stages = folder / "kwok.yaml"
                stages.write_text(NODE_STAGE)
                rig._start("kwok", control.kwok, rig._kubeconfig, f"--config={stages}", *KWOK)
                for name in (NAMESPACE, chart.namespace):
                    await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
                account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
                await eventually(lambda: client.get(account), f"{NAMESPACE} has a service account", READY_SECONDS)
                yield rig
            finally:
                rig._supervisor.stop()

    async def add_nodes(self, nodes: Sequence[Object]) -> None:
        """Add *nodes*, with their slices, spread over a Lease interval, and wait until they are ready."""
        names = [node["metadata"]["name"] for node in nodes]
        for node in nodes:
            made = await self.client.create("/api/v1/nodes", node)
            for found in slices_of(made):
                await self.client.create(f"{API}/resourceslices", found)
            await asyncio.sleep(LEASE_SECONDS / len(names))

        async def are_ready() -> bool:
            nodes, _ = await self.client.list("/api/v1/nodes", resourceVersion="0")
            leases, _ = await self.client.list(LEASES, resourceVersion="0")
            ready = {node["metadata"]["name"] for node in nodes if not node["spec"].get("taints")}
            return ready & {lease["metadata"]["name"] for lease in leases} >= set(names)

        await eventually(are_ready, f"{len(names)} Nodes are ready", READY_SECONDS)

    async def take_identity(self) -> None:
        """Change every Node to one whose device plugin needs the node lock."""
        nodes, _ = await self.client.list("/api/v1/nodes")
        await all_of(
            self.client.patch(f"/api/v1/nodes/{node['metadata']['name']}", lock_needed(node)) for node in nodes
        )

    async def run(self, case: Case, load: Load, count: int) -> Run:
        """Let *case* place *count* Pods, and return the figures."""
        self._number += 1
        names = [f"pod-{self._number}-{index:05}" for index in range(count)]
        pods = [_pod_of(case, name) for name in names]
        async with self.extender(case):
            if load is Load.CREATION:
                with self.kube_scheduler(case):
                    await self.warm_up(case)
                    self.audit.mark()
                    records = await self._record(load, pods)
            else:
                self.audit.mark()
                await self.create(pods)
                with self.kube_scheduler(case):
                    records = await self._record(load, pods)
        found = run_of(case, load, count, records)
        await self.delete_pods()
        return found

    @asynccontextmanager
    async def extender(self, case: Case) -> AsyncIterator[None]:
        """During a block, run the extender of *case*, if it has one. The block starts once it listens."""
        if case.extender == "trivial":
            self._start("extender", sys.executable, TRIVIAL, self._kubeconfig, f"--port={EXTENDER_PORT}")
        elif case.extender == "hami":
            config = self._folder / "device-config.yaml"
            config.write_text(self._chart.device_config)
            addresses = {
                "http_bind": f"127.0.0.1:{EXTENDER_PORT}",
                "metrics_bind_address": f"127.0.0.1:{METRICS_PORT}",
                "device_config_file": str(config),
            }
            flags = self._chart.scheduler_arguments(**addresses)
            self._start("extender", BIN / "hami-scheduler", self._kubeconfig, *flags)
        try:
            if case.extender:
                await self._eventually(_listens, f"the extender of case {case.name} listens", READY_SECONDS)
            yield
        finally:
            self._end("extender")

    @contextmanager
    def kube_scheduler(self, case: Case) -> Iterator[None]:
        """During a block, run kube-scheduler for *case*, with its extender if it has one."""
        url = f"http://127.0.0.1:{EXTENDER_PORT}" if case.extender else None
        config = self._folder / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(self._chart.kube_scheduler_config(self._control.kubeconfig, url)))
        addresses = ("--bind-address=127.0.0.1", f"--secure-port={KUBE_SCHEDULER_PORT}")
        self._start("kube-scheduler", self._control.programs / "kube-scheduler", f"--config={config}", *addresses)
        try:
            yield
        finally:
            self._end("kube-scheduler")

    async def warm_up(self, case: Case) -> None:
        """Wait until a first Pod runs, which shows that all parts are ready."""
        name = f"pod-{self._number}-first"
        await self.create([_pod_of(case, name)])
        await self._until(name, "runs", lambda pod: pod["status"]["phase"] == "Running")

    async def until_bound(self, name: str) -> None:
        """Wait until the Pod *name* has a Node."""
        await self._until(name, "is bound", lambda pod: "nodeName" in pod["spec"])

    async def _until(self, name: str, what: str, holds: Callable[[Object], bool]) -> None:
        async def probe() -> bool:
            return holds(await self.client.get(f"{PODS}/{name}"))

        await self._eventually(probe, f"Pod {name} {what}", READY_SECONDS)

    async def delete_pods(self) -> None:
        """Delete every Pod, and wait until they and their claims are gone."""

        async def are_gone() -> bool:
            pods, _ = await self.client.list(PODS, resourceVersion="0")
            await all_of(self._delete(pod) for pod in pods)
            return not pods and not (await self.client.list(CLAIMS, resourceVersion="0"))[0]

        await self._eventually(are_gone, "all Pods and claims are gone", RUNNING_SECONDS)

    async def _delete(self, pod: Object) -> None:
        with suppress(ApiError):  # already gone
            await self.client.delete(f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)

    async def create(self, pods: Sequence[Object]) -> None:
        """Create *pods*."""
        await all_of(self.client.create(PODS, pod) for pod in pods)

    async def _record(self, load: Load, pods: Sequence[Object]) -> Records:
        """Create *load*, and return the records until all *pods* run."""
        load_average = os.getloadavg()[0]
        if load is Load.BACKLOG:
            await self._until_count(is_binding, 1)
        with ExtenderClock(EXTENDER_PORT) as clock, Yardstick() as yardstick:
            before = Usage.now(self._pids)
            if load is Load.CREATION:
                await self.create(pods)
            await self._until_count(is_running, len(pods))
            after = Usage.now(self._pids)
        return Records(self.audit.requests, clock.seconds, before, after, load_average, yardstick.work_ms)

    async def _until_count(self, is_one: Callable[[Request], bool], count: int) -> None:
        async def are_enough() -> bool:
            return sum(map(is_one, self.audit.read())) >= count

        await self._eventually(are_enough, f"{is_one.__name__} is true of {count} requests", RUNNING_SECONDS)

    async def _eventually(self, probe: Callable[[], Awaitable[bool]], what: str, seconds: float) -> None:
        """Wait for *probe*. Raises: NotInTimeError with the end of every log."""
        try:
            await eventually(probe, what, seconds)
        except NotInTimeError as error:
            logs = "\n".join(f"--- {found.name}\n{found.tail()}" for found in self._supervisor.processes.values())
            raise NotInTimeError(f"{error}\n{logs}") from error

    @property
    def _kubeconfig(self) -> str:
        return f"--kubeconfig={self._control.kubeconfig}"

    @property
    def _pids(self) -> dict[str, int]:
        beside = {name: found.pid for name, found in self._supervisor.processes.items() if found.is_running}
        return {**self._control.pids, **beside, "load": os.getpid()}

    def _start(self, name: str, *argv: object) -> None:
        self._supervisor.start(name, [str(part) for part in argv])
        self._weigh(name, self._supervisor.processes[name].pid)

    def _weigh(self, part: str, pid: int) -> None:
        """Give the process of *part* the CPU weight that the kubelet would give it."""
        containers = {"extender": "scheduler", "kube-scheduler": "kube-scheduler"}
        if part in containers:
            millicores = self._chart.cpu_millicores(containers[part])
        else:
            millicores = CPU_MILLICORES.get(part, ONE_OF_MANY_MILLICORES)
        cgroups.weigh(f"{self._control.cgroup}/parts/{part}", millicores, pid)

    def _end(self, name: str) -> None:
        if name in self._supervisor.processes:
            self._supervisor.processes[name].terminate()


def _pod_of(case: Case, name: str) -> Object:
    """Return a Pod of *case*."""
    pod = a_pod(name, SCHEDULER_NAME, case.limits)
    if case.nodes:
        pod["spec"]["nodeSelector"] = {"kind": case.nodes}
    if case.by is By.CLAIM:
        return with_claim(pod, TEMPLATE)
    return with_moved_limits(pod) if case.by is By.MOVED_LIMITS else pod


async def _listens() -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", EXTENDER_PORT)
    writer.close()
    return True
