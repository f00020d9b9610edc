"""
Memory for test programs that run on the fake driver. Pointers and handles are 64-bit numbers of ctypes.
"""

from ctypes import byref, c_size_t, c_uint64
from typing import Any

from client import Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs

__all__ = ["CONTEXT_MIB", "cuda", "from_pool", "lib", "pool_kib", "pool_properties", "reserve", "truth", "vmm"]

CONTEXT_MIB = 128
"""What a context takes in these programs."""

cuda = Cuda()
lib = cuda.library
lib.fake_truth_memory.restype = lib.fake_truth_managed.restype = c_uint64


def truth(pid: int = 0) -> int:
    """Return the KiB of device 0 that are taken, without one context. With *pid*, those of one process."""
    return int(lib.fake_truth_memory(0, c_uint64(pid))) // 1024 - CONTEXT_MIB * 1024


def pool_kib(pool: Any) -> list[int]:
    """Return the KiB of *pool*: reserved now and at most, used now and at most."""
    value, found = c_uint64(), []
    for attribute in (5, 6, 7, 8):
        assert 0 == lib.cuMemPoolGetAttribute(pool, attribute, byref(value))
        found.append(value.value // 1024)
    return found


def pool_properties(handle_types: int = 0, limit: int = 0) -> Any:
    """Return CUmemPoolProps for pinned memory of device 0. *limit* is in bytes, 0 for none."""
    return (c_uint64 * 11)(handle_types << 32 | 1, 1, 0, limit)


def from_pool(pool: Any, size: int) -> tuple[int, c_uint64]:
    """Allocate *size* bytes from *pool*. Returns the result and the pointer."""
    pointer = c_uint64()
    result = lib.cuMemAllocFromPoolAsync(byref(pointer), c_size_t(size), pool, None)
    return result, pointer


def vmm(size: int, handle_types: int = 1) -> c_uint64:
    """Return a handle of *size* bytes of device 0 that are not mapped."""
    handle = c_uint64()
    properties = (c_uint64 * 4)(handle_types << 32 | 1, 1)
    assert 0 == lib.cuMemCreate(byref(handle), c_size_t(size), properties, c_uint64(0))
    return handle


def reserve(size: int) -> c_uint64:
    """Return an address range of *size* bytes without memory."""
    pointer = c_uint64()
    assert 0 == lib.cuMemAddressReserve(byref(pointer), c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0))
    return pointer
