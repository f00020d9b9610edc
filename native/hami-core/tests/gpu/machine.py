"""
The machine that programs are measured on: a real GPU with its driver, or the fake driver.

Owns how programs are built, installed, started and observed. Neighbours: `page` writes the results.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
from abi.nvidia import NEWEST
from containers import SANITIZER, SANITIZER_OPTIONS

PROGRAMS = Path(__file__).resolve().parent / "programs"
PACKAGES = {"torch": "torch", "cupy": "cupy-cuda12x[ctk]"}
"""What a program imports, and its package on PyPI. A driver runs packages that are built for an older CUDA."""


class NoGpuError(Exception):
    """Nothing can be measured here; the message says why."""


@dataclass(frozen=True)
class Figures:
    """What a program reported, and what NVML reported outside the container."""

    told: Mapping[str, float | str]
    nvml_percent: float
    """The device's mean use during the run; 0 for programs that only hold memory."""
    nvml_mib: int
    """The most memory of the device that was in use, minus what was in use before."""


@dataclass(frozen=True)
class Machine:
    """Where programs run; the first device is the one that is measured."""

    name: str
    build: Path
    """Folder with `libvgpu.so`."""
    folder: Path
    """For compiled programs, packages, and the regions of containers."""
    environment: Mapping[str, str] = field(default_factory=dict)
    preload: Sequence[Path] = ()
    """Preloaded before `libvgpu.so`."""
    driver: str = ""
    """The version of a real driver."""

    def environ(self, limits: Mapping[str, str] | None) -> dict[str, str]:
        """Return the environment of a process in a container with these limits, or without the library if there are
        none."""
        region = self.folder / "share.cache"
        libraries = [*SANITIZER.split(":"), *map(str, self.preload)]
        contained = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region), "GPU_CORE_UTILIZATION_POLICY": "force"}
        if limits is not None:
            libraries.append(str(self.build / "libvgpu.so"))
        preloads = ":".join(path for path in libraries if path)
        return {
            **os.environ,
            **SANITIZER_OPTIONS,
            **self.environment,
            **({} if limits is None else {**contained, **limits}),
            **({"LD_PRELOAD": preloads} if preloads else {}),
        }

    def measure(self, command: Sequence[str | Path], limits: Mapping[str, str] | None = None) -> Figures:
        """Run a program in a new container, or without the library, and return what it and NVML report."""
        (self.folder / "share.cache").unlink(missing_ok=True)
        with self._started([sys.executable, PROGRAMS / "nvml_watch.py"], self.environ(None)) as watcher:
            before = _hear(watcher)
            with self._started(command, self.environ(limits)) as program:
                told = _hear(program)
                during = _ask(watcher)
                if "is_begun" in told:
                    told = _hear(program)
                    during = _ask(watcher)
        return Figures(told, float(during["percent"]), int(during["used_mib"]) - int(before["used_mib"]))

    @staticmethod
    @contextmanager
    def _started(command: Sequence[str | Path], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
        """Start a program with pipes on its streams. It ends when its input is closed."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        try:
            yield process
            process.communicate()
        finally:
            process.kill()

    def compiled(self) -> Path:
        """Return the CUDA C program, built against NVIDIA's header without NVIDIA's compiler."""
        program = self.folder / "cuda"
        include = NEWEST.cuda_h.parent
        subprocess.run(
            ["gcc", "-O2", "-Wall", "-Werror", f"-I{include}", "-o", program, PROGRAMS / "cuda.c", "-ldl"], check=True
        )
        return program

    def python(self, module: str) -> dict[str, str]:
        """
        Return the variables with which Python finds a package. It is installed unless the interpreter has it.
        """
        if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
            return {}
        target = self.folder / "packages"
        if not (target / module).exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
            done = subprocess.run(
                [*pip, "--target", target, PACKAGES[module]], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
                raise NoGpuError(f"{PACKAGES[module]} cannot be installed: {last}")
        return {"PYTHONPATH": str(target)}


def _hear(process: "subprocess.Popen[str]") -> dict[str, float | str]:
    """Return what a program reports next."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{process.args!r}: {process.communicate()[1]}"
    told: dict[str, float | str] = json.loads(line)
    return told


def _ask(watcher: "subprocess.Popen[str]") -> dict[str, float | str]:
    """Return what the observer saw since the last call."""
    assert watcher.stdin is not None
    watcher.stdin.write("\n")
    watcher.stdin.flush()
    return _hear(watcher)


def real(build: Path, folder: Path) -> Machine:
    """
    Return this machine.

    Raises:
        NoGpuError: it has no GPU with NVIDIA's driver.
    """
    try:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        name, driver = pynvml.nvmlDeviceGetName(device), pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()  # This process must not be what keeps the driver open.
    except pynvml.NVMLError as error:
        raise NoGpuError(f"no GPU with NVIDIA's driver: {error}") from error
    if re.search("fake", name, re.I):
        raise NoGpuError(f"the driver is the fake one: {name}")
    folder.mkdir(parents=True, exist_ok=True)
    return Machine(f"{name}, driver {driver}", build, folder, driver=driver)
