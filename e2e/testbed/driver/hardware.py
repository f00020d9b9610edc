"""
The fake devices of a Node, and what happens to them.

Owns the files in `FAKE_DRIVER_DIR` that a test writes and reads; native/hami-core/tests/fake_driver/README.md describes
them. Knows no cluster; both clusters are built from these values.
"""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from minicluster.kubelet.runtime import groups
from testbed.driver.mig.files import show_mig

VARIABLES_FILE = Path("/run/fake-driver.env")
"""
The fake driver's variables for processes that lost their environment, a `NAME=value` a line.

A test mounts its own file there in a container, and never writes it on the machine.
"""
PROC = "proc"
"""The folder in `FAKE_DRIVER_DIR` with the files that a driver shows in /proc."""
CGROUPS = "cgroup"
"""The folder in `FAKE_DRIVER_DIR` that stands for cgroup version 2, if the Node names its driver."""
CONTROLLERS = ("cpu", "io", "memory", "pids", "misc")
"""The controllers of a stand-in for cgroup version 2, beside dmem."""
FIRST_DRIVER_WITH_LIMITS = "615.43.02"
"""The version of a driver that holds limits on memory: nvmlDeviceSetMemoryLimits_v1 works from r615 on."""
FIRST_DRIVER_WITH_MPS = FIRST_DRIVER_WITH_LIMITS
"""The version of a driver whose MPS has protocol 3, from r615 on."""


@dataclass(frozen=True)
class FakeGpu:
    """One device of the fake driver."""

    uuid: str
    name: str
    memory_mib: int
    numa_node: int = 0


@dataclass(frozen=True)
class FakeNode:
    """A Node and its devices."""

    name: str
    gpus: tuple[FakeGpu, ...]
    kind: str = "legacy"
    """The software between driver and containers, a name in `controlplane.nvidia`. The embedded cluster ignores it."""
    shows_mig: bool = False
    """Whether containers find in /proc what the driver shows of MIG. The embedded cluster ignores it."""
    driver: str = ""
    """The version of the driver. Empty means the fake driver's own."""
    has_dmem: bool = False
    """Whether the kernel has the controller dmem, if the Node names its driver."""

    @classmethod
    def of(cls, name: str, model: str, memory_mib: int, count: int) -> "FakeNode":
        """Return a Node with *count* devices of one model. The UUIDs are derived from *name*."""
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return cls(
            name,
            tuple(FakeGpu(f"GPU-{digest}-0000-4000-8000-{index:012d}", model, memory_mib) for index in range(count)),
        )

    def write_hardware(self, folder: Path) -> None:
        """Write `devices.csv` into *folder*, which is `FAKE_DRIVER_DIR` for the fake driver and created if missing."""
        folder.mkdir(parents=True, exist_ok=True)
        _prepare(folder)
        rows = [
            f"{gpu.uuid},{gpu.name},{gpu.memory_mib},{gpu.numa_node},00000000:{index + 1:02X}:00.0"
            for index, gpu in enumerate(self.gpus)
        ]
        (folder / "devices.csv").write_text("\n".join(["uuid,name,memory_mib,numa_node,pci_bus_id", *rows, ""]))
        if self.shows_mig:
            show_mig(folder / PROC, len(self.gpus))
        if self.driver:
            FakeDriver(folder).load(version=self.driver)
            StandInCgroups(folder / CGROUPS, folder / "devices.csv" if self.has_dmem else None)


@dataclass(frozen=True)
class DriverClient:
    """A library of a process that holds the driver."""

    pid: int
    """As the process itself sees it."""
    library: str
    """`nvml` or `cuda`."""
    initialisations: int
    """How many calls of nvmlInit have no nvmlShutdown yet."""
    command: str


class StandInCgroups:
    """
    A folder that stands for `/sys/fs/cgroup` of cgroup version 2, on a machine that has version 1.

    A process is in one of these cgroups because its variables say so. On a machine with version 2 the fake driver
    reads the real cgroups without any variable. The controller dmem is made of files that the fake driver reads and
    writes; it is there if the folder was first made for the devices of a Node.
    """

    def __init__(self, root: Path, devices: Path | None = None) -> None:
        """Make *root* if it is missing, with dmem for the *devices*, a file `devices.csv`."""
        self.root = root
        if (root / groups.CONTROLLERS).exists():
            return
        root.mkdir(parents=True, exist_ok=True)
        if devices:
            (root / "dmem.capacity").write_text(_regions(devices))
        groups.write_controllers(root, [*CONTROLLERS, *([groups.DMEM] if devices else [])])

    def create(self, path: str, *, runtime: str = "runc") -> Path:
        """Create the cgroup *path*, such as `/kubepods/pod1/c1`, and those above it. Return its folder."""
        return groups.make_group(self.root, path, runtime=runtime)

    def remove(self, path: str) -> None:
        """Remove the cgroup *path*, which has none below it."""
        groups.remove_group(self.root / path.strip("/"))

    def soft_limits(self) -> dict[str, int]:
        """Return the sum of the soft limits of each cgroup in which dmem has any, by its path."""
        lines = {file: file.read_text().split() for file in self.root.rglob("dmem.min")}
        sums = {f"/{file.parent.relative_to(self.root)}": sum(map(int, words[1::2])) for file, words in lines.items()}
        return {path: size for path, size in sums.items() if size}

    def variables(self, path: str) -> dict[str, str]:
        """Return the variables of a process in the cgroup *path*."""
        return {"FAKE_DRIVER_CGROUP_ROOT": str(self.root), "FAKE_DRIVER_CGROUP": path}


def _regions(devices: Path) -> str:
    """Return the text of `dmem.capacity` with the GPUs that the file *devices* has."""
    rows = (row.split(",") for row in devices.read_text().splitlines()[1:])
    gpus = ((row[4], int(row[2]) << 20) for row in rows if not row[0].startswith("MIG-"))
    return "".join(f"nvidia/{address.lower():0>16}/vidmem {size}\n" for address, size in gpus)


class DriverInUseError(Exception):
    """The driver cannot be unloaded, or the card reset, while processes hold it. The message names them."""


class FakeDriver:
    """
    The fake driver of one Node: makes its cards and the driver itself fail, and says who holds it.

    Each method returns when the new condition holds for every process of the Node. A call that is in progress may still
    end as before. A *call* is the name of an exported function, such as `nvmlDeviceGetMemoryInfo`.
    """

    def __init__(self, folder: Path) -> None:
        """Use *folder*, which is `FAKE_DRIVER_DIR` for the processes of the Node."""
        self.folder = folder

    def lose(self, uuid: str, at: str | None = None) -> None:
        """Let a GPU fall off the bus: now, or when the function *at* is next called for it."""
        self._set(uuid, lost=None if at else (), lost_at=(at, time.time_ns()) if at else None)

    def bring_back(self, uuid: str) -> None:
        """Let a GPU that was lost answer again."""
        self._set(uuid, lost=None, lost_at=None)

    def hang(self, uuid: str | None = None, call: str | None = None) -> None:
        """Let calls not return until `recover`: of NVML or for the GPU *uuid*, all or only those of *call*."""
        self._set(uuid or "nvml", hang=(call,) if call else ())

    def fail(self, error: int, uuid: str | None = None, call: str | None = None) -> None:
        """Let the calls that `hang` would block return the NVML error number *error* until `recover`."""
        self._set(uuid or "nvml", error=(error, call) if call else (error,))

    def recover(self, uuid: str | None = None) -> None:
        """End `hang` and `fail`: those of NVML, or those for the GPU *uuid*."""
        self._set(uuid or "nvml", hang=None, error=None)

    def connect(self, uuid: str, peer: str, links: int) -> None:
        """Connect a GPU to *peer*, another GPU or `switch`, by *links* NVLinks. The way back is another call."""
        self._set_pair(uuid, "nvlinks", peer, (links,) if links else None)

    def break_link(self, uuid: str, number: int) -> None:
        """Take an NVLink of a GPU down. Its links are numbered in the order in which they were connected."""
        self._set_pair(uuid, "nvlink-down", str(number), ())

    def mend_link(self, uuid: str, number: int) -> None:
        """Bring an NVLink of a GPU up again."""
        self._set_pair(uuid, "nvlink-down", str(number), None)

    def place(self, uuid: str, peer: str, ancestor: str) -> None:
        """
        Put two GPUs below an *ancestor* on the PCI bus.

        The nearest first: `internal`, `single` (PCIe switch), `multiple`, `hostbridge`, `node` (NUMA), `system`.
        """
        self._set_pair(uuid, "ancestor", peer, (ancestor,))

    def unload(self, *, despite_clients: bool = False) -> None:
        """
        Unload the driver, as `rmmod nvidia` does.

        With *despite_clients* the driver goes even if processes hold it. Their calls then fail until they close it.

        Raises:
            DriverInUseError: a process holds the driver.
        """
        with self._no_clients(unless=despite_clients):
            self._set("driver", unloaded=())

    def load(self, version: str | None = None, memacct: int | None = None) -> None:
        """
        Load the driver again, or another one. Without *version* it has the version it had.

        *memacct* is the option of its module that says what holds limits on memory: RmMemacctMode.
        """
        with self._edited() as lines:
            lines[:] = [line for line in lines if not _is_volatile(line)]
        loads = self._number("driver", "loads", 1) + 1
        given = {"version": version, "memacct": memacct}
        changed = {name: (value,) for name, value in given.items() if value is not None}
        self._set("driver", unloaded=None, loads=(loads,), **changed)

    def count_misc_as_there(self) -> None:
        """Let the driver work as if the kernel had the controller misc, which that of user-mode Linux lacks."""
        self._set("driver", kernel_has_misc=())

    def let_mps_survive_kills(self) -> None:
        """Let a client of MPS that is killed at work harm no other. NVIDIA has announced this for r625."""
        self._set("driver", mps_survives_kills=())

    def set(self, uuid: str, **readings: int | None) -> None:
        """Let sensors and counters of a GPU read a number; None is the ordinary one. The README has their names."""
        self._set(uuid, **{name: None if value is None else (value,) for name, value in readings.items()})

    def reset(self, uuid: str, *, despite_clients: bool = False) -> None:
        """
        Reset a GPU, as `nvidia-smi --gpu-reset` does.

        It answers again whatever it did before, remaps its rows, and needs no recovery. Volatile counters are zero.

        Raises:
            DriverInUseError: a process holds the driver, and *despite_clients* is false.
        """
        with self._no_clients(unless=despite_clients):
            with self._edited() as lines:
                lines[:] = [line for line in lines if line[0] != uuid or not _ends_with_reset(line)]
            self._set(uuid, resets=(self._number(uuid, "resets", 0) + 1,))

    def clients(self) -> tuple[DriverClient, ...]:
        """Return who holds the driver. A process that uses NVML and CUDA is there twice."""
        return tuple(sorted(self._clients(), key=lambda client: (client.pid, client.library)))

    def report_xid(self, uuid: str, xid: int) -> None:
        """Report an XID error of a GPU or MIG instance to those that wait for events."""
        self._report(uuid, str(xid))

    def report_ecc_error(self, uuid: str, *, is_corrected: bool = False) -> None:
        """Count an ECC error of a GPU, and report it to those that wait for events."""
        kind = "corrected" if is_corrected else "uncorrected"
        names = [f"ecc-{kind}-{counter}" for counter in ("volatile", "aggregate")]
        self._set(uuid, **{name: (self._number(uuid, name, 0) + 1,) for name in names})
        self._report(uuid, "single-bit-ecc" if is_corrected else "double-bit-ecc")

    def _report(self, uuid: str, what: str) -> None:
        with (self.folder / "xid").open("a") as file:
            file.write(f"{uuid} {what}\n")

    def _clients(self) -> Iterator[DriverClient]:
        for path in (self.folder / "clients").glob("*"):
            # It may end between two of these steps.
            with suppress(FileNotFoundError), path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    pid, library, initialisations, command = file.readline().split(maxsplit=3)
                    yield DriverClient(int(pid), library, int(initialisations), command.strip())

    @contextmanager
    def _no_clients(self, *, unless: bool) -> Iterator[None]:
        """
        Let no process open the driver during the block.

        Raises:
            DriverInUseError: a process holds the driver, and *unless* is false.
        """
        _prepare(self.folder)
        handle = os.open(self.folder / "clients", os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            holders = () if unless else self.clients()
            if holders:
                raise DriverInUseError(f"the driver of {self.folder} is held by {holders}")
            yield
        finally:
            os.close(handle)

    def _lines(self) -> list[list[str]]:
        with suppress(FileNotFoundError):
            return [line.split() for line in (self.folder / "conditions").read_text().splitlines()]
        return []

    def _number(self, subject: str, condition: str, default: int) -> int:
        found = (int(line[2]) for line in self._lines() if line[:2] == [subject, condition])
        return next(found, default)

    def _set(self, subject: str, **conditions: tuple[object, ...] | None) -> None:
        """Replace conditions of *subject* by new values; None removes one. `_` in a name stands for `-`."""
        named = {name.replace("_", "-"): values for name, values in conditions.items()}
        with self._edited() as lines:
            lines[:] = [line for line in lines if line[0] != subject or line[1] not in named]
            lines += [
                [subject, name, *map(str, values)] for name, values in sorted(named.items()) if values is not None
            ]

    def _set_pair(self, subject: str, condition: str, key: str, values: tuple[object, ...] | None) -> None:
        """Replace the condition of *subject* whose first value is *key*; None removes it."""
        added = [] if values is None else [[subject, condition, key, *map(str, values)]]
        with self._edited() as lines:
            lines[:] = [line for line in lines if line[:3] != [subject, condition, key]] + added

    @contextmanager
    def _edited(self) -> Iterator[list[list[str]]]:
        """Yield the lines to change, and then let all processes see them."""
        _prepare(self.folder)
        handle = os.open(self.folder / "changed", os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            lines = self._lines()
            yield lines
            fresh = self.folder / "conditions.fresh"
            fresh.write_text("".join(" ".join(line) + "\n" for line in lines))
            fresh.rename(self.folder / "conditions")
            os.pwrite(handle, time.time_ns().to_bytes(8, "little"), 0)
        finally:
            os.close(handle)


def _prepare(folder: Path) -> None:
    """Make the files of *folder* that programs of any user need before the first change of a condition."""
    with suppress(FileExistsError):
        (folder / "clients").mkdir()
        (folder / "clients").chmod(0o777)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(bytes(8))
        file.flush()
        os.fchmod(file.fileno(), 0o666)
        # It appears with its 8 bytes, because it may be mapped at once.
        with suppress(FileExistsError):
            os.link(file.name, folder / "changed")


def _is_volatile(line: list[str]) -> bool:
    """Return whether the condition in *line* ends when the driver is loaded."""
    return line[1].endswith("-volatile")


def _ends_with_reset(line: list[str]) -> bool:
    return _is_volatile(line) or line[1] in (
        "lost",
        "lost-at",
        "hang",
        "error",
        "remap-pending",
        "retirement-pending",
        "recovery-action",
    )


TWO_NODES = (
    FakeNode.of("node-a", "NVIDIA A100-SXM4-40GB", 40960, 2),
    FakeNode.of("node-b", "Tesla T4", 16384, 2),
)
