"""
What programs of NVIDIA's cuda-core do: a kernel from source, launched on a stream, with memory of its pools.

Neighbours: `core` and `core_experimental` have what differs between its versions.
"""

from collections.abc import Callable
from typing import Any

import numpy
from cuda.bindings import driver
from steps import LARGE_MIB, MIB, attempt, end, limited, say

SOURCE = 'extern "C" __global__ void add(int *numbers) { numbers[threadIdx.x] += 1; }'


def report(device: Any, kernel: Callable[[], Any], launch: Callable[[Any, Any, Any], object]) -> None:
    """Use *device*: *kernel* compiles SOURCE, and *launch* gets a stream, the kernel and its argument."""
    say("name", device.name)
    say("compute capability", list(device.compute_capability))
    device.set_current()
    limited("memory in total, MiB", driver.cuMemGetInfo()[2] // MIB)
    stream = device.create_stream()
    buffer = device.allocate(MIB, stream=stream)
    say("allocation", buffer.size)
    add = kernel()
    for _ in range(100):
        launch(stream, add, numpy.uint64(int(buffer.handle)))
    stream.record().sync()
    say("launches", 100)
    limited(f"{LARGE_MIB} MiB in a pool", attempt(lambda: device.allocate(LARGE_MIB * MIB, stream=stream).size // MIB))
    buffer.close(stream)
    stream.sync()
    say("allocation afterwards", device.allocate(MIB, stream=stream).size)
    end()
