"""
Limits on memory in short words, for the processes of test_memory_limits.py. `path` is a cgroup's folder.
"""

import ctypes

import pynvml as n
from hardware.mig_session import gpu
from preload.client import MIB, Cuda

__all__ = ["allocate", "limits", "seen", "set_limits"]

_cuda: list[Cuda] = []


def set_limits(path: str | None, soft: int, hard: int) -> None:
    """Set the limits of GPU 0 in bytes."""
    n.nvmlDeviceSetMemoryLimits_v1(gpu(0), n.c_nvmlSetMemoryLimits_v1_t(path.encode() if path else None, soft, hard))


def limits(path: str) -> list[int]:
    """Return the soft and the hard limit of GPU 0, and what the cgroup has of it."""
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
    return int(_driver().allocate(mib * MIB)[0])


def _driver() -> Cuda:
    if not _cuda:
        _cuda.append(Cuda())
    return _cuda[0]
