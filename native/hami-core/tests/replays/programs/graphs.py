"""
A CUDA graph of many kernels, launched again and again: the share of the device's time that it gets.
"""

import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from client import Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from steps import limited, say

KERNEL_US, KERNELS, LAUNCHES = 1000, 20, 100

cuda = Cuda()
lib = cuda.library
kernel = cuda.kernel(KERNEL_US)
stream, graph, executable, count = c_void_p(), c_void_p(), c_void_p(), c_size_t()
say("stream", lib.cuStreamCreate(byref(stream), 1))
say("capture", lib.cuStreamBeginCapture_v2(stream, c_int(0)))
captured = {lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None) for _ in range(KERNELS)}
say("kernels", [sorted(captured), lib.cuStreamEndCapture(stream, byref(graph))])
say("nodes", [lib.cuGraphGetNodes(graph, None, byref(count)), count.value])
say("instantiate", lib.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
began = time.monotonic()
say("launches", sorted({lib.cuGraphLaunch(executable, stream) for _ in range(LAUNCHES)}))
say("end", lib.cuStreamSynchronize(stream))
busy_seconds = KERNEL_US * KERNELS * LAUNCHES / 1e6
limited("percent of the device's time", round(100 * busy_seconds / (time.monotonic() - began)))
