"""
One run of the limiter's acceptance matrix: containers with limits on one fake device, in virtual time.

Owns how a cell becomes processes, and what is measured: the fake driver's account of when the device was busy and for
which process. Knows nothing of which cells there are and what is required of them (`matrix`).
"""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containers import SANITIZER, SANITIZER_OPTIONS

DEVICES = """uuid,name,memory_mib,numa_node,pci_bus_id
GPU-aaaaaaaa-0000-4000-8000-000000000000,Fake,16384,0,0000:17:00.0
GPU-bbbbbbbb-0000-4000-8000-000000000001,Fake,16384,0,0000:65:00.0
"""
SETTLING_SECONDS = 5
"""The seconds at the start that the mean excludes."""
PID_OFFSET = "100000"
"""NVML's pids are the host's, which differ from the container's."""
UNLIMITED = 100
PATIENCE_SECONDS = 600
OPTIONS = (
    *("streams", "graph", "pause_us", "threads", "burst", "sms", "persistent", "host_us", "device", "rank"),
    *("kinds", "spread", "known", "passes", "reload"),
)
"""The fields of a tenant that are options of the load (load.c)."""


@dataclass(frozen=True)
class Tenant:
    """A container: its limit in percent, and what each of its processes runs."""

    limit: int
    kernel: str
    """Several kernels, separated by commas, are given to the processes in turn."""
    processes: int = 1
    streams: int = 1
    graph: int = 0
    """How many kernels are launched as one graph; 0 launches each kernel separately."""
    pause_us: int = 0
    """The pause after each request has ended; 0 does not wait for it."""
    threads: int = 1
    burst: int = 1
    """How many kernels are launched as one request."""
    sms: int = 0
    """The multiprocessors for which grids of different sizes are launched; 0 launches single blocks."""
    persistent: int = 0
    """1: beside a kernel that does not end."""
    host_us: int = 0
    """How long the host function takes that follows each request; 0 for none."""
    device: int = 0
    rank: int = 0
    """1 or 2: after each request it waits until the other rank is as far; 0: it does not."""
    kinds: int = 1
    """How many kernels of different lengths are launched in turn; each is a microsecond longer than another."""
    spread: int = 4096
    """How many of them have different lengths, at most."""
    known: int = 0
    """How many launches of the first of them follow each."""
    passes: int = 0
    """1: each turn through the kinds is waited for and measured."""
    reload: int = 0
    """The kinds are loaded again for each turn. 1: so that they are always new; 2: after the old ones were unloaded."""
    faults: str = ""
    """FAKE_DRIVER_FAULTS: calls of the driver that are slow or fail."""

    def arguments(self, number: int, seconds: int) -> list[str]:
        """Return the command line of the load for one of its processes."""
        options = [f"{name}={getattr(self, name)}" for name in OPTIONS]
        kernels = self.kernel.split(",")
        return [kernels[number % len(kernels)], str(seconds), *options]


@dataclass(frozen=True)
class Cell:
    """
    Containers that share a device, or have one each, and the length of NVML's windows in milliseconds.

    None is without NVML.
    """

    tenants: tuple[Tenant, ...]
    window_ms: int | None = 166
    has_library: bool = True
    is_virtual: bool = True
    """Whether time is virtual instead of the machine's."""
    is_concurrent: bool = False
    """Whether processes run at the same time, as under MPS, instead of in time slices."""


@dataclass(frozen=True)
class Share:
    """What one container got: percent of each second, launches, and the longest duration of a launch call."""

    seconds: tuple[float, ...]
    launched: tuple[int, ...]
    """The launches in each second."""
    longest_ms: float
    processes: tuple[float, ...]
    """The mean of each process after settling."""
    latencies_ms: tuple[float, ...]
    """How long each of its last requests took that were waited for."""
    passes_ms: tuple[tuple[float, ...], ...]
    """How long each turn through the kinds took that was waited for, of each process."""

    @property
    def launches(self) -> int:
        """All launches."""
        return sum(self.launched)

    def mean(self, begin: int = SETTLING_SECONDS, end: int | None = None) -> float:
        """Return the percentage of the time from one second to another."""
        chosen = self.seconds[begin:end]
        return sum(chosen) / len(chosen)


def run(cell: Cell, build: Path, seconds: int) -> list[Share]:
    """
    Run a cell for some virtual seconds after settling.

    Returns: each container's share, in the order of the tenants.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "devices.csv").write_text(DEVICES)
        (folder / "steps").write_bytes(bytes(16))
        processes = _start(cell, build, folder, SETTLING_SECONDS + seconds)
        return [_share([_result(process) for process in tenant]) for tenant in processes]


def _start(cell: Cell, build: Path, folder: Path, seconds: int) -> list[list["subprocess.Popen[str]"]]:
    total, rank = sum(tenant.processes for tenant in cell.tenants), 0
    started: list[list[subprocess.Popen[str]]] = []
    for number, tenant in enumerate(cell.tenants):
        started.append([])
        for process in range(tenant.processes):
            environ = _environ(cell, build, folder, number) | {"CUDA_DEVICE_SM_LIMIT": str(tenant.limit)}
            environ["FAKE_DRIVER_FAULTS"] = tenant.faults
            if cell.is_virtual:
                environ |= {"FAKE_TIME": f"virtual:{total}", "FAKE_TIME_RANK": str(rank)}
            command = [str(build / "limiter_load"), *tenant.arguments(process, seconds)]
            started[-1].append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
            rank += 1
    return started


def _drivers(cell: Cell, build: Path, folder: Path) -> Path:
    """Return a folder with the fake driver, without NVML if the cell has none."""
    if cell.window_ms is not None:
        return build / "fake_driver"
    drivers = folder / "drivers"
    drivers.mkdir(exist_ok=True)
    if not (drivers / "libcuda.so.1").exists():
        (drivers / "libcuda.so.1").symlink_to(build / "fake_driver/libcuda.so.1")
    return drivers


def _environ(cell: Cell, build: Path, folder: Path, number: int) -> dict[str, str]:
    libraries = [
        SANITIZER,
        str(build / "libfake_time.so") if cell.is_virtual else "",
        str(build / "libvgpu.so") if cell.has_library else "",
    ]
    return {
        "PATH": os.environ["PATH"],
        **SANITIZER_OPTIONS,
        "LD_LIBRARY_PATH": str(_drivers(cell, build, folder)),
        "LD_PRELOAD": ":".join(path for path in libraries if path),
        "FAKE_DRIVER_DIR": str(folder),
        "FAKE_DRIVER_PID_OFFSET": PID_OFFSET,
        "FAKE_DRIVER_NVML_WINDOW_MS": str(cell.window_ms or 0),
        "FAKE_DRIVER_MPS": str(int(cell.is_concurrent)),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(folder / f"tenant-{number}.cache"),
        "GPU_CORE_UTILIZATION_POLICY": "force",
    }


def _result(process: "subprocess.Popen[str]") -> dict[str, Any]:
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    if process.returncode != 0:
        raise RuntimeError(f"limiter_load ended with {process.returncode}")
    result: dict[str, Any] = json.loads(output)
    return result


def _share(results: list[dict[str, Any]]) -> Share:
    busy = list(zip(*(result["busy_ns"] for result in results), strict=True))
    settled = list(zip(*busy[SETTLING_SECONDS:], strict=True))
    return Share(
        seconds=tuple(sum(second) / 1e7 for second in busy),
        launched=tuple(map(sum, zip(*(result["launches"] for result in results), strict=True))),
        longest_ms=max(result["longest_ms"] for result in results),
        processes=tuple(sum(process) / len(process) / 1e7 for process in settled),
        latencies_ms=tuple(latency / 1e6 for result in results for latency in result["latencies_ns"]),
        passes_ms=tuple(tuple(duration / 1e6 for duration in result["passes_ns"]) for result in results),
    )
