"""
Kernels, streams, events and graphs for test programs. Times are nanoseconds of the monotonic clock.
"""

import ctypes
import time
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

from client import Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs

__all__ = [
    "busy",
    "capture",
    "cuda",
    "elapsed_ms",
    "event",
    "executable",
    "function",
    "launch",
    "lib",
    "now",
    "recorded",
    "sleep",
    "spans",
    "stream",
]

cuda = Cuda()
lib = cuda.library
lib.fake_truth_busy_ns.restype = c_uint64


def now() -> int:
    """Return the time."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def sleep(milliseconds: float) -> None:
    """Sleep for some nanoseconds."""
    time.sleep(milliseconds / 1000)


def function(name: str) -> c_void_p:
    """Return the function of that name."""
    module, handle = c_void_p(), c_void_p()
    lib.cuModuleLoadData(byref(module), b"kernels")
    assert lib.cuModuleGetFunction(byref(handle), module, name.encode()) == 0
    return handle


def launch(handle: c_void_p, on: c_void_p | None = None, times: int = 1) -> int:
    """Launch a function on a stream and return the last result."""
    result = 0
    for _ in range(times):
        result = lib.cuLaunchKernel(handle, 1, 1, 1, 1, 1, 1, 0, on, None, None)
    return result


def stream(flags: int = 0) -> c_void_p:
    """Return a new stream."""
    handle = c_void_p()
    assert lib.cuStreamCreate(byref(handle), c_uint(flags)) == 0
    return handle


def event() -> c_void_p:
    """Return a new event."""
    handle = c_void_p()
    assert lib.cuEventCreate(byref(handle), 0) == 0
    return handle


def recorded(on: c_void_p | None = None) -> c_void_p:
    """Return a new event, recorded on a stream."""
    handle = event()
    assert lib.cuEventRecord(handle, on) == 0
    return handle


def elapsed_ms(first: c_void_p, last: c_void_p) -> float:
    """Wait for the second event and return the milliseconds between the two."""
    milliseconds = c_float()
    lib.cuEventSynchronize(last)
    assert lib.cuEventElapsedTime(byref(milliseconds), first, last) == 0
    return round(milliseconds.value, 4)


def spans(steps: list[tuple[c_void_p, c_void_p | None]]) -> list[float]:
    """Launch functions on streams, and return when each is done, in milliseconds from now."""
    first = recorded(stream(1))
    ends = []
    for handle, on in steps:
        launch(handle, on)
        ends.append(recorded(on))
    lib.cuCtxSynchronize()
    return [elapsed_ms(first, end) for end in ends]


def busy(begin: int, end: int, pid: int = 0) -> int:
    """Return how long device 0 was busy, in nanoseconds, for one process or for all."""
    return int(lib.fake_truth_busy_ns(c_int(0), c_uint64(pid), c_uint64(begin), c_uint64(end)))


def capture(on: c_void_p, mode: int = 0) -> None:
    """Begin to capture a stream."""
    assert lib.cuStreamBeginCapture_v2(on, c_int(mode)) == 0


def executable(on: c_void_p) -> c_void_p:
    """End the capture of a stream and return the executable graph."""
    graph, handle = c_void_p(), c_void_p()
    assert lib.cuStreamEndCapture(on, byref(graph)) == 0
    count = c_size_t()
    lib.cuGraphGetNodes(graph, None, byref(count))
    assert lib.cuGraphInstantiateWithFlags(byref(handle), graph, ctypes.c_ulonglong(0)) == 0
    return handle
