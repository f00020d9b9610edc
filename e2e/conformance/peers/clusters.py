"""
The clusters that the same test bodies run on: the embedded one and the real one.

Owns how each is started and where its parts are found. A test must never ask which of them it runs on.
"""

import asyncio
import ctypes
import socket
import sys
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance.peers.objects import poll
from conformance.peers.shell import shell_image
from minicluster.client import Client
from testbed.hardware import FakeNode
from testbed.processes import Supervisor

NODE = "node-a"
"""The cluster's only Node that has a kubelet."""
START_SECONDS = 60.0
_CLONE_NEWNET = 0x40000000


class Peer(ABC):
    """A cluster with one Node, its parts where this machine's processes find them."""

    name: str
    version: str
    kubeconfig: Path
    """Reaches the API server from this machine's processes."""
    kubectl: list[str]
    scheduler: list[str]
    """What starts one more kube-scheduler; `--kubeconfig` and `--config` follow."""
    device_plugins: Path
    pod_resources: Path
    cdi: Path
    """Folders of the Node, as paths of this machine."""
    shared: Path
    """A folder that has the same path on this machine and on the Node."""

    @abstractmethod
    def up(self) -> None:
        """Start the cluster and wait for its Node."""

    @abstractmethod
    def down(self) -> None:
        """End everything that was started."""

    @abstractmethod
    def listen(self) -> socket.socket:
        """Return a socket that the API server reaches on 127.0.0.1."""

    @abstractmethod
    async def forget_changes(self) -> None:
        """See to it that the API server no longer keeps its first changes."""

    @abstractmethod
    def kill_kubelet(self) -> None:
        """End the Node's kubelet as a crash would."""

    @abstractmethod
    def start_kubelet(self) -> None:
        """Start the Node's kubelet again."""


class EmbeddedPeer(Peer):
    """`minicluster` as processes of their own."""

    name = "embedded"
    version = "embedded"

    def __init__(self, folder: Path) -> None:
        self._supervisor = Supervisor(folder)
        self._root = folder / NODE
        self.shared = folder
        self.kubeconfig = folder / "kubeconfig"
        self.kubectl = ["kubectl"]
        self.scheduler = [sys.executable, "-m", "minicluster", "kube-scheduler"]
        self.device_plugins = self._root / "device-plugins"
        self.pod_resources = self._root / "pod-resources"
        self.cdi = self._root / "cdi"

    def up(self) -> None:
        """Start the API server and one kubelet, whose back-offs are a twentieth of the real ones."""
        kubeconfig = f"--kubeconfig={self.kubeconfig}"
        self._start("apiserver", kubeconfig)
        deadline = time.monotonic() + START_SECONDS
        while not self.kubeconfig.exists():
            assert time.monotonic() < deadline, self._supervisor.processes["apiserver"].tail()
            time.sleep(0.02)
        self._start("kubelet", kubeconfig, f"--node={NODE}", f"--root={self._root}", "--backoff-scale=0.05")
        asyncio.run(_registered(self.kubeconfig))

    def _start(self, component: str, *flags: str) -> None:
        self._supervisor.start(component, [sys.executable, "-m", "minicluster", component, *flags])

    def down(self) -> None:
        """End both, and every container."""
        self._supervisor.stop()

    def listen(self) -> socket.socket:
        """Return a socket of this machine's loopback."""
        return socket.create_server(("127.0.0.1", 0))

    async def forget_changes(self) -> None:
        """Compact the storage."""
        async with Client.from_kubeconfig(self.kubeconfig, "conformance") as client:
            await client.create("/minicluster/compact", {})

    def kill_kubelet(self) -> None:
        """Kill the kubelet's process; its containers go on."""
        self._supervisor.processes["kubelet"].kill()

    def start_kubelet(self) -> None:
        """Start it with the flags it had."""
        self._supervisor.restart("kubelet")


async def _registered(kubeconfig: Path) -> None:
    async with Client.from_kubeconfig(kubeconfig, "conformance") as client:
        await poll(lambda: client.get(f"/api/v1/nodes/{NODE}"), START_SECONDS)


class RealPeer(Peer):
    """etcd, kube-apiserver, kube-controller-manager, kubelet and containerd."""

    name = "real"

    def __init__(self, folder: Path, kubernetes: str | None = None) -> None:
        # What it takes to run a real cluster concerns only those who want one.
        from controlplane.cluster import ControlPlane
        from controlplane.programs.build import DEFAULT_KUBERNETES, KUBERNETES, binaries

        self.shared = folder / "plane"
        minor = kubernetes or DEFAULT_KUBERNETES
        self._plane = ControlPlane(self.shared, minor)
        programs = binaries(minor)
        self.version = KUBERNETES[minor]
        self.kubeconfig = self._plane.kubeconfig
        self.kubectl = [str(programs / "kubectl")]
        self.scheduler = [str(programs / "kube-scheduler"), "--secure-port=0"]

    def up(self) -> None:
        """Start it with one Node, which has the image that the tests' containers run."""
        self._plane.up([FakeNode.of(NODE, "Tesla T4", 16384, 1)])
        self._plane.load_image(shell_image(self.shared))
        node = self._plane.node(NODE)
        self.device_plugins = node.path("/var/lib/kubelet/device-plugins")
        self.pod_resources = node.path("/var/lib/kubelet/pod-resources")
        self.cdi = node.path("/var/run/cdi")
        self._end_scheduler()

    def down(self) -> None:
        """End all of it."""
        self._plane.down()

    def listen(self) -> socket.socket:
        """Return a socket of the API server's network namespace, which a thread enters to make it."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_listen_beside, self._plane.control.pid).result()

    async def forget_changes(self) -> None:
        """Start the API server again: what was before, it never kept."""
        control = self._plane.control
        control.kill_service("kube-apiserver")
        await asyncio.to_thread(control.serve_again)
        self._end_scheduler()
        async with Client.from_kubeconfig(self.kubeconfig, "conformance") as client:
            await poll(lambda: client.text("/readyz"), START_SECONDS)

    def _end_scheduler(self) -> None:
        """End the cluster's own: tests that need one start theirs, and others' Pods are to stay as they are made."""
        self._plane.control.kill_service("kube-scheduler")

    def kill_kubelet(self) -> None:
        """Kill the kubelet; containerd and the containers go on."""
        self._plane.node(NODE).kill_kubelet()

    def start_kubelet(self) -> None:
        """Start the kubelet again."""
        self._plane.node(NODE).start_kubelet()


def _listen_beside(pid: int | None) -> socket.socket:
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) == -1:
            raise OSError(ctypes.get_errno(), f"setns to the network of process {pid}")
    return socket.create_server(("127.0.0.1", 0))
