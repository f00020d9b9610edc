"""
However a program looks up the driver's functions, it gets the hooks, and what the driver lacks stays missing.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from containers import SANITIZER, Container
from tables import cuda_rows, nvml_rows

from elf import exports, needed

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
    Other objects see the symbols of the .def files, and of the lookups and loads, and nothing else.
    """
    symbols = {row.symbol for row in (*cuda_rows(), *nvml_rows())}

    assert {*symbols, "dlsym", "dlvsym", "dlopen", "dlmopen"} == exports(build / "libvgpu.so")


def test_library_needs_no_driver(build: Path) -> None:
    """
    It does not depend on libcuda or libnvidia-ml. Otherwise a preloaded library would stop every program without them.
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
    The driver chooses the symbol from version and flags. The hook is that symbol's, as the linker would bind it.
    """
    same = container.run(ENTRY + f"say(entry({name!r}, {version}, {flags}) == (0, address({symbol!r}), 0))")

    assert same is True


def test_proc_address_of_other_functions_is_the_drivers(container: Container) -> None:
    """
    Answers for names outside the tables are unchanged, and so is every refusal and its status.
    """
    program = f"""{ENTRY}
same = entry("cuCtxGetDevice", 2000)[1] == address("cuCtxGetDevice")
say([same, entry("cuNoSuch", 12000), entry("cuMemAllocAsync", 11000)])
"""

    assert [True, [0, None, 1], [0, None, 2]] == container.run(program)


def test_export_tables_are_the_drivers_to_give(container: Container) -> None:
    """
    The driver is asked for its private tables once, and the program gets its answer.
    """
    program = f"""{ENTRY}
lib.fake_calls.restype = c_uint64
result = lib.cuGetExportTable(byref(c_void_p()), byref((c_uint64 * 2)()))
say([result, lib.fake_calls(b"cuGetExportTable"), entry("cuGetExportTable", 3000)[1] == address("cuGetExportTable")])
"""

    assert [500, 1, True] == container.run(program)


def test_function_the_driver_is_too_old_for_stays_missing(container: Container) -> None:
    """
    An 11.1 driver has no stream-ordered memory, although the tables have hooks for it.
    """
    assert [0, None, 1] == container.run(
        ENTRY + 'say(entry("cuMemAllocAsync", 11010))', FAKE_DRIVER_CUDA_VERSION="11010"
    )


def test_entries_apart_from_the_exported_symbols_are_hooked_too(container: Container) -> None:
    """
    Private addresses of a driver are recognised by name, version and flags, and the limit holds.
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
    dlopen, dlsym of cuGetProcAddress_v2 alone, everything else through it, as a statically linked runtime does.
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


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer does not let a program load libraries so")
def test_functions_without_a_hook_are_reached_as_without_the_library(container: Container, build: Path) -> None:
    """
    By the linker, by every lookup, in a deeply bound library, in another driver and in NVML: the library, the results
    and what is missing are the same, and nothing is started.
    """
    another = container.folder / "libcuda.so.570"
    shutil.copy(build / "fake_driver/libcuda.so.1", another)
    command = [build / "ways_program", another, build / "libbound_lazy.so"]
    said = [
        subprocess.run(
            command, env=container.environ(preload=preload), capture_output=True, text=True, check=True
        ).stdout
        for preload in (False, True)
    ]

    assert said[0] == said[1]
    assert "linked cuCtxGetDevice: libcuda.so.1\n" in said[0]
    assert "handle nvmlErrorString: libnvidia-ml.so.1\n" in said[0]
    assert not container.region.exists()


def layered(container: Container, *layers: str) -> dict[str, str]:
    """Return an environment with libraries preloaded in this order, `libvgpu.so` among them."""
    files = {layer: str(container.build / f"liblayer_{layer}.so") for layer in layers}
    files["libvgpu"] = str(container.build / "libvgpu.so")
    first = [SANITIZER] if SANITIZER else []
    return {**container.environ(), "LD_PRELOAD": ":".join([*first, *(files[layer] for layer in layers)])}


def test_next_is_the_one_after_the_caller(container: Container) -> None:
    """
    Libraries before and after this one that call the next one's function reach each other, and the driver, every time.
    """
    say = "import ctypes; layers = ctypes.CDLL(None).say_layers; layers(); layers()"
    for order in (("outer", "libvgpu", "inner"), ("libvgpu", "outer", "inner")):
        result = subprocess.run(
            [sys.executable, "-c", say], env=layered(container, *order), capture_output=True, text=True, check=True
        )

        assert ("outer\ninner\nouter\ninner\n", "") == (result.stdout, result.stderr)


@pytest.mark.parametrize("order", [("outer", "libvgpu"), ("libvgpu", "outer")], ids=" ".join)
def test_wrapper_of_a_driver_function_reaches_the_hook(
    container: Container, build: Path, order: tuple[str, ...]
) -> None:
    """
    A library that replaces cuInit and calls the next one passes through the limit, before and after this library.
    """
    program = """
import ctypes
outer = ctypes.CDLL(LAYER)
ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
print(outer.cuInit(0))
"""
    code = f"LAYER = {str(build / 'liblayer_outer.so')!r}{program}"
    result = subprocess.run(
        [sys.executable, "-c", code], env=layered(container, *order), capture_output=True, text=True, check=True
    )

    assert ("cuInit in outer\n0\n", "") == (result.stdout, result.stderr)
    assert container.region.exists()


def test_versioned_lookup_follows_the_same_rule(container: Container) -> None:
    """
    dlvsym of a hooked name finds nothing in a driver without such a version, and says so. Other names reach the C
    library.
    """
    found = container.run("""
own = ctypes.CDLL(None)
own.dlvsym.restype, own.dlerror.restype = c_void_p, ctypes.c_char_p
handle = c_void_p(ctypes.CDLL("libcuda.so.1")._handle)
missing = own.dlvsym(handle, b"cuInit", b"NONE_1.0")
error = own.dlerror().decode()
libc = c_void_p(ctypes.CDLL("libc.so.6")._handle)
versions = [b"GLIBC_2.2.5", b"GLIBC_2.17"]
say([missing, "undefined symbol: cuInit" in error, any(own.dlvsym(libc, b"fopen", version) for version in versions)])
""")

    assert [None, True, True] == found
