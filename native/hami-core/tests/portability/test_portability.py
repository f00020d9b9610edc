"""
One build for each processor runs with every glibc since 2.17, and answers lookups as without it.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from containers import ROOT, SANITIZER
from packages import CACHE, fetched
from tables import cuda_rows, nvml_rows

from elf import exports, needed, needed_versions

pytestmark = pytest.mark.skipif(bool(SANITIZER), reason="built by itself, and without sanitizers")

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
SYSROOT = Path("/usr/aarch64-linux-gnu")
"""The C library of the other processor, as in Debian's libc6-arm64-cross."""

FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
LIBRARY_FLAGS = ["-shared", "-Wl,-Bsymbolic", "-Wl,-z,relro,-z,now", "-Wl,-z,defs", "-Wl,-soname,libvgpu.so"]


@dataclass(frozen=True)
class Target:
    """A processor, with a folder for what is built for it."""

    processor: str
    folder: Path

    def compile(self, output: str, *arguments: str | Path) -> Path:
        """Compile for glibc 2.17 with Zig, and return the result's path."""
        version = re.findall(r"^ziglang==(\S+)", (ROOT / "requirements/ziglang.lock").read_text(), re.M)[0]
        environment = {
            **os.environ,
            "PYTHONPATH": str(fetched(f"ziglang=={version}")),
            "ZIG_GLOBAL_CACHE_DIR": str(CACHE / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(CACHE / "zig"),
        }
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{self.processor}-linux-gnu.2.17"]
        command = [*zig, *FLAGS, *map(str, arguments), "-o", str(self.folder / output)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return self.folder / output

    def run(self, program: Path, **variables: str) -> str:
        """Run a program with the library preloaded, in an emulator if necessary, and return its output."""
        variables = {"LD_LIBRARY_PATH": str(self.folder), "LD_PRELOAD": str(self.folder / "libvgpu.so"), **variables}
        command = [str(program)]
        if self.processor == "aarch64":
            settings = ",".join(f"{name}={value}" for name, value in variables.items())
            command = [*emulator(), "-E", settings, *command]
            variables = {}
        done = subprocess.run(
            command, env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True, check=False
        )
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout


def emulator() -> list[str]:
    """Return the command that runs programs of the other processor, or skip the test."""
    qemu = shutil.which("qemu-aarch64-static")
    if qemu is None or not SYSROOT.exists():
        pytest.skip("no emulator of aarch64 with a C library (Debian: qemu-user-static, libc6-arm64-cross)")
    return [qemu, "-L", str(SYSROOT)]


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """The library, built for a processor."""
    target = Target(request.param, tmp_path_factory.mktemp(request.param))
    sources = [*SOURCE.glob("src/**/*.c"), *SOURCE.glob("src/**/*.S")]
    headers = sorted({header.parent for header in SOURCE.glob("src/**/*.h")})
    includes = [f"-I{folder}" for folder in (SOURCE / "include", SOURCE, *headers)]
    target.compile(
        "libvgpu.so",
        *LIBRARY_FLAGS,
        f"-Wl,--version-script={SOURCE / 'export.map'}",
        *includes,
        *sources,
        "-ldl",
        "-lpthread",
    )
    return target


def test_library_needs_nothing_newer_than_glibc_2_17(target: Target) -> None:
    """
    It needs only glibc's own libraries, and no symbol version that came later.
    """
    library = target.folder / "libvgpu.so"
    versions = {tuple(map(int, re.findall(r"\d+", version))) for version in needed_versions(library)}

    assert set(needed(library)) <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    assert {(2, 17)} <= versions | {(2, 17)}
    assert max(versions) <= (2, 17)


def test_limit_hook_needs_nothing_newer_than_glibc_2_17(target: Target) -> None:
    """
    It runs on the host, with whatever C library is there.
    """
    hook = target.compile("hami-limit-hook", *(SOURCE.parent / "limit-hook/src").glob("*.c"), "-ldl")
    versions = {tuple(map(int, re.findall(r"\d+", version))) for version in needed_versions(hook)}

    assert set(needed(hook)) <= {"libc.so.6", "libdl.so.2"}
    assert (2, 17) >= max(versions)


def test_library_exports_the_tables(target: Target) -> None:
    """
    The same symbols on each processor.
    """
    symbols = {row.symbol for row in (*cuda_rows(), *nvml_rows())}

    assert {*symbols, "dlsym", "dlvsym", "dlopen", "dlmopen"} == exports(target.folder / "libvgpu.so")


def test_lookups_answer_as_without_the_library(target: Target) -> None:
    """
    dlsym and dlvsym behave as without the library, including RTLD_NEXT.
    """
    source = HERE.parent / "preload/lookups_program.c"
    program = target.compile("lookups_program", "-rdynamic", source, "-ldl")

    assert target.run(program, LD_PRELOAD="") == target.run(program)
