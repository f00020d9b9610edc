"""
cuGetProcAddress returns, for every name, version and flag, the hook of the symbol that the driver chose.
"""

import json
from collections.abc import Iterator

import pytest
from containers import Container
from tables import cuda_rows, driver_rows

DRIVERS = ["11040", "12020", "12080", "13000", "13030"]

ASK = """
import json
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", c_void_p), ("symbol", ctypes.c_char_p), ("address", c_void_p)]
lib, own, info = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None), Info()
lib.cuInit(0)
def told(result, function, status):
    if not function.value:
        return [result, status.value, None, None]
    own.dladdr(function, byref(info))
    return [result, status.value, info.symbol.decode(), os.path.basename(info.file.decode())]
def answers(call, *arguments):
    function, status = c_void_p(), c_int(-1)
    if not hasattr(lib, call):
        return None
    name, version, flags = arguments
    more = [byref(status)] if "_v2" in call else []
    return told(getattr(lib, call)(name.encode(), byref(function), version, c_uint64(flags), *more), function, status)
def ask(*arguments):
    calls = ["cuGetProcAddress_v2", "cuGetProcAddress", "cuGetProcAddress_v2_ptsz", "cuGetProcAddress_ptsz"]
    return [answers(call, *arguments) for call in calls]
say([ask(*question) for question in json.load(sys.stdin)])
"""


def questions() -> list[tuple[str, int, int]]:
    """Return every name with each of its versions, the one before, today's and the newest, and every flag."""
    versions: dict[str, set[int]] = {"cuNoSuchThing": {2000}, "": {0}}
    for row in driver_rows():
        versions.setdefault(row.name, {12080, 13050}).update((row.since, row.since - 10))
    return [(name, version, flags) for name in versions for version in sorted(versions[name]) for flags in (0, 1, 2)]


def answers(container: Container, driver: str, *, preload: bool) -> Iterator[tuple[int, int, str, str]]:
    """Yield (result, status, symbol, library) of each question, version and variant of the call."""
    folder = container.build / "fake_driver" / driver
    process = container.start(ASK, preload=preload, LD_LIBRARY_PATH=f"{folder}:{folder.parent}")
    output, errors = process.communicate(json.dumps(questions()), timeout=60)
    assert (0, "") == (process.returncode, errors)
    for every in json.loads(output):
        yield from (tuple(answer) for answer in every if answer)


@pytest.mark.parametrize("driver", DRIVERS)
def test_answers_are_the_drivers_symbol_for_symbol(container: Container, driver: str) -> None:
    """
    With the library the symbols, results and statuses are the same as without it. Those with a hook are the library's,
    the others the driver's.
    """
    hooked = {row.symbol for row in cuda_rows()}
    bare = list(answers(container, driver, preload=False))
    ours = list(answers(container, driver, preload=True))

    assert [answer[:3] for answer in bare] == [answer[:3] for answer in ours]
    assert {(True, "libvgpu.so"), (False, "libcuda.so.1")} == {
        (symbol in hooked, library) for _, _, symbol, library in ours if symbol
    }
    assert len([answer for answer in ours if answer[2]]) > 1000


def test_per_thread_lookup_answers_with_per_thread_hooks(container: Container) -> None:
    """
    A driver may export the lookup of programs for the per-thread default stream, and return private addresses from it.
    """
    said = container.run(
        """
lib, own = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
lib.cuInit(0)
def address(lookup, name, flags):
    function, status = c_void_p(), c_int()
    call = ctypes.CFUNCTYPE(c_int, ctypes.c_char_p, c_void_p, c_int, c_uint64, c_void_p)(lookup)
    return function.value if call(name, byref(function), 12080, flags, byref(status)) == 0 else None
plain = ctypes.cast(lib.cuGetProcAddress_v2, c_void_p).value
lookup = address(plain, b"cuGetProcAddress", 2)
own.dlsym.restype = c_void_p
hooks = [own.dlsym(None, symbol) for symbol in (b"cuLaunchKernel", b"cuLaunchKernel_ptsz")]
say([hooks.index(address(lookup, b"cuLaunchKernel", flags)) for flags in (0, 1, 2)])
""",
        FAKE_DRIVER_PRIVATE_ENTRIES="1",
    )

    assert [1, 0, 1] == said


def test_symbols_that_share_an_address_get_the_hook_of_their_name(container: Container) -> None:
    """
    A symbol without a hook that is the same function as one with a hook gets that hook.
    """
    said = container.run(
        """
class Place(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", c_void_p), ("symbol", ctypes.c_char_p), ("address", c_void_p)]
lib, own = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
def hook(name):
    function, place = c_void_p(), Place()
    assert 0 == lib.cuGetProcAddress_v2(name, byref(function), 12080, c_uint64(0), None)
    own.dladdr(function, byref(place))
    return [os.path.basename(place.file.decode()), place.symbol.decode()]
lib.cuInit(0)
say([hook(name) for name in (b"cuModuleLoadData", b"cuModuleLoadFatBinary", b"cuFuncLoad")])
""",
        LD_LIBRARY_PATH=str(container.build / "alias_driver"),
    )

    assert [
        ["libvgpu.so", "cuModuleLoadData"],
        ["libvgpu.so", "cuModuleLoadFatBinary"],
        ["libvgpu.so", "cuModuleLoadData"],
    ] == said
