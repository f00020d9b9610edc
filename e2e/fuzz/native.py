"""
The C targets: libFuzzer's programs over the parsers of native/hami-core and native/limit-hook, with their seeds.

Owns how they are built, with Debian's clang, into `build/native-fuzz`. They find what AddressSanitizer and
UndefinedBehaviorSanitizer report, and what a target asserts. The sources are in `native/hami-core/tests/fuzz`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fuzz.targets import region
from fuzz.targets.forms import ROOT, VECTORS, cases
from testbed import debian

BUILD: Final = ROOT / "build/native-fuzz"
SOURCE: Final = ROOT / "native/hami-core"


@dataclass(frozen=True)
class NativeTarget:
    """One program."""

    inputs: int
    """Of a run of a fixed number."""
    seeds: Callable[[], Iterator[bytes]]


def build() -> None:
    """
    Build all programs.

    Raises:
        PackageError: there is no clang, and it cannot be installed.
        CalledProcessError: it does not compile; the reason was printed.
    """
    debian.ensure({"clang": "clang"}, print)
    version = subprocess.run(["clang", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    debian.ensure({f"libclang-rt-{version.partition('.')[0]}-dev": _runtime()}, print)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    for command in (["cmake", "--preset", "fuzz"], ["cmake", "--build", "--preset", "fuzz"]):
        done = subprocess.run(
            command,
            cwd=SOURCE,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout)
            done.check_returncode()


def _runtime() -> str:
    """Return where clang looks for libFuzzer."""
    command = ["clang", "-print-file-name=libclang_rt.fuzzer-x86_64.a"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _limits_files() -> Iterator[bytes]:
    yield from (case["text"].encode() for case in cases(VECTORS / "limits-file/files.json"))


def _options() -> Iterator[bytes]:
    """Return environments, one variable a line, and behind an empty line the limits file beside them."""
    limits = b"hami-limits 1\nGPU-a 1024 30\nCUDA_DEVICE_MEMORY_LIMIT_0=8192m\nGPU_CORE_UTILIZATION_POLICY=force\n"
    variables = (
        b"CUDA_DEVICE_MEMORY_LIMIT=3000m\nCUDA_DEVICE_MEMORY_LIMIT_1=0x10g\nCUDA_DEVICE_SM_LIMIT=30\nCUDA_DEVICE_SM_LIMIT_15=7"
        b"\nCUDA_OVERSUBSCRIBE=True\nCUDA_TASK_PRIORITY=2\nGPU_CORE_UTILIZATION_POLICY=default\nLIBCUDA_LOG_LEVEL=4"
        b"\nCUDA_DISABLE_CONTROL=t\nCUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/a\nHAMI_DEVICE_UUIDS=GPU-a,GPU-b\n"
        b"RECORD_KERNEL_INTERVAL=1\nNVIDIA_VISIBLE_DEVICES=all\n"
    )
    yield variables
    yield b"\n" + limits
    yield variables + b"\n" + limits


def _states() -> Iterator[bytes]:
    """Return states of containers, as runc and crun write them."""
    yield b'{"ociVersion":"1.2.0","id":"a","status":"created","pid":4242,"annotations":{"a\\n":"\\u00e9"}}'
    yield b' { "pid" : 1 , "rest" : [ {} , [ null , true , false , -1.5e+3 ] , "" ] } \n'
    yield b'{"annotations":{"pid":2},"pid":3}'


def _regions() -> Iterator[bytes]:
    """Return recipes as those of `region`, for each file that the program starts from."""
    yield from (bytes([start, 0, 0, 0]) for start in range(5))
    yield from (bytes([0x80, *size.to_bytes(3, "little")]) for size in (16, 1197880, 2008952))
    for head, text in ((0, b"\0"), (4, b"\x02\0\0\0"), (12, b"\1\0\0\0"), (40, b"\xff" * 16), (64, b"GPU-b\0")):
        yield bytes([0, 0, 0, 0]) + region.patch(head, text)
    slot = b"\1\0\0\0" * 2 + b"\xff" * 64
    yield bytes([0, 0, 0, 0]) + region.patch(1856, slot) + region.patch(2008896, b"\xff\xff\xff\x7f")


TARGETS: Final = {
    "native_limits_file": NativeTarget(60_000, _limits_files),
    "native_options": NativeTarget(60_000, _options),
    "native_region": NativeTarget(4_000, _regions),
    "native_hook_state": NativeTarget(400_000, _states),
}
