"""
Start, inspect and remove a cluster of a control machine and nodes.

Owns one folder with the whole state (`cluster.json`, a folder for each machine), and the order of the steps. Machines
end with this process until `up` has succeeded. So an `up` that is killed leaves no process, and the next `down` removes
its files and control groups. Names depend on the folder, and addresses are private to the machines, so clusters in
different folders can run at the same time.
Neighbours: `parts` has the arguments of programs, `machines.machine` runs them, `machines.node` is a node for tests.
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

from controlplane import nvidia, parts, prerequisites
from controlplane.administrator import Administrator
from controlplane.guest.kernel import Guest
from controlplane.guest.node import GuestNode
from controlplane.images import oci
from controlplane.images.store import CONTAINERD_ROOT, Store, load, serves_kubelet
from controlplane.machines import cgroups, network
from controlplane.machines.machine import FRUGAL, Description, Machine, MachineError, Service
from controlplane.machines.node import Node
from controlplane.pki import Authority
from controlplane.programs import build
from controlplane.record import Record, RecordError
from minicluster.client import ApiError
from testbed import debian
from testbed.driver.hardware import FIRST_DRIVER_WITH_MPS, FakeNode
from testbed.folders import claimed
from testbed.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
DRIVER = ROOT / "build/native/fake_driver"
CONTROL = "control"
STORE = "images"
CGROUP = "hami-controlplane"
READY_SECONDS = 180.0
ENDED_SECONDS = 5.0
"""The time that a part may be missing before it counts as ended."""

POLL_SECONDS = 0.2
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_INSTANCES = 1024
"""The limit for all clusters of this machine. A cluster of two nodes needs about 30. The usual default is 128."""


class ClusterError(Exception):
    """The cluster is not in the expected state. The message names the part, and has the end of its log."""


class ControlPlane:
    """
    A cluster below one folder. Methods block, and must not be called in an event loop.

    Every node has the images of the OCI archives *images* from its start. With *outlives_us* the machines outlive this
    process, otherwise they end with it.
    """

    def __init__(
        self,
        folder: Path,
        kubernetes: str = build.DEFAULT_KUBERNETES,
        *,
        images: Iterable[Path] = (),
        outlives_us: bool = False,
    ) -> None:
        self.folder = folder.resolve()
        self.kubernetes = kubernetes
        self.kubeconfig = self.folder / "kubeconfig"
        """The administrator's kubeconfig, for this machine's network."""
        self.audit_log = self.folder / CONTROL / "audit.log"
        """Every request to the API server, one JSON object a line."""
        self._api = Administrator(self.kubeconfig)
        self._outlives_us = outlives_us
        self._features = parts.DEFAULTS
        self._nodes: dict[str, Node] = {}
        self._images = list(images)
        self._record: Record
        self._binaries: Path

    # --- start and end -----------------------------------------------------------------------------------------------

    def up(self, nodes: Sequence[FakeNode], step: Callable[[str], None] = lambda _: None) -> None:
        """
        Start the missing parts of a cluster of *nodes*, report to *step*, and wait until every node is Ready.

        Raises: ClusterError, build.BuildError, debian.PackageError, folders.FolderInUseError.
        """
        self._find_programs(step)
        with claimed(self.folder):
            record = self._left_record(step) or Record(self.kubernetes, str(self._binaries), free_port())
            foreign = sorted(set(record.nodes) - {node.name for node in nodes})
            if record.programs != str(self._binaries) or foreign:
                has = f"nodes {', '.join(record.nodes)} of Kubernetes {record.kubernetes}, programs {record.programs}"
                raise ClusterError(f"{self.folder} has {has}: remove that cluster first")
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
        """Use a cluster that another process started, and return self. Raises: ClusterError if there is none."""
        try:
            record = Record.read(self.folder)
        except RecordError as error:
            raise ClusterError(f"{error}: remove that cluster first") from error
        if record is None:
            raise ClusterError(f"no cluster in {self.folder}")
        self.kubernetes = record.kubernetes
        self._find_programs(lambda _: None)
        self._remember(record)
        return self

    def down(self) -> None:
        """Remove the cluster in the folder, whichever run started it."""
        if not self.folder.exists():
            return
        with claimed(self.folder):
            self._end_machines()
            shutil.rmtree(self.folder)
        self._nodes = {}

    def status(self) -> list[tuple[str, str, int | None, str]]:
        """Return machine, part, pid on this machine and state of each part of the cluster."""
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
        """Return the machine of a node, or the control machine, `control`. Raises: KeyError."""
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
        """Remove the node's machine, and delete its Node."""
        with claimed(self.folder):
            self._nodes[name].machine.remove()
            self._remember(self._record.without(name))
            self._api.delete_node(name)

    def guest_like(self, name: str, folders: Sequence[str] = (), images: Sequence[Path] = ()) -> GuestNode:
        """
        Return a node in a guest, with the driver and containerd of the node *name*, and copies of its *folders*.

        It has the OCI archives *images*, and is no member of the cluster. To end it, remove its machine.
        """
        with claimed(self.folder):
            like, machine = self._nodes[name], self._machine(f"{name}-guest", kept=parts.NODE_FOLDERS)
            machine.start()
            nvidia.install_driver(machine, DRIVER, like.hardware)
            # The driver makes them again. The guest's kernel sees no holes in files, so copies would be 1.4 GB.
            for file in ("schedule", "state"):
                (machine.path(nvidia.HARDWARE) / file).unlink()
            for path in folders:
                shutil.copytree(like.path(path), machine.path(path), symlinks=True, dirs_exist_ok=True)
            guest, manifests = Guest(machine), machine.folder / "manifests"
            guest.start()
            node = GuestNode(guest, manifests)
            kind = nvidia.KINDS[like.hardware.kind]
            node.serve(
                parts.containerd(self._binaries, machine, like.index, kind),
                [self._packed("pause"), *images],
                parts.lone_kubelet(self._binaries, machine, manifests),
            )
        return node

    def heal(self) -> None:
        """Start all services that have ended."""
        for machine in self._machines():
            machine.serve_again()

    def use(self, features: parts.Features) -> None:
        """Restart API server, controllers and scheduler with *features* until `up`, and wait until Pods can be made."""
        self._features, control, pki = features, self.control, Authority(self.folder / "pki")
        for part in ("kube-scheduler", "kube-controller-manager", "kube-apiserver"):
            control.kill_service(part)
        control.serve(self._control_services(control, pki))
        self._until(self._is_api_ready, "the API server is ready", control)
        control.serve(self._all_control_services(control, pki))
        self._until(self._api.takes_pods, "Pods can be made", control)

    def load_image(self, archive: Path) -> None:
        """Import an OCI archive into every node that lacks it, and into nodes that are added later."""
        if archive not in self._images:
            self._images.append(archive)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: load(node.machine, [archive]), self._nodes.values()))

    def use_registry(self, name: str, address: str) -> None:
        """
        Let every node pull images of the registry *name* by plain HTTP from *address* in the network of the cluster.

        Source: https://github.com/containerd/containerd/blob/main/docs/hosts.md
        """
        for node in self._nodes.values():
            folder = parts.registries(node.machine) / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts.toml").write_text(f'[host."http://{address}"]\ncapabilities = ["pull", "resolve"]\n')

    # --- tools -------------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, content: str = "") -> str:
        """Run kubectl as administrator with *content* as input, and return its output. Raises: ClusterError."""
        return self._tool("kubectl", arguments, content)

    def helm(self, *arguments: str) -> str:
        """Run helm as administrator, and return its output. Raises: ClusterError."""
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
            raise ClusterError(f"{name} {' '.join(arguments)} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    # --- steps of the start ------------------------------------------------------------------------------------------

    def _find_programs(self, step: Callable[[str], None]) -> None:
        if os.geteuid() != 0:
            raise ClusterError("the cluster's machines are namespaces that only root can make: run this as root")
        if not (DRIVER / "libcuda.so.1").exists():
            raise ClusterError(f"{DRIVER} has no driver for the nodes: build it with `tox -e native`")
        debian.ensure(prerequisites.PACKAGES, step)
        _allow_watching()
        self._binaries = build.binaries(self.kubernetes, step)

    def _bring_up(self, step: Callable[[str], None]) -> None:
        """Start control machine and nodes in parallel, and each part as soon as its dependencies run."""
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
            control.serve(self._all_control_services(control, pki))
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
            parts.apiserver(self._binaries, control, pki, self.audit_log, self._features),
            parts.relay(),
        ]

    def _all_control_services(self, control: Machine, pki: Authority) -> list[Service]:
        controllers = parts.controllers(self._binaries, control, pki, self._features)
        return [*self._control_services(control, pki), *controllers]

    def _boot(self, node: Node) -> None:
        """Start a node of a running cluster, and wait until it is Ready with a new heartbeat."""
        began = datetime.datetime.now(datetime.UTC)
        self._stock()
        self._start_runtime(node)
        self._start_kubelet(node)
        self._until_ready(node, began)

    def _start_runtime(self, node: Node) -> None:
        """Start the node's machine if it is off, connect it to the network, and start containerd with all images."""
        machine = node.machine
        self._store.fill(machine, self._archives())
        machine.start()
        if not network.is_connected(machine.living_pid()):
            others = [other.index for other in self._nodes.values() if other is not node]
            network.connect(self.control.living_pid(), machine.living_pid(), node.index, others)
        nvidia.install_driver(machine, DRIVER, node.hardware)
        if node.hardware.driver == FIRST_DRIVER_WITH_MPS:
            nvidia.show_system(machine)
        kind = nvidia.KINDS[node.hardware.kind]
        nvidia.write_host_spec(self._binaries, machine, kind)
        if machine.services().get("containerd") is None:
            machine.serve([parts.containerd(self._binaries, machine, node.index, kind)])
        self._until(lambda: serves_kubelet(machine), f"containerd of {node.name} serves a kubelet", machine)
        load(machine, self._archives())

    def _start_kubelet(self, node: Node) -> None:
        pki = Authority(self.folder / "pki")
        node.machine.serve(
            [
                parts.containerd(self._binaries, node.machine, node.index, nvidia.KINDS[node.hardware.kind]),
                parts.kubelet(self._binaries, node.machine, pki, node.index),
                parts.proxy(self._binaries, node.machine, pki),
            ]
        )

    def _stock(self) -> None:
        """Import every image into the store."""
        self._store.add(self._archives())

    @property
    def _store(self) -> Store:
        machine = self._machine(STORE, kept=(CONTAINERD_ROOT,))
        return Store(build.cache(), machine, parts.containerd(self._binaries, machine, 0))

    def _archives(self) -> list[Path]:
        """Return the archives of the images of every node. Those of built programs are packed once."""
        return [self._packed("pause"), self._packed("kube-scheduler"), *self._images]

    def _packed(self, program: str) -> Path:
        """Return the archive of the image of a built program."""
        names = {"pause": parts.PAUSE_IMAGE, "kube-scheduler": parts.scheduler_image(self.kubernetes)}
        place, source = f"/usr/local/bin/{program}", (self._binaries / program).resolve()
        archive = build.cache() / f"{source.parent.name}-{program}.tar"
        return oci.packed(archive, names[program], {place: source}, [place])

    def _let_live(self, machines: Iterable[Machine]) -> None:
        if self._outlives_us:
            for machine in machines:
                machine.let_live()

    # --- state -------------------------------------------------------------------------------------------------------

    def _left_record(self, step: Callable[[str], None]) -> Record | None:
        """
        Return the record in the folder, or None if there is none.

        A run of other code that was killed may have left one that this code cannot read. What it left is removed.

        Raises: ClusterError, if that cluster still runs.
        """
        try:
            return Record.read(self.folder)
        except RecordError as error:
            if any(machine.pid is not None for machine in self._machines_on_disk()):
                raise ClusterError(f"{error}, and its cluster runs: remove that cluster first") from error
            step(f"{error}: removing what an earlier run left")
        self._end_machines()
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return None

    def _end_machines(self) -> None:
        """Kill the machines in the folder, and remove their control groups."""
        for machine in self._machines_on_disk():
            machine.kill()
        cgroups.remove(self.cgroup)
        cgroups.remove_if_empty(CGROUP)

    @property
    def cgroup(self) -> str:
        """The control group of the cluster in every hierarchy."""
        return f"{CGROUP}/{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    def _remember(self, record: Record) -> None:
        """Write *record*, and set the nodes."""
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
        programs = {path if path.is_dir() else path.parent for path in map(Path.resolve, self._binaries.iterdir())}
        visible = tuple(str(path) for path in (self.folder, ROOT, self._binaries, *sorted(programs)))
        cgroup = f"{self.cgroup}/{name}"
        return Machine(folder, Description(name, cgroup, str(self._binaries), kept, visible, listen or {}))

    def _machines(self) -> list[Machine]:
        return [self.control, *(node.machine for node in self._nodes.values())]

    def _machines_on_disk(self) -> list[Machine]:
        """Return every machine in the folder."""
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
        """Wait until *holds* returns true. An error counts as not yet. Fails early if a part of *machine* ends."""
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
        """Return the end of the log of every part that does not run."""
        return "\n".join(
            f"--- {machine.name} {part}\n{machine.tail(part)}"
            for machine in self._machines_on_disk()
            for part, pid in machine.services().items()
            if pid is None
        )


def _allow_watching() -> None:
    """Raise the inotify limit of this machine, which a few clusters reach, if that is allowed."""
    if int(INOTIFY_LIMIT.read_text()) < INOTIFY_INSTANCES:
        with contextlib.suppress(OSError):
            INOTIFY_LIMIT.write_text(str(INOTIFY_INSTANCES))
