"""
The embedded and the real cluster behind one interface, so that the same tests run on both.

Owns how each is started and where its parts are. A test must never depend on which cluster it runs on.
"""

import asyncio
import shutil
import socket
import sys
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance.peers.shell import shell_image
from controlplane.machines.linux import join_network
from minicluster.client import Client
from testbed.driver.hardware import FakeNode
from testbed.processes import Supervisor
from testbed.waiting import eventually

NODE = "node-a"
"""The cluster's only Node that has a kubelet."""
START_SECONDS = 60.0


class Peer(ABC):
    """A cluster with one Node, whose parts this machine's processes can reach."""

    name: str
    version: str
    kubeconfig: Path
    """For processes of this machine."""
    kubectl: list[str]
    """The command; empty if this machine has none."""
    scheduler: list[str]
    """The command of one more kube-scheduler, without `--kubeconfig` and `--config`."""
    device_plugins: Path
    """The Node's folder of plugin sockets, as a path of this machine."""
    pod_resources: Path
    """The Node's folder of the PodResources socket, as a path of this machine."""
    cdi: Path
    """The Node's folder of CDI specs, as a path of this machine."""
    shared: Path
    """A folder that has the same path on this machine and on the Node."""

    @abstractmethod
    def up(self) -> None:
        """Start the cluster, and wait for its Node."""

    @abstractmethod
    def down(self) -> None:
        """End all processes of the cluster."""

    @abstractmethod
    def listen(self) -> socket.socket:
        """Return a socket that the API server reaches on 127.0.0.1."""

    @abstractmethod
    async def forget_changes(self) -> None:
        """Make the API server forget its first changes."""

    @abstractmethod
    def kill_kubelet(self) -> None:
        """Kill the Node's kubelet."""

    @abstractmethod
    def start_kubelet(self) -> None:
        """Start the Node's kubelet again."""

    @abstractmethod
    def kubelet_log(self) -> str:
        """Return the end of the kubelet's log."""


class EmbeddedPeer(Peer):
    """The processes of `minicluster`."""

    name = "embedded"
    version = "embedded"

    def __init__(self, folder: Path) -> None:
        self._supervisor = Supervisor(folder)
        self._root = folder / NODE
        self.shared = folder
        self.kubeconfig = folder / "kubeconfig"
        self.kubectl = ["kubectl"] if shutil.which("kubectl") else []
        self.scheduler = [sys.executable, "-m", "minicluster", "kube-scheduler"]
        self.device_plugins = self._root / "device-plugins"
        self.pod_resources = self._root / "pod-resources"
        self.cdi = self._root / "cdi"

    def up(self) -> None:
        """Start the API server and one kubelet, with back-offs of a twentieth of the real ones."""
        kubeconfig = f"--kubeconfig={self.kubeconfig}"
        self._start("apiserver", kubeconfig)
        deadline = time.monotonic() + START_SECONDS
        while not self.kubeconfig.exists():
            assert time.monotonic() < deadline, self._supervisor.processes["apiserver"].tail()
            time.sleep(0.02)
        self._start(
            "kubelet",
            kubeconfig,
            f"--node={NODE}",
            f"--root={self._root}",
            "--backoff-scale=0.05",
            "--status-seconds=0.2",
        )
        asyncio.run(_registered(self.kubeconfig))

    def _start(self, component: str, *flags: str) -> None:
        self._supervisor.start(component, [sys.executable, "-m", "minicluster", component, *flags])

    def down(self) -> None:
        """End both, and all containers."""
        self._supervisor.stop()

    def listen(self) -> socket.socket:
        """Return a socket of this machine's loopback."""
        return socket.create_server(("127.0.0.1", 0))

    async def forget_changes(self) -> None:
        """Compact the storage."""
        async with Client.from_kubeconfig(self.kubeconfig, "conformance") as client:
            await client.create("/minicluster/compact", {})

    def kill_kubelet(self) -> None:
        """Kill the kubelet's process. The containers keep running."""
        self._supervisor.processes["kubelet"].kill()

    def start_kubelet(self) -> None:
        """Start it again with the same flags."""
        self._supervisor.restart("kubelet")

    def kubelet_log(self) -> str:
        """Return the end of its log."""
        return self._supervisor.processes["kubelet"].tail()


async def _registered(kubeconfig: Path) -> None:
    async with Client.from_kubeconfig(kubeconfig, "conformance") as client:
        await eventually(lambda: client.get(f"/api/v1/nodes/{NODE}"), seconds=START_SECONDS)


class RealPeer(Peer):
    """etcd, kube-apiserver, kube-controller-manager, kubelet and containerd."""

    name = "real"

    def __init__(self, folder: Path, kubernetes: str | None = None) -> None:
        # Imported here, because only a real cluster needs the dependencies.
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
        """Start it with one Node, and load the image of the tests' containers."""
        self._plane.up([FakeNode.of(NODE, "Tesla T4", 16384, 1)])
        self._plane.load_image(shell_image(self.shared))
        node = self._plane.node(NODE)
        self.device_plugins = node.path("/var/lib/kubelet/device-plugins")
        self.pod_resources = node.path("/var/lib/kubelet/pod-resources")
        self.cdi = node.path("/var/run/cdi")
        self._end_scheduler()

    def down(self) -> None:
        """Remove the cluster."""
        self._plane.down()

    def listen(self) -> socket.socket:
        """Return a socket of the API server's network namespace. A thread enters the namespace to make it."""
        pid = self._plane.control.pid
        assert pid is not None, "the machine of the API server does not run"
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_listen_beside, pid).result()

    async def forget_changes(self) -> None:
        """Restart the API server, which keeps changes in memory only."""
        control = self._plane.control
        control.kill_service("kube-apiserver")
        await asyncio.to_thread(control.serve_again)
        self._end_scheduler()
        async with Client.from_kubeconfig(self.kubeconfig, "conformance") as client:
            await eventually(lambda: client.text("/readyz"), seconds=START_SECONDS)

    def _end_scheduler(self) -> None:
        """End the cluster's scheduler. Tests that need one start it, and all other Pods must stay unbound."""
        self._plane.control.kill_service("kube-scheduler")

    def kill_kubelet(self) -> None:
        """Kill the kubelet. containerd and the containers keep running."""
        self._plane.node(NODE).kill_kubelet()

    def start_kubelet(self) -> None:
        """Start the kubelet again."""
        self._plane.node(NODE).start_kubelet()

    def kubelet_log(self) -> str:
        """Return the end of its log."""
        return self._plane.node(NODE).kubelet_log()


def _listen_beside(pid: int) -> socket.socket:
    join_network(pid)
    return socket.create_server(("127.0.0.1", 0))
