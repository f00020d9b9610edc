"""
NVIDIA's bindings of the driver: contexts, memory of each kind, streams, events, a captured graph.
"""

from typing import Any

from cuda.bindings import driver
from steps import LARGE_MIB, MIB, end, limited, say


def result(step: str, returned: tuple[Any, ...]) -> Any:
    """Report the result of a call, and return its first value."""
    say(step, returned[0].name)
    return returned[1] if len(returned) > 1 else None


result("initialise", driver.cuInit(0))
device = result("device", driver.cuDeviceGet(0))
say("name", driver.cuDeviceGetName(64, device)[1].rstrip(b"\0").decode())
context = result("context", driver.cuDevicePrimaryCtxRetain(device))
result("current", driver.cuCtxSetCurrent(context))
limited("memory of the device, MiB", driver.cuDeviceTotalMem(device)[1] // MIB)
limited("memory in total, MiB", driver.cuMemGetInfo()[2] // MIB)

buffer = result("allocation", driver.cuMemAlloc(MIB))
result("fill", driver.cuMemsetD8(buffer, 7, MIB))
copied = bytearray(4)
result("copy back", driver.cuMemcpyDtoH(copied, buffer, 4))
say("copied", list(copied))
stream = result("stream", driver.cuStreamCreate(0))
pooled = result("allocation in a pool", driver.cuMemAllocAsync(MIB, stream))
result("free in a pool", driver.cuMemFreeAsync(pooled, stream))
event = result("event", driver.cuEventCreate(0))
result("record", driver.cuEventRecord(event, stream))
result("wait", driver.cuEventSynchronize(event))
mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
result("capture", driver.cuStreamBeginCapture(stream, mode))
result("captured fill", driver.cuMemsetD8Async(buffer, 1, MIB, stream))
graph = result("end of the capture", driver.cuStreamEndCapture(stream))
executable = result("graph", driver.cuGraphInstantiate(graph, 0))
result("launch of the graph", driver.cuGraphLaunch(executable, stream))
result("synchronise", driver.cuStreamSynchronize(stream))
managed = result("managed memory", driver.cuMemAllocManaged(MIB, 1))
result("free managed memory", driver.cuMemFree(managed))
pinned = result("pinned memory", driver.cuMemAllocHost(MIB))
result("free pinned memory", driver.cuMemFreeHost(pinned))
limited(f"{LARGE_MIB} MiB at once", driver.cuMemAlloc(LARGE_MIB * MIB)[0].name)
limited(f"{LARGE_MIB} MiB in a pool", driver.cuMemAllocAsync(LARGE_MIB * MIB, stream)[0].name)
result("end of the stream", driver.cuStreamDestroy(stream))
result("free", driver.cuMemFree(buffer))
end()
