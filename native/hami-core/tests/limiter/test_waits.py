"""
What the library waits for is counted by reason, and said at level 2.
"""

import re
from itertools import pairwise

import pytest
from containers import Container
from virtual import not_under_tsan

from hamicommon.wire.region.layout import LAYOUT_V1_2
from hamicommon.wire.region.records import WaitRecord, decode_waits

RECENT_KERNEL_OFFSET = 2008904
"""Source: include/hami/region.h."""

LOAD = f"""
import struct, threading, time
cuda = Cuda()
lib = cuda.library
def stream():
    made = c_void_p()
    lib.cuStreamCreate(byref(made), 1)
    return made
def launch(kernel, times=1, on=None):
    for _ in range(times):
        assert 0 == lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, None, None)
def block():
    with open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "r+b") as region:
        region.seek({RECENT_KERNEL_OFFSET})
        region.write(struct.pack("<i", -1))
"""


def waits(container: Container) -> dict[str, WaitRecord]:
    """Return what the container's processes have waited for."""
    return {record.reason: record for record in decode_waits(LAYOUT_V1_2, container.region.read_bytes())}


PROGRAMS = {
    "share": ("launch(cuda.kernel(1000), 1000)", 1000, 2000),
    "queue": ("kernel = cuda.kernel(40000); launch(kernel); time.sleep(1); launch(kernel, 3)", 10, 100),
    "cost": ("kernel = cuda.kernel(20000); launch(kernel, 2)", 10, 50),
    "priority": ("kernel = cuda.kernel(20); launch(kernel); block(); launch(kernel)", 40000, 43000),
}
"""Programs that wait for a reason, and for how many milliseconds at least and at most, all together."""


@not_under_tsan
@pytest.mark.parametrize("reason", PROGRAMS)
def test_launches_are_counted_by_what_they_wait_for(limited: Container, reason: str) -> None:
    """The longest is at least the mean, and no more than all together."""
    program, least_ms, most_ms = PROGRAMS[reason]
    limited.run(LOAD + program + "\nsay(0)", CUDA_DEVICE_SM_LIMIT="90" if reason == "queue" else "50")

    record = waits(limited)[reason]
    assert least_ms <= record.nanoseconds / 1e6 <= most_ms
    assert record.nanoseconds / record.waits <= record.longest_microseconds * 1e3 + 1000
    assert record.longest_microseconds * 1e3 <= record.nanoseconds


def test_allocation_that_waits_for_threads_of_its_pool_is_counted(container: Container) -> None:
    """One thread is in the driver with most of the limit. Another asks for as much, and waits for it."""
    program = """
lib.cuMemAllocAsync(byref(c_uint64()), c_size_t(MIB), None)
def take(result):
    lib.cuCtxSetCurrent(cuda.context)
    result.append(lib.cuMemAllocAsync(byref(c_uint64()), c_size_t(600 * MIB), None))
results = []
slow = threading.Thread(target=take, args=[results])
slow.start()
time.sleep(0.2)
take(results)
slow.join()
say(sorted(results))
"""
    results = container.run(LOAD + program, FAKE_DRIVER_FAULTS="cuMemAllocFromPoolAsync:2:SLEEP_1000")

    assert [0, 2] == results
    record = waits(container)["pool"]
    assert 1 == record.waits
    assert 100 <= record.nanoseconds / 1e6 <= 1000


@not_under_tsan
def test_waits_are_said_at_level_two_each_time_they_are_twice_as_long(limited: Container) -> None:
    """So a process says ten lines about a reason at most, however often it waits."""
    program = "launch(cuda.kernel(20)); kernel = cuda.kernel(4000000); launch(kernel); launch(kernel); launch(kernel)"
    _, errors = limited.run_and_listen(LOAD + program + "\nsay(0)", LIBCUDA_LOG_LEVEL="2")
    _, quiet = limited.run_and_listen(LOAD + program + "\nsay(0)", LIBCUDA_LOG_LEVEL="1")

    said = [int(ms) for ms in re.findall(r"device 0: waited (\d+) ms: a launch, for the container's share", errors)]
    assert "" == quiet
    assert 2 <= len(said) <= 10
    assert said[0] >= 100
    assert all(later >= 2 * earlier for earlier, later in pairwise(said))
