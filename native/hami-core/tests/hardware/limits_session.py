"""
Limits on memory in short words, for the processes of test_memory_limits.py. `path` is a cgroup's folder.
"""

import ctypes

import pynvml as n
from hardware.mig_session import gpu
from preload.client import MIB, Cuda

__all__ = ["allocate", "fill", "import_memory", "limits", "seen", "set_limits", "share_memory"]

_cuda: list[Cuda] = []
_taken: list[ctypes.c_uint64] = []


def set_limits(path: str | None, soft: int, hard: int) -> None:
    """Set the limits of GPU 0 in bytes."""
    limits = n.c_nvmlSetMemoryLimits_v1_t(path.encode() if path else None, soft, hard)
    n.nvmlDeviceSetMemoryLimits_v1(gpu(0), limits)


def limits(path: str) -> list[int]:
    """Return the soft and the hard limit of GPU 0, and what is charged to them."""
    found = n.c_nvmlGetMemoryLimits_v1_t(path.encode())
    n.nvmlDeviceGetMemoryLimits_v1(gpu(0), found)
    return [found.softLimit, found.hardLimit, found.currentUsed]


def seen() -> list[int]:
    """Return how many MiB NVML says that GPU 0 has and how many are used, and what CUDA says: has, free."""
    nvml = n.nvmlDeviceGetMemoryInfo(gpu(0))
    free, total = _driver().visible()
    return [nvml.total // MIB, nvml.used // MIB, total, free]


def allocate(mib: int, *, managed: bool = False) -> int:
    """Return the result of an allocation on GPU 0."""
    pointer = ctypes.c_uint64()
    if managed:
        return int(_driver().library.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(mib * MIB), 1))
    result, pointer.value = _driver().allocate(mib * MIB)
    if result == 0:
        _taken.append(pointer)
    return int(result)


def fill(step_mib: int) -> int:
    """Allocate in steps until the driver refuses, and return how many MiB that gave."""
    taken = 0
    while allocate(step_mib) == 0:
        taken += step_mib
    return taken


def share_memory() -> list[int]:
    """Return the interprocess handle of the newest allocation."""
    handle = (ctypes.c_ubyte * 64)()
    assert _driver().library.cuIpcGetMemHandle(handle, _taken[-1]) == 0
    return list(handle)


def import_memory(handle: list[int]) -> int:
    """Return the result of opening another process's handle."""

    class Handle(ctypes.Structure):
        _fields_ = (("reserved", ctypes.c_ubyte * 64),)

    given, pointer = Handle((ctypes.c_ubyte * 64)(*handle)), ctypes.c_uint64()
    return int(_driver().library.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), given, 1))


def _driver() -> Cuda:
    if not _cuda:
        _cuda.append(Cuda())
    return _cuda[0]
