"""
A node of the cluster, for tests: its files, its kubelet, its power, its containers.

Owns the actions on one node. Neighbours: `machine` is its machine, `cluster` owns all nodes.
"""

from collections.abc import Callable
from pathlib import Path

from controlplane.machines.machine import Machine, MachineError
from testbed.driver.hardware import FakeNode


class Node:
    """One node."""

    def __init__(self, machine: Machine, hardware: FakeNode, index: int, boot: Callable[["Node"], None]) -> None:
        self.machine = machine
        self.hardware = hardware
        self.index = index
        self._boot = boot

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return self.machine.name

    @property
    def folder(self) -> Path:
        """The folder of its machine."""
        return self.machine.folder

    def path(self, path: str) -> Path:
        """Return the path on this machine of the node's private file *path*. Raises: ValueError if there is none."""
        return self.machine.path(path)

    def kill_kubelet(self) -> None:
        """Kill the kubelet. Containers keep running, and it is not restarted until `start_kubelet`."""
        self.machine.kill_service("kubelet")

    def start_kubelet(self) -> None:
        """Start the kubelet if it does not run."""
        self.machine.serve_again()

    def kubelet_log(self) -> str:
        """Return the end of the kubelet's log."""
        return self.machine.tail("kubelet")

    def restart(self) -> None:
        """Cut the power and boot: all processes are killed, /run and /tmp are lost."""
        self.machine.kill()
        self._boot(self)

    def container_pid(self, container_id: str) -> int:
        """
        Return the pid on this machine of a running container's first process.

        *container_id* is the plain id, or that of a Pod's status (`containerd://...`). Raises: MachineError.
        """
        bare = container_id.rpartition("/")[2]
        file = self.path(f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{bare}/init.pid")
        try:
            inside = file.read_text().strip()
        except FileNotFoundError:
            raise MachineError(f"{self.name} runs no container {bare}") from None
        for status in Path("/proc").glob("[0-9]*/status"):
            pid = int(status.parent.name)
            if self._is_ours(pid) and _pid_inside(status) == inside:
                return pid
        raise MachineError(f"{self.name}: container {bare} has ended")

    def _is_ours(self, pid: int) -> bool:
        try:
            return f"/{self.machine.description.cgroup}/" in Path(f"/proc/{pid}/cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False


def _pid_inside(status: Path) -> str | None:
    """Return the pid of a process inside its node, or None if it is not in a node or has ended."""
    try:
        line = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return None
    numbers = line.split()[1:]
    return numbers[1] if len(numbers) > 1 else None
