"""
A node in a guest: containerd, and a kubelet without an API server.

Owns how Pods come to that kubelet, as manifests in a folder, and how their output comes back, as containerd's logs.
Neighbours: `kernel` runs the programs, `plugin` offers devices to the kubelet.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from controlplane.guest.kernel import Guest, Job
from controlplane.machines.machine import Machine, MachineError, Service

_IMPORT = ("ctr", "--namespace=k8s.io", "images", "import", "--all-platforms")
_SERVED = "until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done"
"""Waits for the socket of containerd, which `ctr` does not do."""

_LOGS = "cat /var/log/pods/default_{}-*/main/*.log 2>/dev/null || true"


class GuestNode:
    """A node of one guest. It belongs to no cluster."""

    def __init__(self, guest: Guest, manifests: Path) -> None:
        """The kubelet reads the folder *manifests*."""
        self.guest = guest
        self._manifests = manifests
        self._kubelet: Job

    @property
    def machine(self) -> Machine:
        """The machine that the guest runs in, and ends with."""
        return self.guest.machine

    def serve(self, containerd: Service, images: Iterable[Path], kubelet: Service) -> None:
        """Start *containerd*, import the OCI archives *images*, and start *kubelet*. Raises: MachineError."""
        self.guest.spawn(containerd.argv, containerd.environment)
        self.guest.run(["sh", "-c", _SERVED])
        for archive in images:
            # The archive itself may be in a folder that the machine does not see.
            copy = self.machine.folder / archive.name
            shutil.copyfile(archive, copy)
            self.guest.run([*_IMPORT, str(copy)])
        self._kubelet = self.guest.spawn(kubelet.argv, kubelet.environment)

    def offer(self, resource: str, device: str) -> None:
        """Let the kubelet offer *resource*, which gives a container the CDI *device*. Raises: MachineError."""
        plugin = self.guest.spawn([sys.executable, "-m", "controlplane.guest.plugin", resource, device])
        try:
            self.guest.until(lambda: plugin.output == "offered\n", f"{self.machine.name} offers {resource}")
        except MachineError as error:
            raise MachineError(f"{error}\n--- kubelet\n{self._kubelet.output[-2000:]}\n{plugin.output}") from error

    def start_pod(self, name: str, image: str, arguments: Iterable[str], limits: Mapping[str, str]) -> None:
        """Create a Pod with the container `main`, which runs once."""
        container = {"name": "main", "image": image, "args": [*arguments], "resources": {"limits": dict(limits)}}
        # The guest has no Pod network.
        spec: dict[str, Any] = {"hostNetwork": True, "restartPolicy": "Never", "containers": [container]}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        draft = self._manifests / f".{name}"
        draft.write_text(json.dumps(manifest))
        draft.rename(self._manifests / f"{name}.json")

    @property
    def log(self) -> str:
        """The last lines of the kubelet's log."""
        return self._kubelet.output[-4000:]

    def output(self, name: str) -> list[str]:
        """Return the lines that the Pod *name* has printed, without containerd's prefixes."""
        return [line.split(" ", 3)[3] for line in self.guest.run(["sh", "-c", _LOGS.format(name)]).splitlines()]
