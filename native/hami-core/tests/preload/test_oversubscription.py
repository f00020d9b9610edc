"""
CUDA_OVERSUBSCRIBE: a limit above the device's size is met with managed memory, which looks like device memory.
"""

from typing import Any

from containers import Container

PROGRAM = """
cuda = Cuda(2)
lib, seen = cuda.library, []
def managed(pointer):
    value = c_uint(7)
    result = lib.cuPointerGetAttribute(byref(value), 8, c_uint64(pointer))
    return [result, value.value]
"""


def run(container: Container, program: str) -> Any:
    """Run a program with a limit of 12000 MiB on a device of 8192."""
    return container.run(PROGRAM + program, CUDA_DEVICE_MEMORY_LIMIT="12000m", CUDA_OVERSUBSCRIBE="true")


def test_limit_beyond_the_device_can_be_allocated(container: Container) -> None:
    """
    On a device of 8192 MiB a limit of 12000 can be allocated, nothing more, and all of it is reported.
    """
    results = run(
        container,
        """
shown = cuda.visible()
_, first = cuda.allocate(8000 * MIB)
result, second = cuda.allocate(3000 * MIB)
seen = [shown, result, cuda.allocate(1200 * MIB)[0], cuda.visible()]
say([*seen, cuda.free(second), cuda.visible()[0], cuda.allocate(3000 * MIB)[0]])
""",
    )

    assert [[12000, 12000], 0, 2, [1000, 12000], 0, 4000, 0] == results


def test_substitute_is_told_as_device_memory(container: Container) -> None:
    """
    cuPointerGetAttribute(s) call it not managed, also inside the allocation. Memory requested as managed is managed.
    """
    results = run(
        container,
        """
cuda.allocate(8000 * MIB)
_, substitute = cuda.allocate(1000 * MIB)
asked = c_uint64()
lib.cuMemAllocManaged(byref(asked), c_size_t(2 * MIB), 1)
value = c_uint(7)
attributes, values = (c_int * 1)(8), (c_void_p * 1)(ctypes.addressof(value))
many = lib.cuPointerGetAttributes(1, attributes, values, c_uint64(substitute))
say([managed(substitute), managed(substitute + MIB), managed(asked.value), many, value.value])
""",
    )

    assert [[0, 0], [0, 0], [0, 1], 0, 0] == results


def test_pitched_and_stream_ordered_allocations_have_substitutes_too(container: Container) -> None:
    """
    Both are freed with the matching calls.
    """
    results = run(
        container,
        """
cuda.allocate(8100 * MIB)
pitch, rows, queued = c_size_t(), c_uint64(), c_uint64()
seen.append(lib.cuMemAllocPitch_v2(byref(rows), byref(pitch), c_size_t(1000), c_size_t(1 << 20), 4))
seen.append(pitch.value)
seen.append(lib.cuMemAllocAsync(byref(queued), c_size_t(1000 * MIB), None))
seen.append(cuda.visible()[0])
seen.append(lib.cuMemFreeAsync(queued, None))
seen.append(cuda.free(rows.value))
seen.append(cuda.visible()[0])
say(seen)
""",
    )

    assert [0, 1024, 0, 1876, 0, 0, 3900] == results


def test_without_the_option_a_full_card_is_full(container: Container) -> None:
    """
    The driver's error is returned, and the device's size is reported.
    """
    results = container.run(
        PROGRAM + "say([cuda.visible()[1], cuda.allocate(8000 * MIB)[0], cuda.allocate(1000 * MIB)[0]])",
        CUDA_DEVICE_MEMORY_LIMIT="12000m",
    )

    assert [8192, 0, 2] == results


def test_virtual_memory_has_no_substitute(container: Container) -> None:
    """
    cuMemCreate's physical memory cannot be managed memory: beyond the device it is refused, and costs nothing.
    """
    results = run(
        container,
        """
class Properties(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("id", c_int), ("rest", c_uint64 * 2)]
cuda.allocate(8000 * MIB)
handle = c_uint64()
result = lib.cuMemCreate(byref(handle), c_size_t(1000 * MIB), byref(Properties(1, 0, 1, 2)), c_uint64(0))
say([result, cuda.visible()[0]])
""",
    )

    assert [2, 4000] == results
