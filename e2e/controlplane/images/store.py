"""
The images of new nodes: imported once, by a containerd that only imports, and linked into each node.

Owns the sets of imported images, and how a node gets one. An import unpacks and hashes a gigabyte. Links cost nothing,
and no program changes the files of an image. So all clusters of this machine share the sets, which are named by their
content. Neighbours: `cluster` owns the importing machine, `programs.build` the cache.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from controlplane.images import oci
from controlplane.machines.machine import Machine, MachineError, Service

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_ROOT = "/var/lib/containerd"
START_SECONDS = 60.0
KEPT_SETS = 6
"""The number of sets that are kept, by last use. Each has up to about a gigabyte. A run of all tests uses five."""

_CTR = ("ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io")
_DATABASES = "io.containerd.*/*.db"
"""The files that containerd changes in place, so that each node needs a copy."""


def serves_kubelet(machine: Machine) -> bool:
    """
    Return True if the containerd of *machine* serves CRI. It serves images earlier, and a kubelet would give up.

    Raises: MachineError with its error.

    The request of CRI (runtime.v1) is empty, so no message type is needed. The path of the socket goes through /proc,
    because the path of a Unix socket may have 107 bytes.
    """
    with grpc.insecure_channel(f"unix:/proc/{machine.pid}/root{CONTAINERD_SOCKET}") as channel:
        try:
            channel.unary_unary("/runtime.v1.RuntimeService/Version", bytes, bytes)(b"", timeout=1)
        except grpc.RpcError as error:
            raise MachineError(f"containerd of {machine.name}: {error}") from error
    return True


def start(machine: Machine, containerd: Service) -> None:
    """Start *machine* with *containerd* only, and wait until it serves. Raises: MachineError."""
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
    """Import the images of OCI archives that *machine* does not have. Raises: MachineError."""
    listed = machine.run([*_CTR, "images", "list"])
    present = {tuple(line.split()[:3:2]) for line in listed.splitlines()[1:]}
    for archive in archives:
        if not all((image.name, image.digest) in present for image in oci.images(archive)):
            with archive.open("rb") as content:
                machine.run([*_CTR, "images", "import", "--all-platforms", "-"], content)


class Store:
    """The imported images, in a folder for each set. One process at a time uses the store."""

    def __init__(self, folder: Path, machine: Machine, containerd: Service) -> None:
        """Keep sets in *folder*. *machine* runs *containerd* during imports only."""
        self._folder = folder
        self._machine = machine
        self._containerd = containerd

    def add(self, archives: Sequence[Path]) -> None:
        """Import the set of *archives* if it is missing. Raises: MachineError; ValueError for a bad archive."""
        with self._locked():
            self._made(archives)

    def fill(self, machine: Machine, archives: Sequence[Path]) -> None:
        """Link the images of *archives* into *machine*, if its containerd has never run. Raises: as `add`."""
        images = machine.path(CONTAINERD_ROOT)
        if images.exists():
            return
        images.parent.mkdir(parents=True, exist_ok=True)
        draft = images.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        with self._locked():
            _copied(self._made(archives), draft)
        for database in draft.glob(_DATABASES):
            own = database.with_suffix(".own")
            shutil.copyfile(database, own)
            own.rename(database)
        draft.rename(images)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "images.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _made(self, archives: Sequence[Path]) -> Path:
        place = self._folder / f"images-{self._key(archives)}"
        if not place.exists():
            self._make_room()
            draft = self._folder / "images.new"
            shutil.rmtree(draft, ignore_errors=True)
            _copied(self._imported(archives), draft)
            draft.rename(place)
        os.utime(place)
        return place

    def _make_room(self) -> None:
        """Remove the least recently used sets."""
        kept = sorted(self._folder.glob("images-*/"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[KEPT_SETS - 1 :]:
            shutil.rmtree(path)

    def _imported(self, archives: Sequence[Path]) -> Path:
        """Import *archives*, and return containerd's folder."""
        images = self._machine.path(CONTAINERD_ROOT)
        shutil.rmtree(images, ignore_errors=True)
        try:
            start(self._machine, self._containerd)
            load(self._machine, archives)
        finally:
            self._machine.retire()
        return images

    def _key(self, archives: Sequence[Path]) -> str:
        """Return a digest of the images and of containerd's version, which decides the form of its folder."""
        found = sorted(f"{image.name} {image.digest}" for archive in archives for image in oci.images(archive))
        program = Path(self._containerd.argv[0]).resolve().parent.name
        return hashlib.sha256("\n".join([program, *found]).encode()).hexdigest()[:12]


def _copied(source: Path, target: Path) -> None:
    """Copy a folder with hard links, or with copies between file systems."""
    is_one = source.stat().st_dev == target.parent.stat().st_dev
    subprocess.run(["cp", "--archive", *(["--link"] if is_one else []), source, target], check=True)
