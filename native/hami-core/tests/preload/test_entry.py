"""
However a program finds the driver's functions, it gets the hooks, and what the driver lacks stays lacking.
"""

import subprocess
from pathlib import Path

import pytest
from containers import Container
from elf import exports, needed
from tables import cuda_rows, nvml_rows

ENTRY = """
cuda = Cuda()
lib = cuda.library
def entry(name, version, flags=0):
    function, status = c_void_p(), c_int(-1)
    result = lib.cuGetProcAddress_v2(name.encode(), byref(function), version, c_uint64(flags), byref(status))
    return result, function.value, status.value
def address(symbol):
    return ctypes.cast(getattr(lib, symbol), c_void_p).value
"""


def test_exports_are_exactly_the_tables_and_the_lookups(build: Path) -> None:
    """
    Nothing but the symbols of the .def files, `dlsym` and `dlvsym` is visible to other objects.
    """
    symbols = {row.symbol for row in (*cuda_rows(), *nvml_rows())}

    assert {*symbols, "dlsym", "dlvsym"} == exports(build / "libvgpu.so")


def test_library_needs_no_driver(build: Path) -> None:
    """
    It does not depend on libcuda or libnvidia-ml: preloaded, it would stop every program where they are missing.
    """
    loaded = needed(build / "libvgpu.so")

    assert loaded
    assert not [name for name in loaded if "cuda" in name or "nvidia" in name]


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 12080, 1, "cuMemAlloc_v2"),
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuLaunchKernel", 4000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"),
        ("cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"),
        ("cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
        ("cuGraphLaunch", 10000, 0, "cuGraphLaunch"),
    ],
)
def test_proc_address_is_the_hook_of_that_version(
    container: Container, name: str, version: int, flags: int, symbol: str
) -> None:
    """
    The driver chooses the symbol from version and flags; the hook is that very symbol's, as the linker would bind it.
    """
    same = container.run(ENTRY + f"say(entry({name!r}, {version}, {flags}) == (0, address({symbol!r}), 0))")

    assert same is True


def test_proc_address_of_other_functions_is_the_drivers(container: Container) -> None:
    """
    What is not in the tables is answered untouched, and so is every refusal, status and all.
    """
    program = f"""{ENTRY}
same = entry("cuCtxGetDevice", 2000)[1] == address("cuCtxGetDevice")
say([same, entry("cuNoSuch", 12000), entry("cuMemAllocAsync", 11000)])
"""

    assert [True, [0, None, 1], [0, None, 2]] == container.run(program)


def test_function_the_driver_is_too_old_for_stays_missing(container: Container) -> None:
    """
    An 11.1 driver has no stream-ordered memory, although the tables have a hook for it.
    """
    assert [0, None, 1] == container.run(
        ENTRY + 'say(entry("cuMemAllocAsync", 11010))', FAKE_DRIVER_CUDA_VERSION="11010"
    )


def test_entries_apart_from_the_exported_symbols_are_hooked_too(container: Container) -> None:
    """
    A driver that hands out private addresses is recognised by name, version and flags, and the limit holds.
    """
    program = (
        ENTRY
        + """
allocate = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(c_uint64), c_size_t)(entry("cuMemAlloc", 3020)[1])
pointer = c_uint64()
say([allocate(byref(pointer), 1001 * MIB), allocate(byref(pointer), 1000 * MIB)])
"""
    )

    assert [2, 0] == container.run(program, FAKE_DRIVER_PRIVATE_ENTRIES="1")


def test_limit_holds_through_a_runtimes_sequence(container: Container) -> None:
    """
    dlopen, dlsym of cuGetProcAddress_v2 alone, everything else through it: what a statically linked runtime does.
    """
    program = """
lib = ctypes.CDLL("libcuda.so.1")
get = lib["cuGetProcAddress_v2"]
def function(name, version, *types):
    found = c_void_p()
    assert get(name.encode(), byref(found), version, c_uint64(0), None) == 0
    return ctypes.CFUNCTYPE(c_int, *types)(found.value)
function("cuInit", 2000, c_uint)(0)
context, pointer = c_void_p(), c_uint64()
function("cuDevicePrimaryCtxRetain", 7000, c_void_p, c_int)(ctypes.addressof(context), 0)
function("cuCtxSetCurrent", 4000, c_void_p)(context)
allocate = function("cuMemAlloc", 3020, c_void_p, c_size_t)
say([allocate(ctypes.addressof(pointer), 1001 * MIB), allocate(ctypes.addressof(pointer), 1000 * MIB)])
"""

    assert [2, 0] == container.run(program)


def test_limit_holds_for_a_program_linked_to_the_driver(container: Container, build: Path) -> None:
    """
    A C program with libcuda as a dependency binds to the hooks by symbol interposition.
    """
    result = subprocess.run(
        [build / "linked_program"], env=container.environ(), capture_output=True, text=True, check=True
    )

    assert "1001 MiB: 2, 1000 MiB: 0\n" == result.stdout


def test_dlsym_without_a_driver_finds_no_driver(container: Container, build: Path) -> None:
    """
    A program that looks whether CUDA is there sees that it is not, with dlerror as ever; like names are untouched.
    """
    result = subprocess.run(
        [build / "probing_program"], env=container.environ(), capture_output=True, text=True, check=True
    )

    assert "default: no, next: no, error: yes, other: no, own: yes\n" == result.stdout
    assert not container.region.exists()
