"""
ComfyUI with cudaMallocAsync: models are loaded, unloaded and loaded again in a pool that keeps its memory.
"""

from ctypes import byref, c_size_t, c_uint64, c_void_p

from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from steps import limited, say

TENSOR_MIB = 58
KEEP_ALL, THRESHOLD = 2**64 - 1, 4
RESERVED, USED = 5, 7

cuda = Cuda()
lib = cuda.library
pool = c_void_p()
say("pool", lib.cuDeviceGetDefaultMemPool(byref(pool), 0))
say("the pool keeps what is freed", lib.cuMemPoolSetAttribute(pool, THRESHOLD, byref(c_uint64(KEEP_ALL))))


def take(mib: int) -> tuple[int, c_uint64]:
    """Return the result of a stream-ordered allocation, and the pointer."""
    pointer = c_uint64()
    return lib.cuMemAllocAsync(byref(pointer), c_size_t(mib * MIB), None), pointer


def model(mib: int) -> list[int]:
    """Load a model of so many MiB in tensors, and unload it. Returns the different results."""
    tensors = [take(TENSOR_MIB) for _ in range(mib // TENSOR_MIB)]
    results = {result for result, _ in tensors}
    results |= {lib.cuMemFreeAsync(pointer, None) for result, pointer in tensors if result == 0}
    return sorted(results | {lib.cuStreamSynchronize(None)})


for size in (400, 800, 600, 850):
    say(f"a model of {size} MiB, ten times", [model(size) for _ in range(10)])
value = c_uint64()
say("reserved", [lib.cuMemPoolGetAttribute(pool, RESERVED, byref(value)), value.value >= 800 * MIB])
say("used", [lib.cuMemPoolGetAttribute(pool, USED, byref(value)), value.value])
say("a plain allocation beside what the pool keeps", cuda.allocate(300 * MIB)[0])
say("trim", lib.cuMemPoolTrimTo(pool, c_size_t(0)))
limited("free memory, MiB", cuda.visible()[0])
