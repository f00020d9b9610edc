"""
NVML in a container: the share instead of the device, and the container's processes instead of the node's.
"""

from containers import Container

NVML = """
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
def memory():
    first, second = n.nvmlDeviceGetMemoryInfo(device), n.nvmlDeviceGetMemoryInfo(device, version=n.nvmlMemory_v2)
    return [[value // MIB for value in (m.total, m.used, m.free)] for m in (first, second)] + [second.reserved // MIB]
"""


def test_memory_is_the_share(container: Container) -> None:
    """
    Both versions show the limit as total and the container's use, whatever else is on the device.
    """
    neighbour = container.start("cuda = Cuda()\nsay(cuda.allocate(5000 * MIB)[0])\nwait()", preload=False)
    assert neighbour.stdout is not None
    neighbour.stdout.readline()

    assert [[1000, 300, 700], [1000, 300, 700], 0] == container.run(NVML + "Cuda().allocate(300 * MIB)\nsay(memory())")
    neighbour.communicate("\n", timeout=20)


def test_scarce_device_leaves_less_free_than_the_share(container: Container) -> None:
    """
    If other containers leave less than the share, free is what is left, and the parts of version 2 still add up.
    """
    neighbour = container.start("cuda = Cuda()\nsay(cuda.allocate(15500 * MIB)[0])\nwait()", preload=False)
    assert neighbour.stdout is not None
    neighbour.stdout.readline()

    first, second, reserved = container.run(NVML + "say(memory())")
    assert [1000, 0, 16384 - 15500] == first == second
    assert second[0] == second[1] + second[2] + reserved
    neighbour.communicate("\n", timeout=20)


def test_unlimited_container_sees_the_device(container: Container) -> None:
    """
    Without a limit the driver's numbers are returned.
    """
    assert 16384 == container.run(NVML + "say(memory()[0][0])", CUDA_DEVICE_MEMORY_LIMIT="0")


def test_only_own_processes_are_listed(container: Container) -> None:
    """
    The list has the container's processes under its own pids, with any pids in NVML, and no other processes.
    """
    neighbour = container.start("cuda = Cuda()\nsay(cuda.allocate(5000 * MIB)[0])\nwait()", preload=False)
    peer = container.start("cuda = Cuda()\nsay(cuda.allocate(200 * MIB)[0])\nwait()")
    for process in (neighbour, peer):
        assert process.stdout is not None
        process.stdout.readline()
    own, listed = container.run(
        NVML
        + """
Cuda().allocate(300 * MIB)
say([os.getpid(), sorted([p.usedGpuMemory // MIB, p.pid] for p in n.nvmlDeviceGetComputeRunningProcesses(device))])
""",
        FAKE_DRIVER_PID_OFFSET="100000",
    )

    assert [[200, peer.pid], [300, own]] == listed
    for process in (neighbour, peer):
        process.communicate("\n", timeout=20)


def test_old_process_lists_have_their_own_shape(container: Container) -> None:
    """
    Version 1 of the list has 16-byte entries. A list that is too short gets the length that it needs.
    """
    result = container.run("""
Cuda().allocate(300 * MIB)
lib = ctypes.CDLL("libnvidia-ml.so.1")
lib.nvmlInit_v2()
device, count = c_void_p(), c_uint(0)
lib.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
short = lib.nvmlDeviceGetComputeRunningProcesses(device, byref(count), None)
entries = (c_uint64 * 4)()
count.value = 2
full = lib.nvmlDeviceGetComputeRunningProcesses(device, byref(count), entries)
say([short, full, count.value, entries[0] & 0xffffffff == os.getpid(), entries[1] // MIB, entries[2]])
""")

    assert [7, 0, 1, True, 300, 0] == result


def test_utilisation_of_strangers_is_hidden(container: Container) -> None:
    """
    Samples of the container's processes are returned, and those of the node's other processes are not.
    """
    load = "cuda = Cuda()\nkernel = cuda.kernel(400000)\nfor _ in range(4): cuda.launch(kernel)\nsay(0)\nwait()"
    neighbour = container.start(load, preload=False)
    assert neighbour.stdout is not None
    neighbour.stdout.readline()
    pids = container.run(
        NVML
        + """
import time
time.sleep(0.6)
try:
    say([sample.pid for sample in n.nvmlDeviceGetProcessUtilization(device, 0)])
except n.NVMLError as error:
    say(error.value)
"""
    )

    assert 6 == pids
    neighbour.communicate("\n", timeout=20)


STRUCTURES = """
lib = ctypes.CDLL("libnvidia-ml.so.1")
raw = c_void_p()
lib.nvmlDeviceGetHandleByIndex_v2(0, byref(raw))
class Detail(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("memory", c_uint64), ("gi", c_uint), ("ci", c_uint), ("protected", c_uint64)]
class Details(ctypes.Structure):
    _fields_ = [("version", c_uint), ("mode", c_uint), ("count", c_uint), ("array", ctypes.POINTER(Detail))]
class Use(ctypes.Structure):
    _fields_ = [("stamp", c_uint64), ("pid", c_uint), ("rest", c_uint * 6)]
class Uses(ctypes.Structure):
    _fields_ = [("version", c_uint), ("count", c_uint), ("since", c_uint64), ("array", ctypes.POINTER(Use))]
def versioned(kind):
    value = kind(ctypes.sizeof(kind) | 1 << 24)
    value.count = 8
    value.array = (value._fields_[-1][1]._type_ * 8)()
    return value
def seen(value, result):
    return [result, sorted(value.array[index].pid for index in range(value.count))] if result == 0 else [result]
"""


def test_every_answer_about_processes_leaves_the_others_out(container: Container) -> None:
    """
    Details, samples, encoder sessions and accounting have the container's processes, by its pids, and no others.
    """
    load = "cuda = Cuda()\nkernel = cuda.kernel(300000)\nfor _ in range(2): cuda.launch(kernel)\nsay(0)\nwait()"
    neighbour = container.start(load, preload=False, FAKE_DRIVER_PID_OFFSET="100000")
    assert neighbour.stdout is not None
    neighbour.stdout.readline()
    own, *answers = container.run(
        NVML
        + STRUCTURES
        + """
import time
cuda = Cuda()
kernel = cuda.kernel(300000)
for _ in range(2): cuda.launch(kernel)
cuda.library.cuCtxSynchronize()
time.sleep(0.4)
details, uses, newer = versioned(Details), versioned(Uses), versioned(Uses)
newer.version = ctypes.sizeof(Uses) | 2 << 24
sessions, pids, count, more = (c_uint * 64)(), (c_uint * 8)(), c_uint(8), c_uint(8)
answers = [
    seen(details, lib.nvmlDeviceGetRunningProcessDetailList(raw, byref(details))),
    seen(uses, lib.nvmlDeviceGetProcessesUtilizationInfo(raw, byref(uses))),
    [lib.nvmlDeviceGetEncoderSessions(raw, byref(count), sessions), list(sessions)[1 : 8 * count.value : 8]],
    [lib.nvmlDeviceGetAccountingPids(raw, byref(more), pids), list(pids)[: more.value]],
    seen(newer, lib.nvmlDeviceGetProcessesUtilizationInfo(raw, byref(newer))),
]
stats = (c_uint64 * 12)()
answers += [[lib.nvmlDeviceGetAccountingStats(raw, pid, stats), stats[1]] for pid in (os.getpid(), NEIGHBOUR)]
say([os.getpid(), *answers])
""".replace("NEIGHBOUR", str(neighbour.pid)),
        FAKE_DRIVER_CONTEXT_MIB="64",
        FAKE_DRIVER_PID_OFFSET="100000",
    )

    assert [[0, [own]]] * 4 == answers[:4]
    assert [25] == answers[4]
    assert [0, 6] == [result for result, _ in answers[5:]]
    neighbour.communicate("\n", timeout=20)


def test_unknown_device_is_the_drivers_error(container: Container) -> None:
    """
    NVML's own errors are returned unchanged.
    """
    assert [2, 2] == container.run("""
lib = ctypes.CDLL("libnvidia-ml.so.1")
lib.nvmlInit_v2()
buffer = (c_uint64 * 8)()
say([lib.nvmlDeviceGetMemoryInfo(c_void_p(16), buffer), lib.nvmlDeviceGetMemoryInfo(c_void_p(0), buffer)])
""")
