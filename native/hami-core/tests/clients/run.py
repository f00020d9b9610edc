"""
Run a client bare or under limits, and compare what it saw.

Owns the environment of a run. Neighbours: `catalogue` has the clients, `packages` fetches what they import.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.catalogue import LIMIT_MIB, LIMIT_PERCENT, REFUSED, Client
from containers import HERE, Container
from packages import fetched

PROGRAMS = HERE / "clients/programs"
NAMES = {
    "libcuda.so.1": HERE / "fake_driver/exports/names_cuda.def",
    "libnvidia-ml.so.1": HERE / "fake_driver/exports/names_nvml.def",
}
TOOLKIT = "nvidia/cu13"
"""Where NVIDIA's packages have their files."""
TOOLKIT_12 = {"nvvm": "nvidia/cuda_nvcc/nvvm", "lib64": "nvidia/cuda_runtime/lib", "lib": "nvidia/cuda_nvrtc/lib"}
"""Where its packages for CUDA 12 have what a toolkit has in one folder."""
LIBRARIES = ("lib", "lib64", "nvvm/lib64")
KERNEL_US = 10
RUN_SECONDS = 300
"""A client may compile, on a machine that is busy."""


@dataclass(frozen=True)
class Step:
    """One line of a client's report."""

    name: str
    value: Any
    is_limited: bool


@dataclass(frozen=True)
class Report:
    """What one run saw."""

    steps: tuple[Step, ...]
    calls: dict[str, int]
    """By function of the driver, how often it was called; with the library also by that."""

    def alike(self) -> list[tuple[str, Any]]:
        """Return the steps that a limit must not change; of the others, the names."""
        return [(step.name, "differs" if step.is_limited else step.value) for step in self.steps]

    def limited(self) -> dict[str, Any]:
        """Return the steps in which a limit shows; of an error for too little memory, only what it is."""
        values = {step.name: step.value for step in self.steps if step.is_limited}
        return {name: REFUSED if REFUSED in str(value) else value for name, value in values.items()}


def run(client: Client, container: Container, *, is_limited: bool) -> Report:
    """Run *client* once in *container*; *is_limited* is with the library, and LIMIT_MIB on each device."""
    folders = [fetched(package) for package in client.packages]
    toolkits = [folder / TOOLKIT for folder in folders if (folder / TOOLKIT).is_dir()]
    toolkits.append(_toolkit_12(folders, container.folder / "toolkit"))
    drivers = [container.build / "fake_driver" / str(client.cuda), container.build / "fake_driver"]
    libraries = [*drivers, *(toolkit / part for toolkit in toolkits for part in LIBRARIES)]
    environment = container.environ(
        preload=is_limited,
        CUDA_DEVICE_MEMORY_LIMIT=f"{LIMIT_MIB}m",
        CUDA_DEVICE_SM_LIMIT=str(LIMIT_PERCENT),
        CLIENT_LIBRARY=client.library,
        CLIENT_NAMES=str(NAMES[client.library]),
        FAKE_DRIVER_CUDA_VERSION=str(client.cuda),
        FAKE_DRIVER_OTHER_KERNELS_US=str(KERNEL_US),
        CUDA_HOME=str(next((toolkit for toolkit in toolkits if (toolkit / "nvvm").is_dir()), "")),
        HOME=str(container.folder),
        LD_LIBRARY_PATH=os.pathsep.join(map(str, libraries)),
        PYTHONPATH=os.pathsep.join(map(str, (PROGRAMS, *folders))),
    )
    done = subprocess.run(
        [sys.executable, PROGRAMS / client.program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{client.name} {client.version}: {done.stderr}"
    *steps, calls = map(json.loads, done.stdout.splitlines())
    return Report(tuple(Step(line["step"], line["value"], line["is_limited"]) for line in steps), calls["calls"])


def _toolkit_12(folders: Sequence[Path], toolkit: Path) -> Path:
    """Return *toolkit*, made of links to what the packages of CUDA 12 in *folders* have."""
    toolkit.mkdir(exist_ok=True)
    for part, place in TOOLKIT_12.items():
        for folder in folders:
            if (folder / place).is_dir() and not (toolkit / part).exists():
                (toolkit / part).symlink_to(folder / place)
    return toolkit
