"""
What the other tests rely on in the fake driver.
"""

import json
import os

import pytest
from containers import GPU_B, GPU_C, Container


def test_device_memory_keeps_what_was_copied(container: Container) -> None:
    """
    Bytes copied to the device come back, from any offset, and a memset overwrites them.
    """
    results = container.run(
        """
cuda = Cuda()
lib, pointer = cuda.library, cuda.allocate(MIB)[1]
text, back = b"0123456789", ctypes.create_string_buffer(10)
lib.cuMemcpyHtoD_v2(c_uint64(pointer + 100), text, c_size_t(10))
lib.cuMemsetD8_v2(c_uint64(pointer + 103), 0x78, c_size_t(2))
lib.cuMemcpyDtoH_v2(back, c_uint64(pointer + 100), c_size_t(10))
say(back.raw.decode())
""",
        preload=False,
    )

    assert "012xx56789" == results


def test_memsets_fill_rows(container: Container) -> None:
    """
    Two rows of three 16-bit values in a pitch of ten bytes, copied with the calls that take any address.
    """
    said = container.run(
        """
cuda = Cuda()
lib, first, second = cuda.library, cuda.allocate(32)[1], cuda.allocate(32)[1]
back = ctypes.create_string_buffer(20)
lib.cuMemsetD8Async_ptsz(c_uint64(first), 0x2E, c_size_t(20), None)
lib.cuMemsetD2D16_v2(c_uint64(first), c_size_t(10), 0x6261, c_size_t(3), c_size_t(2))
lib.cuMemcpyDtoDAsync_v2(c_uint64(second), c_uint64(first), c_size_t(20), None)
lib.cuMemcpy(c_uint64(ctypes.addressof(back)), c_uint64(second), c_size_t(20))
say([back.raw.decode(), lib.cuMemsetD32_v2(c_uint64(16), 0, c_size_t(1))])
""",
        preload=False,
    )

    assert ["ababab....ababab....", 1] == said


def test_kernels_take_their_time_one_after_another(container: Container) -> None:
    """
    Two processes with 20 kernels of 50 ms each need 2 s of one device. Launching takes none of it.
    """
    program = """
import time
cuda = Cuda()
lib, kernel = cuda.library, cuda.kernel(50000)
say(0)
wait()
began = time.monotonic()
for _ in range(20):
    cuda.launch(kernel)
queued = time.monotonic() - began
lib.cuCtxSynchronize()
say([queued, time.monotonic() - began])
"""
    both = [container.start(program, preload=False) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        process.stdout.readline()
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    taken = [json.loads(process.communicate(timeout=20)[0]) for process in both]

    assert max(queued for queued, _ in taken) < 0.75
    assert max(seconds for _, seconds in taken) >= 1.9


def test_events_measure_a_kernel(container: Container) -> None:
    """
    Two events around a kernel are its duration apart, and are not ready before it ends.
    """
    early, elapsed = container.run(
        """
cuda = Cuda()
lib, kernel = cuda.library, cuda.kernel(800000)
first, last, milliseconds = c_void_p(), c_void_p(), ctypes.c_float()
lib.cuEventCreate(byref(first), 0)
lib.cuEventCreate(byref(last), 0)
lib.cuEventRecord(first, None)
cuda.launch(kernel)
lib.cuEventRecord(last, None)
early = lib.cuEventElapsedTime(byref(milliseconds), first, last)
lib.cuEventSynchronize(last)
lib.cuEventElapsedTime(byref(milliseconds), first, last)
say([early, milliseconds.value])
""",
        preload=False,
    )

    assert 600 == early
    assert 800 <= elapsed < 1200


def test_launching_a_captured_graph_repeats_its_kernels(container: Container) -> None:
    """
    Nothing runs during capture. Each launch of the graph takes the sum of what was captured.
    """
    captured, launched = container.run(
        """
import time
cuda = Cuda()
lib, kernel = cuda.library, cuda.kernel(50000)
stream, graph, executable = c_void_p(), c_void_p(), c_void_p()
lib.cuStreamCreate(byref(stream), 0)
began = time.monotonic()
lib.cuStreamBeginCapture_v2(stream, 0)
for _ in range(4):
    lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
lib.cuStreamEndCapture(stream, byref(graph))
lib.cuStreamSynchronize(stream)
captured = time.monotonic() - began
lib.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
lib.cuGraphLaunch(executable, stream)
lib.cuStreamSynchronize(stream)
say([captured, time.monotonic() - began - captured])
""",
        preload=False,
    )

    assert captured < 0.1
    assert launched >= 0.2


def test_injected_fault_reaches_those_who_registered(container: Container) -> None:
    """
    A line in the `xid` file is delivered as an event of that device, once, to event sets that registered it.
    """
    program = """
import pynvml as n
n.nvmlInit()
every = n.nvmlEventSetCreate()
for index in range(n.nvmlDeviceGetCount()):
    n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(index), n.nvmlEventTypeXidCriticalError, every)
say(0)
wait()
event = n.nvmlEventSetWait_v2(every, 2000)
try:
    n.nvmlEventSetWait_v2(every, 50)
    again = 0
except n.NVMLError as error:
    again = error.value
say([event.eventData, n.nvmlDeviceGetUUID(event.device), again])
"""
    process = container.start(program, preload=False)
    assert process.stdout is not None
    process.stdout.readline()
    (container.folder / "hardware/xid").write_text(f"{GPU_B} 79\n")
    output, _ = process.communicate("\n", timeout=20)

    assert [79, GPU_B, 10] == json.loads(output)


def test_container_sees_what_the_runtime_injects(container: Container) -> None:
    """
    NVIDIA_VISIBLE_DEVICES limits what NVML and CUDA count. With `void` the device files do.
    """
    program = """
import pynvml as n
n.nvmlInit()
say([Cuda().started, [n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)) for i in range(n.nvmlDeviceGetCount())]])
"""

    assert [0, [GPU_B, GPU_C]] == container.run(program, preload=False, NVIDIA_VISIBLE_DEVICES=f"{GPU_C},{GPU_B}")
    files = {"NVIDIA_VISIBLE_DEVICES": "void", "FAKE_DRIVER_DEV": str(container.folder)}
    assert [100, []] == container.run(program, preload=False, **files)
    (container.folder / "nvidia1").touch()
    assert [0, [GPU_B]] == container.run(program, preload=False, **files)


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes root")
def test_privileged_container_sees_every_device(container: Container) -> None:
    """
    Without device files: the driver's libraries make them. Without capabilities they cannot.
    """
    program = """
import pynvml as n
n.nvmlInit()
say(n.nvmlDeviceGetCount())
"""
    drop_all = "assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0"

    assert [3, 0] == [
        container.run(each, preload=False, NVIDIA_VISIBLE_DEVICES="void") for each in (program, drop_all + program)
    ]


def test_processes_of_equal_number_in_two_containers_keep_their_memory(container: Container) -> None:
    """
    Each is pid 1 of its namespace and cannot see the other. Neither queries nor the end of one affect the other's
    memory.
    """
    holder = """
import os
if ctypes.CDLL(None).unshare(0x10000000 | 0x20000000):
    say(None)
    raise SystemExit
if os.fork():
    os.wait()
    raise SystemExit
cuda = Cuda()
cuda.allocate(100 * MIB)
say(os.getpid())
wait()
"""
    looker = """
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
say([n.nvmlDeviceGetMemoryInfo(device).used // MIB, [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(device)]])
"""
    holders = [container.start(holder, preload=False) for _ in range(2)]
    numbers = [json.loads(process.stdout.readline()) for process in holders if process.stdout is not None]
    if None in numbers:
        pytest.skip("this user may not make namespaces")

    assert [1, 1] == numbers
    assert [2 * 100, [1, 1]] == container.run(looker, preload=False)
    holders[0].communicate("\n", timeout=20)
    assert [100, [1]] == container.run(looker, preload=False)
    holders[1].communicate("\n", timeout=20)
    assert [0, []] == container.run(looker, preload=False)


def test_rectangles_are_copied_between_host_and_device(container: Container) -> None:
    """
    cuMemcpy2D copies rows of a width from one pitch to another, in a stream too. Source: cuda.h, CUDA_MEMCPY2D_st.
    """
    said = container.run(
        """
cuda = Cuda()
lib = cuda.library
class Side(ctypes.Structure):
    _fields_ = [("x", c_size_t), ("y", c_size_t), ("type", c_int), ("host", c_void_p), ("device", c_uint64),
                ("array", c_void_p), ("pitch", c_size_t)]
class Copy(ctypes.Structure):
    _fields_ = [("source", Side), ("target", Side), ("width", c_size_t), ("height", c_size_t)]
text = ctypes.create_string_buffer(b"..abc..def", 10)
back = ctypes.create_string_buffer(8)
pointer = cuda.allocate(64)[1]
host = Side(2, 0, 1, ctypes.addressof(text), 0, None, 5)
device = Side(1, 1, 2, None, pointer, None, 16)
there = Copy(host, device, 3, 2)
again = Copy(device, Side(0, 0, 4, None, ctypes.addressof(back), None, 4), 3, 2)
results = [lib.cuMemcpy2DAsync_v2(byref(there), None), lib.cuMemcpy2D_v2(byref(again)),
           lib.cuMemcpy2DAsync_v2_ptsz(byref(again), None), lib.cuMemcpy2D_v2(byref(Copy(host, device, 30, 2)))]
say([results, back.raw.decode()])
""",
        preload=False,
    )

    assert [[0, 0, 0, 1], "abc\x00def\x00"] == said


@pytest.mark.parametrize(("attribute", "value"), [(14, 512), (51, 32), (106, 32)])
def test_attributes_are_those_of_compute_capability_8(container: Container, attribute: int, value: int) -> None:
    """
    The alignment of textures and of their pitch, and the most blocks of a multiprocessor, which programs divide by.
    """
    said = container.run(
        f"""
cuda, value = Cuda(), c_int()
say([cuda.library.cuDeviceGetAttribute(byref(value), {attribute}, 0), value.value])
"""
    )

    assert [0, value] == said


def test_destroyed_context_is_popped_only_where_it_is_current(container: Container) -> None:
    """
    Its thread has the context below it again. Another thread keeps it, and is told that it is destroyed.
    """
    said = container.run(
        """
import threading
cuda = Cuda()
lib, own, current = cuda.library, c_void_p(), c_void_p()
is_set, is_destroyed, results = threading.Event(), threading.Event(), []
def other():
    results.append(lib.cuCtxSetCurrent(own))
    is_set.set()
    is_destroyed.wait()
    results.append(lib.cuCtxSynchronize())
lib.cuCtxCreate_v2(byref(own), 0, 0)
thread = threading.Thread(target=other)
thread.start()
is_set.wait()
lib.cuCtxDestroy_v2(own)
is_destroyed.set()
thread.join()
lib.cuCtxGetCurrent(byref(current))
say([results, current.value == cuda.context.value, cuda.allocate(1)[0], lib.cuCtxDestroy_v2(own)])
"""
    )

    assert [[0, 709], True, 0, 201] == said


def test_limit_holds_for_the_unversioned_library(container: Container) -> None:
    """
    A program that opens libcuda.so gets the driver, and no more than its share.
    """
    said = container.run(
        """
lib = ctypes.CDLL("libcuda.so")
lib.cuInit(0)
context, pointer = c_void_p(), c_uint64()
lib.cuDevicePrimaryCtxRetain(byref(context), 0)
lib.cuCtxSetCurrent(context)
say([lib.cuMemAlloc_v2(byref(pointer), c_size_t(size * MIB)) for size in (1001, 1000)])
"""
    )

    assert [2, 0] == said


def test_names_of_other_interfaces_are_found(container: Container) -> None:
    """
    Programs look up what the driver has for OpenGL, EGL and profilers, and profile without effect.
    """
    said = container.run(
        """
cuda = Cuda()
lib = cuda.library
names = ["cuGLGetDevices_v2", "cuGraphicsGLRegisterImage", "cuEGLStreamConsumerConnect", "cuEventCreateFromEGLSync"]
say([all(hasattr(lib, name) for name in names), lib.cuProfilerStart(), lib.cuProfilerStop()])
"""
    )

    assert [True, 0, 0] == said
