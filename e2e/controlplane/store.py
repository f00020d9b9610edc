"""
The images that every node is born with: imported once, into a containerd that runs for nothing else, and linked from
there.

Owns what is in a store, and how a node gets it. An import unpacks and hashes a gigabyte; links cost nothing, and
nobody writes to an image's files in place. Neighbours: `cluster` owns the store's machine, `node` imports into a node
that runs.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import grpc

from controlplane import oci
from controlplane.machine import Machine, MachineError, Service

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_ROOT = "/var/lib/containerd"
START_SECONDS = 60.0

_CTR = ("ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io")
_DATABASES = "io.containerd.*/*.db"
"""What containerd writes to in place, so that each node needs its own."""


def serves_kubelet(machine: Machine) -> bool:
    """
    Return True if the containerd of *machine* serves a kubelet: it does later than images, and a kubelet would give up.

    Raises: MachineError, with what it says instead.

    The request is CRI's (runtime.v1) and empty, so it is written without its message. The socket is named by way of the
    machine's first process, because a Unix socket's path may have 107 bytes.
    """
    with grpc.insecure_channel(f"unix:/proc/{machine.pid}/root{CONTAINERD_SOCKET}") as channel:
        try:
            channel.unary_unary("/runtime.v1.RuntimeService/Version", bytes, bytes)(b"", timeout=1)
        except grpc.RpcError as error:
            raise MachineError(f"containerd of {machine.name}: {error}") from error
    return True


def start(machine: Machine, containerd: Service) -> None:
    """Start *machine* with nothing but *containerd*, and wait until that answers. Raises: MachineError."""
    machine.start()
    machine.serve([containerd])
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            serves_kubelet(machine)
        except MachineError as error:
            if time.monotonic() > deadline:
                raise MachineError(f"{error}\n{machine.tail('containerd')}") from error
            time.sleep(0.05)
        else:
            return


def load(machine: Machine, archives: Sequence[Path]) -> None:
    """Import the images of OCI archives that *machine* lacks, or has otherwise. Raises: MachineError."""
    listed = machine.run([*_CTR, "images", "list"])
    present = {tuple(line.split()[:3:2]) for line in listed.splitlines()[1:]}
    for archive in archives:
        if not all((image.name, image.digest) in present for image in oci.images(archive)):
            with archive.open("rb") as content:
                machine.run([*_CTR, "images", "import", "--all-platforms", "-"], content)


class Store:
    """A machine that is on only while something is imported; otherwise just a folder."""

    def __init__(self, machine: Machine, containerd: Service) -> None:
        self._machine = machine
        self._containerd = containerd
        self._record = machine.folder / "archives.json"

    def add(self, archives: Sequence[Path]) -> None:
        """Import what is not there yet. Raises: MachineError."""
        wanted = {str(archive): archive.stat().st_mtime_ns for archive in archives}
        held: dict[str, int] = json.loads(self._record.read_text()) if self._record.exists() else {}
        if wanted.items() <= held.items():
            return
        start(self._machine, self._containerd)
        load(self._machine, archives)
        self._machine.retire()
        self._record.write_text(json.dumps(held | wanted))

    def fill(self, machine: Machine) -> None:
        """Give *machine* what is in the store, if its containerd has never run."""
        images = machine.path(CONTAINERD_ROOT)
        if images.exists():
            return
        images.parent.mkdir(parents=True, exist_ok=True)
        draft = images.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        subprocess.run(["cp", "--archive", "--link", self._machine.path(CONTAINERD_ROOT), draft], check=True)
        for database in draft.glob(_DATABASES):
            own = database.with_suffix(".own")
            shutil.copyfile(database, own)
            own.rename(database)
        draft.rename(images)
