"""
Every version and variant of a call behaves like the newest: charged, refused, reported to the monitor.
"""

import re

import pytest
from containers import Container
from tables import cuda_rows, nvml_rows

ACCOUNT = """
cuda = Cuda()
lib, seen = cuda.library, []
def note(result=0):
    seen.append([result, 1000 - cuda.visible()[0]])
"""
GRAPH = """
class Properties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("id", c_int), ("rest", c_uint64 * 9)]
class Allocation(ctypes.Structure):
    _fields_ = [("pool", Properties), ("access", c_void_p), ("count", c_size_t), ("bytes", c_size_t),
                ("pointer", c_uint64)]
class Described(ctypes.Structure):
    _fields_ = [("type", c_int), ("unused", c_int * 3), ("allocation", Allocation), ("rest", ctypes.c_char * 120)]
def described(size):
    return Described(10, (c_int * 3)(), Allocation(Properties(1, 0, 1, 0), None, 0, size, 0), b"")
def instantiated(name, graph):
    executable, params = c_void_p(), (c_uint64 * 4)()
    more = {"Params": [byref(params)], "WithFlags": [c_uint64(0)], "": [None, None, c_size_t(0)]}
    kind = next(kind for kind in more if kind in name)
    assert getattr(lib, name)(byref(executable), graph, *more[kind]) == 0
    return executable
"""
LAUNCHES = """
class Config(ctypes.Structure):
    _fields_ = [("sizes", c_uint * 7), ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)]
class Launch(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("sizes", c_uint * 7), ("stream", c_void_p), ("params", c_void_p)]
ones = (c_uint * 7)(1, 1, 1, 1, 1, 1, 0)
graph, executable = c_void_p(), c_void_p()
lib.cuGraphCreate(byref(graph), 0)
lib.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
kernel = cuda.kernel(0)
arguments = {
    "cuLaunch": [kernel],
    "cuLaunchGrid": [kernel, 1, 1],
    "cuLaunchGridAsync": [kernel, 1, 1, None],
    "cuLaunchKernel": [kernel, *ones, None, None, None],
    "cuLaunchKernelEx": [byref(Config(ones)), kernel, None, None],
    "cuLaunchCooperativeKernel": [kernel, *ones, None, None],
    "cuLaunchCooperativeKernelMultiDevice": [byref(Launch(kernel, ones)), 1, 0],
    "cuGraphLaunch": [executable, None],
}
"""

CREATIONS = {
    "cuCtxCreate": "0, 0",
    "cuCtxCreate_v2": "0, 0",
    "cuCtxCreate_v3": "None, 0, 0, 0",
    "cuCtxCreate_v4": "None, 0, 0",
}
LOADS = {
    "cuModuleLoad": 'b"file"',
    "cuModuleLoadData": 'b"image"',
    "cuModuleLoadDataEx": 'b"image", 0, None, None',
    "cuModuleLoadFatBinary": 'b"image"',
    "cuLibraryLoadData": 'b"image", None, None, 0, None, None, 0',
    "cuLibraryLoadFromFile": 'b"file", None, None, 0, None, None, 0',
}


def hooks(pattern: str) -> set[str]:
    """Return the symbols of the tables that match."""
    rows = [*cuda_rows(), *nvml_rows()]
    return {row.symbol for row in rows if re.fullmatch(pattern, row.symbol)}


def test_variants_below_are_all_there_are() -> None:
    """
    The names in this file are those in the tables.
    """
    assert CREATIONS.keys() == hooks(r"cuCtxCreate\w*")
    assert LOADS.keys() == hooks(r"cu(Module|Library)Load\w*")


@pytest.mark.parametrize("destroy", sorted(hooks(r"cuCtxDestroy\w*")))
def test_contexts_are_charged(container: Container, destroy: str) -> None:
    """
    However it is made, a context is charged until it is destroyed with all that was allocated in it.
    """
    calls = "".join(f"check(lib.{create}(byref(context), {rest}))\n" for create, rest in CREATIONS.items())
    results = container.run(
        f"""{ACCOUNT}
context = c_void_p()
def check(created):
    note(created)
    cuda.allocate(100 * MIB)
    note()
    ended = lib.{destroy}(context)
    lib.cuCtxSetCurrent(cuda.context)
    note(ended)
{calls}
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="50",
    )

    assert [[0, 100], [0, 200], [0, 50]] * len(CREATIONS) == results


def test_primary_contexts_end_with_what_is_in_them(container: Container) -> None:
    """
    The last release and a reset give back what was allocated.
    """
    ends = sorted(hooks(r"cuDevicePrimaryCtx(Release|Reset)\w*"))
    results = container.run(
        f"""{ACCOUNT}
for end in {ends}:
    cuda.allocate(100 * MIB)
    note()
    ended = getattr(lib, end)(0)
    cuda.use(0)
    note(ended)
    lib.cuDevicePrimaryCtxReset_v2(0)
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="50",
    )

    assert [[0, 150], [0, 50]] * len(ends) == results
    assert len(ends) == 4


def test_code_is_charged_and_refused(container: Container) -> None:
    """
    Code is charged until it is unloaded, and what does not fit is not loaded.
    """
    calls = "".join(f"check({load!r}, {rest})\n" for load, rest in LOADS.items())
    results = container.run(
        f"""{ACCOUNT}
made = c_void_p()
def check(load, *rest):
    unload = lib.cuLibraryUnload if "Library" in load else lib.cuModuleUnload
    note(getattr(lib, load)(byref(made), *rest))
    note(unload(made))
    _, pointer = cuda.allocate(890 * MIB)
    note(getattr(lib, load)(byref(made), *rest))
    cuda.free(pointer)
{calls}
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="100",
        FAKE_DRIVER_MODULE_KIB="20480",
    )

    assert [[0, 120], [0, 100], [2, 990]] * len(LOADS) == results


def test_stream_ordered_memory_is_charged_on_the_threads_own_stream_too(container: Container) -> None:
    """
    An allocation is charged with its pool, and given back by the synchronisation after its free.
    """
    results = container.run(f"""{ACCOUNT}
pointer = c_uint64()
for variant in ("", "_ptsz"):
    note(getattr(lib, "cuMemAllocAsync" + variant)(byref(pointer), c_size_t(MIB), None))
    note(getattr(lib, "cuMemFreeAsync" + variant)(pointer, None))
    note(getattr(lib, "cuStreamSynchronize" + variant)(None))
say(seen)
""")

    assert [[0, 32], [0, 32], [0, 0]] * 2 == results


@pytest.mark.parametrize("instantiate", sorted(hooks(r"cuGraphInstantiate\w*")))
def test_graphs_that_allocate_are_charged_when_they_run(container: Container, instantiate: str) -> None:
    """
    With any way to make the node and the executable, the launch charges its memory, and refuses it beyond the limit.
    """
    adds = sorted(hooks(r"cuGraphAddNode\w*"))
    results = container.run(
        f"""{ACCOUNT}{GRAPH}
def check(add, size, variant):
    graph, node, params = c_void_p(), c_void_p(), described(size)
    lib.cuGraphCreate(byref(graph), 0)
    edges = [] if add == "cuGraphAddNode" else [None]
    assert getattr(lib, add)(byref(node), graph, None, *edges, c_size_t(0), byref(params)) == 0
    executable = instantiated("{instantiate}", graph)
    note(getattr(lib, "cuGraphUpload" + variant)(executable, None))
    note(getattr(lib, "cuGraphLaunch" + variant)(executable, None))
    return c_uint64(params.allocation.pointer)
for add in {adds}:
    pointer = check(add, 100 * MIB, "")
    check(add, 900 * MIB, "_ptsz")
    lib.cuMemFreeAsync(pointer, None)
    note(lib.cuDeviceGraphMemTrim(0))
say(seen)
""",
        FAKE_DRIVER_CUDA_VERSION="13050",
    )

    assert [[0, 0], [0, 128], [2, 128], [2, 128], [0, 0]] * len(adds) == results
    assert len(adds) == 3


def test_external_memory_costs_who_imports_it(container: Container) -> None:
    """
    CUDA did not allocate it, so the process that imports it is charged until it is destroyed, and refused beyond the
    limit.
    """
    results = container.run(f"""{ACCOUNT}
class Description(ctypes.Structure):
    _fields_ = [("type", c_int), ("handle", c_uint64 * 2), ("size", c_uint64), ("flags", c_uint), ("rest", c_uint * 16)]
memory, more = c_void_p(), c_void_p()
note(lib.cuImportExternalMemory(byref(memory), byref(Description(1, (c_uint64 * 2)(), 700 * MIB))))
note(lib.cuImportExternalMemory(byref(more), byref(Description(1, (c_uint64 * 2)(), 301 * MIB))))
note(lib.cuDestroyExternalMemory(memory))
say(seen)
""")

    assert [[0, 700], [2, 700], [0, 0]] == results


def test_every_launch_passes_the_limiter(container: Container) -> None:
    """
    Every function that starts work tells the monitor through `recent_kernel`.
    """
    launches = hooks(r"cu(Graph)?Launch(?!HostFunc)\w*")
    told = container.run(f"""{ACCOUNT}{LAUNCHES}
from mmap import mmap
with open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "r+b") as file:
    region = mmap(file.fileno(), 0)
recent_kernel = c_int.from_buffer(region, 2008904)
def told(symbol):
    recent_kernel.value = 0
    result = getattr(lib, symbol)(*arguments[symbol.removesuffix("_ptsz")])
    return [result, recent_kernel.value]
say({{symbol: told(symbol) for symbol in {sorted(launches)}}})
""")

    assert {symbol: [0, 2] for symbol in launches} == told
    assert len(told) > 10


def test_every_process_list_is_the_containers(container: Container) -> None:
    """
    In each version the compute processes are the container's, and lists of other kinds are empty.
    """
    load = "Cuda().allocate(100 * MIB)\nsay(0)\nwait()"
    neighbour = container.start(load, preload=False)
    assert neighbour.stdout is not None
    neighbour.stdout.readline()
    symbols = hooks(r"nvmlDeviceGet\w+RunningProcesses\w*")
    own, lists = container.run(f"""
Cuda().allocate(300 * MIB)
nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), c_void_p()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
def listed(symbol):
    count, entries = c_uint(8), (c_uint * 64)()
    result = getattr(nvml, symbol)(device, byref(count), entries)
    stride = 6 if symbol.endswith(("_v2", "_v3")) else 4
    return [result, list(entries)[: stride * count.value : stride]]
say([os.getpid(), {{symbol: listed(symbol) for symbol in {sorted(symbols)}}}])
""")
    neighbour.communicate("\n", timeout=20)

    assert {symbol: [0, [own] if "GetCompute" in symbol else []] for symbol in symbols} == lists
    assert len(lists) == 9
