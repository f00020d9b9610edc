"""
What memory pools and the memory of graphs take on the fake driver's devices.
"""

from containers import Container


def test_pool_reserves_blocks_and_returns_them_when_synchronised(bare: Container) -> None:
    """
    [reserved, its maximum, used, its maximum] in KiB: a free keeps the reservation until the next synchronisation.
    """
    said = bare.run(
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


def test_pool_keeps_up_to_its_threshold_until_trimmed(bare: Container) -> None:
    """
    With a threshold of 64 MiB a synchronisation keeps 64 MiB, a trim to 10 MiB keeps one block, a trim to 0 none.
    """
    said = bare.run(
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


def test_destroyed_pool_lives_on_in_its_allocations(bare: Container) -> None:
    """
    Destroying frees what is unused; the rest goes with the last allocation. A default pool cannot be destroyed.
    """
    said = bare.run(
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


def test_pool_refuses_beyond_its_own_limit(bare: Container) -> None:
    """
    maxSize limits what is reserved.
    """
    said = bare.run(
        """
pool = c_void_p()
lib.cuMemPoolCreate(byref(pool), pool_properties(limit=64 * MIB))
say([from_pool(pool, 40 * MIB)[0], from_pool(pool, 40 * MIB)[0], from_pool(pool, 24 * MIB)[0]])
""",
    )

    assert [0, 2, 0] == said


def test_graph_memory_stays_until_trimmed(bare: Container) -> None:
    """
    Taken at the first launch, kept by the device's graph pool after the node that frees it, returned by a trim.
    """
    said = bare.run(
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


def test_captured_allocation_outlives_the_launch_until_it_is_freed(bare: Container) -> None:
    """
    Capturing takes nothing. A second launch without a free is refused, unless the graph is told to free first.
    """
    said = bare.run(
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
