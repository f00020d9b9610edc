"""
The store of images: a machine gets them at once, and its changes affect no other machine.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from controlplane import parts
from controlplane.images import store
from controlplane.images.store import CONTAINERD_ROOT, KEPT_SETS, Store
from controlplane.machines import cgroups
from controlplane.machines.machine import Description, Machine, MachineError, Service
from controlplane.programs import build
from controlplane_tests.conftest import PROBE_IMAGE

pytestmark = [pytest.mark.usefixtures("able_machine"), pytest.mark.timeout(600)]
_CGROUP = f"hami-test-{os.getpid()}"


class Rack:
    """Stores of one folder, and machines with images from them."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.sets = folder / "sets"
        self._folder = folder
        self._binaries = binaries
        self._machines: list[Machine] = []
        self.store = self.another_store("store")

    def another_store(self, name: str) -> Store:
        """Return a store with another machine for imports."""
        return Store(self.sets, *self._machine(name))

    def filled(self, name: str, archive: Path) -> Machine:
        """Return a new machine with the image of *archive* and a running containerd."""
        machine, containerd = self._machine(name)
        self.store.fill(machine, [archive])
        store.start(machine, containerd)
        return machine

    def remove(self) -> None:
        """Remove all machines."""
        for machine in self._machines:
            machine.kill()
        cgroups.remove(_CGROUP)

    def _machine(self, name: str) -> tuple[Machine, Service]:
        folder = self._folder / name
        folder.mkdir()
        programs = {str(path.resolve().parent) for path in self._binaries.iterdir()}
        visible = (str(self._folder), str(self._binaries), *sorted(programs))
        description = Description(name, f"{_CGROUP}/{name}", str(self._binaries), (CONTAINERD_ROOT,), visible)
        machine = Machine(folder, description)
        self._machines.append(machine)
        return machine, parts.containerd(self._binaries, machine, 1)


@pytest.fixture
def rack(go: None, tmp_path: Path) -> Iterator[Rack]:
    """Yield an empty store."""
    rack = Rack(tmp_path, build.binaries(step=print))
    yield rack
    rack.remove()


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every import adds the name of its machine."""
    found: list[str] = []
    run = Machine.run

    def watched(machine: Machine, argv: list[str], *more: Any) -> str:
        if "import" in argv:
            found.append(machine.name)
        return run(machine, argv, *more)

    monkeypatch.setattr(Machine, "run", watched)
    return found


def _ctr(machine: Machine, *arguments: str) -> str:
    return machine.run(["ctr", f"--address={store.CONTAINERD_SOCKET}", "--namespace=k8s.io", *arguments])


def _names(machine: Machine) -> list[str]:
    """Return the names of its images, except those that containerd's CRI plugin adds."""
    return [name for name in _ctr(machine, "images", "list", "-q").split() if not name.startswith("sha256:")]


def test_machines_start_with_images_that_are_imported_once(rack: Rack, probe_image: Path, imports: list[str]) -> None:
    """There are two machines and one import. Loading the archive again does nothing."""
    rack.store.add([probe_image])
    rack.store.add([probe_image])
    for name in ("one", "two"):
        machine = rack.filled(name, probe_image)
        store.load(machine, [probe_image])
        assert [PROBE_IMAGE] == _names(machine)

    assert ["store"] == imports


def test_stores_of_one_folder_import_once_in_total(rack: Rack, probe_image: Path, imports: list[str]) -> None:
    """They may start at the same time, like clusters that run side by side."""
    stores = [rack.another_store(name) for name in ("first", "second", "third")]

    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each.add([probe_image]), stores))

    assert 1 == len(imports)
    assert [PROBE_IMAGE] == _names(rack.filled("one", probe_image))


def test_recently_used_sets_are_kept(rack: Rack, probe_image: Path) -> None:
    """Every change of an image makes another set, and disks are finite."""
    for number in range(KEPT_SETS + 2):
        place = rack.sets / f"images-{number}"
        place.mkdir(parents=True)
        os.utime(place, (number, number))

    rack.store.add([probe_image])

    names = [path.name for path in rack.sets.glob("images-*/")]
    assert KEPT_SETS == len(names)
    assert {f"images-{number}" for number in range(3, KEPT_SETS + 2)} < set(names)


def test_image_removed_from_one_machine_stays_in_the_others(rack: Rack, probe_image: Path, tmp_path: Path) -> None:
    """
    It also stays in the store, for the next machine.

    The container writes to a file, because `ctr run` loses its output if it ends before the first read (its task is
    deleted with the pipes closed, containerd v2.1.8, pkg/cio/io_unix.go).
    """
    one, two = rack.filled("one", probe_image), rack.filled("two", probe_image)

    _ctr(one, "images", "rm", "--sync", *_ctr(one, "images", "list", "-q").split())

    assert "" == _ctr(one, "content", "list", "-q")
    for machine in (two, rack.filled("three", probe_image)):
        said = tmp_path / f"{machine.name}.log"
        listing = ("/usr/local/bin/probe", "list", "/usr/local/bin")
        _ctr(machine, "run", "--rm", "--log-uri", said.as_uri(), PROBE_IMAGE, "probe", *listing)
        assert "/usr/local/bin/probe\n" == said.read_text()


def test_failed_import_is_repeated(rack: Rack, probe_image: Path, imports: list[str]) -> None:
    """A store has an archive only after a complete import."""
    content = bytearray(probe_image.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 0xFF
    broken = probe_image.with_name("broken.tar")
    broken.write_bytes(content)
    with pytest.raises(MachineError, match="digest"):
        rack.store.add([broken])

    rack.store.add([probe_image])

    assert ["store", "store"] == imports
    assert [PROBE_IMAGE] == _names(rack.filled("one", probe_image))
