"""
The peers of a kubelet under test: an API server and a device plugin, with the kubelet as a process.

Owns their start and end, and builders for objects.
"""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.peers.clusters import EmbeddedPeer
from conformance.peers.objects import Api
from conformance.peers.plugins import Host, Plugin
from hamicommon.model import Object
from minicluster.kubelet.runtime.containers import kill_all
from testbed.waiting import NotInTimeError, eventually

NODE = "node-1"
RESOURCE = "conformance.test/default"


def a_container(name: str = "main", script: str = "sleep 1000", devices: int = 0, **more: Any) -> Object:
    """
    Return a container that runs *script* in a shell.

    A mounted path must be in `args`, as $0 and so on, because without namespaces a path in a script cannot be mapped.
    """
    limits = {"limits": {RESOURCE: str(devices)}} if devices else {}
    return {"name": name, "image": "shell", "command": ["sh", "-c", script], "resources": limits, **more}


def a_pod(name: str, *containers: Object, **spec: Any) -> Object:
    """Return a Pod that is bound to the Node under test."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
        "spec": {"nodeName": NODE, "containers": list(containers) or [a_container()], **spec},
    }


@dataclass
class Process:
    """A component as a process."""

    arguments: list[str]
    log: Path
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "minicluster", *self.arguments],
                stdout=log,
                stderr=log,
            )

    def wait(self) -> int:
        """Wait until it ends, and return its exit code."""
        assert self.popen is not None
        return self.popen.wait(20)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait until it is gone."""
        if self.popen is not None and self.popen.poll() is None:
            self.popen.send_signal(how)
            self.wait()


@dataclass
class Cluster:
    """An API server and one kubelet, with helpers for tests."""

    root: Path
    client: Api
    kubelet: Process
    host: Host

    async def plugin(self, count: int = 8) -> Plugin:
        """Start a plugin with *count* devices, and wait until the Node offers them."""
        plugin = await self.host.plugin(count)
        await self.allocatable_is(str(count))
        return plugin

    async def allocatable_is(self, amount: str) -> None:
        """Wait until the Node offers *amount* of the plugin's resource."""
        await eventually(lambda: self._offers(amount))

    async def _offers(self, amount: str) -> bool:
        node = await self.client.get(f"/api/v1/nodes/{NODE}")
        assert amount == node["status"]["allocatable"].get(RESOURCE)
        return True

    async def create(self, pod: Object) -> Object:
        """Create *pod*, and return the API server's answer."""
        created: Object = await self.client.create("/api/v1/namespaces/default/pods", pod)
        return created

    async def pod(self, name: str) -> Object:
        """Return the Pod *name* as it is now."""
        found: Object = await self.client.get(f"/api/v1/namespaces/default/pods/{name}")
        return found

    async def until(self, name: str, condition: Callable[[Object], Any], seconds: float = 30.0) -> Object:
        """Return the Pod *name* once *condition* holds for its status."""

        async def holds() -> Object | None:
            pod = await self.pod(name)
            return pod if condition(pod["status"]) else None

        try:
            found: Object = await eventually(holds, seconds=seconds)
        except NotInTimeError as error:
            raise AssertionError(f"{(await self.pod(name))['status']}\n{self.kubelet.log.read_text()}") from error
        return found

    async def phase(self, name: str, phase: str, seconds: float = 30.0) -> Object:
        """Return the Pod *name* once its phase is *phase*."""
        return await self.until(name, lambda status: status.get("phase") == phase, seconds)

    async def log(self, name: str, container: str = "main") -> str:
        """Return the log of a container's newest attempt."""
        uid = (await self.pod(name))["metadata"]["uid"]
        logs = sorted((self.root / "pods" / uid / container).glob("*.log"))
        return logs[-1].read_text() if logs else ""

    async def says(self, name: str, text: str, container: str = "main") -> str:
        """Return the log of a container once it has *text*."""

        async def found() -> str:
            log = await self.log(name, container)
            assert text in log
            return log

        log: str = await eventually(found)
        return log

    async def delete(self, name: str, grace_seconds: int = 0) -> None:
        """Delete the Pod *name*, and wait until it is gone."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        await self.client.delete(path, grace_seconds=grace_seconds)

        async def is_gone() -> bool:
            return not await self.client.exists(path)

        await eventually(is_gone)


@contextlib.contextmanager
def processes(root: Path, *flags: str) -> Iterator[Process]:
    """Run an API server and a kubelet below *root*, and yield the kubelet. All containers end with it."""
    kubeconfig = root / "kubeconfig"
    apiserver = Process(["apiserver", "--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig)], root / "api.log")
    common = ["--node", NODE, "--root", str(root / "k"), "--backoff-scale", "0.05", "--status-seconds", "0.1"]
    kubelet = Process(["kubelet", "--kubeconfig", str(kubeconfig), *common, *flags], root / "kubelet.log")
    apiserver.start()
    try:
        deadline = time.monotonic() + 20
        while not kubeconfig.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        kubelet.start()
        yield kubelet
    finally:
        kubelet.end()
        apiserver.end()
        kill_all(root / "k")


@contextlib.asynccontextmanager
async def a_cluster(root: Path, kubelet: Process) -> AsyncIterator[Cluster]:
    """Connect to the processes of `processes` once the Node is registered."""
    async with Api.from_kubeconfig(root / "kubeconfig", "test") as client:
        peer = EmbeddedPeer(root)
        peer.device_plugins, peer.pod_resources = (root / "k" / name for name in ("device-plugins", "pod-resources"))
        cluster = Cluster(root / "k", client, kubelet, Host(peer, client))
        await eventually(lambda: client.get(f"/api/v1/nodes/{NODE}"), seconds=20)
        yield cluster
        for plugin in cluster.host.plugins:
            await plugin.stop()
        if cluster.host.plugins:
            # Wait, because the end of the old plugin disconnects one that registers before the kubelet has seen it.
            await cluster.allocatable_is("0")
