"""
Register the Node, keep its status up to date, and renew its Lease.

Owns the kubelet's labels of the Node, its status, and its Lease. Must never change an annotation or label that another
component wrote. Neighbours: `devices.manager` knows the devices, `main` starts it.
"""

import asyncio
import contextlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hamicommon.model import Object
from minicluster.client import ApiError, Client
from minicluster.kubelet.status.podstatus import ADDRESS, as_time

STATUS_SECONDS = 10.0
"""
The interval at which the status is compared with that of the Node object, whatever changes in between.

Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/kubelet.go (`nodeStatusUpdateFrequency`)
"""
REPORT_SECONDS = 300.0
"""The interval at which the status is written without a change."""
RETRY_SECONDS = 0.5
LEASE_SECONDS = 40
LEASE_NAMESPACE = "kube-node-lease"
VERSION = "v1.34.4-minicluster"


@dataclass(frozen=True)
class NodeDescription:
    """The constant properties of a Node."""

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, str]
    """The ordinary resources. Those of device plugins change."""
    port: int
    """The port of the container logs."""


def default_capacity(directory: Path) -> dict[str, str]:
    """Return the capacity of this machine."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs(directory)
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{pages * page_bytes // 1024}Ki",
        "ephemeral-storage": f"{disk.f_blocks * disk.f_frsize // 1024}Ki",
        "pods": "110",
    }


class NodeStatus:
    """
    The Node object of one kubelet.

    `resources` returns capacity and allocatable of devices. `problem` returns why the container runtime is down, or
    None.
    """

    def __init__(
        self,
        client: Client,
        description: NodeDescription,
        resources: Callable[[], tuple[dict[str, int], dict[str, int]]],
        problem: Callable[[], str | None],
        status_seconds: float = STATUS_SECONDS,
    ) -> None:
        self._client = client
        self._status_seconds = status_seconds
        self._description = description
        self._resources = resources
        self._problem = problem
        self.allocatable: Mapping[str, str] = {}
        """As last written. Pods are admitted by it, and not by what has changed since."""
        self._known: set[str] = set()
        """The device resources that the Node has had. A resource that is gone becomes 0."""
        self._ready_since = as_time(time.time())
        self._was_ready: bool | None = None

    async def register(self) -> None:
        """Create the Node, or adopt an existing one, and retry until the API server answers."""
        name = self._description.name
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            **self._description.labels,
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}
        while True:
            try:
                try:
                    await self._client.create("/api/v1/nodes", {**node, "status": self._status()})
                except ApiError as error:
                    if error.status != 409:
                        raise
                    found = await self._client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
                    self._known = {key for key in found.get("status", {}).get("capacity", {}) if "/" in key}
                    await self._client.patch(f"/api/v1/nodes/{name}/status", {"status": self._status()})
            except ApiError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def run(self) -> None:
        """Write the status at intervals if the Node object has another one, whoever wrote it, until cancelled."""
        written_at = 0.0
        path = f"/api/v1/nodes/{self._description.name}"
        while True:
            status = self._status()
            try:
                found = (await self._client.get(path)).get("status", {})
                if not _is_same(status, found) or time.monotonic() - written_at > REPORT_SECONDS:
                    await self._client.patch(f"{path}/status", {"status": status})
                    written_at = time.monotonic()
            except ApiError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.allocatable = status["allocatable"]
            await asyncio.sleep(self._status_seconds)

    async def renew_lease(self) -> None:
        """Create and renew the Node's Lease, until cancelled."""
        name = self._description.name
        collection = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
        spec: Object = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS}
        while True:
            spec["renewTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            try:
                await self._client.patch(f"{collection}/{name}", {"spec": spec})
            except ApiError as error:
                if error.status == 404:
                    await self._create_lease(collection, spec)
            await asyncio.sleep(LEASE_SECONDS / 4)

    async def _create_lease(self, collection: str, spec: Object) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
        metadata = {"name": self._description.name, "namespace": LEASE_NAMESPACE}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        for path, body in (("/api/v1/namespaces", namespace), (collection, lease)):
            with contextlib.suppress(ApiError):
                await self._client.create(path, body)

    def _status(self) -> Object:
        capacity, allocatable = self._resources()
        self._known |= set(capacity)
        problem = self._problem()
        return {
            "capacity": self._amounts(capacity),
            "allocatable": self._amounts(allocatable),
            "conditions": self._conditions(problem),
            "addresses": [
                {"type": "InternalIP", "address": ADDRESS},
                {"type": "Hostname", "address": self._description.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._description.port}},
            "nodeInfo": {
                "kubeletVersion": VERSION,
                "containerRuntimeVersion": "minicluster://0.1.0",
                "operatingSystem": "linux",
                "architecture": platform.machine(),
                "kernelVersion": platform.release(),
                "osImage": "the machine itself",
                "bootID": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
                "machineID": "",
                "systemUUID": "",
                "kubeProxyVersion": "",
            },
        }

    def _amounts(self, devices: Mapping[str, int]) -> dict[str, str]:
        shown = {name: str(devices.get(name, 0)) for name in sorted(self._known)}
        return {**self._description.capacity, **shown}

    def _conditions(self, problem: str | None) -> list[Object]:
        now = as_time(time.time())
        if self._was_ready is not (problem is None):
            self._was_ready, self._ready_since = problem is None, now
        ready = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        if problem:
            ready = ("Ready", "False", "KubeletNotReady", problem)
        fine = [
            (
                f"{name}Pressure",
                "False",
                f"KubeletHasSufficient{name}",
                f"kubelet has sufficient {name.lower()} available",
            )
            for name in ("Memory", "Disk", "PID")
        ]
        return [
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": self._ready_since,
            }
            for kind, value, reason, message in (*fine, ready)
        ]


def _is_same(status: Object, found: Object) -> bool:
    """Return whether *found*, which may have more fields, has *status* but for the times of the heartbeat."""
    return _without_heartbeat(status) == _without_heartbeat({key: found.get(key) for key in status})


def _without_heartbeat(status: Object) -> Object:
    conditions = [
        {key: value for key, value in condition.items() if key != "lastHeartbeatTime"}
        for condition in status["conditions"] or ()
    ]
    return {**status, "conditions": conditions}
