"""
Contexts and modules are charged although they have no requested size, and without knowing the host's pid.
"""

import json

import pytest
from containers import GPU_A, GPU_C, Container

from hamicommon.wire.region.codec import decode_region

CONTEXTS = """
import pynvml
cuda = Cuda()
lib, seen = cuda.library, []
def note(result=0):
    seen.append([result, 1000 - cuda.visible()[0]])
def another():
    context = c_void_p()
    result = lib.cuCtxCreate_v2(byref(context), 0, 0)
    return result, context
"""


@pytest.mark.parametrize("offset", ["0", "100000"])
def test_context_costs_what_nvml_says(container: Container, offset: str) -> None:
    """
    The first context and each further one are charged, and given back at their end, with any pids in NVML.
    """
    results = container.run(
        CONTEXTS
        + """
note()
cuda.allocate(100 * MIB)
result, context = another()
note(result)
ended = lib.cuCtxDestroy_v2(context)
lib.cuCtxSetCurrent(cuda.context)
note(ended)
ended = lib.cuDevicePrimaryCtxReset_v2(0)
cuda.use(0)
note(ended)
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_PID_OFFSET=offset,
    )

    assert [[0, 150], [0, 400], [0, 250], [0, 150]] == results


def test_region_names_contexts_and_the_pid_nvml_uses(container: Container) -> None:
    """
    The monitor finds the context apart from the data, and the pid under which NVML lists the process.
    """
    process = container.start(
        "cuda = Cuda()\ncuda.allocate(100 * MIB)\nsay(0)\nwait()",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_PID_OFFSET="100000",
    )
    assert process.stdout is not None
    process.stdout.readline()
    (slot,) = decode_region(container.region.read_bytes()).slots
    process.communicate("\n", timeout=20)

    memory = slot.memory[0]
    assert (150 << 20, 100 << 20, 250 << 20) == (memory.context, memory.data, memory.total)
    assert process.pid + 100000 == slot.host_pid


def test_modules_cost_what_they_add(container: Container) -> None:
    """
    A module is charged when it is loaded, and given back when it is unloaded.
    """
    results = container.run(
        CONTEXTS
        + """
module = c_void_p()
note(lib.cuModuleLoadData(byref(module), b"image"))
note(lib.cuModuleUnload(module))
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="100",
        FAKE_DRIVER_MODULE_KIB="20480",
    )

    assert [[0, 120], [0, 100]] == results


def test_module_loads_ask_nvml_once_a_second(container: Container) -> None:
    """
    NVML's answer takes long where many processes use a device. What 500 modules take is known when somebody asks.
    """
    calls, seconds, loaded, used = container.run(
        """
import time
cuda = Cuda()
lib, module = cuda.library, c_void_p()
calls = ctypes.CDLL("libnvidia-ml.so.1").fake_calls
began, before = int(time.time()), calls(b"nvmlDeviceGetComputeRunningProcesses_v3")
results = {lib.cuModuleLoadData(byref(module), b"image") for _ in range(500)}
asked = calls(b"nvmlDeviceGetComputeRunningProcesses_v3") - before
seconds = int(time.time()) - began + 1
lib.fake_truth_memory.restype = c_uint64
say([asked, seconds, sorted(results), [1000 - cuda.visible()[0], lib.fake_truth_memory(0, c_uint64(0)) // MIB]])
""",
        FAKE_DRIVER_CONTEXT_MIB="100",
        FAKE_DRIVER_MODULE_KIB="100",
    )

    assert [0] == loaded
    assert used[0] == used[1]
    assert calls <= seconds + 2


def test_modules_fill_the_limit_and_no_more(container: Container) -> None:
    """
    Estimates of earlier loads neither let a module pass the limit nor refuse what an unloaded one took.
    """
    loaded, used, again = container.run(
        """
cuda = Cuda()
lib, modules = cuda.library, []
def load():
    module = c_void_p()
    result = lib.cuModuleLoadData(byref(module), b"image")
    if result == 0:
        modules.append(module)
    return result
while load() == 0: pass
loaded = len(modules)
lib.fake_truth_memory.restype = c_uint64
used = lib.fake_truth_memory(0, c_uint64(0)) // MIB
for module in modules: lib.cuModuleUnload(module)
say([loaded, used, cuda.allocate(900 * MIB)[0]])
""",
        FAKE_DRIVER_CONTEXT_MIB="100",
        FAKE_DRIVER_MODULE_KIB="20480",
    )

    assert [45, 1000, 0] == [loaded, used, again]


def test_context_is_expected_to_take_what_one_took_and_no_code(container: Container) -> None:
    """
    Code that exists when another context is made or destroyed does not lower what the next context needs.
    """
    result, peak = container.run(
        CONTEXTS
        + """
module = c_void_p()
lib.cuModuleLoadData(byref(module), b"image")
lib.cuModuleUnload(module)
result, context = another()
lib.cuCtxDestroy_v2(context)
lib.cuCtxSetCurrent(cuda.context)
cuda.allocate(810 * MIB)
lib.fake_truth_memory_peak.restype = c_uint64
say([another()[0], lib.fake_truth_memory_peak(0) // MIB])
""",
        FAKE_DRIVER_CONTEXT_MIB="100",
        FAKE_DRIVER_MODULE_KIB="20480",
    )

    assert (2, 910) == (result, peak)


def test_context_that_was_attached_to_ends_with_its_last_detachment(container: Container) -> None:
    """
    Each attachment needs a detachment. Only the last detachment gives the context's memory back.
    """
    results = container.run(
        CONTEXTS
        + """
result, context = another()
note(result)
cuda.allocate(100 * MIB)
note(lib.cuCtxAttach(byref(context), 0))
note(lib.cuCtxDetach(context))
result = lib.cuCtxDetach(context)
lib.cuCtxSetCurrent(cuda.context)
note(result)
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="50",
    )

    assert [[0, 100], [0, 200], [0, 200], [0, 50]] == results


def test_green_context_keeps_the_primary_that_it_makes(container: Container) -> None:
    """
    A green context costs the primary context, if that does not exist yet, and a part. The last user ends the primary.
    """
    results = container.run(
        CONTEXTS
        + """
lib.cuDevicePrimaryCtxRelease_v2(0)
other = Cuda(1)
green = c_void_p()
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
def told(result):
    seen.append([result, pynvml.nvmlDeviceGetMemoryInfo(device).used // MIB])
told(0)
told(lib.cuGreenCtxCreate(byref(green), c_void_p(1), 0, 1))
cuda.use(0)
cuda.allocate(100 * MIB)
told(lib.cuDevicePrimaryCtxRelease_v2(0))
told(lib.cuGreenCtxDestroy(green))
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="50",
    )

    assert [[0, 0], [0, 52], [0, 152], [0, 0]] == results


def test_green_context_without_room_is_refused(container: Container) -> None:
    """
    It is refused like any other context, and the device never has more than the limit in use.
    """
    results = container.run(
        CONTEXTS
        + """
lib.fake_truth_memory_peak.restype = c_uint64
cuda.allocate(950 * MIB)
green = c_void_p()
say([lib.cuGreenCtxCreate(byref(green), c_void_p(1), 0, 1), lib.fake_truth_memory_peak(0) // MIB])
""",
        FAKE_DRIVER_CONTEXT_MIB="50",
    )

    assert [2, 1000] == results


def test_contexts_and_modules_beyond_the_limit_are_refused(container: Container) -> None:
    """
    What does not fit is destroyed again, with CUDA_ERROR_OUT_OF_MEMORY. The current context stays current.
    """
    results = container.run(
        CONTEXTS
        + """
cuda.allocate(850 * MIB)
result, context = another()
current, module = c_void_p(), c_void_p()
lib.cuCtxGetCurrent(byref(current))
note(result)
note(lib.cuModuleLoadData(byref(module), b"image"))
say([seen, context.value, current.value == cuda.context.value, module.value])
""",
        FAKE_DRIVER_CONTEXT_MIB="100",
        FAKE_DRIVER_MODULE_KIB="102400",
    )

    assert [[[2, 950], [2, 950]], None, True, None] == results


def test_process_without_room_for_its_first_context_gets_none(container: Container) -> None:
    """
    The first context's cost is known only afterwards. It too is refused beyond the limit, and leaves nothing.
    """
    results = container.run(
        """
cuda = Cuda()
context = c_void_p()
say([cuda.context.value, cuda.library.cuDevicePrimaryCtxRetain(byref(context), 0)])
""",
        FAKE_DRIVER_CONTEXT_MIB="1100",
    )

    assert [None, 2] == results
    assert [] == list(decode_region(container.region.read_bytes()).slots)


def test_context_that_is_undone_is_a_warning(container: Container) -> None:
    """
    The cost of a first context is known when it is there. A warning says why the program gets none.
    """
    result, errors = container.run_and_listen(
        "cuda, context = Cuda(), c_void_p()\nsay(cuda.library.cuCtxCreate_v2(byref(context), 0, 0))",
        FAKE_DRIVER_CONTEXT_MIB="1200",
        LIBCUDA_LOG_LEVEL="2",
    )

    assert 2 == result
    assert (
        "device 0: a context took more than was left and is undone: 1258291200 of 1048576000 bytes in use\n" in errors
    )


@pytest.mark.parametrize(
    "slow", [{"FAKE_DRIVER_CONTEXT_MS": "200"}, {"FAKE_DRIVER_FAULTS": "cuDevicePrimaryCtxRetain:*:SLEEP_100"}]
)
def test_threads_that_make_a_primary_context_together_make_one(container: Container, slow: dict[str, str]) -> None:
    """
    While it is made, all that is left is held, and no thread is refused because of that. It is charged once, and given
    back.
    """
    results, *used = container.run(
        """
import pynvml, threading
gate, results, active = threading.Barrier(4), [], c_int()
lib = ctypes.CDLL("libcuda.so.1")
lib.cuInit(0)
def allocate():
    results.append(Cuda().allocate(30 * MIB)[0])
def start():
    gate.wait()
    allocate()
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
def used():
    return pynvml.nvmlDeviceGetMemoryInfo(device).used // MIB
threads = [threading.Thread(target=start) for _ in range(4)]
for thread in threads: thread.start()
while not active.value:
    lib.cuDevicePrimaryCtxGetState(0, byref(c_uint()), byref(active))
allocate()
for thread in threads: thread.join()
before = used()
for _ in range(5): lib.cuDevicePrimaryCtxRelease_v2(0)
say([results, before, used()])
""",
        preload=True,
        FAKE_DRIVER_CONTEXT_MIB="150",
        **slow,
    )

    assert [0] * 5 == results
    assert [300, 0] == used


def test_context_of_one_device_costs_the_same_while_another_is_busy(container: Container) -> None:
    """
    Changes on the first device do not affect what the second device's context costs.
    """
    results = container.run(
        """
import threading
cuda = Cuda()
result, pointer = cuda.allocate(100 * MIB)
freeing = threading.Thread(target=cuda.free, args=[pointer])
freeing.start()
cuda.library.fake_calls.restype = c_uint64
while not cuda.library.fake_calls(b"cuMemFree_v2"): pass
other = Cuda(1)
seen = [1000 - other.visible()[0], other.allocate(500 * MIB)[0], freeing.is_alive()]
freeing.join()
say(seen)
""",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_FAULTS="cuMemFree_v2:1:SLEEP_1000",
    )

    assert [150, 0, True] == results


def test_context_that_is_being_made_is_no_module(container: Container) -> None:
    """
    Code that is loaded meanwhile is not counted as the context, which NVML counts before the call that makes it
    returns.
    """
    process = container.start(
        """
import threading
cuda = Cuda()
lib, module = cuda.library, c_void_p()
making = threading.Thread(target=lib.cuCtxCreate_v2, args=[byref(c_void_p()), 0, 0])
making.start()
lib.fake_truth_memory.restype = c_uint64
while lib.fake_truth_memory(0, c_uint64(0)) < 300 * MIB: pass
result = lib.cuModuleLoadData(byref(module), b"image")
was_early = making.is_alive()
making.join()
say([result, was_early, 1000 - cuda.visible()[0]])
wait()
""",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_CONTEXT_MS="500",
        FAKE_DRIVER_MODULE_KIB="2048",
    )
    assert process.stdout is not None
    results = json.loads(process.stdout.readline())
    (slot,) = decode_region(container.region.read_bytes()).slots
    process.communicate("\n", timeout=20)

    assert [0, True, 302] == results
    assert (300 << 20, 2 << 20) == (slot.memory[0].context, slot.memory[0].module)


@pytest.mark.parametrize(
    ("rest_mib", "call"),
    [
        (846, "cuMemAlloc_v2(byref(c_uint64()), c_size_t(2 * MIB))"),
        (816, "cuMemAllocAsync(byref(c_uint64()), c_size_t(MIB), None)"),
    ],
    ids=["plain", "pooled"],
)
def test_threads_that_ask_for_room_together_find_it(container: Container, rest_mib: int, call: str) -> None:
    """
    Two modules that took nothing were counted as a block each while a change was in progress. Both blocks are found
    again.
    """
    results = container.run(
        f"""
import threading
cuda, gate, results = Cuda(), threading.Barrier(2), []
result, pointer = cuda.allocate(100 * MIB)
freeing = threading.Thread(target=cuda.free, args=[pointer])
freeing.start()
cuda.library.fake_calls.restype = c_uint64
while not cuda.library.fake_calls(b"cuMemFree_v2"): pass
for _ in range(2): cuda.library.cuModuleLoadData(byref(c_void_p()), b"image")
results.append(freeing.is_alive())
freeing.join()
results.append(cuda.allocate({rest_mib} * MIB)[0])
def work():
    cuda.use(0)
    gate.wait()
    results.append(cuda.library.{call})
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
say(results)
""",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_MODULE_KIB="0",
        FAKE_DRIVER_FAULTS="cuMemFree_v2:1:SLEEP_2000,nvmlDeviceGetComputeRunningProcesses_v3:*:SLEEP_50",
    )

    assert [True, 0, 0, 0] == results


INSTANCE = "MIG-11111111-0000-4000-8000-000000000000"


@pytest.mark.parametrize("visible", [None, "0", INSTANCE, f"MIG-{GPU_C}/1/0"])
def test_device_of_a_limit_is_told_by_its_uuid(container: Container, visible: str | None) -> None:
    """
    `_<i>` follows NVIDIA_VISIBLE_DEVICES also for MIG instances, which NVML and CUDA name differently from their GPU.
    """
    (container.folder / "hardware/devices.csv").write_text(
        "uuid,name,memory_mib,numa_node,pci_bus_id\n"
        f"{GPU_A},A,16384,0,0000:17:00.0\n"
        f"{GPU_C},C,8192,1,0000:ca:00.0\n"
        f"{INSTANCE},C 1g.2gb,2048,1,0000:ca:00.0\n"
    )
    results = container.run(
        "cuda = Cuda()\nsay([cuda.visible()[1], cuda.allocate(300 * MIB)[0], cuda.allocate(100 * MIB)[0]])",
        preload=True,
        NVIDIA_VISIBLE_DEVICES=INSTANCE,
        CUDA_DEVICE_MEMORY_LIMIT_0="200m",
        **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}),
    )

    assert [200, 2, 0] == results
    assert [INSTANCE] == [uuid for uuid in decode_region(container.region.read_bytes()).uuids if uuid]


@pytest.mark.parametrize(
    ("call", "mib"),
    [
        ("cuMemAlloc_v2(byref(c_uint64()), c_size_t(100 * MIB))", 250),
        ("cuMemAllocAsync(byref(c_uint64()), c_size_t(96 * MIB), None)", 246),
    ],
    ids=["plain", "pooled"],
)
def test_context_that_nobody_saw_made_is_charged_at_the_first_allocation(
    container: Container, call: str, mib: int
) -> None:
    """
    If a runtime reaches the driver through a function that is not hooked, its context is charged all the same.
    """
    process = container.start(
        f"""
lib = ctypes.CDLL("libcuda.so.1")
lib.cuInit(0)
retain, context = c_void_p(), c_void_p()
status = c_int()
lib.cuGetProcAddress_v2(b"cuDevicePrimaryCtxRetain", byref(retain), 99000, c_uint64(0), byref(status))
caught = retain.value == ctypes.cast(lib.cuDevicePrimaryCtxRetain, c_void_p).value
ctypes.CFUNCTYPE(c_int, c_void_p, c_int)(retain.value)(byref(context), 0)
lib.cuCtxSetCurrent(context)
say([caught, lib.{call}])
wait()
""",
        FAKE_DRIVER_CONTEXT_MIB="150",
        FAKE_DRIVER_PID_OFFSET="100000",
        FAKE_DRIVER_PRIVATE_ENTRIES="1",
        FAKE_DRIVER_CUDA_VERSION="99000",
    )
    assert process.stdout is not None
    results = json.loads(process.stdout.readline())
    (slot,) = decode_region(container.region.read_bytes()).slots
    process.communicate("\n", timeout=20)

    assert [False, 0] == results
    assert mib << 20 == slot.memory[0].total
