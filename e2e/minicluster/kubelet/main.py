"""
Start the kubelet of one Node.

Owns the wiring, and the one queue in which Pods are admitted. Containers are children of their shims, so they keep
running when the kubelet ends, and it adopts them when it is back. It speaks to device plugins only over their sockets.
Neighbours: `pods` runs each Pod, `devices.manager` and `runtime.containers` serve it, `status.nodestatus` writes the
Node.
"""

import argparse
import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from hamicommon.model import Object
from minicluster.client import Client, Mirror
from minicluster.kubelet.devices.manager import ENDPOINT_GRACE_SECONDS, DeviceManager
from minicluster.kubelet.devices.pluginclients import PluginError
from minicluster.kubelet.devices.podresources import PodResourcesServer
from minicluster.kubelet.pods import DEFAULT_GRACE_SECONDS, Node, PodWorker
from minicluster.kubelet.runtime.cdi import CdiCache
from minicluster.kubelet.runtime.containers import NvidiaRuntime, RunningContainer, Runtime, choose_isolation
from minicluster.kubelet.runtime.logs import LogServer
from minicluster.kubelet.status.events import Events
from minicluster.kubelet.status.nodestatus import STATUS_SECONDS, NodeDescription, NodeStatus, default_capacity
from minicluster.podrequests import is_extended, pod_amounts
from minicluster.quantity import parse

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of Pods that say what runs on the Node already; no kubelet starts them."""
LONGEST_SOCKET_PATH = 107
"""The kernel's limit for the path of a Unix socket, in bytes."""
EXIT_GRACE_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `python -m minicluster kubelet`."""
    add = parser.add_argument
    add("--kubeconfig", required=True, type=Path, help="kubeconfig of the API server")
    add("--node", required=True, help="name of the Node")
    add("--root", required=True, type=Path, help="directory for sockets, CDI specs and containers")
    add("--driver-libs", type=Path, help="directory with the GPU driver's libraries, for containers with devices")
    add("--hardware", type=Path, help="the node's fake GPUs (FAKE_DRIVER_DIR), for containers with devices")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="a label of the Node; may be repeated")
    add("--cpu", help="CPUs of the Node (default: this machine's)")
    add("--memory", help="memory of the Node (default: this machine's)")
    add(
        "--isolation",
        choices=("auto", "namespaces", "mapping"),
        default="auto",
        help="give each container a mount namespace, or rewrite paths; auto uses namespaces if they work",
    )
    add("--pid-namespace", action="store_true", help="give each container a process namespace too, like a real one")
    add("--backoff-scale", type=float, default=1.0, help="factor for every back-off (default 1, the real times)")
    add(
        "--endpoint-grace-seconds",
        type=float,
        default=ENDPOINT_GRACE_SECONDS,
        help="time that a resource outlives its device plugin (default %(default)s)",
    )
    add(
        "--status-seconds",
        type=float,
        default=STATUS_SECONDS,
        help="interval at which changes are written into the Node's status (default %(default)s)",
    )
    add("--stop-containers-on-exit", action="store_true", help="end all containers when the kubelet ends")


async def run(args: argparse.Namespace) -> None:
    """
    Run the kubelet until cancelled.

    Raises: SystemExit with one sentence if a flag is invalid.
    """
    root: Path = args.root.resolve()
    try:
        description = _describe(args, root)
        isolation, why_not_better = choose_isolation(args.isolation, args.pid_namespace)
    except ValueError as error:
        raise SystemExit(f"kubelet: {error}") from error
    print(
        f"kubelet: isolation of containers: {isolation}" + (f" ({why_not_better})" if why_not_better else ""),
        flush=True,
    )
    nvidia = None
    if args.driver_libs and args.hardware:
        nvidia = NvidiaRuntime(args.driver_libs.resolve(), args.hardware.resolve())
    runtime = Runtime(root, CdiCache(root / "cdi"), nvidia, isolation, args.pid_namespace)
    async with Client.from_kubeconfig(args.kubeconfig, "kubelet") as client:
        kubelet = Kubelet(client, root, description, runtime, args)
        await kubelet.run()


class Kubelet:
    """All Pods of one Node, and the servers."""

    def __init__(
        self, client: Client, root: Path, description: NodeDescription, runtime: Runtime, args: argparse.Namespace
    ) -> None:
        name = description.name
        self._runtime = runtime
        self._stops_containers = args.stop_containers_on_exit
        self._status_seconds: float = args.status_seconds
        self._logs = LogServer(self._find_log)
        self._devices = DeviceManager(root / "device-plugins", self._active_uids, args.endpoint_grace_seconds)
        self._pod_resources = PodResourcesServer(root / "pod-resources", self._devices, self._active_pods)
        self._events = Events(client, "kubelet", name)
        self._node = Node(client, self._devices, runtime, self._events, description.capacity, args.backoff_scale)
        self._client = client
        self._description = description
        self._status: NodeStatus | None = None
        self._mirror = Mirror(client, "/api/v1/pods", self._pod_changed, fieldSelector=f"spec.nodeName={name}")
        self._workers: dict[str, PodWorker] = {}
        self._adopted: dict[str, dict[str, list[RunningContainer]]] = {}
        self._admissions: asyncio.PriorityQueue[tuple[str, int, PodWorker]] = asyncio.PriorityQueue()
        self._arrivals = itertools.count()
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve, adopt running containers, and follow the Pods, until cancelled."""
        self._runtime.cdi.start()
        async for pod_uid, name, attempts in self._runtime.adopt():
            self._adopted.setdefault(pod_uid, {})[name] = attempts
        await self._logs.start()
        await self._devices.start()
        await self._pod_resources.start()
        description = NodeDescription(
            self._description.name, self._description.labels, self._description.capacity, self._logs.port
        )
        self._status = NodeStatus(
            self._client,
            description,
            self._devices.resources,
            lambda: self._runtime.cdi.panic,
            self._status_seconds,
        )
        try:
            await self._status.register()
            async with asyncio.TaskGroup() as group:
                for work in (self._status.run, self._status.renew_lease, self._mirror.run, self._admit, self._settle):
                    group.create_task(work())
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._stops_containers:
            await asyncio.gather(*(worker.abandon(EXIT_GRACE_SECONDS) for worker in self._workers.values()))
        await self._pod_resources.close()
        await self._devices.close()
        await self._logs.close()
        self._runtime.cdi.close()

    async def _settle(self) -> None:
        """Once all Pods of the first list are admitted, remove what belongs to no Pod."""
        await self._mirror.synced.wait()
        await self._admissions.join()
        self._devices.is_settled = True
        for pod_uid, containers in self._adopted.items():
            if pod_uid not in self._workers:
                await asyncio.gather(*(attempts[-1].stop(0) for attempts in containers.values()))
        for pod_uid in self._runtime.pods_on_disk():
            if pod_uid not in self._workers:
                self._runtime.remove_pod(pod_uid)
        self._adopted.clear()

    async def _admit(self) -> None:
        """Admit Pods one after the other. Pods that arrive together are sorted by age."""
        while True:
            _, _, worker = await self._admissions.get()
            try:
                await self._admit_one(worker)
            finally:
                self._admissions.task_done()

    async def _admit_one(self, worker: PodWorker) -> None:
        if worker.is_terminating:
            return
        worker.has_arrived = True
        try:
            await self._devices.allocate(worker.pod, worker.running)
        except PluginError as error:
            await worker.reject("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
            return
        others = [pod for pod in self._active_pods() if pod["metadata"]["uid"] != worker.uid]
        shortage = _shortage(worker.pod, others, self._available(worker.uid))
        if shortage and not worker.running:
            await worker.reject(*shortage)
        elif not worker.is_terminating:
            worker.start()

    def _available(self, pod_uid: str) -> Mapping[str, str]:
        """
        Return what Pods are admitted by: the Node's allocatable as last written.

        For a Pod that has devices, as many are available as all Pods have.
        Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/manager.go
        (`sanitizeNodeAllocatable`)
        """
        written = self._status.allocatable if self._status is not None else {}
        available = {**written, **self._description.capacity}
        for resource, count in self._devices.allocated(pod_uid).items():
            available[resource] = str(max(count, int(available.get(resource, "0"))))
        return available

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        uid = (new or old or {})["metadata"]["uid"]
        worker = self._workers.get(uid)
        if new is None:
            if worker is not None:
                self._end(self._vanish(worker))
            return
        metadata = new["metadata"]
        if worker is None:
            if MIRROR in metadata.get("annotations", {}):
                return
            worker = PodWorker(self._node, new, self._adopted.get(uid, {}))
            self._workers[uid] = worker
            if new.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
                worker.is_finished = True
            elif "deletionTimestamp" not in metadata:
                self._admissions.put_nowait((metadata.get("creationTimestamp", ""), next(self._arrivals), worker))
        worker.update(new)
        if "deletionTimestamp" in metadata and not worker.is_terminating:
            worker.is_terminating = True
            self._end(worker.terminate(metadata.get("deletionGracePeriodSeconds", DEFAULT_GRACE_SECONDS)))

    async def _vanish(self, worker: PodWorker) -> None:
        """
        End a Pod whose object is gone: its containers have their grace period, and its devices stay its own until then.

        Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/pod_workers.go
        (`calculateEffectiveGracePeriod`)
        """
        await worker.abandon(worker.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
        self._workers.pop(worker.uid, None)
        self._events.forget(worker.uid)
        await asyncio.to_thread(self._runtime.remove_pod, worker.uid)

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _active_uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self._active_pods()}

    def _active_pods(self) -> list[Object]:
        """Return the Pods that have started admission and have not finished."""
        return [worker.pod for worker in self._workers.values() if worker.has_arrived and not worker.is_finished]

    def _find_log(self, namespace: str, pod: str, container: str, is_previous: bool) -> tuple[Path, Callable[[], bool]]:
        for worker in self._workers.values():
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, pod):
                path = self._runtime.log_of(worker.uid, container, is_previous)
                if path is None or not path.exists():
                    raise LookupError(f'container "{container}" in pod "{pod}" has no log yet')
                return path, lambda found=worker: not is_previous and not found.is_finished
        raise LookupError(f'pod "{pod}" not found in namespace "{namespace}"')


def _describe(args: argparse.Namespace, root: Path) -> NodeDescription:
    """
    Return the Node that the flags describe.

    Raises: ValueError with the flag and its problem.
    """
    longest = max(len(bytes(root / directory / "kubelet.sock")) for directory in ("device-plugins", "pod-resources"))
    if longest > LONGEST_SOCKET_PATH:
        raise ValueError(f"--root {root} is too long: its sockets would need {longest} of {LONGEST_SOCKET_PATH} bytes")
    labels = {}
    for label in args.label:
        key, separator, value = label.partition("=")
        if not key or not separator:
            raise ValueError(f"--label {label!r} is not KEY=VALUE")
        labels[key] = value
    root.mkdir(parents=True, exist_ok=True)
    capacity = default_capacity(root)
    for name, amount in (("cpu", args.cpu), ("memory", args.memory)):
        if amount is not None:
            parse(amount)
            capacity[name] = amount
    return NodeDescription(args.node, labels, capacity, 0)


def _shortage(pod: Object, others: list[Object], capacity: Mapping[str, str]) -> tuple[str, str] | None:
    """
    Return reason and message if *pod* does not fit beside *others*, or None.

    An extended resource that *capacity* does not name is not counted.
    Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/lifecycle/predicate.go
    (`removeMissingExtendedResources`)
    """
    for resource in ("cpu", "memory", *sorted(filter(is_extended, capacity))):
        wanted, *used_by_others = (
            pod_amounts(one["spec"], "requests").get(resource, Fraction()) for one in (pod, *others)
        )
        used, available = sum(used_by_others, Fraction()), parse(capacity[resource])
        if wanted and used + wanted > available:
            # Like the kubelet, count cpu in thousandths, and memory in bytes.
            unit = 1000 if resource == "cpu" else 1
            shown = [int(amount * unit) for amount in (wanted, used, available)]
            amounts = "requested: {}, used: {}, capacity: {}".format(*shown)
            return f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {amounts}"
    if len(others) + 1 > int(capacity["pods"]):
        amounts = f"requested: 1, used: {len(others)}, capacity: {capacity['pods']}"
        return "OutOfpods", f"Node didn't have enough resource: pods, {amounts}"
    return None
