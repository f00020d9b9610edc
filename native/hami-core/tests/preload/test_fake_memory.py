"""
What each kind of memory takes on the fake driver's devices. The library's sums are compared with it.
"""

import json

from containers import GPU_A, Container


def test_small_pieces_share_granules(bare: Container) -> None:
    """
    Units of 512 bytes are packed into granules of 2 MiB. 1 MiB and more is rounded up to its own granules.
    """
    said = bare.run(
        """
seen = []
pieces = [cuda.allocate(1)[1] for _ in range(4096)]
seen.append(truth())
pieces.append(cuda.allocate(1)[1])
seen.append(truth())
big = cuda.allocate(MIB)[1]
seen.append(truth())
cuda.free(big)
for piece in pieces:
    cuda.free(piece)
say([*seen, truth()])
""",
    )

    assert [2048, 4096, 6144, 0] == said


def test_out_of_memory_at_the_physical_limit(bare: Container) -> None:
    """
    Contexts, granules and another process's memory fill the device. The last granule fits; one more is refused.
    """
    said = bare.run(
        """
free, total = cuda.visible()
first = cuda.allocate(free * MIB)
say([free, total, first[0], cuda.allocate(1)[0], cuda.visible()[0], cuda.free(first[1]), cuda.allocate(1)[0]])
""",
        FAKE_DRIVER_CONTEXT_MIB="300",
    )

    assert [16384 - 300, 16384, 0, 2, 0, 0, 0] == said


def test_sizes_without_sense_are_out_of_memory(bare: Container) -> None:
    """
    Sizes beyond any device, up to the largest number, are refused and leave nothing.
    """
    said = bare.run(
        """
results = []
for size in (1 << 44, (1 << 63) + 1, (1 << 64) - 1):
    pointer = c_uint64()
    results.append(cuda.allocate(size)[0])
    results.append(lib.cuMemAllocManaged(byref(pointer), c_size_t(size), 1))
    results.append(lib.cuMemAllocAsync(byref(pointer), c_size_t(size), None))
say([results, truth()])
""",
    )

    assert [[2] * 9, 0] == said


def test_each_context_and_module_costs(bare: Container) -> None:
    """
    A second context takes as much as the first; a module and a larger heap take their size. Its end frees all of it.
    """
    said = bare.run(
        """
context, module = c_void_p(), c_void_p()
seen = [truth()]
lib.cuCtxCreate_v2(byref(context), 0, 0)
cuda.allocate(10 * MIB)
seen.append(truth())
lib.cuModuleLoadData(byref(module), b"x")
seen.append(truth())
for heap in (24, 8, 40):
    lib.cuCtxSetLimit(2, c_size_t(heap * MIB))
    seen.append(truth())
lib.cuCtxDestroy_v2(context)
seen.append(truth())
cuda.use(0)
cuda.allocate(10 * MIB)
lib.cuDevicePrimaryCtxRelease_v2(0)
lib.cuDevicePrimaryCtxRelease_v2(0)
say([*seen, lib.fake_truth_memory(0, c_uint64(0))])
""",
        FAKE_DRIVER_MODULE_KIB="3072",
    )

    assert [0, 138 * 1024, 142 * 1024, 158 * 1024, 158 * 1024, 174 * 1024, 0, 0] == said


def test_many_small_modules_end_with_their_context(bare: Container) -> None:
    """
    200 modules of 16 KiB are packed like other small pieces, and freed with their context.
    """
    said = bare.run(
        """
module = c_void_p()
for _ in range(200):
    lib.cuModuleLoadData(byref(module), b"x")
seen = [truth()]
lib.cuDevicePrimaryCtxReset_v2(0)
say([*seen, truth()])
""",
    )

    assert [4096, 0] == said


def test_pitch_is_a_multiple_of_512_bytes(bare: Container) -> None:
    """
    100 rows of 1000 bytes take 100 times 1024. An element size that no GPU has is refused.
    """
    said = bare.run(
        """
pointer, pitch = c_uint64(), c_size_t()
result = lib.cuMemAllocPitch_v2(byref(pointer), byref(pitch), c_size_t(1000), c_size_t(100), 4)
refused = lib.cuMemAllocPitch_v2(byref(pointer), byref(pitch), c_size_t(1000), c_size_t(100), 3)
base, size = c_uint64(), c_size_t()
lib.cuMemGetAddressRange_v2(byref(base), byref(size), c_uint64(pointer.value + 5000))
say([result, refused, pitch.value, base.value == pointer.value, size.value])
""",
    )

    assert [0, 1, 1024, True, 102400] == said


def test_arrays_cost_whole_tiles(bare: Container) -> None:
    """
    2D: 100 rows of 4000 bytes take 104 rows of 4032. Layers and levels add up. A sparse array has no memory.
    """
    said = bare.run(
        """
def array(*fields, call="cuArray3DCreate_v2", **more):
    found = c_void_p()
    width, height, depth, form, channels, flags = fields
    descriptor = (c_uint64 * 5)(width, height, depth, channels << 32 | form, flags)
    result = getattr(lib, call)(byref(found), descriptor, *more.values())
    return result, found


seen = []
for fields, more in (
    ((1000, 1000, 0, 0x20, 1, 0), {}),
    ((1000, 1000, 6, 0x20, 4, 1), {}),
    ((1024, 1024, 0, 1, 4, 0), {"call": "cuMipmappedArrayCreate", "levels": 2}),
    ((1024, 1024, 0, 1, 4, 0x40), {}),
    ((1024, 1024, 0, 0x77, 4, 0), {}),
):
    result, found = array(*fields, **more)
    seen.append([result, truth()])
    if result == 0:
        lib[("cuMipmappedArrayDestroy" if more else "cuArrayDestroy")](found)
flat = c_void_p()
lib.cuArrayCreate_v2(byref(flat), (c_uint64 * 3)(16384, 16384, 1 << 32 | 1))
seen.append(truth())
lib.cuDevicePrimaryCtxReset_v2(0)
say([*seen, truth(), lib.cuArrayDestroy(flat)])
""",
    )

    def granules(size: int) -> int:
        return -(-size // (2 << 20)) * 2048

    assert [
        [0, granules(4032 * 1000)],
        [0, granules(16000 * 1000 * 6)],
        [0, granules(4096 * 1024 + 2048 * 512)],
        [0, 0],
        [1, 0],
        256 * 1024,
        0,
        400,
    ] == said


def test_managed_memory_spills_to_the_host_and_is_evicted(bare: Container) -> None:
    """
    Oversubscription: 20 GiB on a device of 16 GiB. A plain allocation evicts; a prefetch brings back what fits.
    """
    said = bare.run(
        """
pointer, size = c_uint64(), 20 << 30
seen = [lib.cuMemAllocManaged(byref(pointer), c_size_t(size), 1), cuda.visible()[0]]
result, plain = cuda.allocate(4 << 30)
seen += [result, lib.fake_truth_managed(0, c_uint64(os.getpid())) >> 20, cuda.visible()[0]]
cuda.free(plain)
seen.append(cuda.visible()[0])
lib.cuMemPrefetchAsync(pointer, c_size_t(1 << 30), 0, None)
seen.append(cuda.visible()[0])
lib.cuMemPrefetchAsync(pointer, c_size_t(size), -1, None)
seen.append(cuda.visible()[0])
say([*seen, cuda.free(pointer.value), truth()])
""",
    )

    free = 16384 - 128
    assert [0, 0, 0, free - 4096, 0, 4096, 3072, free, 0, 0] == said


def test_neighbour_evicts_managed_memory(bare: Container) -> None:
    """
    What another process takes is missing afterwards, and freeing returns only the rest.
    """
    holder = bare.start(
        """
first, second = c_uint64(), c_uint64()
for pointer in (first, second):
    lib.cuMemAllocManaged(byref(pointer), c_size_t(6 << 30), 1)
say(lib.fake_truth_managed(0, c_uint64(os.getpid())) >> 20)
wait()
seen = [lib.fake_truth_managed(0, c_uint64(os.getpid())) >> 20]
cuda.free(first.value)
cuda.free(second.value)
say([*seen, lib.fake_truth_managed(0, c_uint64(os.getpid()))])
""",
    )
    assert holder.stdout is not None
    before = json.loads(holder.stdout.readline())
    neighbour = bare.run("say(cuda.allocate(8 << 30)[0])")
    output, _ = holder.communicate("\n", timeout=20)

    assert [12288, 0] == [before, neighbour]
    assert [16384 - 256 - 8192, 0] == json.loads(output)


def test_nvml_reports_the_truth_by_process(bare: Container) -> None:
    """
    NVML's used memory of a pid equals the oracle's.
    """
    said = bare.run(
        """
import pynvml as n
n.nvmlInit()
cuda.allocate(7 * MIB)
lib.cuMemAllocAsync(byref(c_uint64()), c_size_t(MIB), None)
vmm(4 * MIB)
device = n.nvmlDeviceGetHandleByUUID("GPU")
used = {p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(device)}
say([used == {os.getpid(): lib.fake_truth_memory(0, c_uint64(os.getpid()))}, truth()])
""".replace('"GPU"', f'"{GPU_A}"'),
    )

    assert [True, (8 + 32 + 4) * 1024] == said


def test_killed_process_leaves_nothing(bare: Container) -> None:
    """
    What a process had, including exported blocks, is free when it is dead.
    """
    victim = bare.start(
        """
file = c_int()
lib.cuMemExportToShareableHandle(byref(file), vmm(20 * MIB), 1, c_uint64(0))
cuda.allocate(50 * MIB)
lib.cuMemAllocAsync(byref(c_uint64()), c_size_t(MIB), None)
say(truth())
wait()
""",
    )
    assert victim.stdout is not None
    taken = json.loads(victim.stdout.readline())
    victim.kill()
    assert -9 == victim.wait(timeout=20)

    assert (20 + 50 + 32) * 1024 == taken
    assert 0 == bare.run("say(truth())")
