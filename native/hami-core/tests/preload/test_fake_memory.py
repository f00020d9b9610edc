"""
What each kind of memory takes on the fake driver's devices. The library's sums are compared with it.
"""

import json

import pytest
from containers import GPU_A, Container

PRELUDE = """
import socket
cuda = Cuda()
lib = cuda.library
lib.fake_truth_memory.restype = lib.fake_truth_managed.restype = c_uint64
CONTEXT = 128


def truth(pid=0):
    "KiB of device 0 beside the contexts of this process."
    return lib.fake_truth_memory(0, c_uint64(pid)) // 1024 - CONTEXT * 1024


def pool_kib(pool):
    value, found = c_uint64(), []
    for attribute in (5, 6, 7, 8):
        assert 0 == lib.cuMemPoolGetAttribute(pool, attribute, byref(value))
        found.append(value.value // 1024)
    return found


def pool_properties(handle_types=0, limit=0):
    return (c_uint64 * 11)(handle_types << 32 | 1, 1, 0, limit)


def from_pool(pool, size):
    pointer = c_uint64()
    result = lib.cuMemAllocFromPoolAsync(byref(pointer), c_size_t(size), pool, None)
    return result, pointer


def vmm(size, handle_types=1):
    handle = c_uint64()
    properties = (c_uint64 * 4)(handle_types << 32 | 1, 1)
    assert 0 == lib.cuMemCreate(byref(handle), c_size_t(size), properties, c_uint64(0))
    return handle


def reserve(size):
    pointer = c_uint64()
    assert 0 == lib.cuMemAddressReserve(byref(pointer), c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0))
    return pointer
"""


@pytest.fixture
def container(container: Container) -> Container:
    """A container whose contexts cost 128 MiB."""
    container.environment["FAKE_DRIVER_CONTEXT_MIB"] = "128"
    return container


def run(container: Container, program: str, **environment: str) -> object:
    """Return what a program reports without the library."""
    return container.run(PRELUDE + program, preload=False, **environment)


def test_small_pieces_share_granules(container: Container) -> None:
    """
    Units of 512 bytes are packed into granules of 2 MiB. 1 MiB and more is rounded up to its own granules.
    """
    said = run(
        container,
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


def test_out_of_memory_at_the_physical_limit(container: Container) -> None:
    """
    Contexts, granules and another process's memory fill the device. The last granule fits; one more is refused.
    """
    said = run(
        container,
        """
free, total = cuda.visible()
first = cuda.allocate(free * MIB)
say([free, total, first[0], cuda.allocate(1)[0], cuda.visible()[0], cuda.free(first[1]), cuda.allocate(1)[0]])
""",
        FAKE_DRIVER_CONTEXT_MIB="300",
    )

    assert [16384 - 300, 16384, 0, 2, 0, 0, 0] == said


def test_sizes_without_sense_are_out_of_memory(container: Container) -> None:
    """
    Sizes beyond any device, up to the largest number, are refused and leave nothing.
    """
    said = run(
        container,
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


def test_each_context_and_module_costs(container: Container) -> None:
    """
    A second context takes as much as the first; a module and a larger heap take their size. Its end frees all of it.
    """
    said = run(
        container,
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


def test_many_small_modules_end_with_their_context(container: Container) -> None:
    """
    200 modules of 16 KiB are packed like other small pieces, and freed with their context.
    """
    said = run(
        container,
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


def test_pitch_is_a_multiple_of_512_bytes(container: Container) -> None:
    """
    100 rows of 1000 bytes take 100 times 1024. An element size that no GPU has is refused.
    """
    said = run(
        container,
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


def test_pool_reserves_blocks_and_returns_them_when_synchronised(container: Container) -> None:
    """
    [reserved, its maximum, used, its maximum] in KiB: a free keeps the reservation until the next synchronisation.
    """
    said = run(
        container,
        """
pool = c_void_p()
lib.cuDeviceGetDefaultMemPool(byref(pool), 0)
pointers = [c_uint64() for _ in range(2)]
for pointer in pointers:
    lib.cuMemAllocAsync(byref(pointer), c_size_t(20 * MIB), None)
seen = [pool_kib(pool), truth()]
lib.cuMemFreeAsync(pointers[0], None)
seen += [pool_kib(pool), truth()]
lib.cuStreamSynchronize(None)
seen += [pool_kib(pool), truth()]
lib.cuMemFree_v2(pointers[1])
lib.cuMemPoolSetAttribute(pool, 6, byref(c_uint64(0)))
say([*seen, pool_kib(pool), truth()])
""",
    )

    mib = 1024
    assert [
        [64 * mib, 64 * mib, 40 * mib, 40 * mib],
        64 * mib,
        [64 * mib, 64 * mib, 20 * mib, 40 * mib],
        64 * mib,
        [32 * mib, 64 * mib, 20 * mib, 40 * mib],
        32 * mib,
        [0, 0, 0, 40 * mib],
        0,
    ] == said


def test_pool_keeps_up_to_its_threshold_until_trimmed(container: Container) -> None:
    """
    With a threshold of 64 MiB a synchronisation keeps 64 MiB, a trim to 10 MiB keeps one block, a trim to 0 none.
    """
    said = run(
        container,
        """
pool, properties = c_void_p(), pool_properties()
lib.cuMemPoolCreate(byref(pool), properties)
lib.cuMemPoolSetAttribute(pool, 4, byref(c_uint64(64 * MIB)))
result, pointer = from_pool(pool, 100 * MIB)
lib.cuMemFreeAsync(pointer, None)
lib.cuCtxSynchronize()
seen = [result, truth()]
for keep in (10 * MIB, 0):
    lib.cuMemPoolTrimTo(pool, c_size_t(keep))
    seen.append(truth())
say(seen)
""",
        FAKE_DRIVER_POOL_GROWTH_MIB="16",
    )

    assert [0, 64 * 1024, 16 * 1024, 0] == said


def test_destroyed_pool_lives_on_in_its_allocations(container: Container) -> None:
    """
    Destroying frees what is unused; the rest goes with the last allocation. A default pool cannot be destroyed.
    """
    said = run(
        container,
        """
pool, default, current = c_void_p(), c_void_p(), c_void_p()
lib.cuMemPoolCreate(byref(pool), pool_properties())
lib.cuDeviceGetDefaultMemPool(byref(default), 0)
lib.cuDeviceSetMemPool(0, pool)
pointer = c_uint64()
lib.cuMemAllocAsync(byref(pointer), c_size_t(MIB), None)
seen = [pool_kib(pool)[2]]
seen += [lib.cuMemPoolDestroy(pool), truth()]
lib.cuDeviceGetMemPool(byref(current), 0)
seen += [current.value == default.value, lib.cuMemFreeAsync(pointer, None), truth(), lib.cuMemPoolDestroy(default)]
say(seen)
""",
    )

    assert [1024, 0, 32 * 1024, True, 0, 0, 1] == said


def test_pool_refuses_beyond_its_own_limit(container: Container) -> None:
    """
    maxSize limits what is reserved.
    """
    said = run(
        container,
        """
pool = c_void_p()
lib.cuMemPoolCreate(byref(pool), pool_properties(limit=64 * MIB))
say([from_pool(pool, 40 * MIB)[0], from_pool(pool, 40 * MIB)[0], from_pool(pool, 24 * MIB)[0]])
""",
    )

    assert [0, 2, 0] == said


def test_vmm_memory_lives_until_its_last_handle_and_mapping(container: Container) -> None:
    """
    Released while mapped it stays. A handle retained from the mapping keeps it. Two mappings of one handle count once.
    """
    said = run(
        container,
        """
handle, retained, place = vmm(20 * MIB), c_uint64(), reserve(60 * MIB)
seen = [truth()]
lib.cuMemMap(place, c_size_t(20 * MIB), c_size_t(0), handle, c_uint64(0))
lib.cuMemMap(c_uint64(place.value + 20 * MIB), c_size_t(10 * MIB), c_size_t(10 * MIB), handle, c_uint64(0))
seen += [truth(), lib.cuMemRelease(handle), truth()]
lib.cuMemRetainAllocationHandle(byref(retained), c_void_p(place.value + MIB))
seen += [lib.cuMemUnmap(place, c_size_t(10 * MIB)), lib.cuMemUnmap(place, c_size_t(30 * MIB)), truth()]
say([*seen, lib.cuMemRelease(retained), truth(), lib.cuMemRelease(retained)])
""",
    )

    assert [20480, 20480, 0, 20480, 1, 0, 20480, 0, 0, 1] == said


def test_exported_memory_is_charged_once_and_outlives_its_maker(container: Container) -> None:
    """
    The importer is charged when the maker is killed. An open file alone keeps the memory; its last close frees it.
    """
    meeting = str(container.folder / "meeting")
    importer = container.start(
        PRELUDE
        + """
listener = socket.create_server(MEETING, family=socket.AF_UNIX)
say("listening")
file = socket.recv_fds(listener.accept()[0], 1, 1)[1][0]
handle, again = c_uint64(), c_uint64()
results = [lib.cuMemImportFromShareableHandle(byref(each), c_void_p(file), 1) for each in (handle, again)]
say([results, handle.value == again.value, truth() - CONTEXT * 1024, truth(os.getpid())])
wait()
seen = [truth(), truth(os.getpid())]
lib.cuMemRelease(handle)
lib.cuMemRelease(again)
seen += [truth(), truth(os.getpid())]
os.close(file)
say([*seen, truth()])
""".replace("MEETING", repr(meeting)),
        preload=False,
    )
    assert importer.stdout is not None
    importer.stdout.readline()
    maker = container.start(
        PRELUDE
        + """
file, peer = c_int(), socket.socket(socket.AF_UNIX)
lib.cuMemExportToShareableHandle(byref(file), vmm(20 * MIB), 1, c_uint64(0))
peer.connect(MEETING)
socket.send_fds(peer, [b"x"], [file.value])
wait()
""".replace("MEETING", repr(meeting)),
        preload=False,
    )
    imported = json.loads(importer.stdout.readline())
    maker.kill()
    maker.wait(timeout=20)
    last, _ = importer.communicate("\n", timeout=20)

    assert [[0, 0], True, 20480, 0] == imported
    assert [20480, 20480, 20480, 0, 0] == json.loads(last)


def test_ipc_memory_is_charged_once(container: Container) -> None:
    """
    Opened twice it has one address. The memory outlives its maker's free until the last close. Its maker cannot open
    it.
    """
    maker = container.start(
        PRELUDE
        + """
pointer = cuda.allocate(10 * MIB)[1]
handle, other = ctypes.create_string_buffer(64), c_uint64()
lib.cuIpcGetMemHandle(handle, c_uint64(pointer + MIB))
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
refused = lib.cuIpcOpenMemHandle_v2(byref(other), Handle.from_buffer(handle), 1)
say([handle.raw.hex(), refused])
wait()
cuda.free(pointer)
say(truth(os.getpid()))
wait()
""",
        preload=False,
    )
    assert maker.stdin is not None
    assert maker.stdout is not None
    handle, refused = json.loads(maker.stdout.readline())
    opener = container.start(
        PRELUDE
        + f"""
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
handle = Handle.from_buffer_copy(bytes.fromhex("{handle}"))
first, second = c_uint64(), c_uint64()
results = [lib.cuIpcOpenMemHandle_v2(byref(pointer), handle, 1) for pointer in (first, second)]
say([results, first.value == second.value, truth() - CONTEXT * 1024, truth(os.getpid())])
wait()
seen = [truth(os.getpid())]
for _ in range(3):
    results.append(lib.cuIpcCloseMemHandle(first))
say([*seen, results[2:], truth(os.getpid())])
""",
        preload=False,
    )
    assert opener.stdout is not None
    opened = json.loads(opener.stdout.readline())
    maker.stdin.write("\n")
    maker.stdin.flush()
    left = json.loads(maker.stdout.readline())
    last, _ = opener.communicate("\n", timeout=20)
    maker.communicate("\n", timeout=20)

    assert 201 == refused
    assert [[0, 0], True, 10240, 0] == opened
    assert 0 == left
    assert [10240, [0, 0, 1], 0] == json.loads(last)


def test_arrays_cost_whole_tiles(container: Container) -> None:
    """
    2D: 100 rows of 4000 bytes take 104 rows of 4032. Layers and levels add up. A sparse array has no memory.
    """
    said = run(
        container,
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


def test_managed_memory_spills_to_the_host_and_is_evicted(container: Container) -> None:
    """
    Oversubscription: 20 GiB on a device of 16 GiB. A plain allocation evicts; a prefetch brings back what fits.
    """
    said = run(
        container,
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


def test_neighbour_evicts_managed_memory(container: Container) -> None:
    """
    What another process takes is missing afterwards, and freeing returns only the rest.
    """
    holder = container.start(
        PRELUDE
        + """
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
        preload=False,
    )
    assert holder.stdout is not None
    before = json.loads(holder.stdout.readline())
    neighbour = run(container, "say(cuda.allocate(8 << 30)[0])")
    output, _ = holder.communicate("\n", timeout=20)

    assert [12288, 0] == [before, neighbour]
    assert [16384 - 256 - 8192, 0] == json.loads(output)


def test_graph_memory_stays_until_trimmed(container: Container) -> None:
    """
    Taken at the first launch, kept by the device's graph pool after the node that frees it, returned by a trim.
    """
    said = run(
        container,
        """
graph, executable, node = c_void_p(), c_void_p(), c_void_p()
lib.cuGraphCreate(byref(graph), 0)
params = (c_uint64 * 15)()
params[0], params[1], params[13] = 1, 1, 40 * MIB
results = [lib.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), params)]
results.append(lib.cuGraphAddMemFreeNode(byref(node), graph, None, c_size_t(0), c_uint64(params[14])))
results.append(lib.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
seen = [truth()]
results += [lib.cuGraphLaunch(executable, None) for _ in range(2)]
lib.cuCtxSynchronize()
seen.append(truth())
value = c_uint64()
for attribute in (0, 1, 2, 3):
    lib.cuDeviceGetGraphMemAttribute(0, attribute, byref(value))
    seen.append(value.value // 1024)
results.append(lib.cuDeviceGraphMemTrim(0))
say([results, seen, truth()])
""",
    )

    mib = 1024
    assert [[0] * 6, [0, 64 * mib, 0, 40 * mib, 64 * mib, 64 * mib], 0] == said


def test_captured_allocation_outlives_the_launch_until_it_is_freed(container: Container) -> None:
    """
    Capturing takes nothing. A second launch without a free is refused, unless the graph is told to free first.
    """
    said = run(
        container,
        """
stream, graph, strict, lax, pointer = (c_void_p(), c_void_p(), c_void_p(), c_void_p(), c_uint64())
lib.cuStreamCreate(byref(stream), 0)
lib.cuStreamBeginCapture_v2(stream, 0)
lib.cuMemAllocAsync(byref(pointer), c_size_t(10 * MIB), stream)
lib.cuStreamEndCapture(stream, byref(graph))
lib.cuGraphInstantiateWithFlags(byref(strict), graph, c_uint64(0))
lib.cuGraphInstantiateWithFlags(byref(lax), graph, c_uint64(1))
seen = [truth(), lib.cuGraphLaunch(strict, stream), truth()]
seen += [lib.cuGraphLaunch(each, stream) for each in (strict, lax)]
seen += [lib.cuMemFreeAsync(pointer, stream), lib.cuMemFreeAsync(pointer, stream)]
lib.cuDeviceGraphMemTrim(0)
say([*seen, truth()])
""",
    )

    assert [0, 0, 32 * 1024, 1, 0, 0, 1, 0] == said


def test_nvml_reports_the_truth_by_process(container: Container) -> None:
    """
    NVML's used memory of a pid equals the oracle's.
    """
    said = run(
        container,
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


def test_killed_process_leaves_nothing(container: Container) -> None:
    """
    What a process had, including exported blocks, is free when it is dead.
    """
    victim = container.start(
        PRELUDE
        + """
file = c_int()
lib.cuMemExportToShareableHandle(byref(file), vmm(20 * MIB), 1, c_uint64(0))
cuda.allocate(50 * MIB)
lib.cuMemAllocAsync(byref(c_uint64()), c_size_t(MIB), None)
say(truth())
wait()
""",
        preload=False,
    )
    assert victim.stdout is not None
    taken = json.loads(victim.stdout.readline())
    victim.kill()
    assert -9 == victim.wait(timeout=20)

    assert (20 + 50 + 32) * 1024 == taken
    assert 0 == run(container, "say(truth())")
