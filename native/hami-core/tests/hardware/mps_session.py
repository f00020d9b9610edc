"""
CUDA under MPS in short words, for the processes of the tests in mps/. Results are numbers of CUDA.
"""

import ctypes
import functools
import os
import time
from ctypes import byref, c_char_p, c_int, c_uint64, c_void_p

import pynvml as n
from hardware.mig_session import gpu

__all__ = [
    "become",
    "busy_ms",
    "busy_ms_for",
    "finish",
    "join",
    "launch",
    "listed",
    "multiprocessors",
    "name_of",
    "rates",
    "start_mps",
    "use",
]


NS = 1_000_000
"""Nanoseconds of a millisecond."""


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def become(uid: int) -> None:
    """Open the node's hardware, and continue as another user."""
    _library().fake_truth_memory(0, c_uint64(0))
    _library().fake_truth_busy_ns(0, c_uint64(0), c_uint64(0), c_uint64(0))
    os.seteuid(uid)


def start_mps() -> int:
    """Return the result of cuInit, by which a process becomes a client."""
    return int(_library().cuInit(0))


def use(ordinal: int = 0) -> int:
    """Return the result of making a context on a device. It is current instead of an earlier one."""
    _library().cuCtxPopCurrent_v2(None)
    return int(_library().cuCtxCreate_v2(byref(c_void_p()), 0, ordinal))


def join(ordinal: int = 0) -> list[int]:
    """Return the results of cuInit and of a context."""
    return [start_mps(), use(ordinal)]


def multiprocessors(ordinal: int = 0) -> int:
    """Return how many multiprocessors the driver shows of a device."""
    count = c_int()
    assert _library().cuDeviceGetAttribute(byref(count), 16, ordinal) == 0
    return count.value


def listed(kind: str) -> list[list[int]]:
    """Return the pid and the MiB of each process that NVML lists on GPU 0: `Compute`, or `MPSCompute` clients."""
    found = getattr(n, f"nvmlDeviceGet{kind}RunningProcesses")(gpu(0))
    return [[process.pid, process.usedGpuMemory >> 20] for process in found]


def name_of(error: int) -> str:
    """Return the name that the driver has for an error."""
    name = c_char_p()
    assert _library().cuGetErrorName(error, byref(name)) == 0
    assert name.value
    return name.value.decode()


def launch(milliseconds: int, part: int = 100) -> int:
    """Return the result of launching a kernel that takes so long, with *part* percent of the whole device."""
    module, function = c_void_p(), c_void_p()
    result = int(_library().cuModuleLoadData(byref(module), b"busy"))
    if result != 0:
        return result
    _library().cuModuleGetFunction(byref(function), module, f"busy_{milliseconds * 1000}@{part}".encode())
    return int(_library().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))


def finish() -> int:
    """Return the result of waiting for the work of the context."""
    return int(_library().cuCtxSynchronize())


def busy_ms_for(milliseconds: int, part: int = 100) -> int:
    """Return how long a kernel ran on GPU 0."""
    begun = _now_ms()
    assert [0, 0] == [launch(milliseconds, part), finish()]
    return busy_ms(os.getpid(), begun, _now_ms() + 1)


def busy_ms(pid: int, begun: int, ended: int) -> int:
    """Return how long GPU 0 ran work of a process between two times in milliseconds."""
    busy = _library().fake_truth_busy_ns
    busy.restype = c_uint64
    return int(busy(0, c_uint64(pid), c_uint64(begun * NS), c_uint64(ended * NS))) // NS


def rates(pids: list[int]) -> list[float]:
    """Return for which part of the next 400 ms GPU 0 runs work of each process."""
    begun, ended = _now_ms(), _now_ms() + 400
    time.sleep(0.5)
    return [round(busy_ms(pid, begun, ended) / (ended - begun), 2) for pid in pids]


def _now_ms() -> int:
    return time.monotonic_ns() // NS
