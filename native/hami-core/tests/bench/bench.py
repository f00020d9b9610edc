"""
What the library adds to each call, and how long 64 processes wait that start together. Prints one JSON object.

Usage: `python tests/bench/bench.py BUILD`. Each number is a pair from the same run: bare, and with the library.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROCESSES = 64
ROUNDS = 3
LIMITED = {"CUDA_DEVICE_SM_LIMIT": "50", "GPU_CORE_UTILIZATION_POLICY": "force"}
"""What holds launches to half of the device; kernels that take no time never meet it."""


def calls(build: Path, folder: Path, preload: bool, **extra: str) -> dict[str, float]:
    """Return what one process measures."""
    result = subprocess.run(
        [build / "bench_calls"], env=environment(build, folder, preload) | extra, capture_output=True, check=True
    )
    measured: dict[str, float] = json.loads(result.stdout)
    return measured


def environment(build: Path, folder: Path, preload: bool) -> dict[str, str]:
    """Return the environment of a container, with or without the library."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(build / "fake_driver"),
        "FAKE_DRIVER_DIR": str(folder),
        "CUDA_DEVICE_MEMORY_LIMIT": "4g",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(folder / "share.cache"),
        **({"LD_PRELOAD": str(build / "libvgpu.so")} if preload else {}),
    }


def best_calls(build: Path, folder: Path, preload: bool, **extra: str) -> dict[str, float]:
    """Return the least of several processes' measurements."""
    rounds = [calls(build, folder, preload, **extra) for _ in range(ROUNDS)]
    return {name: min(one[name] for one in rounds) for name in rounds[0]}


def together(build: Path, folder: Path, preload: bool) -> dict[str, float]:
    """Return median and longest cuInit, in milliseconds, of processes that start at once in a new container."""
    (folder / "share.cache").unlink(missing_ok=True)
    processes = [
        subprocess.Popen(
            [build / "bench_init"],
            env=environment(build, folder, preload),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    taken = sorted(float(process.stdout.read()) for process in processes if process.stdout)
    for process in processes:
        process.wait()
    return {"p50_ms": round(statistics.median(taken), 2), "max_ms": round(taken[-1], 2)}


def main() -> None:
    """Measure and print."""
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row = "GPU-00000000-0000-4000-8000-000000000000,Fake GPU,16384,0,0000:01:00.0"
        (folder / "devices.csv").write_text(f"uuid,name,memory_mib,numa_node,pci_bus_id\n{row}\n")
        bare, with_library = best_calls(build, folder, False), best_calls(build, folder, True)
        report: dict[str, object] = {
            name: {"bare": value, "with": with_library[name], "added": round(with_library[name] - value, 1)}
            for name, value in bare.items()
        }
        (folder / "share.cache").unlink()
        limited = best_calls(build, folder, True, **LIMITED)
        for launch in ("launch_ns", "launch_on_stream_ns"):
            report[f"limited_{launch}"] = {
                "bare": bare[launch],
                "with": limited[launch],
                "added": round(limited[launch] - bare[launch], 1),
            }
        report[f"init_of_{PROCESSES}"] = {"bare": together(build, folder, False), "with": together(build, folder, True)}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
