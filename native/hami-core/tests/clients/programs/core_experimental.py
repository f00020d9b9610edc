"""
NVIDIA's cuda-core as it began: a kernel from source, launched on a stream, with memory of its pools.
"""

import pkgutil

import cuda
import numpy
from steps import LARGE_MIB, MIB, attempt, end, limited, say

# Each package has a folder here, and cuda-bindings of that time has all of `cuda` to itself.
cuda.__path__ = pkgutil.extend_path(cuda.__path__, cuda.__name__)

from cuda.bindings import driver  # noqa: E402
from cuda.core.experimental import Device, LaunchConfig, Program, launch  # noqa: E402

device = Device(0)
say("name", device.name)
say("compute capability", list(device.compute_capability))
device.set_current()
limited("memory in total, MiB", driver.cuMemGetInfo()[2] // MIB)
stream = device.create_stream()
buffer = device.allocate(MIB, stream=stream)
say("allocation", buffer.size)
source = 'extern "C" __global__ void add(int *numbers) { numbers[threadIdx.x] += 1; }'
kernel = Program(source, "c++").compile("cubin", options=("-arch=sm_80",)).get_kernel("add")
for _ in range(100):
    launch(kernel, LaunchConfig(grid=1, block=32, stream=stream), numpy.uint64(int(buffer.handle)))
stream.record().sync()
say("launches", 100)
limited(f"{LARGE_MIB} MiB in a pool", attempt(lambda: device.allocate(LARGE_MIB * MIB, stream=stream).size // MIB))
buffer.close(stream)
stream.sync()
say("allocation afterwards", device.allocate(MIB, stream=stream).size)
end()
