"""
The tables list NVIDIA's symbols with their CUDA versions, and every version of each name.
"""

import re
from pathlib import Path

from abi.nvidia import NEWEST, RELEASES, functions, interface_versions, versions
from tables import SOURCE, cuda_rows, nvml_rows, split

ALLOCATES_OR_LAUNCHES = set(
    re.findall(
        r"\w+",
        """
    cuArrayCreate cuArray3DCreate cuMipmappedArrayCreate cuMemAlloc cuMemAllocPitch cuMemAllocManaged cuMemAllocAsync
    cuMemAllocFromPoolAsync cuMemPoolCreate cuMemCreate cuMemImportFromShareableHandle
    cuMulticastCreate cuGraphAddMemAllocNode cuGraphAddNode cuCtxCreate cuGreenCtxCreate
    cuDevicePrimaryCtxRetain cuModuleLoad cuModuleLoadData cuLibraryLoadData cuLaunch cuLaunchGrid
    cuLaunchGridAsync cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice
    cuGraphLaunch cuGraphInstantiate cuGraphInstantiateWithFlags cuGraphInstantiateWithParams
    """,
    )
)

DECIDED = Path(__file__).with_name("not_hooked.txt")


def not_hooked() -> set[str]:
    """Return the names that somebody has decided not to hook."""
    lines = DECIDED.read_text().splitlines()
    return {name for line in lines if not line.startswith("#") for name in line.split()}


def test_rows_carry_the_version_of_their_symbol() -> None:
    """
    `since` is the number in the name of NVIDIA's function type.
    """
    known = versions()

    assert {row.symbol: known.get(row.symbol) for row in cuda_rows()} == {row.symbol: row.since for row in cuda_rows()}


def test_every_version_and_variant_of_a_name_is_in_the_table() -> None:
    """
    A lookup by name and version never falls back to an older function because the newer one is missing here.
    """
    names = {row.name for row in cuda_rows()}

    assert {symbol for symbol in versions() if split(symbol)[0] in names} == {row.symbol for row in cuda_rows()}


def test_what_allocates_or_launches_is_in_the_table() -> None:
    """
    Every way to allocate or to launch is hooked. What only uses memory that is charged already is in `not_hooked.txt`.
    """
    assert set() == ALLOCATES_OR_LAUNCHES - {row.name for row in cuda_rows()}
    assert {"cuMemMapArrayAsync", "cuIpcOpenMemHandle", "cuCtxFromGreenCtx"} <= not_hooked()


def test_every_name_is_hooked_or_not_for_a_reason() -> None:
    """
    A name of a later header fails this test until it is in a table or in `not_hooked.txt`. The headers for OpenGL, EGL,
    VDPAU and the profiler count too.
    """
    names = {split(symbol)[0] for symbol in versions() | interface_versions()}

    assert not_hooked() == names - {row.name for row in cuda_rows()}


def test_nvml_names_are_nvmls() -> None:
    """
    Every symbol is declared by some release, and all its versions are listed.
    """
    known = set().union(*(functions(release.nvml_h) for release in RELEASES))
    symbols = {row.symbol for row in nvml_rows()}
    names = {split(symbol)[0] for symbol in symbols}

    assert symbols == {symbol for symbol in known if split(symbol)[0] in names}


def test_newest_known_cuda_is_the_newest_release_compared() -> None:
    """
    `src/hooks/lookup.c` trusts the tables up to that version.
    """
    newest = re.findall(r"^#define CUDA_VERSION (\d+)", NEWEST.cuda_h.read_text(), re.M)

    assert newest == re.findall(r"^#define NEWEST_KNOWN_CUDA (\d+)", (SOURCE / "src/hooks/lookup.c").read_text(), re.M)
