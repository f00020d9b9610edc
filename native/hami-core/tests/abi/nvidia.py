"""
NVIDIA's headers and runtimes, installed from PyPI when a test needs them and never stored in the repository.

Owns which releases are compared, and what their headers say.
"""

import os
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packages import fetched
from tables import split

COMPILER = os.environ.get("HAMI_CC", "cc").split()
EVERY_VERSION = ("-D__CUDA_API_VERSION_INTERNAL", "-DNVML_NO_UNVERSIONED_FUNC_DEFS")
"""Makes the headers declare each symbol by its own name, including old ones."""


@dataclass(frozen=True)
class Release:
    """One CUDA release, as PyPI has it."""

    version: str
    runtime: str
    nvml: str

    def file(self, package: str, pattern: str) -> Path:
        """Return the one file of a package that matches."""
        return next(fetched(package).rglob(pattern))

    @property
    def cuda_h(self) -> Path:
        """The driver API's header."""
        return self.file(self.runtime, "cuda.h")

    @property
    def nvml_h(self) -> Path:
        """NVML's header."""
        return self.file(self.nvml, "nvml.h")

    @property
    def cudart(self) -> Path:
        """The runtime that programs load."""
        return self.file(self.runtime, "libcudart.so.*")


RELEASES = [
    Release("11.8", "nvidia-cuda-runtime-cu11==11.8.89", "nvidia-nvml-dev-cu11==11.8.86"),
    Release("12.9", "nvidia-cuda-runtime-cu12==12.9.79", "nvidia-nvml-dev-cu12==12.9.79"),
    Release("13.5", "nvidia-cuda-runtime==13.5.37", "nvidia-nvml-dev==13.5.37"),
]
NEWEST = RELEASES[-1]


@cache
def preprocessed(header: Path) -> str:
    """
    Return a preprocessed header on one line, with every version of every function declared.

    Enumerations become integers of their size, so that a declaration with `int` has the same type.
    """
    output = subprocess.run(
        [*COMPILER, "-E", "-P", *EVERY_VERSION, header], capture_output=True, text=True, check=True
    ).stdout
    flat = " ".join(output.split())
    return re.sub(r"typedef enum (\w+) (\{[^}]*\}) ?(\w+);", r"enum \1 \2; typedef int \3;", flat)


def functions(header: Path) -> set[str]:
    """Return the symbols that a header declares."""
    return set(re.findall(r"\b((?:cu|nvml)[A-Z]\w*) ?\([^;{}]*\) ?;", preprocessed(header)))


def inline_variants(header: Path) -> set[str]:
    """
    Return the functions that a header defines for programs that use the per-thread default stream.

    A driver may export them.
    """
    return set(re.findall(r"^static inline CUresult (cu\w+_pts[zd]) ?\(", header.read_text(), re.M))


def interface_versions() -> dict[str, int]:
    """
    Return the CUDA version of each symbol for OpenGL, EGL, VDPAU and the profiler that the driver exports on Linux.

    Their headers need those of the other interface, so the typedefs tell. The oldest version of a name is the plain
    symbol, the next one has _v2, and a variant for the per-thread default stream belongs to the newest.
    """
    text = "".join(
        NEWEST.cuda_h.with_name(f"cuda{interface}Typedefs.h").read_text()
        for interface in ("GL", "EGL", "VDPAU", "Profiler")
    )
    found: dict[str, int] = {}
    for name in set(re.findall(r"\*PFN_(cu\w+?)_v\d+", text)) - {"cuWGLGetDevice"}:
        plain = sorted(map(int, re.findall(rf"\*PFN_{name}_v(\d+)\)", text)))
        symbols = [name] + [f"{name}_v{number}" for number in range(2, len(plain) + 1)]
        found |= dict(zip(symbols, plain, strict=True))
        for version, variant in re.findall(rf"\*PFN_{name}_v(\d+)(_ptsz|_ptds)\)", text):
            found[symbols[-1] + variant] = int(version)
    return found


def versions() -> dict[str, int]:
    """
    Return the CUDA version of each driver symbol, from the typedefs that contain it: PFN_cuMemAlloc_v3020.

    A typedef has the function's name without its number: of one name and variant, the oldest version is the lowest
    number. A variant that is only inline has the version of its plain function.
    """
    symbols: dict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
    known: dict[tuple[str, str], set[int]] = defaultdict(set)
    for release in RELEASES:
        for symbol in functions(release.cuda_h):
            name, number, variant = split(symbol)
            symbols[name, variant].add((number, symbol))
        typedefs = release.cuda_h.with_name("cudaTypedefs.h").read_text()
        for name, version, variant in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", typedefs):
            known[name, variant].add(int(version))
    found = {
        symbol: version
        for key, numbered in symbols.items()
        for (_, symbol), version in zip(sorted(numbered), sorted(known[key]), strict=True)
    }
    inline = set().union(*(inline_variants(release.cuda_h) for release in RELEASES)) - found.keys()
    return found | {symbol: found[symbol[: -len("_ptsz")]] for symbol in inline}
