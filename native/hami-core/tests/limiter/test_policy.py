"""
When launches are limited, and what the limiter leaves behind: programs in virtual time, one process each.
"""

import stat

import pytest
from containers import Container
from virtual import not_under_tsan

from hamicommon.wire.region.layout import LAYOUT_V1_2
from hamicommon.wire.region.records import decode_records

pytestmark = not_under_tsan

SM_LIMIT_OFFSET, PROC_NUM_OFFSET = 1728, 2008896
SWITCH_OFFSET = PROC_NUM_OFFSET + 4
SM_UTIL_OFFSET = 1856 + 1160 + 16
"""Of the first slot and device. Source: include/hami/region.h."""

LOAD = """
import select, struct, time
def run(cuda, kernel, count):
    "Return how many virtual milliseconds so many launches and their ends take."
    began = time.monotonic()
    for _ in range(count):
        assert 0 == cuda.launch(kernel)
    cuda.library.cuCtxSynchronize()
    return round((time.monotonic() - began) * 1000)
def write(offset, form, value):
    with open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "r+b") as region:
        region.seek(offset)
        region.write(struct.pack(form, value))
def threads(expected):
    "Return how many there are, when they are as many as expected or five real seconds later: threads go when they can."
    for _ in range(500):
        if len(os.listdir("/proc/self/task")) == expected:
            break
        select.select([], [], [], 0.01)
    return len(os.listdir("/proc/self/task"))
cuda = Cuda()
kernel = cuda.kernel(1000)
"""


def waits(container: Container) -> tuple[int, float]:
    """Return how many launches have waited for the first device, and for how many seconds together."""
    records = decode_records(LAYOUT_V1_2, container.region.read_bytes(), 1)
    assert records is not None
    return records[0].waited_launches, records[0].waited_nanoseconds / 1e9


def test_two_seconds_of_work_take_four_at_half(limited: Container) -> None:
    """Two seconds of work minus the burst that a container may start with."""
    assert 3700 <= limited.run(LOAD + "say(run(cuda, kernel, 2000))") <= 4100


@pytest.mark.parametrize(
    ("policy", "switch", "is_limited"),
    [
        pytest.param("force", 0, True, id="forced"),
        pytest.param("disable", 1, False, id="disabled"),
        pytest.param("default", 1, True, id="switched on"),
        pytest.param("default", 0, False, id="alone on the device"),
    ],
)
def test_policy_decides_and_else_the_monitor(limited: Container, policy: str, switch: int, is_limited: bool) -> None:
    """GPU_CORE_UTILIZATION_POLICY takes precedence over the monitor's `utilization_switch`."""
    program = LOAD + f"write({SWITCH_OFFSET}, 'i', {switch})\nsay(run(cuda, kernel, 1000))"
    taken_ms = limited.run(program, GPU_CORE_UTILIZATION_POLICY=policy)

    assert (taken_ms > 1700) == is_limited
    assert is_limited or taken_ms <= 1010


def test_monitor_changes_the_limit_of_a_running_program(limited: Container) -> None:
    """The region's `sm_limit` and switch are read at every launch."""
    slower, unlimited = limited.run(
        LOAD
        + f"""
run(cuda, kernel, 1000)
write({SM_LIMIT_OFFSET}, 'Q', 25)
slower = run(cuda, kernel, 1000)
write({SM_LIMIT_OFFSET}, 'Q', 100)
time.sleep(1.1)
say([slower, run(cuda, kernel, 1000)])
"""
    )

    assert 3800 <= slower <= 4200
    assert unlimited <= 1010


def test_devices_are_limited_each_by_itself(limited: Container) -> None:
    """A tenth of the first and all of the second."""
    first, second = limited.run(
        LOAD
        + """
first = run(cuda, kernel, 200)
cuda.use(1)
say([first, run(cuda, cuda.kernel(1000), 200)])
""",
        CUDA_DEVICE_SM_LIMIT_0="10",
        CUDA_DEVICE_SM_LIMIT_1="100",
    )

    assert 1800 <= first <= 2100
    assert second <= 210


def test_captured_launches_neither_wait_nor_pay(limited: Container) -> None:
    """Captured work runs later. Capturing takes no time even if the bucket is overdrawn."""
    captured_ms, ended, nodes_ms = limited.run(
        LOAD
        + """
run(cuda, kernel, 1000)
stream, graph, executable = c_void_p(), c_void_p(), c_void_p()
cuda.library.cuStreamCreate(byref(stream), 1)
launch = lambda: cuda.library.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
launch()
cuda.library.cuStreamSynchronize(stream)
assert 0 == cuda.library.cuStreamBeginCapture_v2(stream, 0)
began = time.monotonic()
for _ in range(200):
    assert 0 == launch()
captured = round((time.monotonic() - began) * 1000)
ended = cuda.library.cuStreamEndCapture(stream, byref(graph))
cuda.library.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
began = time.monotonic()
for _ in range(10):
    assert 0 == cuda.library.cuGraphLaunch(executable, stream)
cuda.library.cuCtxSynchronize()
say([captured, ended, round((time.monotonic() - began) * 1000)])
"""
    )

    assert [0, 0] == [captured_ms, ended]
    assert 3500 <= nodes_ms <= 4300


def test_streams_and_contexts_may_end_at_any_time(limited: Container) -> None:
    """Launching on a new stream, ending it, ending the context and starting over: the limit holds throughout."""
    taken_ms = limited.run(
        LOAD
        + """
began = time.monotonic()
for _ in range(100):
    stream = c_void_p()
    cuda.library.cuStreamCreate(byref(stream), 1)
    for _ in range(10):
        assert 0 == cuda.library.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
    cuda.library.cuStreamSynchronize(stream)
    cuda.library.cuStreamDestroy_v2(stream)
cuda.library.cuDevicePrimaryCtxReset_v2(0)
cuda.use(0)
kernel = cuda.kernel(1000)
run(cuda, kernel, 1000)
say(round((time.monotonic() - began) * 1000))
"""
    )

    assert 3600 <= taken_ms <= 4300


@pytest.mark.parametrize("visible", ["0", "0,1"])
def test_contexts_of_a_device_share_its_limit(limited: Container, visible: str) -> None:
    """A thread that changes the context before each launch on the default stream waits as with one context."""
    taken_ms = limited.run(
        LOAD
        + """
first, second = c_void_p(), c_void_p()
cuda.library.cuCtxGetCurrent(byref(first))
assert 0 == cuda.library.cuCtxCreate_v2(byref(second), 0, 0)
kernels = {}
for context in (first, second):
    cuda.library.cuCtxSetCurrent(context)
    kernels[context.value] = cuda.kernel(20)
began = time.monotonic()
for number in range(50000):
    context = (first, second)[number % 2]
    cuda.library.cuCtxSetCurrent(context)
    assert 0 == cuda.launch(kernels[context.value])
cuda.library.cuCtxSynchronize()
say(round((time.monotonic() - began) * 1000))
""",
        CUDA_VISIBLE_DEVICES=visible,
    )

    assert 1800 <= taken_ms <= 2200


def test_release_that_is_not_the_last_forgives_nothing(limited: Container) -> None:
    """
    A program that retains and releases the primary context between launches waits as long as one that does not.
    """
    elapsed = limited.run(
        LOAD
        + """
context = c_void_p()
began = time.monotonic()
for _ in range(2000):
    cuda.launch(kernel)
    assert 0 == cuda.library.cuDevicePrimaryCtxRetain(byref(context), 0)
    assert 0 == cuda.library.cuDevicePrimaryCtxRelease_v2(0)
cuda.library.cuCtxSynchronize()
say(time.monotonic() - began)
"""
    )

    assert 3.7 < elapsed < 4.3


def test_thread_and_file_appear_with_a_limit_and_the_thread_goes_again(limited: Container) -> None:
    """An unlimited program has neither. A limited one has one thread, until it has not launched for a while."""
    program = LOAD + "run(cuda, kernel, 10)\nbusy = threads({})\ntime.sleep(3)\nsay([busy, threads(1)])"

    assert [1, 1] == limited.run(program.format(1), CUDA_DEVICE_SM_LIMIT="100")
    assert [limited.region] == list(limited.folder.glob("share.cache*"))

    assert [2, 1] == limited.run(program.format(2))
    (extension,) = set(limited.folder.glob("share.cache*")) - {limited.region}
    assert not extension.name.endswith(".cache")
    assert 0o666 == stat.S_IMODE(extension.stat().st_mode)


def test_corrupt_file_costs_a_minute_at_most(limited: Container) -> None:
    """Every word of the extension file may have any value: the limit holds again soon after."""
    limited.run(LOAD + "run(cuda, kernel, 10)\nsay(0)")
    (extension,) = set(limited.folder.glob("share.cache*")) - {limited.region}
    for byte in (b"\xff", b"\x55", b"\x01"):
        extension.write_bytes(byte * extension.stat().st_size)

        assert 1500 <= limited.run(LOAD + "run(cuda, kernel, 10)\nsay(run(cuda, kernel, 1000))") <= 62000


def test_monitor_reads_how_busy_a_process_is(limited: Container) -> None:
    """`device_util.sm_util` of the slot is the share of the device's time, and 0 when the process is idle."""
    busy, resting = limited.run(
        LOAD
        + f"""
def told():
    with open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "rb") as region:
        region.seek({SM_UTIL_OFFSET})
        return struct.unpack("Q", region.read(8))[0]
run(cuda, kernel, 2000)
busy = told()
time.sleep(3)
say([busy, told()])
"""
    )

    assert 45 <= busy <= 55
    assert 0 == resting


def test_monitor_reads_how_long_launches_waited(limited: Container) -> None:
    """A program that only launches spends its time waiting; the first 50 ms of work and the last launches need not."""
    program = LOAD + "say(run(cuda, kernel, {}) / 1000)"

    limited.run(program.format(100), CUDA_DEVICE_SM_LIMIT="100")
    assert (0, 0) == waits(limited)

    elapsed = limited.run(program.format(2000))
    launches, seconds = waits(limited)

    assert elapsed - 0.2 <= seconds <= elapsed
    assert 20 <= launches <= 2000


def test_launch_that_waits_is_counted_while_it_waits(limited: Container) -> None:
    """A thread sees its neighbour wait; a killed process leaves no such launch once its slot is free."""
    waiting = limited.run(
        LOAD
        + f"""
import threading
def waiting():
    with open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "rb") as region:
        region.seek({SM_UTIL_OFFSET} + 8)
        return struct.unpack("Q", region.read(8))[0]
context = c_void_p()
cuda.library.cuCtxGetCurrent(byref(context))
def launch():
    cuda.library.cuCtxSetCurrent(context)
    run(cuda, kernel, 3000)
thread = threading.Thread(target=launch)
thread.start()
seen = 0
while thread.is_alive():
    seen = max(seen, waiting())
    time.sleep(0.001)
say([seen, waiting()])
"""
    )

    assert [1, 0] == waiting


def test_parent_and_forked_child_both_continue(limited: Container) -> None:
    """A child of a limited process has the parent's mapping and not its thread. Both continue."""
    statuses, taken_ms = limited.run(
        LOAD
        + """
run(cuda, kernel, 100)
statuses = []
for _ in range(5):
    child = os.fork()
    if not child:
        os._exit(cuda.launch(kernel))
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
say([statuses, run(cuda, kernel, 1000)])
"""
    )

    assert [3] * 5 == statuses
    assert 1800 <= taken_ms <= 2100


def test_unreadable_extension_limits_each_process_by_itself(limited: Container) -> None:
    """If the file cannot be used, the limit still holds for each process."""
    (limited.folder / "share.cache.gputime-3").mkdir()

    assert 1700 <= limited.run(LOAD + "say(run(cuda, kernel, 1000))") <= 2100
