"""
A driver's call that takes long does not stop another thread's calls, on another device or on the same one.
"""

import pytest
from containers import Container

OPERATIONS = """
import threading
sys.setswitchinterval(0.001)
class Properties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("id", c_int), ("security", c_void_p),
                ("most", c_size_t), ("rest", c_uint64 * 7)]
class Node(ctypes.Structure):
    _fields_ = [("pool", Properties), ("access", c_void_p), ("count", c_size_t), ("bytes", c_size_t),
                ("pointer", c_uint64)]
cuda, size = Cuda(), c_size_t(MIB)
lib = cuda.library
drivers = [lib, ctypes.CDLL("libnvidia-ml.so.1")]
for driver in drivers: driver.fake_calls.restype = c_uint64
def calls_of(symbol):
    return sum(driver.fake_calls(symbol) for driver in drivers)
def delay_next(symbol):
    for driver in drivers: driver.fake_delay_next(symbol, 30000)
    return calls_of(symbol)
def plain(_):
    lib.cuMemFree_v2(c_uint64(cuda.allocate(MIB)[1]))
def pooled(_):
    pointer = c_uint64()
    lib.cuMemAllocAsync(byref(pointer), size, None)
    lib.cuMemFreeAsync(pointer, None)
    lib.cuStreamSynchronize(None)
def pools(ordinal):
    pool, pointer = c_void_p(), c_uint64()
    lib.cuMemPoolCreate(byref(pool), byref(Properties(1, 0, 1, ordinal)))
    lib.cuMemAllocFromPoolAsync(byref(pointer), size, pool, None)
    lib.cuMemFreeAsync(pointer, None)
    lib.cuMemPoolTrimTo(pool, c_size_t(0))
    lib.cuMemPoolDestroy(pool)
def graphs(ordinal):
    graph, node, executable = c_void_p(), c_void_p(), c_void_p()
    params = Node(Properties(1, 0, 1, ordinal), None, 0, MIB, 0)
    lib.cuGraphCreate(byref(graph), 0)
    lib.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), byref(params))
    lib.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
    lib.cuGraphLaunch(executable, None)
    lib.cuMemFreeAsync(c_uint64(params.pointer), None)
    lib.cuStreamSynchronize(None)
    lib.cuGraphExecDestroy(executable)
    lib.cuDeviceGraphMemTrim(ordinal)
def code(_):
    module = c_void_p()
    lib.cuModuleLoadData(byref(module), b"image")
    lib.cuModuleUnload(module)
    cuda.visible()
def launches(_):
    cuda.launch(cuda.kernel(0))
    lib.cuCtxSynchronize()
def contexts(ordinal):
    context, before = c_void_p(), c_void_p()
    lib.cuCtxGetCurrent(byref(before))
    lib.cuCtxCreate_v2(byref(context), 0, ordinal)
    lib.cuCtxDestroy_v2(context)
    lib.cuCtxSetCurrent(before)
def queries(_):
    cuda.visible()
def refusals(_):
    assert OOM == cuda.allocate(2000 * MIB)[0]
    assert OOM == lib.cuMemAllocAsync(byref(c_uint64()), c_size_t(2000 * MIB), None)
OPERATIONS = [plain, pooled, pools, graphs, code, launches, contexts, queries, refusals]
def everything(ordinal):
    cuda.use(ordinal)
    for operation in OPERATIONS: operation(ordinal)
for _ in range(2):
    for ordinal in (0, 1): everything(ordinal)
"""


SLOW = [
    ("plain", "cuMemAlloc_v2"),
    ("plain", "cuMemFree_v2"),
    ("pooled", "cuMemAllocFromPoolAsync"),
    ("pooled", "cuMemFreeAsync"),
    ("pooled", "cuStreamSynchronize"),
    ("pooled", "cuMemPoolGetAttribute"),
    ("pools", "cuMemPoolCreate"),
    ("pools", "cuMemAllocFromPoolAsync"),
    ("pools", "cuMemPoolTrimTo"),
    ("pools", "cuMemPoolDestroy"),
    ("graphs", "cuGraphLaunch"),
    ("graphs", "cuGraphInstantiateWithFlags"),
    ("graphs", "cuDeviceGetGraphMemAttribute"),
    ("graphs", "cuDeviceGraphMemTrim"),
    ("code", "cuModuleLoadData"),
    ("code", "cuModuleUnload"),
    ("code", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ("launches", "cuLaunchKernel"),
    ("launches", "cuCtxSynchronize"),
    ("contexts", "cuCtxCreate_v2"),
    ("contexts", "cuCtxDestroy_v2"),
    ("contexts", "nvmlDeviceGetMemoryInfo"),
    ("queries", "cuMemGetInfo_v2"),
]
"""Operations, and a call that each makes."""
TURN_SECONDS = 10
"""How long the creation of a context waits for another one on its device."""


@pytest.mark.parametrize(("operation", "symbol"), SLOW)
@pytest.mark.parametrize("limit", ["1000m", ""], ids=["limited", "free"])
def test_slow_call_on_a_device_stops_no_other_device(
    container: Container, limit: str, operation: str, symbol: str
) -> None:
    """
    One thread is in the driver for half a minute. Meanwhile another does everything on the second device.
    """
    container.environment.update(CUDA_DEVICE_MEMORY_LIMIT=limit, FAKE_DRIVER_CONTEXT_MIB="100")
    preparation = OPERATIONS if limit else OPERATIONS.replace(", refusals]", "]")
    if not limit and symbol.startswith("nvmlDeviceGetC"):
        pytest.skip("only under a limit")

    finished, is_still_slow = container.run(
        f"""{preparation}
def slow():
    lib.cuCtxSetCurrent(first)
    {operation}(0)
cuda.use(0)
first = c_void_p(cuda.context.value)
calls = delay_next(b"{symbol}")
slow = threading.Thread(target=slow, daemon=True)
slow.start()
while calls_of(b"{symbol}") == calls and slow.is_alive(): pass
everything(1)
say([calls_of(b"{symbol}") > calls, slow.is_alive()])
os._exit(0)
"""
    )

    assert finished
    assert is_still_slow


PLACES = """
def stream():
    made = c_void_p()
    assert 0 == lib.cuStreamCreate(byref(made), 1)
    return made
own = stream()
def allocations():
    pointers = [cuda.allocate(size)[1] for size in (4096, MIB, 3 * MIB)]
    assert all(pointers)
    for pointer in pointers: cuda.free(pointer)
def pooled_on_own_stream():
    pointer = c_uint64()
    assert 0 == lib.cuMemAllocAsync(byref(pointer), size, own)
    lib.cuMemFreeAsync(pointer, own)
    lib.cuStreamSynchronize(own)
def launches_on_own_stream():
    assert 0 == lib.cuLaunchKernel(cuda.kernel(0), 1, 1, 1, 1, 1, 1, 0, own, None, None)
    lib.cuStreamSynchronize(own)
def primary_context():
    assert 0 == lib.cuDevicePrimaryCtxRetain(byref(c_void_p()), 0) == lib.cuDevicePrimaryCtxRelease_v2(0)
def everything_else():
    for operation in (allocations, pooled_on_own_stream, launches_on_own_stream, primary_context):
        operation()
    for operation in (code, queries, pools): operation(0)
"""


@pytest.mark.parametrize(("operation", "symbol"), SLOW)
def test_slow_call_stops_no_other_call_on_its_device(container: Container, operation: str, symbol: str) -> None:
    """
    One thread is in the driver for half a minute. Meanwhile another uses the device, except for making contexts.
    """
    container.environment.update(FAKE_DRIVER_CONTEXT_MIB="100")
    preparation = OPERATIONS + "cuda.use(0)\n" + PLACES + "everything_else()\n"

    seconds, is_still_slow = container.run(
        f"""{preparation}
import time
def slow():
    lib.cuCtxSetCurrent(first)
    {operation}(0)
first = c_void_p(cuda.context.value)
calls = delay_next(b"{symbol}")
slow = threading.Thread(target=slow, daemon=True)
slow.start()
while calls_of(b"{symbol}") == calls and slow.is_alive(): pass
began = time.monotonic()
everything_else()
say([time.monotonic() - began, slow.is_alive()])
os._exit(0)
"""
    )

    assert is_still_slow
    assert seconds < TURN_SECONDS / 2


def test_context_is_made_beside_one_that_takes_long(container: Container) -> None:
    """The second one on the device waits for its turn, so that each cost is measured by itself, for 10 s."""
    container.environment.update(FAKE_DRIVER_CONTEXT_MIB="100")
    result, seconds, is_still_slow = container.run(
        """
import threading, time
cuda, lib = Cuda(), None
lib = cuda.library
def make():
    return lib.cuCtxCreate_v2(byref(c_void_p()), 0, 0)
slow = threading.Thread(target=make, daemon=True)
slow.start()
time.sleep(0.5)
began = time.monotonic()
say([make(), time.monotonic() - began, slow.is_alive()])
os._exit(0)
""",
        FAKE_DRIVER_FAULTS="cuCtxCreate_v2:1:SLEEP_30000",
    )

    assert 0 == result
    assert is_still_slow
    assert seconds > TURN_SECONDS - 1
