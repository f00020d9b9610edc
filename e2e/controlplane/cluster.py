"""
The cluster: a control machine and nodes, brought up, asked, taken down.

Owns one folder, which tells all there is (`cluster.json`, a folder for each machine), and the order of things. Machines
are tied to this process until `up` has succeeded, so an `up` that is killed at any moment leaves no process, and what
it leaves on disk and in control groups goes with the next `down`. Names come from the folder, addresses are the
machines' own: clusters of different folders live side by side.
Neighbours: `parts` says what programs are told, `machine` runs them, `node` is what a test does to one.
"""

import contextlib
import datetime
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from controlplane import parts, prerequisites
from controlplane.api import Administrator
from controlplane.images import oci
from controlplane.images.store import CONTAINERD_ROOT, Store, load, serves_kubelet
from controlplane.machines import cgroups, network
from controlplane.machines.machine import FRUGAL, Description, Machine, MachineError, Service
from controlplane.machines.node import Node
from controlplane.pki import Authority
from controlplane.programs import build
from controlplane.record import Record
from minicluster.client import ApiError
from testbed import debian
from testbed.folders import claimed
from testbed.hardware import FakeNode
from testbed.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = ROOT / "build/native/fake_driver"
CONTROL = "control"
STORE = "images"
CGROUP = "hami-controlplane"
READY_SECONDS = 180.0
ENDED_SECONDS = 5.0
"""How long a part may be missing before it counts as ended."""

POLL_SECONDS = 0.2
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_INSTANCES = 1024
"""What all clusters of a machine may have at once. One of two nodes takes about 30; most machines start with 128."""


class ClusterError(Exception):
    """The cluster is not as it should be; the message says which part, and holds the end of its log."""


class ControlPlane:
    """
    A cluster below one folder. Methods block, and must not be called within an event loop.

    Every node has the *images* of these OCI archives from its first moment. With *outlives_us* the machines live on
    after this process, otherwise they end with it.
    """

    def __init__(
        self,
        folder: Path,
        kubernetes: str = build.DEFAULT_KUBERNETES,
        *,
        driver: Path = DRIVER,
        images: Iterable[Path] = (),
        outlives_us: bool = False,
    ) -> None:
        self.folder = folder.resolve()
        self.kubernetes = kubernetes
        self.kubeconfig = self.folder / "kubeconfig"
        """The administrator's, for this machine's network."""
        self.audit_log = self.folder / CONTROL / "audit.log"
        """Every request to the API server, one JSON object a line."""
        self._api = Administrator(self.kubeconfig)
        self._driver = driver
        self._outlives_us = outlives_us
        self._nodes: dict[str, Node] = {}
        self._images = list(images)
        self._record: Record
        self._binaries: Path

    # --- life --------------------------------------------------------------------------------------------------------

    def up(self, nodes: Sequence[FakeNode], step: Callable[[str], None] = lambda _: None) -> None:
        """
        Bring up what does not run of a cluster of *nodes*, telling *step* what happens, until every node is Ready.

        Raises: ClusterError, build.BuildError, debian.PackageError, processes.FolderInUseError.
        """
        self._find_programs(step)
        with claimed(self.folder):
            record = Record.read(self.folder) or Record(self.kubernetes, str(self._binaries), free_port())
            foreign = sorted(set(record.nodes) - {node.name for node in nodes})
            if record.programs != str(self._binaries) or foreign:
                has = f"nodes {', '.join(record.nodes)} of Kubernetes {record.kubernetes}, programs {record.programs}"
                raise ClusterError(f"{self.folder} has {has}: take it down first")
            for hardware in nodes:
                record = record.joined_by(hardware)
            self._remember(record)
            began = time.monotonic()
            try:
                self._bring_up(step)
            except (MachineError, network.NetworkError, ApiError) as error:
                raise ClusterError(f"{error}\n{self._last_words()}") from error
            step(f"up after {time.monotonic() - began:.1f} s")
            self._let_live(self._machines())

    def attach(self) -> "ControlPlane":
        """Take over a cluster that another process brought up; return self. Raises: ClusterError if there is none."""
        record = Record.read(self.folder)
        if record is None:
            raise ClusterError(f"no cluster in {self.folder}")
        self.kubernetes = record.kubernetes
        self._find_programs(lambda _: None)
        self._remember(record)
        return self

    def down(self) -> None:
        """Leave nothing of the cluster in the folder, whichever run left it there."""
        if not self.folder.exists():
            return
        with claimed(self.folder):
            for machine in self._machines_on_disk():
                machine.kill()
            cgroups.remove(self.cgroup)
            cgroups.remove_if_empty(CGROUP)
            shutil.rmtree(self.folder)
        self._nodes = {}

    def status(self) -> list[tuple[str, str, int | None, str]]:
        """Return machine, part, pid on this machine and how it is, for each part of the cluster."""
        rows: list[tuple[str, str, int | None, str]] = []
        for machine in self._machines_on_disk():
            rows.append((machine.name, "machine", machine.pid, self._health(machine)))
            if machine.pid is not None:
                pids = machine.services().items()
                rows += [(machine.name, part, pid, "ended" if pid is None else "runs") for part, pid in pids]
        return rows

    def _health(self, machine: Machine) -> str:
        if machine.pid is None:
            return "off"
        try:
            is_ready = self._api.takes_pods() if machine.name == CONTROL else self._api.is_node_ready(machine.name)
        except (ApiError, FileNotFoundError):
            return "unknown, the API server does not answer"
        return "ready" if is_ready else "not ready"

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """Return the node *name*. Raises: KeyError."""
        return self._nodes[name]

    def machine(self, name: str) -> Machine:
        """Return a node's machine, or the one that everything else runs on, `control`. Raises: KeyError."""
        return self.control if name == CONTROL else self._nodes[name].machine

    def add_node(self, hardware: FakeNode) -> Node:
        """Add a node, wait until it is Ready, and return it."""
        with claimed(self.folder):
            others = [node.machine.pid for node in self._nodes.values()]
            self._remember(self._record.joined_by(hardware))
            node = self._nodes[hardware.name]
            for pid in others:
                if pid is not None:
                    network.add_route(pid, node.index)
            self._boot(node)
            self._let_live([node.machine])
        return node

    def remove_node(self, name: str) -> None:
        """Cut the node's power for good and delete its Node."""
        with claimed(self.folder):
            self._nodes[name].machine.remove()
            self._remember(self._record.without(name))
            self._api.delete_node(name)

    def heal(self) -> None:
        """Start what has ended of any machine."""
        for machine in self._machines():
            machine.serve_again()

    def load_image(self, archive: Path) -> None:
        """Import an OCI archive into every node that lacks it, those that are added later as well."""
        self._images.append(archive)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: load(node.machine, [archive]), self._nodes.values()))

    # --- tools -------------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, content: str = "") -> str:
        """Run kubectl as administrator with *content* as input; return what it wrote. Raises: ClusterError."""
        return self._tool("kubectl", arguments, content)

    def helm(self, *arguments: str) -> str:
        """Run helm as administrator; return what it wrote. Raises: ClusterError."""
        return self._tool("helm", arguments)

    def _tool(self, name: str, arguments: Sequence[str], content: str = "") -> str:
        done = subprocess.run(
            [str(self._binaries / name), *arguments],
            env={**os.environ, **FRUGAL, "KUBECONFIG": str(self.kubeconfig)},
            input=content,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterError(f"{name} {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    # --- bringing up -------------------------------------------------------------------------------------------------

    def _find_programs(self, step: Callable[[str], None]) -> None:
        if os.geteuid() != 0:
            raise ClusterError("the cluster's machines are namespaces that only root can make: run it as root")
        if not (self._driver / "libcuda.so.1").exists():
            raise ClusterError(f"no driver for the nodes in {self._driver}: make it with `tox -e native`")
        debian.ensure(prerequisites.PACKAGES, step)
        _allow_watching()
        self._binaries = build.binaries(self.kubernetes, step)

    def _bring_up(self, step: Callable[[str], None]) -> None:
        """Start control machine and nodes at once, and each part as soon as what it needs is there."""
        control, pki = self.control, Authority(self.folder / "pki")
        nodes = list(self._nodes.values())
        parts.issue_control(pki)
        pki.kubeconfig("admin", f"https://127.0.0.1:{self._record.port}", self.kubeconfig)
        with ThreadPoolExecutor() as pool:
            stock = pool.submit(self._stock)
            step("etcd, API server, images")
            self._start_control(control, pki)
            stock.result()
            step(f"containerd on {', '.join(node.name for node in nodes)}")
            list(pool.map(self._start_runtime, nodes))
            self._until(self._is_api_ready, "the API server is ready", control)
            step("controllers, kubelets")
            control.serve([*self._control_services(control, pki), *parts.controllers(self._binaries, control, pki)])
            for node in nodes:
                self._start_kubelet(node)
        for node in nodes:
            self._until_ready(node)
        self._api.ensure_runtime_class()
        self._until(self._api.takes_pods, "Pods can be made", control)

    def _start_control(self, control: Machine, pki: Authority) -> None:
        control.start()
        if not network.is_connected(control.living_pid()):
            network.prepare_control(control.living_pid())
        if not all(control.services().values()) or not control.services():
            control.serve(self._control_services(control, pki))

    def _control_services(self, control: Machine, pki: Authority) -> list[Service]:
        return [
            parts.etcd(self._binaries, control),
            parts.apiserver(self._binaries, control, pki, self.audit_log),
            parts.relay(),
        ]

    def _boot(self, node: Node) -> None:
        """Start all of a node whose cluster is up, and wait until it says it is Ready, now and not before."""
        began = datetime.datetime.now(datetime.UTC)
        self._stock()
        self._start_runtime(node)
        self._start_kubelet(node)
        self._until_ready(node, began)

    def _start_runtime(self, node: Node) -> None:
        """Start the node's machine if it is off, join it to the network, and start containerd with all images."""
        machine = node.machine
        self._store.fill(machine, self._archives())
        machine.start()
        if not network.is_connected(machine.living_pid()):
            others = [other.index for other in self._nodes.values() if other is not node]
            network.connect(self.control.living_pid(), machine.living_pid(), node.index, others)
        parts.install_driver(machine, self._driver, node.hardware)
        if machine.services().get("containerd") is None:
            machine.serve([parts.containerd(self._binaries, machine, node.index)])
        self._until(lambda: serves_kubelet(machine), f"containerd of {node.name} serves a kubelet", machine)
        load(machine, self._archives())

    def _start_kubelet(self, node: Node) -> None:
        pki = Authority(self.folder / "pki")
        node.machine.serve(
            [
                parts.containerd(self._binaries, node.machine, node.index),
                parts.kubelet(self._binaries, node.machine, pki, node.index),
                parts.proxy(self._binaries, node.machine, pki),
            ]
        )

    def _stock(self) -> None:
        """See that the store has every image."""
        self._store.add(self._archives())

    @property
    def _store(self) -> Store:
        machine = self._machine(STORE, kept=(CONTAINERD_ROOT,))
        return Store(build.cache(), machine, parts.containerd(self._binaries, machine, 0))

    def _archives(self) -> list[Path]:
        """Return the archives of the images that every node has; of our own programs they are packed once."""
        names = {"pause": parts.PAUSE_IMAGE, "kube-scheduler": parts.scheduler_image(self.kubernetes)}
        archives = []
        for program, name in names.items():
            place, source = f"/usr/local/bin/{program}", (self._binaries / program).resolve()
            archive = build.cache() / f"{source.parent.name}-{program}.tar"
            archives.append(oci.packed(archive, name, {place: source}, [place]))
        return [*archives, *self._images]

    def _let_live(self, machines: Iterable[Machine]) -> None:
        if self._outlives_us:
            for machine in machines:
                machine.let_live()

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def cgroup(self) -> str:
        """Its control group in every hierarchy."""
        return f"{CGROUP}/{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    def _remember(self, record: Record) -> None:
        """Write *record* down, and know its nodes."""
        record.write(self.folder)
        self._record = record
        self._nodes = {
            name: Node(self._machine(name, kept=parts.NODE_FOLDERS), member.hardware, member.index, self._boot)
            for name, member in record.nodes.items()
        }

    @property
    def control(self) -> Machine:
        """The machine of etcd, API server, controllers and scheduler."""
        return self._machine(CONTROL, listen={"relay": ("127.0.0.1", self._record.port)})

    def _machine(self, name: str, kept: tuple[str, ...] = (), listen: Mapping[str, Any] | None = None) -> Machine:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        programs = {path.resolve().parent for path in self._binaries.iterdir()}
        visible = tuple(str(path) for path in (self.folder, ROOT, self._binaries, *sorted(programs)))
        cgroup = f"{self.cgroup}/{name}"
        return Machine(folder, Description(name, cgroup, str(self._binaries), kept, visible, listen or {}))

    def _machines(self) -> list[Machine]:
        return [self.control, *(node.machine for node in self._nodes.values())]

    def _machines_on_disk(self) -> list[Machine]:
        """Return every machine the folder tells of, whoever made it."""
        found = sorted(path.parent for path in self.folder.glob("*/machine.json"))
        return [Machine(path, Description(path.name, f"{self.cgroup}/{path.name}", "")) for path in found]

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _until_ready(self, node: Node, *since: datetime.datetime) -> None:
        self._until(partial(self._api.is_node_ready, node.name, *since), f"{node.name} is Ready", node.machine)

    def _is_api_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw=/readyz") == "ok"
        except ClusterError:
            return False

    def _until(self, holds: Callable[[], bool], what: str, machine: Machine) -> None:
        """Wait until *holds*, no longer than all parts of *machine* run; an error counts as not yet."""
        began = well = time.monotonic()
        last: object = None
        while True:
            try:
                last = holds()
            except (ApiError, MachineError) as error:
                last = error
            if last is True:
                return
            now = time.monotonic()
            if all(machine.services().values()):
                well = now
            if now - began > READY_SECONDS or now - well > ENDED_SECONDS:
                raise ClusterError(f"{what}: not after {now - began:.0f} s, last answer: {last}\n{self._last_words()}")
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        """Return the log's end of every part that is not there."""
        return "\n".join(
            f"--- {machine.name} {part}\n{machine.tail(part)}"
            for machine in self._machines_on_disk()
            for part, pid in machine.services().items()
            if pid is None
        )


def _allow_watching() -> None:
    """Raise the limit of this machine that a few clusters reach; a machine that forbids it has to do with its own."""
    if int(INOTIFY_LIMIT.read_text()) < INOTIFY_INSTANCES:
        with contextlib.suppress(OSError):
            INOTIFY_LIMIT.write_text(str(INOTIFY_INSTANCES))
