"""
NVIDIA's CUDA runtimes, started over the fake driver: every function that allocates or launches is a hook.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from abi.nvidia import RELEASES, Release
from containers import SANITIZER, Container
from tables import cuda_rows

USE = """
runtime = ctypes.CDLL(os.environ["CUDART"])
runtime.cudaFree(None)
with open("/proc/self/maps") as maps:
    say([line.split() for line in maps if "r-x" in line and line.rstrip().endswith((".so", ".so.1"))])
"""

MUST_BE_ASKED_FOR = {
    *("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"),
    *("cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate", "cuMemPoolCreate"),
    *("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuGraphLaunch", "cuGraphInstantiate", "cuGetProcAddress"),
}


class Lookup(NamedTuple):
    """One lookup of a runtime: what it looked up, and the library that contains the answer."""

    name: str
    version: int
    flags: int
    library: str


def lookups(container: Container, release: Release) -> list[Lookup]:
    """Start a release's runtime and return its lookups in order."""
    log = container.folder / "lookups"
    segments = container.run(
        USE,
        CUDART=str(release.cudart),
        LOOKUP_LOG=str(log),
        LD_AUDIT=str(container.build / "liblookup_audit.so"),
        FAKE_DRIVER_CUDA_VERSION="13050",
    )
    return list(_read(log, segments))


def _read(log: Path, segments: list[list[str]]) -> Iterator[Lookup]:
    for line in log.read_text().splitlines():
        name, version, flags, answer = line.split()
        yield Lookup(name, int(version), int(flags), _library(int(answer, 16), segments))


def _library(address: int, segments: list[list[str]]) -> str:
    for span, *_, path in segments:
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= address < last:
            return Path(path).name
    return "none"


@pytest.mark.skipif(bool(SANITIZER), reason="an auditor and a sanitizer do not go together")
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_runtime_is_answered_with_hooks(container: Container, release: Release) -> None:
    """
    A name in the tables is answered by the library, in every version and variant. No other name is.
    """
    names = {name for row in cuda_rows() for name in (row.name, row.symbol)}
    asked = lookups(container, release)

    assert set() == MUST_BE_ASKED_FOR - {lookup.name for lookup in asked if lookup.library == "libvgpu.so"}
    assert [] == [lookup for lookup in asked if lookup.name in names and lookup.library == "libcuda.so.1"]
    assert [] == [lookup for lookup in asked if lookup.name not in names and lookup.library == "libvgpu.so"]
