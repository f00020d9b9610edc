"""
The memory limit holds for every way to allocate, in every process of the container, while the memory is held.
"""

import subprocess

import pytest
from containers import GPU_A, GPU_B, GPU_C, Container

from hamicommon.wire.region.layout import LAYOUT_V1_2
from hamicommon.wire.region.records import decode_records

MIB = 1 << 20


def test_share_is_exact_to_the_byte(container: Container) -> None:
    """
    Exactly the limit can be allocated and not one byte more. The error is CUDA_ERROR_OUT_OF_MEMORY.
    """
    results = container.run("""
cuda = Cuda()
first, pointer = cuda.allocate(1000 * MIB)
second, _ = cuda.allocate(1)
freed = cuda.free(pointer)
third, _ = cuda.allocate(1000 * MIB + 1)
fourth, _ = cuda.allocate(1000 * MIB)
say([first, second, freed, third, fourth])
""")

    assert [0, 2, 0, 2, 0] == results


def test_every_way_to_allocate_is_charged(container: Container) -> None:
    """
    Plain, pitched, managed and 32-bit allocations lower what is free, and frees raise it.
    """
    results = container.run("""
cuda = Cuda()
lib = cuda.library
seen = []
pointer, pitch, low, low_pitch = c_uint64(), c_size_t(), c_uint(), c_uint()
def note(result):
    seen.append([result, 1000 - cuda.visible()[0]])
note(lib.cuMemAllocPitch_v2(byref(pointer), byref(pitch), c_size_t(1000), c_size_t(4096), 4))
note(lib.cuMemFree_v2(pointer))
note(lib.cuMemAllocManaged(byref(pointer), c_size_t(10 * MIB), 1))
note(lib.cuMemFree_v2(pointer))
note(lib.cuMemAlloc(byref(low), c_uint(50 * MIB)))
note(lib.cuMemFree(low))
note(lib.cuMemAllocPitch(byref(low), byref(low_pitch), 512, 8192, 4))
note(lib.cuMemFree(low))
say(seen)
""")

    assert [4, 0, 10, 0, 50, 0, 4, 0] == [used for _, used in results]
    assert {0} == {result for result, _ in results}


def test_monitor_reads_the_peak_of_what_was_allocated(container: Container) -> None:
    """
    It stays when memory is freed. What the share or the driver refused was never used.
    """
    results = container.run(
        """
cuda = Cuda()
refused = [cuda.allocate(101 << 30)[0], cuda.allocate(99 << 30)[0]]
pointers = [cuda.allocate(100 * MIB)[1] for _ in range(3)]
for pointer in pointers:
    cuda.free(pointer)
cuda.allocate(10 * MIB)
say(refused)
""",
        CUDA_DEVICE_MEMORY_LIMIT="100g",
    )
    records = decode_records(LAYOUT_V1_2, container.region.read_bytes(), 3)

    assert [2, 2] == results
    assert records is not None
    assert [300 * MIB, 0, 0] == [device.peak_bytes for device in records]


def test_charges_are_whole_blocks_which_the_small_share(container: Container) -> None:
    """
    From 1 MiB on an allocation has its own blocks of 2 MiB. Smaller ones, in units of 512 bytes, share blocks.
    """
    results = container.run("""
cuda, seen, small = Cuda(), [], []
def used():
    return 1000 - cuda.visible()[0]
for size in (1, 2 * MIB - 512, 1, MIB, 2 * MIB + 1):
    small.append(cuda.allocate(size)[1])
    seen.append(used())
for pointer in small:
    cuda.free(pointer)
small = [cuda.allocate(1)[1] for _ in range(4096)]
seen.append(used())
small.append(cuda.allocate(1)[1])
seen.append(used())
cuda.free(small.pop(0))
seen.append(used())
say(seen)
""")

    assert [2, 4, 4, 6, 10, 2, 4, 2] == results


def test_every_way_to_allocate_is_refused_beyond_the_limit(container: Container) -> None:
    """
    Each allocation call that would pass the limit returns CUDA_ERROR_OUT_OF_MEMORY.
    """
    results = container.run("""
cuda = Cuda()
lib = cuda.library
cuda.allocate(998 * MIB)
cuda.allocate(1)
pointer, pitch, low, pool = c_uint64(), c_size_t(), c_uint(), c_void_p()
lib.cuDeviceGetDefaultMemPool(byref(pool), 0)
size = c_size_t(2 * MIB)
say([
    lib.cuMemAlloc_v2(byref(pointer), size),
    lib.cuMemAlloc(byref(low), c_uint(2 * MIB)),
    lib.cuMemAllocPitch_v2(byref(pointer), byref(pitch), c_size_t(1 << 40), c_size_t(1 << 40), 4),
    lib.cuMemAllocPitch_v2(byref(pointer), byref(pitch), c_size_t(1), c_size_t(1 << 20), 4),
    lib.cuMemAllocManaged(byref(pointer), size, 1),
    lib.cuMemAllocAsync(byref(pointer), size, None),
    lib.cuMemAllocAsync_ptsz(byref(pointer), size, None),
    lib.cuMemAllocFromPoolAsync(byref(pointer), size, pool, None),
    lib.cuMemAllocFromPoolAsync_ptsz(byref(pointer), size, pool, None),
    cuda.visible()[0],
])
""")

    assert [2] * 9 + [0] == results


def test_physical_memory_is_charged_until_its_last_mapping_ends(container: Container) -> None:
    """
    A VMM handle that is released while mapped still counts. Unmapping ends that, also for several mappings at once.
    """
    results = container.run("""
cuda = Cuda()
lib = cuda.library
class Properties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("id", c_int), ("rest", c_uint64 * 2)]
pinned = Properties(1, 0, 1, 0)
size = 100 * MIB
handles, address, seen = [c_uint64(), c_uint64()], c_uint64(), []
def note(result):
    seen.append([result, 1000 - cuda.visible()[0]])
lib.cuMemAddressReserve(byref(address), c_size_t(2 * size), c_size_t(0), c_uint64(0), c_uint64(0))
for index, handle in enumerate(handles):
    note(lib.cuMemCreate(byref(handle), c_size_t(size), byref(pinned), c_uint64(0)))
    lib.cuMemMap(c_uint64(address.value + index * size), c_size_t(size), c_size_t(0), handle, c_uint64(0))
note(lib.cuMemRelease(handles[0]))
note(lib.cuMemRelease(handles[1]))
note(lib.cuMemUnmap(address, c_size_t(2 * size)))
note(lib.cuMemCreate(byref(handles[0]), c_size_t(1002 * MIB), byref(pinned), c_uint64(0)))
say(seen)
""")

    assert [[0, 100], [0, 200], [0, 200], [0, 200], [0, 0], [2, 0]] == results


def test_processes_of_a_container_share_its_limit(container: Container) -> None:
    """
    What one process holds is not available to another until the first one ends.
    """
    holder = container.start("cuda = Cuda()\nsay(cuda.allocate(700 * MIB)[0])\nwait()")
    assert holder.stdout is not None
    assert "0\n" == holder.stdout.readline()
    other = "cuda = Cuda()\nsay([cuda.visible()[0], cuda.allocate(400 * MIB)[0], cuda.allocate(300 * MIB)[0]])"

    assert [300, 2, 0] == container.run(other)
    holder.communicate("\n", timeout=20)
    assert [1000, 0, 0] == container.run(other)


def test_memory_of_a_killed_process_comes_back(container: Container) -> None:
    """
    SIGKILL leaves a slot. The next allocation that needs its memory sweeps it.
    """
    holder = container.start("cuda = Cuda()\nsay(cuda.allocate(900 * MIB)[0])\nwait()")
    assert holder.stdout is not None
    assert "0\n" == holder.stdout.readline()
    holder.kill()
    holder.communicate(timeout=20)

    assert 0 == container.run("say(Cuda().allocate(1000 * MIB)[0])")


def test_driver_refusal_costs_nothing(container: Container) -> None:
    """
    If the device itself is full, the driver's error is returned and the charge is given back.
    """
    results = container.run(
        "cuda = Cuda(2)\nsay([cuda.allocate(9000 * MIB)[0], cuda.visible(), cuda.allocate(4000 * MIB)[0]])",
        CUDA_DEVICE_MEMORY_LIMIT="10g",
    )

    assert [2, [8192, 8192], 0] == results


def test_pointers_from_elsewhere_go_to_the_driver(container: Container) -> None:
    """
    The driver answers a free of an unknown pointer: null succeeds, nonsense is an invalid value.
    """
    assert [0, 1, 1] == container.run("cuda = Cuda()\nsay([cuda.free(0), cuda.free(4096), cuda.free(0xdeadbeef000)])")


def test_end_of_a_context_ends_its_charges(container: Container) -> None:
    """
    Destroying a context, or the last release of a primary one, frees its memory in the driver and in the account.
    """
    results = container.run("""
cuda = Cuda()
lib = cuda.library
own, seen = c_void_p(), []
cuda.allocate(100 * MIB)
lib.cuCtxCreate_v2(byref(own), 0, 0)
cuda.allocate(200 * MIB)
seen.append(cuda.visible()[0])
lib.cuCtxDestroy_v2(own)
lib.cuCtxSetCurrent(cuda.context)
seen.append(cuda.visible()[0])
lib.cuDevicePrimaryCtxReset_v2(0)
seen.append(cuda.visible()[0])
cuda.allocate(300 * MIB)
lib.cuDevicePrimaryCtxRelease_v2(0)
cuda.use(0)
seen.append(cuda.visible()[0])
say(seen)
""")

    assert [700, 900, 1000, 1000] == results


@pytest.mark.parametrize(
    ("visible", "sizes"),
    [
        ("2,0", [300, 100]),
        ("1", [200]),
        ("2,7,0", [300]),
        (f"{GPU_B},{GPU_A}", [200, 100]),
        (f"{GPU_C},nonsense,{GPU_A}", [300]),
        (f"{GPU_C[:7]},{GPU_A[:5]}", [300, 100]),
    ],
)
def test_limits_follow_the_device_not_its_ordinal(container: Container, visible: str, sizes: list[int]) -> None:
    """
    With any CUDA_VISIBLE_DEVICES, in any order and syntax, each device keeps its limit.
    """
    limits = {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "100m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "200m",
        "CUDA_DEVICE_MEMORY_LIMIT_2": "300m",
    }
    program = """
cuda, seen = Cuda(), []
count = c_int()
cuda.library.cuDeviceGetCount(byref(count))
for ordinal in range(count.value):
    cuda.use(ordinal)
    seen.append([cuda.visible()[1], cuda.allocate((cuda.visible()[1] + 1) * MIB)[0]])
say(seen)
"""

    assert [[size, 2] for size in sizes] == container.run(program, preload=True, CUDA_VISIBLE_DEVICES=visible, **limits)


def test_limits_are_listed_in_the_order_of_the_grant(container: Container) -> None:
    """
    `_<i>` is the i-th UUID of NVIDIA_VISIBLE_DEVICES, although NVML and CUDA count devices in bus order.
    """
    sizes = container.run(
        "cuda = Cuda()\nfirst = cuda.visible()[1]\ncuda.use(1)\nsay([first, cuda.visible()[1]])",
        NVIDIA_VISIBLE_DEVICES=f"{GPU_C},{GPU_A}",
        CUDA_DEVICE_MEMORY_LIMIT_0="300m",
        CUDA_DEVICE_MEMORY_LIMIT_1="100m",
    )

    assert [100, 300] == sizes


def device_files(container: Container, *minors: int) -> dict[str, str]:
    """Return the environment of a container that has the files of these GPUs, as under CDI."""
    folder = container.folder / "dev"
    folder.mkdir()
    for minor in minors:
        (folder / f"nvidia{minor}").touch()
    return {"NVIDIA_VISIBLE_DEVICES": "void", "FAKE_DRIVER_DEV": str(folder)}


@pytest.mark.parametrize(
    ("listed", "sizes"),
    [
        pytest.param(f"{GPU_C},{GPU_A}", [100, 300], id="other than NVML's order"),
        pytest.param(f"{GPU_A},{GPU_C}", [300, 100], id="NVML's order"),
        pytest.param(f"{GPU_B},{GPU_C}", [300, 100], id="the first is lost"),
        pytest.param(GPU_C, [100, 300], id="one is not listed"),
        pytest.param(f"{GPU_C},{GPU_C},{GPU_A}", [50, 300], id="one twice"),
        pytest.param(f",,{GPU_A}", [50, 300], id="empty entries"),
        pytest.param("x" * 100_000 + f",{GPU_A}", [100, 300], id="a long entry"),
        pytest.param(",".join(["x"] * 10_000 + [GPU_C]), [300, 100], id="many entries"),
        pytest.param(f"{GPU_C} ,{GPU_A[:20]}", [300, 100], id="not quite UUIDs"),
    ],
)
def test_limits_follow_the_list_of_uuids_without_visible_devices(
    container: Container, listed: str, sizes: list[int]
) -> None:
    """
    HAMI_DEVICE_UUIDS has the place of each limit, because NVIDIA's CDI modes set NVIDIA_VISIBLE_DEVICES to void.
    """
    container.environment |= device_files(container, 0, 2)
    found = container.run(
        "cuda = Cuda()\nfirst = cuda.visible()[1]\ncuda.use(1)\nsay([first, cuda.visible()[1]])",
        HAMI_DEVICE_UUIDS=listed,
        CUDA_DEVICE_MEMORY_LIMIT_0="300m",
        CUDA_DEVICE_MEMORY_LIMIT_1="100m",
        CUDA_DEVICE_MEMORY_LIMIT_2="50m",
    )

    assert sizes == found


def test_list_of_uuids_comes_before_visible_devices(container: Container) -> None:
    """
    HAMi's library reads only NVIDIA_VISIBLE_DEVICES, so both may be set.
    """
    sizes = container.run(
        "cuda = Cuda()\nfirst = cuda.visible()[1]\ncuda.use(1)\nsay([first, cuda.visible()[1]])",
        HAMI_DEVICE_UUIDS=f"{GPU_C},{GPU_A}",
        NVIDIA_VISIBLE_DEVICES=f"{GPU_A},{GPU_C}",
        CUDA_DEVICE_MEMORY_LIMIT_0="300m",
        CUDA_DEVICE_MEMORY_LIMIT_1="100m",
    )

    assert [100, 300] == sizes


def test_limit_above_the_device_size_shows_the_device_size(container: Container) -> None:
    """
    cuMemGetInfo and cuDeviceTotalMem never report more than the device has.
    """
    results = container.run(
        """
cuda = Cuda(2)
total = c_size_t()
cuda.library.cuDeviceTotalMem_v2(byref(total), 2)
say([total.value // MIB, cuda.visible()[1]])
""",
        CUDA_DEVICE_MEMORY_LIMIT="100g",
    )

    assert [8192, 8192] == results


def test_zero_means_no_limit(container: Container) -> None:
    """
    `0` shows the device as it is and refuses nothing. Use is still recorded for the monitor.
    """
    results = container.run(
        "cuda = Cuda()\nsay([cuda.allocate(9000 * MIB)[0], cuda.visible()])", CUDA_DEVICE_MEMORY_LIMIT="0"
    )

    assert [0, [16384 - 9000, 16384]] == results


def test_unparsable_limit_refuses_everything_and_is_reported_once(container: Container) -> None:
    """
    An invalid limit fails closed, with one line that names the variable, its value and what would be right.
    """
    result, errors = container.run_and_listen(
        "cuda = Cuda()\nsay([cuda.allocate(MIB)[0], cuda.allocate(MIB)[0]])", CUDA_DEVICE_MEMORY_LIMIT="3000mb"
    )

    assert [2, 2] == result
    lines = errors.splitlines()
    assert 1 == len(lines)
    assert "CUDA_DEVICE_MEMORY_LIMIT=3000mb is not an integer with an optional suffix k, m or g" in lines[0]


def test_disabled_control_forwards_everything(container: Container) -> None:
    """
    CUDA_DISABLE_CONTROL=true leaves the driver's answers unchanged and makes no region.
    """
    results = container.run(
        "cuda = Cuda()\nsay([cuda.allocate(2000 * MIB)[0], cuda.visible()[1]])", CUDA_DISABLE_CONTROL="true"
    )

    assert [0, 16384] == results
    assert not container.region.exists()


def test_racing_processes_never_pass_the_limit_together(container: Container) -> None:
    """
    Eight processes that allocate and free at once never hold more than the limit: the device never has more in use.
    """
    program = """
import random
cuda, held = Cuda(), []
for step in range(300):
    if random.random() < 0.6:
        result, pointer = cuda.allocate(64 * MIB)
        held += [pointer] if result == 0 else []
    elif held:
        cuda.free(held.pop())
for pointer in held:
    cuda.free(pointer)
say(0)
"""
    oracle = """
import pynvml, select
pynvml.nvmlInit()
device, worst = pynvml.nvmlDeviceGetHandleByIndex(0), 0
say(worst)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    worst = max(worst, sum(process.usedGpuMemory // MIB for process in processes))
say(worst)
"""
    watcher = container.start(oracle, preload=False)
    assert watcher.stdout is not None
    watcher.stdout.readline()
    racers: list[subprocess.Popen[str]] = [container.start(program) for _ in range(8)]
    for racer in racers:
        _, errors = racer.communicate(timeout=60)
        assert racer.returncode == 0, errors
    worst = int(watcher.communicate("\n", timeout=60)[0])

    assert 0 < worst <= 1000
