"""
Memory other than plain allocations: pools, graphs, arrays and shared memory cost what the driver keeps for them.
"""

from containers import Container

POOLS = """
cuda = Cuda()
lib, seen = cuda.library, []
def used():
    return 1000 - cuda.visible()[0]
def note(result=0):
    seen.append([result, used()])
def take(size, pool=None):
    pointer = c_uint64()
    arguments = [byref(pointer), c_size_t(size)] + ([pool] if pool else [])
    call = lib.cuMemAllocFromPoolAsync if pool else lib.cuMemAllocAsync
    return call(*arguments, None), pointer
class Properties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("id", c_int), ("security", c_void_p),
                ("most", c_size_t), ("rest", c_uint64 * 7)]
def a_pool(keep=True):
    pool = c_void_p()
    lib.cuMemPoolCreate(byref(pool), byref(Properties(1, 0, 1, 0)))
    if keep:
        lib.cuMemPoolSetAttribute(pool, 4, byref(c_uint64(2**64 - 1)))
    return pool
"""
GRAPHS = (
    POOLS
    + """
class Node(ctypes.Structure):
    _fields_ = [("pool", Properties), ("access", c_void_p), ("count", c_size_t), ("bytes", c_size_t),
                ("pointer", c_uint64)]
def a_graph(size):
    graph, node, executable = c_void_p(), c_void_p(), c_void_p()
    lib.cuGraphCreate(byref(graph), 0)
    params = Node(Properties(1, 0, 1, 0), None, 0, size, 0)
    lib.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), byref(params))
    lib.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
    return executable, c_uint64(params.pointer)
"""
)


def test_pool_costs_what_it_has_reserved(container: Container) -> None:
    """
    The driver's pool grows by 32 MiB. What is freed into it stays charged until a synchronisation gives it back.
    """
    results = container.run(
        POOLS
        + """
first, one = take(1)
note(first)
second, two = take(40 * MIB)
note(second)
note(lib.cuMemFreeAsync(one, None))
note(lib.cuMemFreeAsync(two, None))
note(lib.cuCtxSynchronize())
say(seen)
"""
    )

    assert [[0, 32], [0, 64], [0, 64], [0, 64], [0, 0]] == results


def test_threads_that_take_from_a_pool_together_get_what_fits(container: Container) -> None:
    """
    While eight threads are in the driver it is unknown what the pool will have reserved. None is refused because of
    that, and what is left is refused as before.
    """
    results, after, most = container.run(
        POOLS
        + """
import threading
gate, results = threading.Barrier(8), []
def work():
    cuda.use(0)
    gate.wait()
    results.append(take(124 * MIB)[0])
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
note(take(32 * MIB)[0])
lib.fake_truth_memory_peak.restype = c_uint64
say([results, seen, lib.fake_truth_memory_peak(0) // MIB])
""",
        FAKE_DRIVER_FAULTS="cuMemAllocFromPoolAsync:*:SLEEP_20",
    )

    assert [0] * 8 == results
    assert [[2, 992]] == after
    assert most == 992


def test_pool_that_keeps_its_memory_is_charged_until_it_is_trimmed(container: Container) -> None:
    """
    A release threshold keeps memory over synchronisations. A trim and the pool's end give it back.
    """
    results = container.run(
        POOLS
        + """
pool = a_pool()
result, pointer = take(100 * MIB, pool)
note(result)
note(lib.cuMemFreeAsync(pointer, None))
note(lib.cuStreamSynchronize(None))
note(lib.cuMemPoolTrimTo(pool, c_size_t(32 * MIB)))
take(10 * MIB, pool)
note(lib.cuMemPoolDestroy(pool))
say(seen)
"""
    )

    assert [[0, 128], [0, 128], [0, 128], [0, 32], [0, 32]] == results


def test_pool_that_has_no_room_for_a_whole_step_does_not_grow(container: Container) -> None:
    """
    What a pool would reserve is charged before the driver is asked, so the device never has more than the limit in use.
    """
    results = container.run(
        POOLS
        + """
lib.fake_truth_memory_peak.restype = c_uint64
_, plain = cuda.allocate(970 * MIB)
seen.append(take(1)[0])
cuda.free(plain)
cuda.allocate(968 * MIB)
seen.append(take(1)[0])
say([*seen, lib.fake_truth_memory_peak(0) // MIB])
"""
    )

    assert [2, 0, 1000] == results


def test_destroyed_pool_is_charged_until_its_last_allocation_is_freed(container: Container) -> None:
    """
    cuMemPoolDestroy ends the handle but not the allocations.
    """
    results = container.run(
        POOLS
        + """
pool = a_pool()
_, one = take(10 * MIB, pool)
_, two = take(10 * MIB, pool)
note(lib.cuMemPoolDestroy(pool))
note(lib.cuMemFree_v2(one))
note(lib.cuMemFree_v2(two))
say(seen)
"""
    )

    assert [[0, 32], [0, 32], [0, 0]] == results


def test_what_pools_keep_unused_is_given_up_before_anything_is_refused(container: Container) -> None:
    """
    A plain allocation and one from another pool both get the memory that a pool does not use.
    """
    results = container.run(
        POOLS
        + """
pool, other = a_pool(), a_pool()
_, pointer = take(900 * MIB, pool)
note(cuda.allocate(500 * MIB)[0])
lib.cuMemFreeAsync(pointer, None)
result, plain = cuda.allocate(500 * MIB)
note(result)
cuda.free(plain)
_, pointer = take(900 * MIB, pool)
lib.cuMemFreeAsync(pointer, None)
note(take(800 * MIB, other)[0])
say(seen)
"""
    )

    assert [[2, 928], [0, 500], [0, 800]] == results


def test_pool_cannot_grow_beyond_the_limit(container: Container) -> None:
    """
    If the driver reserves more than was requested, nothing stays that passes the limit.
    """
    results = container.run(
        POOLS
        + """
cuda.allocate(980 * MIB)
note(take(MIB)[0])
note(take(30 * MIB)[0])
say(seen)
"""
    )

    assert [[2, 980], [2, 980]] == results


def test_pool_of_another_device_is_charged_there(container: Container) -> None:
    """
    The pool's device is charged, not the current context's.
    """
    results = container.run(
        POOLS
        + """
pool = c_void_p()
lib.cuDeviceGetDefaultMemPool(byref(pool), 1)
take(10 * MIB, pool)
note()
cuda.use(1)
note()
say(seen)
"""
    )

    assert [[0, 0], [0, 32]] == results


def test_graph_costs_what_the_driver_keeps_for_it(container: Container) -> None:
    """
    The first launch takes a graph's memory. It stays taken until a trim, even after a free.
    """
    results = container.run(
        GRAPHS
        + """
executable, pointer = a_graph(100 * MIB)
note()
note(lib.cuGraphLaunch(executable, None))
note(lib.cuMemFreeAsync(pointer, None))
note(lib.cuGraphLaunch(executable, None))
lib.cuMemFreeAsync(pointer, None)
note(lib.cuDeviceGraphMemTrim(0))
say(seen)
"""
    )

    assert [[0, 0], [0, 128], [0, 128], [0, 128], [0, 0]] == results


def test_graph_that_does_not_fit_is_not_launched(container: Container) -> None:
    """
    The launch fails with CUDA_ERROR_OUT_OF_MEMORY, and succeeds when there is room.
    """
    results = container.run(
        GRAPHS
        + """
executable, _ = a_graph(500 * MIB)
_, pointer = cuda.allocate(600 * MIB)
note(lib.cuGraphLaunch(executable, None))
cuda.free(pointer)
note(lib.cuGraphLaunch(executable, None))
say(seen)
"""
    )

    assert [[2, 600], [0, 512]] == results


def test_allocation_in_a_captured_stream_is_the_graphs(container: Container) -> None:
    """
    Nothing is taken while a stream is captured. The launch of the graph takes it.
    """
    results = container.run(
        GRAPHS
        + """
stream, graph, executable = c_void_p(), c_void_p(), c_void_p()
lib.cuStreamCreate(byref(stream), 1)
lib.cuStreamBeginCapture_v2(stream, 0)
pointer = c_uint64()
note(lib.cuMemAllocAsync(byref(pointer), c_size_t(50 * MIB), stream))
lib.cuStreamEndCapture(stream, byref(graph))
lib.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
note(lib.cuGraphLaunch(executable, stream))
say(seen)
"""
    )

    assert [[0, 0], [0, 64]] == results


def test_arrays_cost_their_tiles(container: Container) -> None:
    """
    Rows are rounded up to 64 bytes and 8 rows, for each layer and level. Sparse arrays have no memory.
    """
    results = container.run("""
cuda = Cuda()
lib, seen = cuda.library, []
class Array(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
                ("flags", c_uint)]
class Flat(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]
def note(result):
    seen.append([result, 1000 - cuda.visible()[0]])
flat, deep, levels, sparse = c_void_p(), c_void_p(), c_void_p(), c_void_p()
note(lib.cuArrayCreate_v2(byref(flat), byref(Flat(1 << 10, 1 << 10, 0x20, 1))))
note(lib.cuArray3DCreate_v2(byref(deep), byref(Array(1 << 10, (1 << 10) - 7, 3, 0x20, 1, 0))))
note(lib.cuMipmappedArrayCreate(byref(levels), byref(Array(1 << 10, 1 << 10, 0, 0x20, 4, 0)), 11))
note(lib.cuArray3DCreate_v2(byref(sparse), byref(Array(1 << 14, 1 << 14, 0, 0x20, 4, 0x40))))
huge = c_void_p()
note(lib.cuArray3DCreate_v2(byref(huge), byref(Array(1 << 16, 1 << 16, 16, 0x20, 4, 0))))
note(lib.cuArrayDestroy(flat))
note(lib.cuArrayDestroy(deep))
note(lib.cuMipmappedArrayDestroy(levels))
say(seen)
""")

    assert [[0, 4], [0, 16], [0, 38], [0, 38], [2, 38], [0, 34], [0, 22], [0, 0]] == results


def test_memory_that_is_bound_to_a_multicast_object_costs_until_it_is_unbound(container: Container) -> None:
    """
    The driver keeps it although its handle is released, until it is unbound or the object ends.
    """
    results = container.run(
        POOLS
        + """
class Object(ctypes.Structure):
    _fields_ = [("devices", c_uint), ("bytes", c_size_t), ("types", c_uint64), ("flags", c_uint64)]
lib.fake_truth_memory.restype = c_uint64
def seen_in_truth(result=0):
    seen.append([result, used(), lib.fake_truth_memory(0, c_uint64(os.getpid())) // MIB])
def physical(mib):
    handle = c_uint64()
    return lib.cuMemCreate(byref(handle), c_size_t(mib * MIB), byref(Properties(1, 0, 1, 0)), c_uint64(0)), handle
shared, zero = c_uint64(), c_uint64(0)
lib.cuMulticastCreate(byref(shared), byref(Object(1, 1000 * MIB, 0, 0)))
lib.cuMulticastAddDevice(shared, 0)
for place in range(3):
    result, memory = physical(300)
    bound = lib.cuMulticastBindMem(shared, c_size_t(place * 300 * MIB), memory, zero, c_size_t(300 * MIB), zero)
    lib.cuMemRelease(memory)
    seen_in_truth(result + bound)
seen_in_truth(physical(300)[0])
seen_in_truth(lib.cuMulticastUnbind(shared, 0, c_size_t(300 * MIB), c_size_t(300 * MIB)))
address, memory = c_uint64(), physical(200)[1]
lib.cuMemAddressReserve(byref(address), c_size_t(200 * MIB), zero, zero, zero)
lib.cuMemMap(address, c_size_t(200 * MIB), zero, memory, zero)
bound = lib.cuMulticastBindAddr_v2(shared, 0, c_size_t(900 * MIB), address, c_size_t(200 * MIB), zero)
lib.cuMemUnmap(address, c_size_t(200 * MIB))
lib.cuMemRelease(memory)
seen_in_truth(bound)
seen_in_truth(lib.cuMemRelease(shared))
say(seen)
"""
    )

    assert [[0, mib, mib] for mib in (300, 600, 900)] == results[:3]
    assert [[2, 900, 900], [0, 600, 600], [0, 800, 800], [0, 0, 0]] == results[3:]


def test_shared_memory_costs_its_maker(container: Container) -> None:
    """
    A process that opens another one's memory is not charged for it, with CUDA IPC or a file descriptor.
    """
    maker = container.start("""
import base64
cuda = Cuda()
_, pointer = cuda.allocate(300 * MIB)
handle = (c_uint64 * 8)()
cuda.library.cuIpcGetMemHandle(handle, c_uint64(pointer))
say(base64.b64encode(bytes(handle)).decode())
wait()
""")
    assert maker.stdout is not None
    handle = maker.stdout.readline().strip().strip('"')
    results = container.run(f"""
import base64
cuda = Cuda()
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
handle = Handle.from_buffer_copy(base64.b64decode("{handle}"))
pointer, seen = c_uint64(), [cuda.visible()[0]]
seen.append(cuda.library.cuIpcOpenMemHandle_v2(byref(pointer), handle, 1))
seen.append(cuda.visible()[0])
seen.append(cuda.library.cuIpcCloseMemHandle(pointer))
seen.append(cuda.visible()[0])
say(seen)
""")
    maker.communicate("\n", timeout=20)

    assert [700, 0, 700, 0, 700] == results


def test_own_export_is_the_same_memory_again(container: Container) -> None:
    """
    A handle that a process exported and imports itself is charged once, until both are released.
    """
    results = container.run(
        POOLS
        + """
class Allocation(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("id", c_int), ("rest", c_uint64 * 2)]
handle, again, file = c_uint64(), c_uint64(), c_int()
note(lib.cuMemCreate(byref(handle), c_size_t(100 * MIB), byref(Allocation(1, 1, 1, 0)), c_uint64(0)))
lib.cuMemExportToShareableHandle(byref(file), handle, 1, c_uint64(0))
note(lib.cuMemImportFromShareableHandle(byref(again), c_void_p(file.value), 1))
note(lib.cuMemRelease(handle))
note(lib.cuMemRelease(again))
say(seen)
"""
    )

    assert [[0, 100], [0, 100], [0, 100], [0, 0]] == results
