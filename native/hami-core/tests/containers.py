"""
A node's fake hardware and its containers, for tests that run programs with `libvgpu.so` preloaded.

A test's program is Python with ctypes, like any application. The test reads what it prints as JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

SANITIZER = os.environ.get("HAMI_SANITIZER_PRELOAD", "")
"""The sanitizer runtimes of the build, preloaded before the library."""
IS_THREAD_SANITIZED = "libtsan" in SANITIZER
SANITIZER_OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1"}
"""What a sanitizer finds ends a program at once, also one that a test kills. Python leaks by itself."""

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
GPU_A = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
GPU_B = "GPU-bbbbbbbb-0000-4000-8000-000000000001"
GPU_C = "GPU-cccccccc-0000-4000-8000-000000000002"
DEVICES = f"""uuid,name,memory_mib,numa_node,pci_bus_id
{GPU_A},Fake A,16384,0,0000:17:00.0
{GPU_B},Fake B,16384,0,0000:65:00.0
{GPU_C},Fake C,8192,1,0000:ca:00.0
"""


@dataclass
class Container:
    """What the processes of one container share: hardware, region, library, environment."""

    build: Path
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    has_library: bool = True
    """Whether its processes load libvgpu.so, unless a call says otherwise."""
    imports: tuple[str, ...] = ("client",)
    """The modules of `preload` whose names every program has."""
    library: Path | None = None
    """What its processes load; None for the build's."""

    @property
    def region(self) -> Path:
        """The region file, which appears with the first CUDA or NVML call."""
        return self.folder / "share.cache"

    def environ(self, *, preload: bool | None = None, **extra: str) -> dict[str, str]:
        """Return the environment of a process in the container."""
        has_library = self.has_library if preload is None else preload
        libraries = [
            path for path in (SANITIZER, str(self.library or self.build / "libvgpu.so") if has_library else "") if path
        ]
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.build / "fake_driver"),
            "FAKE_DRIVER_DIR": str(self.folder / "hardware"),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region),
            "PYTHONPATH": str(HERE / "preload"),
            **SANITIZER_OPTIONS,
            **({"LD_PRELOAD": ":".join(libraries)} if libraries else {}),
            **self.environment,
            **extra,
        }

    def start(self, program: str, *, preload: bool | None = None, **extra: str) -> "subprocess.Popen[str]":
        """Start a program with pipes on all three streams."""
        imports = "".join(f"from {module} import *\n" for module in self.imports)
        return subprocess.Popen(
            [sys.executable, "-c", imports + program],
            env=self.environ(preload=preload, **extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *, preload: bool | None = None, **extra: str) -> Any:
        """Run a program to its end and return its last line of output, which is JSON."""
        result, errors = self.run_and_listen(program, preload=preload, **extra)
        assert "" == errors
        return result

    def run_and_listen(self, program: str, *, preload: bool | None = None, **extra: str) -> tuple[Any, str]:
        """Run a program. Returns its last line of output, which is JSON, and its stderr."""
        process = self.start(program, preload=preload, **extra)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return json.loads(output.splitlines()[-1]), errors


_NESTED = """
import signal
result_reader, result_writer = os.pipe()
try:
    child = fork_into_pid_namespace()
except OSError as error:
    say(str(error))
    sys.exit(0)
if child == 0:
    os.write(result_writer, bytes([Cuda().allocate({mib} * MIB)[0]]))
    signal.pause()
say(os.read(result_reader, 1)[0])
wait()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


@contextmanager
def nested(container: Container, mib: int, before: str = "") -> Iterator[int]:
    """Run *before*, and a process that is the first of a new pid namespace and allocates. It is killed at the end."""
    process = replace(container, imports=("client", "namespaces")).start(before + _NESTED.format(mib=mib))
    assert process.stdout is not None
    result = json.loads(process.stdout.readline())
    try:
        if isinstance(result, str):
            pytest.skip(f"no pid namespace can be made: {result}")
        yield result
    finally:
        process.communicate("\n", timeout=60)
