"""
How vLLM sizes its cache: it measures what weights, activations and graphs take, and takes the rest of 90 %.
"""

from ctypes import byref, c_size_t, c_uint64

import pynvml
from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from steps import limited, say

UTILISATION = 0.9
BLOCK_MIB = 16

cuda = Cuda()
lib = cuda.library
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)

initial, total = cuda.visible()
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
limited("memory of the device, MiB", total)
say("NVML and CUDA see the same total", memory.total // MIB == total)
weights = [cuda.allocate(100 * MIB)[0] for _ in range(3)]
activations = [cuda.allocate(50 * MIB) for _ in range(2)]
peak = initial - cuda.visible()[0]
say("weights and activations", [weights, [result for result, _ in activations]])
say("free memory has fallen", initial > cuda.visible()[0])
say("end of the activations", [cuda.free(pointer) for _, pointer in activations])
stream_ordered = c_uint64()
say("graph memory", lib.cuMemAllocAsync(byref(stream_ordered), c_size_t(20 * MIB), None))
graphs = initial - 300 - cuda.visible()[0]
cache_mib = int(total * UTILISATION) - peak - graphs
blocks = [cuda.allocate(BLOCK_MIB * MIB)[0] for _ in range(cache_mib // BLOCK_MIB)]
limited("blocks of the cache", len(blocks))
say("every block fits", set(blocks) == {0})
free_by_nvml = pynvml.nvmlDeviceGetMemoryInfo(device).free // MIB
say("NVML and CUDA see the same free memory", abs(free_by_nvml - cuda.visible()[0]) <= 2)
say("a tenth is left", 0 <= cuda.visible()[0] - total // 10 <= 64)
