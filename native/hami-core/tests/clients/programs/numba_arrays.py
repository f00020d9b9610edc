"""
numba: arrays, a kernel that it compiles, streams, events and pinned memory.
"""

import contextlib
import warnings
from typing import Any

with contextlib.suppress(ImportError):
    import _numba_cuda_redirector  # noqa: F401  # numba-cuda's .pth file imports it: numba's own `cuda` gives way
import numpy
from numba import cuda
from steps import LARGE_MIB, MIB, attempt, end, limited, say

warnings.simplefilter("ignore")
say("name", str(cuda.get_current_device().name))
limited("memory in total, MiB", cuda.current_context().get_memory_info().total // MIB)
array = cuda.to_device(numpy.arange(5))
say("copied back", array.copy_to_host().tolist())


@cuda.jit  # type: ignore[untyped-decorator]  # numba has no types
def add(numbers: Any) -> None:
    """Add one to each number. The fake driver runs no code, so they stay as they are."""
    place = cuda.grid(1)
    if place < numbers.size:
        numbers[place] += 1


stream = cuda.stream()
begin, done = cuda.event(), cuda.event()
begin.record(stream)
for _ in range(100):
    add[1, 32, stream](array)
done.record(stream)
done.synchronize()
say("launches", 100)
say("time passed", begin.elapsed_time(done) > 0)
say("pinned", int(cuda.pinned_array(10, dtype=numpy.int64).size))
limited(f"{LARGE_MIB} MiB at once", attempt(lambda: cuda.device_array(LARGE_MIB * MIB, numpy.uint8).nbytes // MIB))
say("allocation afterwards", cuda.device_array(MIB, numpy.uint8).nbytes)
end()
