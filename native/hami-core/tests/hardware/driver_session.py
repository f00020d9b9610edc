"""
CUDA and NVML in short words, by public calls alone: what checks ask of a real driver and of the fake one alike.

Results of CUDA are numbers.
"""

import ctypes
import json
import subprocess
import sys
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p

import pynvml as n
from hardware.mig_session import gpu

__all__ = ["all_reduce", "busy_seconds", "compute_mode", "graph", "in_child", "profile", "set_compute_mode", "work"]

_THREADS, _BLOCKS_PER_MULTIPROCESSOR = 1024, 2
KERNEL = """
.version 7.0
.target sm_50
.address_size 64
.visible .entry {name}()
{{
    .reg .pred %is_early;
    .reg .u64 %begun, %now;
    mov.u64 %begun, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begun;
    setp.lt.u64 %is_early, %now, {nanoseconds};
    @%is_early bra again;
    ret;
}}
"""
"""A kernel each of whose threads takes so long by the device's own clock; the fake driver goes by the name."""


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def compute_mode() -> int:
    """Return the mode of GPU 0: 0 DEFAULT, 3 EXCLUSIVE_PROCESS."""
    return int(n.nvmlDeviceGetComputeMode(gpu(0)))


def set_compute_mode(mode: int) -> None:
    """Set the mode of GPU 0."""
    n.nvmlDeviceSetComputeMode(gpu(0), mode)


def work(milliseconds: int, multiprocessors: int = 1) -> int:
    """
    Return the result of launching a kernel that fills so many multiprocessors for so long.

    With fewer of them it takes longer.
    """
    function = c_void_p()
    result = _function(function, milliseconds)
    blocks = multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    return result or int(_driver().cuLaunchKernel(function, blocks, 1, 1, _THREADS, 1, 1, 0, None, None, None))


def busy_seconds(milliseconds: int, multiprocessors: int) -> float:
    """Return how long such a kernel takes until its end."""
    begun = time.monotonic()
    results = [work(milliseconds, multiprocessors), int(_driver().cuCtxSynchronize())]
    assert results == [0, 0], results
    return time.monotonic() - begun


def graph(milliseconds: int) -> list[int]:
    """Return the results of capturing a kernel into a graph, and of launching that and waiting for it."""
    driver, function, stream, made, ready = _driver(), c_void_p(), c_void_p(), c_void_p(), c_void_p()
    return [
        _function(function, milliseconds),
        driver.cuStreamCreate(byref(stream), 1),
        driver.cuStreamBeginCapture_v2(stream, 0),
        driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, None, None),
        driver.cuStreamEndCapture(stream, byref(made)),
        driver.cuGraphInstantiateWithFlags(byref(ready), made, ctypes.c_ulonglong(0)),
        driver.cuGraphLaunch(ready, stream),
        driver.cuStreamSynchronize(stream),
    ]


def all_reduce() -> list[int] | None:
    """Return the results of a sum by NCCL with one rank on GPU 0; None if NCCL is not here."""
    try:
        nccl = ctypes.CDLL("libnccl.so.2")
    except OSError:
        return None
    driver, group, memory = _driver(), c_void_p(), c_void_p()
    driver.cuMemAlloc_v2(byref(memory), c_size_t(4096))
    return [
        nccl.ncclCommInitAll(byref(group), 1, byref(c_int(0))),
        nccl.ncclAllReduce(memory, memory, c_size_t(1024), 7, 0, group, None),  # ncclFloat32, ncclSum
        int(driver.cuCtxSynchronize()),
        nccl.ncclCommDestroy(group),
    ]


def profile() -> list[int] | None:
    """Return the results of switching on CUPTI's records of kernels, and of a kernel then; None if it is not here."""
    try:
        cupti = ctypes.CDLL("libcupti.so.12")
    except OSError:
        return None
    kind = c_uint(10)  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
    return [int(cupti.cuptiActivityEnable(kind)), work(1), int(_driver().cuCtxSynchronize())]


def in_child(expression: str) -> object:
    """Return the value of an expression in a new process, with the words of this file and of mps_session.py."""
    program = "import json, sys\nfrom driver_session import *\nfrom mps_session import *\n"
    program += "print(json.dumps(eval(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", program, expression], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def _function(function: c_void_p, milliseconds: int) -> int:
    name, module = f"busy_{milliseconds * 1000}", c_void_p()
    text = KERNEL.format(name=name, nanoseconds=milliseconds * 1_000_000).encode()
    result = int(_driver().cuModuleLoadData(byref(module), text))
    return result or int(_driver().cuModuleGetFunction(byref(function), module, name.encode()))
