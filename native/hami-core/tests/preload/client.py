"""
What test programs use: the driver through ctypes. Each call returns its CUDA result.
"""

import ctypes
import json
import os
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

MIB = 1 << 20
OOM = 2

__all__ = [
    "MIB",
    "OOM",
    "Cuda",
    "byref",
    "c_int",
    "c_size_t",
    "c_uint",
    "c_uint64",
    "c_void_p",
    "ctypes",
    "os",
    "say",
    "sys",
    "wait",
]


def say(value: Any) -> None:
    """Report to the test."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def wait() -> None:
    """Wait until the test sends a line or ends."""
    sys.stdin.readline()


class Cuda:
    """The driver with a device's primary context current. The methods are thin: results are numbers."""

    def __init__(self, ordinal: int = 0) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.started = self.library.cuInit(0)
        self.context = c_void_p()
        if self.started == 0:
            self.use(ordinal)

    def use(self, ordinal: int) -> None:
        """Make the primary context of a device current."""
        context = c_void_p()
        self.library.cuDevicePrimaryCtxRetain(byref(context), ordinal)
        self.library.cuCtxSetCurrent(context)
        self.context = context

    def allocate(self, size: int) -> tuple[int, int]:
        """Return (result, pointer) of cuMemAlloc_v2."""
        pointer = c_uint64()
        result = self.library.cuMemAlloc_v2(byref(pointer), c_size_t(size))
        return result, pointer.value

    def free(self, pointer: int) -> int:
        """Return the result of cuMemFree_v2."""
        return int(self.library.cuMemFree_v2(c_uint64(pointer)))

    def visible(self) -> tuple[int, int]:
        """Return (free, total) MiB of the current device."""
        available, total = c_size_t(), c_size_t()
        self.library.cuMemGetInfo_v2(byref(available), byref(total))
        return available.value // MIB, total.value // MIB

    def kernel(self, microseconds: int) -> c_void_p:
        """Return a kernel of that duration."""
        module, function = c_void_p(), c_void_p()
        self.library.cuModuleLoadData(byref(module), b"busy")
        self.library.cuModuleGetFunction(byref(function), module, f"busy_{microseconds}".encode())
        return function

    def launch(self, function: c_void_p) -> int:
        """Return the result of cuLaunchKernel on the default stream."""
        return int(self.library.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
