"""
The memory pool of llama.cpp: 32 GiB of addresses, into which it maps memory while it grows.
"""

from ctypes import byref, c_int, c_size_t, c_uint64

from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from steps import limited, say

POOL_MIB, STEP_MIB = 32 << 10, 64
NO = c_uint64(0)

cuda = Cuda()
lib = cuda.library
granularity, base = c_size_t(), c_uint64()
say("granularity", [lib.cuMemGetAllocationGranularity(byref(granularity), (c_uint64 * 4)(1, 1), 1), granularity.value])
say("addresses", lib.cuMemAddressReserve(byref(base), c_size_t(POOL_MIB * MIB), NO, NO, NO))
host = c_uint64()
say("memory of the host in the pool", lib.cuMemCreate(byref(host), c_size_t(2 * MIB), (c_uint64 * 4)(1, 3), NO))
say("its end", lib.cuMemRelease(host))


def grow(used: int) -> int:
    """Return the result of one more step of the pool."""
    handle, size = c_uint64(), c_size_t(STEP_MIB * MIB)
    result = lib.cuMemCreate(byref(handle), size, (c_uint64 * 4)(1, 1), NO)
    if result:
        return int(result)
    place = c_uint64(base.value + used * MIB)
    results = [lib.cuMemMap(place, size, NO, handle, NO), lib.cuMemRelease(handle)]
    return int(sum(results) + lib.cuMemSetAccess(place, size, (c_int * 3)(1, 0, 3), c_size_t(1)))


used = 0
while (result := grow(used)) == 0:
    used += STEP_MIB
say("the pool is refused as by a full device", result)
limited("memory of the pool, MiB", used)
say("what is left is less than a step", cuda.visible()[0] < STEP_MIB)
say("end of the pool", lib.cuMemUnmap(base, c_size_t(used * MIB)))
say("all is free again", cuda.visible()[0] >= used)
say("addresses given back", lib.cuMemAddressFree(base, c_size_t(POOL_MIB * MIB)))
