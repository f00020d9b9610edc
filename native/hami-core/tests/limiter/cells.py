"""
One run of the limiter's acceptance matrix: containers with limits on one fake device, in virtual time.

Owns how a cell becomes processes and what is measured of it. Knows nothing of which cells there are (`matrix`) or what is
written about them (`__main__`). The measure is the fake driver's own account of when the device was busy with whom.
"""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

DEVICE = "uuid,name,memory_mib,numa_node,pci_bus_id\nGPU-aaaaaaaa-0000-4000-8000-000000000000,Fake,16384,0,0000:17:00.0\n"
SETTLING_SECONDS = 5
"""What the mean leaves out of the beginning."""
PID_OFFSET = "100000"
"""NVML's pids are the host's, which are not the container's."""


@dataclass(frozen=True)
class Tenant:
    """A container: its limit in percent (100 is none), and what each of its processes runs."""

    limit: int
    kernel: str
    processes: int = 1
    streams: int = 1
    graph: int = 0
    pause_us: int = 0

    def arguments(self, seconds: int) -> list[str]:
        """Return the load's command line."""
        return [self.kernel, str(seconds), f"streams={self.streams}", f"graph={self.graph}", f"pause_us={self.pause_us}"]


@dataclass(frozen=True)
class Cell:
    """Containers that share a device, and what NVML is like there: its window in milliseconds, None without NVML."""

    tenants: tuple[Tenant, ...]
    window_ms: int | None = 166
    library: bool = True


@dataclass(frozen=True)
class Share:
    """What one container got: percent of each second, launches, and the longest any launch took."""

    seconds: list[float] = field(default_factory=list)
    launches: int = 0
    longest_ms: float = 0.0

    @property
    def mean(self) -> float:
        """Percent of the time after settling."""
        settled = self.seconds[SETTLING_SECONDS:]
        return sum(settled) / len(settled)


def run(cell: Cell, build: Path, seconds: int) -> list[Share]:
    """Run a cell for so many virtual seconds after settling; return each container's share, in the order of the tenants."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "devices.csv").write_text(DEVICE)
        processes = _start(cell, build, folder, SETTLING_SECONDS + seconds)
        return [_share([_result(process) for process in tenant]) for tenant in processes]


def _start(cell: Cell, build: Path, folder: Path, seconds: int) -> list[list["subprocess.Popen[str]"]]:
    total, rank = sum(tenant.processes for tenant in cell.tenants), 0
    started = []
    for number, tenant in enumerate(cell.tenants):
        started.append([])
        for _ in range(tenant.processes):
            environ = _environ(cell, build, folder, number) | {
                "CUDA_DEVICE_SM_LIMIT": str(tenant.limit),
                "FAKE_TIME": f"virtual:{total}",
                "FAKE_TIME_RANK": str(rank),
            }
            command = [str(build / "limiter_load"), *tenant.arguments(seconds)]
            started[-1].append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
            rank += 1
    return started


def _environ(cell: Cell, build: Path, folder: Path, number: int) -> dict[str, str]:
    drivers = build / "fake_driver"
    if cell.window_ms is None:
        drivers = folder / "drivers"
        drivers.mkdir(exist_ok=True)
        if not (drivers / "libcuda.so.1").exists():
            (drivers / "libcuda.so.1").symlink_to(build / "fake_driver/libcuda.so.1")
    libraries = [build / "libfake_time.so", *([build / "libvgpu.so"] if cell.library else [])]
    return {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(drivers),
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "FAKE_DRIVER_DIR": str(folder),
        "FAKE_DRIVER_PID_OFFSET": PID_OFFSET,
        "FAKE_DRIVER_NVML_WINDOW_MS": str(cell.window_ms),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(folder / f"tenant-{number}.cache"),
        "GPU_CORE_UTILIZATION_POLICY": "FORCE",
    }


def _result(process: "subprocess.Popen[str]") -> dict[str, object]:
    output, _ = process.communicate(timeout=600)
    if process.returncode != 0:
        raise RuntimeError(f"limiter_load ended with {process.returncode}")
    result: dict[str, object] = json.loads(output)
    return result


def _share(results: list[dict]) -> Share:
    seconds = [sum(second) / 1e7 for second in zip(*(result["busy_ns"] for result in results), strict=True)]
    return Share(
        seconds, sum(result["launches"] for result in results), max(result["longest_ms"] for result in results)
    )
