"""
The cluster: a control machine and nodes, brought up, asked, taken down.

Owns one folder, which tells all there is (`cluster.json`, a folder for each machine), and the order of things. What is
built anew is tied to this process until `up` has succeeded, so an `up` that is killed at any moment leaves no process.
Neighbours: `parts` says what programs are told, `machine` runs them, `node` is what a test does to one.
"""

import asyncio
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from controlplane import build, cgroups, debian, network, oci, parts
from controlplane.machine import Description, Machine, MachineError
from controlplane.node import Node
from controlplane.pki import Authority
from hardware import FakeGpu, FakeNode
from minicluster.client import ApiError, Client
from processes import claimed

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = ROOT / "build/native/fake_driver"
CONTROL = "control"
CGROUP = "hami-controlplane"
READY_SECONDS = 90.0
ENDED_SECONDS = 2.0
"""How long a part may be missing before it counts as ended."""

POLL_SECONDS = 0.05

RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


class ClusterError(Exception):
    """The cluster is not as it should be; the message says which part, and holds the end of its log."""


class ControlPlane:
    """
    A cluster below one folder. Methods block; none is to be called from within an event loop.

    With *outlives_us* the machines live on after this process, otherwise they end with it.
    """

    def __init__(
        self,
        folder: Path,
        kubernetes: str = build.DEFAULT_KUBERNETES,
        *,
        driver: Path = DRIVER,
        outlives_us: bool = False,
    ) -> None:
        self.folder = folder.resolve()
        self.kubernetes = kubernetes
        self.kubeconfig = self.folder / "kubeconfig"
        """The administrator's, for this machine's network."""
        self.audit_log = self.folder / CONTROL / "audit.log"
        """Every request to the API server, one JSON object a line."""
        self._driver = driver
        self._outlives_us = outlives_us
        self._nodes: dict[str, Node] = {}
        self._binaries = Path()
        self._step: Callable[[str], None] = lambda _: None

    # --- life --------------------------------------------------------------------------------------------------------

    def up(self, nodes: Sequence[FakeNode], step: Callable[[str], None] = lambda _: None) -> None:
        """
        Bring up what does not run of a cluster of *nodes*, telling *step* what happens, until every node is Ready.

        Raises: ClusterError, build.BuildError, debian.PackageError, processes.FolderInUseError.
        """
        self._step = step
        self._prepare()
        with claimed(self.folder):
            state = self._state()
            if state.get("kubernetes", self.kubernetes) != self.kubernetes:
                raise ClusterError(f"{self.folder} holds Kubernetes {state['kubernetes']}: take it down first")
            wanted = {node.name: node for node in nodes}
            foreign = sorted(set(state["nodes"]) - set(wanted))
            if foreign:
                raise ClusterError(f"{self.folder} has other nodes, {', '.join(foreign)}: take it down first")
            self._take(state, wanted.values())
            began = time.monotonic()
            try:
                self._bring_up()
            except (MachineError, network.NetworkError, ApiError, OSError) as error:
                raise ClusterError(f"{error}\n{self._tails()}") from error
            step(f"cluster is up after {time.monotonic() - began:.1f} s")
            if self._outlives_us:
                self._each(self._machines(), Machine.let_live)

    def down(self) -> None:
        """Leave nothing of the cluster in the folder, nor of one that another run left there."""
        if not self.folder.exists():
            return
        with claimed(self.folder):
            for found in self._machines_on_disk():
                found.kill()
            if self._group_is_there():
                cgroups.remove(self._cgroup)
            cgroups.remove_if_empty(CGROUP)
            shutil.rmtree(self.folder)
        self._nodes = {}

    def status(self) -> list[tuple[str, str, int | None, bool]]:
        """Return machine, part, pid on this machine, and whether it is well, for each part of the cluster."""
        rows: list[tuple[str, str, int | None, bool]] = []
        for machine in self._machines_on_disk():
            rows.append((machine.name, "machine", machine.pid, machine.pid is not None))
            if machine.pid is not None:
                rows += [(machine.name, part, pid, pid is not None) for part, pid in machine.services().items()]
        return rows

    def attach(self) -> "ControlPlane":
        """Take over a cluster that runs, to ask it and work on it; return self. Raises: ClusterError if none does."""
        state = self._state()
        if not state["nodes"]:
            raise ClusterError(f"no cluster in {self.folder}")
        self._prepare()
        self._take(state, ())
        return self

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """Return the node *name*. Raises: KeyError."""
        return self._nodes[name]

    def add_node(self, hardware: FakeNode) -> Node:
        """Add a node and wait until it is Ready."""
        with claimed(self.folder):
            self._take(self._state(), [hardware])
            node = self._nodes[hardware.name]
            for other in self._nodes.values():
                if other is not node and other.machine.pid:
                    network.add_route(other.machine.pid, node.index)
            self._join(node)
            self._until_ready([node])
            if self._outlives_us:
                node.machine.let_live()
        return node

    def remove_node(self, name: str) -> None:
        """Cut the node's power for good and delete its Node."""
        with claimed(self.folder):
            self._nodes.pop(name).machine.remove()
            self._write_state()
            self._call("DELETE", f"/api/v1/nodes/{name}")

    def load_image(self, archive: Path, node: str | None = None) -> None:
        """Import an OCI archive into *node*, or all, unless its images are there already."""
        nodes = self._nodes.values() if node is None else [self._nodes[node]]
        self._each(nodes, lambda each: each.load(archive))

    # --- tools -------------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, content: str | None = None) -> str:
        """Run kubectl as administrator with *content* as input; return what it wrote. Raises: ClusterError."""
        return self._tool("kubectl", arguments, content)

    def helm(self, *arguments: str) -> str:
        """Run helm as administrator; return what it wrote. Raises: ClusterError."""
        return self._tool("helm", arguments, None)

    def _tool(self, name: str, arguments: Sequence[str], content: str | None) -> str:
        done = subprocess.run(
            [str(self._binaries / name), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=content or "",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterError(f"{name} {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    # --- bringing up -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if os.geteuid() != 0:
            raise ClusterError("the cluster's machines are namespaces that only root can make: run it as root")
        debian.ensure(debian.CLUSTER, self._step)
        self._binaries = build.binaries(self.kubernetes, self._step)

    def _bring_up(self) -> None:
        control = self._control()
        was_off = control.pid is None
        nodes = list(self._nodes.values())
        self._step("etcd, API server" if was_off else "looking after the cluster")
        with ThreadPoolExecutor() as pool:
            archives = pool.submit(self._archives)
            control.start()
            if not network.is_connected(control.pid or 0):
                network.prepare_control(control.pid or 0)
            self._serve_control(control)
            runtimes = [pool.submit(self._start_runtime, node) for node in nodes]
            for runtime in runtimes:
                runtime.result()
            loads = [pool.submit(node.load, archive) for archive in archives.result() for node in nodes]
            self._until(self._is_api_ready, "the API server is ready", control)
            self._step("controllers, kubelets" if was_off else "every part is started")
            self._serve_control(control, with_controllers=True)
            for load in loads:
                load.result()
            for node in nodes:
                self._start_kubelet(node)
        self._until_ready(nodes)
        self._ensure_runtime_class()
        self._until(self._takes_pods, "Pods can be made", control)

    def _serve_control(self, control: Machine, *, with_controllers: bool = False) -> None:
        pki = Authority(self.folder / "pki")
        parts.issue_control(pki)
        port = self._state()["port"]
        pki.kubeconfig("admin", f"https://127.0.0.1:{port}", self.kubeconfig)
        services = [
            parts.etcd(self._binaries, control),
            parts.apiserver(self._binaries, control, pki, self.audit_log),
            parts.relay({}),
        ]
        if with_controllers or control.services().get("kube-scheduler"):
            services += parts.controllers(self._binaries, control, pki)
        control.serve(services)

    def _join(self, node: Node) -> None:
        """Boot *node* and start all that runs on it."""
        self._start_runtime(node)
        for archive in self._archives():
            node.load(archive)
        self._start_kubelet(node)

    def _start_runtime(self, node: Node) -> None:
        """Boot *node* if it is off, join it to the network, and start containerd."""
        machine = node.machine
        control = self._control().pid or 0
        machine.start()
        if not network.is_connected(machine.pid or 0):
            others = [other.index for other in self._nodes.values() if other is not node]
            network.connect(control, machine.pid or 0, node.index, others)
        node.hardware.write_hardware(parts.install_driver(machine, self._driver))
        runtime = parts.containerd(self._binaries, machine, node.index)
        if machine.services().get("containerd") is None:
            machine.serve([runtime])
        self._until(lambda: node.has_runtime, f"containerd of {node.name} answers", machine)

    def _start_kubelet(self, node: Node) -> None:
        pki = Authority(self.folder / "pki")
        node.machine.serve(
            [
                parts.containerd(self._binaries, node.machine, node.index),
                parts.kubelet(self._binaries, node.machine, pki, node.index),
                parts.proxy(self._binaries, node.machine, pki),
            ]
        )

    def _archives(self) -> list[Path]:
        """Return the archives of the images that every node has."""
        version = build.KUBERNETES[self.kubernetes]
        return [
            _packed(self._binaries, parts.PAUSE_IMAGE, "pause"),
            _packed(self._binaries, f"localhost/kube-scheduler:{version}", "kube-scheduler"),
        ]

    def _until_ready(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._until(partial(self._is_ready, node.name), f"{node.name} is Ready", node.machine)

    def _is_ready(self, name: str) -> bool:
        found = self._get(f"/api/v1/nodes/{name}")
        conditions = (found or {}).get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _takes_pods(self) -> bool:
        """Return whether there is the service account that every Pod of the default namespace bears."""
        return self._get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _ensure_runtime_class(self) -> None:
        if self._get("/apis/node.k8s.io/v1/runtimeclasses/nvidia") is None:
            self._call("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def _cgroup(self) -> str:
        """The cluster's group; its name comes from the folder, so that clusters live side by side."""
        return f"{CGROUP}/{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    def _state(self) -> dict[str, Any]:
        """Return what is on disk: minor, port and the nodes, each `{"index", "gpus"}`; empty nodes if there is none."""
        try:
            state: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        except FileNotFoundError:
            return {"nodes": {}}
        return state

    def _take(self, state: dict[str, Any], wanted: Iterable[FakeNode]) -> None:
        """Know the nodes of *state* and those *wanted* besides, and write down what there is now."""
        known = {
            name: FakeNode(name, tuple(FakeGpu(**gpu) for gpu in node["gpus"])) for name, node in state["nodes"].items()
        }
        indices = {name: node["index"] for name, node in state["nodes"].items()}
        for hardware in wanted:
            known[hardware.name] = hardware
            indices.setdefault(hardware.name, next(i for i in range(1, 200) if i not in indices.values()))
        self._port = state.get("port") or _free_port()
        self._nodes = {
            name: Node(self._node_machine(name), hardware, indices[name], self._join)
            for name, hardware in known.items()
        }
        self._write_state()

    def _write_state(self) -> None:
        nodes = {
            name: {"index": node.index, "gpus": [asdict(gpu) for gpu in node.hardware.gpus]}
            for name, node in self._nodes.items()
        }
        draft = self.folder / "cluster.json.new"
        draft.write_text(json.dumps({"kubernetes": self.kubernetes, "port": self._port, "nodes": nodes}))
        draft.rename(self.folder / "cluster.json")

    def _control(self) -> Machine:
        listen = {"relay": ("127.0.0.1", self._port)}
        return self._machine(CONTROL, listen=listen)

    def _node_machine(self, name: str) -> Machine:
        return self._machine(name, kept=parts.NODE_FOLDERS)

    def _machine(self, name: str, **more: Any) -> Machine:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        visible = tuple(str(path) for path in (self.folder, ROOT, build.cache()))
        description = Description(name, f"{self._cgroup}/{name}", str(self._binaries), visible=visible, **more)
        return Machine(folder, description)

    def _machines(self) -> list[Machine]:
        return [self._control(), *(node.machine for node in self._nodes.values())]

    def _machines_on_disk(self) -> list[Machine]:
        """Return every machine the folder tells of, control machine last."""
        found = sorted(path.parent for path in self.folder.glob("*/machine.json"))
        return [Machine(path, Description(path.name, f"{self._cgroup}/{path.name}", "")) for path in reversed(found)]

    def _group_is_there(self) -> bool:
        return any((each.place / self._cgroup).exists() for each in cgroups.hierarchies())

    # --- asking ------------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return an object, None if there is none."""
        try:
            found: dict[str, Any] = self._call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def _is_api_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw=/readyz") == "ok"
        except ClusterError:
            return False

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request as administrator. Raises: ApiError."""

        async def send() -> Any:
            async with Client.from_kubeconfig(self.kubeconfig, "controlplane") as client:
                return await client.request(method, path, body)

        return asyncio.run(send())

    def _until(self, holds: Callable[[], bool], what: str, machine: Machine) -> None:
        """Wait until *holds*, no longer than all parts of *machine* run; an API error counts as not yet."""
        began = well = time.monotonic()
        last: object = None
        while True:
            try:
                last = holds()
            except ApiError as error:
                last = error
            if last is True:
                return
            now = time.monotonic()
            if all(machine.services().values()):
                well = now
            if now - began > READY_SECONDS or now - well > ENDED_SECONDS:
                raise ClusterError(f"{what}: not after {now - began:.0f} s, last answer: {last}\n{self._tails()}")
            time.sleep(POLL_SECONDS)

    def _tails(self) -> str:
        """Return the log's end of every part that ended."""
        gone = [
            f"--- {machine.name} {part}\n{machine.tail(part)}"
            for machine in self._machines_on_disk()
            for part, pid in (machine.services() if machine.pid else {}).items()
            if pid is None
        ]
        return "\n".join(gone)

    @staticmethod
    def _each(items: Iterable[Any], do: Callable[[Any], None]) -> None:
        """Do the same to all at once, and raise what the first failed with."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(do, items))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _packed(binaries: Path, name: str, program: str) -> Path:
    """Return the archive of an image that is one program, packed once."""
    archive = binaries / f"{program}.tar"
    if not archive.exists():
        oci.pack(archive, name, {f"/usr/local/bin/{program}": binaries / program}, [f"/usr/local/bin/{program}"])
    return archive
