"""
What NVML tells a container: its share for the card, its processes for the node's.
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
    Both versions show the limit as total and the container's use, whatever else is on the card.
    """
    neighbour = container.start("cuda = Cuda()\nsay(cuda.allocate(5000 * MIB)[0])\nwait()", preload=False)
    assert neighbour.stdout is not None
    neighbour.stdout.readline()

    assert [[1000, 300, 700], [1000, 300, 700], 0] == container.run(NVML + "Cuda().allocate(300 * MIB)\nsay(memory())")
    neighbour.communicate("\n", timeout=20)


def test_scarce_card_leaves_less_free_than_the_share(container: Container) -> None:
    """
    When neighbours leave less than the share, free tells what is left and the parts of version 2 still add up.
    """
    neighbour = container.start("cuda = Cuda()\nsay(cuda.allocate(15500 * MIB)[0])\nwait()", preload=False)
    assert neighbour.stdout is not None
    neighbour.stdout.readline()

    first, second, reserved = container.run(NVML + "say(memory())")
    assert [1000, 0, 16384 - 15500] == first == second
    assert second[0] == second[1] + second[2] + reserved
    neighbour.communicate("\n", timeout=20)


def test_unlimited_container_sees_the_card(container: Container) -> None:
    """
    Without a limit the driver's numbers stand.
    """
    assert 16384 == container.run(NVML + "say(memory()[0][0])", CUDA_DEVICE_MEMORY_LIMIT="0")


def test_only_own_processes_are_listed(container: Container) -> None:
    """
    The list has the container's processes under the pids it knows, whatever pids NVML counts in, and no neighbour's.
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
    Version 1 of the list has 16-byte entries, and a list that is too short says how long it must be.
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
    Samples of the container's processes are shown, those of the node's others are not.
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


def test_unknown_device_is_the_drivers_error(container: Container) -> None:
    """
    NVML's own refusals come through unchanged.
    """
    assert [2, 2] == container.run("""
lib = ctypes.CDLL("libnvidia-ml.so.1")
lib.nvmlInit_v2()
buffer = (c_uint64 * 8)()
say([lib.nvmlDeviceGetMemoryInfo(c_void_p(16), buffer), lib.nvmlDeviceGetMemoryInfo(c_void_p(0), buffer)])
""")
