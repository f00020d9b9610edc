"""
The names of the fake driver in each version, and how they are found, counted and made to fail.
"""

import re

import pytest
from containers import HERE, Container

from elf import exports

VERSIONS = (11040, 12020, 12080, 13000, 13030)
LEGACY, PER_THREAD = 1, 2
SUCCESS, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED = 0, 1, 500, 801
FOUND, UNKNOWN, TOO_NEW = 0, 1, 2

PRELUDE = """
lib = ctypes.CDLL("libcuda.so.1")
lib.fake_calls.restype = c_uint64


def entry(name, version, flags=0):
    "[result, name of the symbol, status] of cuGetProcAddress_v2."
    function, status = c_void_p(), c_int(-1)
    result = lib.cuGetProcAddress_v2(name.encode(), byref(function), version, c_uint64(flags), byref(status))
    return [result, symbol_at(function.value), status.value]


class Place(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", c_void_p), ("symbol", ctypes.c_char_p), ("address", c_void_p)]


def symbol_at(address):
    place = Place()
    if not address or not ctypes.CDLL(None).dladdr(c_void_p(address), byref(place)):
        return None
    return place.symbol.decode() if place.address == address else "no symbol's"
"""


def names(library: str) -> dict[str, int]:
    """Return the rows of a library's table, with versions."""
    text = (HERE / f"fake_driver/exports/names_{library}.def").read_text()
    return {symbol: int(since) for symbol, since in re.findall(r"^NAME\((\w+), (\d+)\)", text, re.M)}


def run(container: Container, program: str, **environment: str) -> object:
    """Return what a program reports without the library."""
    return container.run(PRELUDE + program, preload=False, **environment)


@pytest.mark.parametrize("version", VERSIONS)
def test_library_of_a_version_has_the_names_of_its_time(container: Container, version: int) -> None:
    """
    It lacks what is newer, and knows its version.
    """
    folder = container.build / f"fake_driver/{version}"
    known = {symbol for symbol, since in names("cuda").items() if since <= version}

    assert known == {symbol for symbol in exports(folder / "libcuda.so.1") if symbol.startswith("cu")}
    assert [SUCCESS, version] == run(
        container, "v = c_int()\nsay([lib.cuDriverGetVersion(byref(v)), v.value])", LD_LIBRARY_PATH=str(folder)
    )


def test_nvml_has_every_name(container: Container) -> None:
    """
    Functions that are not modelled are there too.
    """
    library = container.build / "fake_driver/libnvidia-ml.so.1"

    assert set(names("nvml")) == {symbol for symbol in exports(library) if symbol.startswith("nvml")}


@pytest.mark.parametrize(
    ("driver", "asked", "answer"),
    [
        (13030, ("cuMemAlloc", 2000), [SUCCESS, "cuMemAlloc", FOUND]),
        (13030, ("cuMemAlloc", 3020), [SUCCESS, "cuMemAlloc_v2", FOUND]),
        (13030, ("cuMemAdvise", 8000), [SUCCESS, "cuMemAdvise", FOUND]),
        (13030, ("cuMemAdvise", 12020), [SUCCESS, "cuMemAdvise_v2", FOUND]),
        (13030, ("cuCtxCreate", 11040), [SUCCESS, "cuCtxCreate_v3", FOUND]),
        (13030, ("cuCtxCreate", 13000), [SUCCESS, "cuCtxCreate_v4", FOUND]),
        (12020, ("cuCtxCreate", 12020), [SUCCESS, "cuCtxCreate_v3", FOUND]),
        (13030, ("cuCtxSynchronize", 12080), [SUCCESS, "cuCtxSynchronize", FOUND]),
        (13030, ("cuCtxSynchronize", 13000), [SUCCESS, "cuCtxSynchronize_v2", FOUND]),
        (12080, ("cuLaunchKernel", 7000, LEGACY), [SUCCESS, "cuLaunchKernel", FOUND]),
        (12080, ("cuLaunchKernel", 7000, PER_THREAD), [SUCCESS, "cuLaunchKernel_ptsz", FOUND]),
        (12080, ("cuLaunchKernel", 4000, PER_THREAD), [SUCCESS, "cuLaunchKernel", FOUND]),
        (12080, ("cuMemcpyHtoD", 12000, PER_THREAD), [SUCCESS, "cuMemcpyHtoD_v2_ptds", FOUND]),
        (12080, ("cuGetProcAddress", 11030), [SUCCESS, "cuGetProcAddress", FOUND]),
        (12080, ("cuMemAllocAsync", 11010), [SUCCESS, None, TOO_NEW]),
        (12080, ("cuGreenCtxCreate", 12030), [SUCCESS, None, TOO_NEW]),
        (11040, ("cuGreenCtxCreate", 11040), [SUCCESS, None, UNKNOWN]),
        (13030, ("cuNoSuch", 13000), [SUCCESS, None, UNKNOWN]),
        (13030, ("cuMemAlloc_v2", 13000), [SUCCESS, "cuMemAlloc_v2", FOUND]),
        (13030, ("", 0), [SUCCESS, None, UNKNOWN]),
        (12020, ("cuMemAlloc", 12040), [INVALID_VALUE, None, -1]),
        (12080, ("cuMemAlloc", 12000, 4), [INVALID_VALUE, None, -1]),
    ],
)
def test_name_version_and_flags_choose_the_symbol(
    container: Container, driver: int, asked: tuple[str | int, ...], answer: list[object]
) -> None:
    """
    The newest symbol that is neither newer than the driver nor newer than requested.
    """
    assert answer == run(container, f"say(entry{asked!r})", FAKE_DRIVER_CUDA_VERSION=str(driver))


def test_first_version_of_the_lookup_says_not_found(container: Container) -> None:
    """
    Before CUDA 12 a missing name was an error.
    """
    said = run(
        container,
        """
function = c_void_p(1)
result = lib.cuGetProcAddress(b"cuNoSuch", byref(function), 11030, c_uint64(0))
say([result, function.value])
""",
    )

    assert [NOT_FOUND, None] == said


def test_private_entries_are_no_symbols(container: Container) -> None:
    """
    The same function at an address for which dladdr finds no name.
    """
    said = run(
        container,
        """
function = c_void_p()
lib.cuGetProcAddress_v2(b"cuDriverGetVersion", byref(function), 12000, c_uint64(0), None)
version = c_int()
result = ctypes.CFUNCTYPE(c_int, c_void_p)(function.value)(byref(version))
say([entry("cuDriverGetVersion", 12000), result, version.value])
""",
        FAKE_DRIVER_PRIVATE_ENTRIES="1",
    )

    assert [[SUCCESS, "no symbol's", FOUND], SUCCESS, 12080] == said


def test_calls_are_counted_by_symbol(container: Container) -> None:
    """
    A per-thread variant is counted separately. The driver's own calls are not counted.
    """
    said = run(
        container,
        """
cuda = Cuda()
for call in (lib.cuMemAllocAsync, lib.cuMemAllocAsync_ptsz, lib.cuMemAllocAsync_ptsz):
    assert 0 == call(byref(c_uint64()), c_size_t(100), None)
text = ctypes.create_string_buffer(4)
assert 0 == lib.cuMemcpyHtoD_v2_ptds(c_uint64(cuda.allocate(4)[1]), text, c_size_t(4))
asked = ["cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD_v2", "cuStreamGetCtx", "no"]
say([lib.fake_calls(name.encode()) for name in asked])
""",
    )

    assert [1, 2, 1, 0, 0, 0] == said


def test_unmodelled_function_is_not_supported(container: Container) -> None:
    """
    In NVML only after initialisation.
    """
    said = run(
        container,
        """
nvml = ctypes.CDLL("libnvidia-ml.so.1")
before = nvml.nvmlSystemGetHicVersion(None, None)
nvml.nvmlInit_v2()
say([lib.cuCoredumpGetAttribute(0, None, None), before, nvml.nvmlSystemGetHicVersion(None, None)])
""",
    )

    assert [NOT_SUPPORTED, 1, 3] == said


def test_fault_takes_the_place_of_one_call(container: Container) -> None:
    """
    The second allocation and every free fail without effect. Arguments of calls in between arrive unchanged.
    """
    said = run(
        container,
        """
cuda = Cuda()
lib.fake_truth_memory.restype = c_uint64
results = [cuda.allocate(MIB) for _ in range(3)]
seen = [[result for result, _ in results], cuda.free(results[0][1]), cuda.launch(cuda.kernel(0))]
say([*seen, lib.fake_truth_memory(0, c_uint64(os.getpid())) // MIB])
""",
        FAKE_DRIVER_FAULTS="cuMemAlloc_v2:2:2,cuMemFree_v2:*:700,nvmlInit_v2:1:999",
        FAKE_DRIVER_MODULE_KIB="0",
        FAKE_DRIVER_CONTEXT_MIB="0",
    )

    assert [[0, 2, 0], 700, 0, 4] == said


@pytest.mark.parametrize(("when", "left"), [("KILL", b"before"), ("KILL_AFTER", b"after!")])
def test_kill_comes_before_or_after_the_effect(container: Container, when: str, left: bytes) -> None:
    """
    What the call wrote to shared memory shows it.
    """
    file = container.folder / "shared"
    file.write_bytes(b"before")
    process = container.start(
        PRELUDE
        + f"""
import mmap
cuda = Cuda()
with open({str(file)!r}, "r+b") as opened:
    shared = mmap.mmap(opened.fileno(), 6)
pointer = c_uint64(cuda.allocate(6)[1])
lib.cuMemcpyHtoD_v2(pointer, b"after!", c_size_t(6))
back = ctypes.create_string_buffer(6)
lib.cuMemcpyDtoH_v2(back, pointer, c_size_t(6))
lib.cuMemcpyDtoH_v2((ctypes.c_char * 6).from_buffer(shared), pointer, c_size_t(6))
""",
        preload=False,
        FAKE_DRIVER_FAULTS=f"cuMemcpyDtoH_v2:2:{when}",
    )

    assert -9 == process.wait(timeout=20)
    assert left == file.read_bytes()
