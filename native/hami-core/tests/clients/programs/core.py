"""
NVIDIA's cuda-core: a kernel from source, launched on a stream, with memory of its pools.
"""

import numpy
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from steps import LARGE_MIB, MIB, attempt, end, limited, say

device = Device(0)
say("name", device.name)
say("compute capability", list(device.compute_capability))
device.set_current()
limited("memory in total, MiB", driver.cuMemGetInfo()[2] // MIB)
stream = device.create_stream()
buffer = device.allocate(MIB, stream=stream)
say("allocation", buffer.size)
options = ProgramOptions(arch="sm_80")
source = 'extern "C" __global__ void add(int *numbers) { numbers[threadIdx.x] += 1; }'
kernel = Program(source, code_type="c++", options=options).compile("cubin").get_kernel("add")
for _ in range(100):
    launch(stream, LaunchConfig(grid=1, block=32), kernel, numpy.uint64(int(buffer.handle)))
stream.record().sync()
say("launches", 100)
limited(f"{LARGE_MIB} MiB in a pool", attempt(lambda: device.allocate(LARGE_MIB * MIB, stream=stream).size // MIB))
buffer.close(stream)
stream.sync()
say("allocation afterwards", device.allocate(MIB, stream=stream).size)
end()
