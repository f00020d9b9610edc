"""
What a launch never waits for, or not for long: the rules of `src/time/README.md`, one process each.
"""

import re

import pytest
from containers import Container
from tables import cuda_rows
from virtual import not_under_tsan

pytestmark = not_under_tsan

UNKNOWN_ERROR = 999
"""CUDA_ERROR_UNKNOWN."""

LOAD = """
import time
def timed_ms(work):
    "Return the virtual milliseconds that some work takes."
    began = time.monotonic()
    work()
    return round((time.monotonic() - began) * 1000)
cuda = Cuda()
lib = cuda.library
def kernel(name):
    module, function = c_void_p(), c_void_p()
    lib.cuModuleLoadData(byref(module), b"kernels")
    lib.cuModuleGetFunction(byref(function), module, name)
    return function
def stream():
    made = c_void_p()
    lib.cuStreamCreate(byref(made), 1)
    return made
def launch(kernel, stream):
    assert 0 == lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
"""


FAULTS = ["cuEventQuery:*", "cuEventElapsedTime:*", "cuEventRecord:3", "cuCtxPushCurrent_v2:*"]


@pytest.mark.parametrize("fault", FAULTS)
def test_events_that_cannot_be_read_do_not_stop_launches(limited: Container, fault: str) -> None:
    """A kind of launch that cannot be timed is assumed to cost 1 ms, or pays 10 ms; its next launches start."""
    program = LOAD + "kernel = cuda.kernel(20)\nsay(timed_ms(lambda: [cuda.launch(kernel) for _ in range(20)]))"

    assert limited.run(program, FAKE_DRIVER_FAULTS=f"{fault}:{UNKNOWN_ERROR}") <= 1000


def test_stream_that_ends_before_its_launch_is_timed_stops_no_launch(limited: Container) -> None:
    """The next launch of the same kind is timed instead, after the advance of 10 ms is paid."""
    program = (
        LOAD
        + """
kernel = cuda.kernel(1000)
def launch_on_a_stream_that_ends():
    stream = c_void_p()
    assert 0 == lib.cuStreamCreate(byref(stream), 1)
    assert 0 == lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
    assert 0 == lib.cuStreamDestroy_v2(stream)
say(timed_ms(lambda: [launch_on_a_stream_that_ends() for _ in range(20)]))
"""
    )

    assert limited.run(program) <= 1000


BESIDE_PERSISTENT = """
short, persistent, stream, other = kernel(b"busy_1000@10"), kernel(b"busy_90000000@50"), stream(), stream()
launch(short, other)
lib.cuStreamSynchronize(other)
time.sleep(1)
launch(persistent, stream)
waits = [timed_ms(lambda: launch(short, other)) for _ in range(200)]
say([sum(waits), max(waits), lib.cuStreamQuery(stream)])
"""
"""A kernel of 1 ms that is launched 200 times beside one that does not end in that time."""


@pytest.mark.parametrize("limit", [5, 50])
@pytest.mark.parametrize("window_ms", [0, 166, 1000])
def test_launches_beside_a_persistent_kernel_wait_a_second_and_then_for_their_own_cost(
    limited: Container, limit: int, window_ms: int
) -> None:
    """A kernel that may wait for other launches is charged when it ends, and those are charged as they come."""
    total_ms, longest_ms, state = limited.run(
        LOAD + BESIDE_PERSISTENT, CUDA_DEVICE_SM_LIMIT=str(limit), FAKE_DRIVER_NVML_WINDOW_MS=str(window_ms)
    )

    assert 600 == state
    assert longest_ms <= 1100
    assert total_ms <= 1100 + 1.2 * 200 * 100 / limit


@pytest.mark.parametrize("window_ms", [0, 166])
def test_launches_beside_a_persistent_kernel_are_held_to_the_limit_on_every_stream(
    limited: Container, window_ms: int
) -> None:
    """The persistent kernel does not pay for their time, whichever of the streams the library looks at first."""
    program = """
short, persistent, streams = kernel(b"busy_1000@50"), kernel(b"busy_90000000@50"), [stream() for _ in range(12)]
launch(persistent, stream())
time.sleep(3)
say(timed_ms(lambda: [launch(short, each) for _ in range(100) for each in streams]))
"""

    assert 2000 <= limited.run(LOAD + program, FAKE_DRIVER_NVML_WINDOW_MS=str(window_ms)) <= 2600


def test_long_kernel_is_paid_for_by_the_next_program(limited: Container) -> None:
    """A kernel of 5 s ends just before its process. At half of the device, the next program waits for the other 5 s."""
    limited.run(LOAD + "cuda.launch(cuda.kernel(5000000))\nsay(lib.cuCtxSynchronize())")
    next_program = LOAD + "kernel = cuda.kernel(20)\ntime.sleep(1)\nsay(timed_ms(lambda: cuda.launch(kernel)))"

    assert 3500 <= limited.run(next_program) <= 4100


def test_long_kernels_get_their_limit(limited: Container) -> None:
    """Ten kernels of 3 s one after another take 60 s at half of the device, less the first wait."""
    program = LOAD + "kernel = cuda.kernel(3000000)\nsay(timed_ms(lambda: [cuda.launch(kernel) for _ in range(11)]))"

    assert 50000 <= limited.run(program) <= 61000


BEHIND = """
import threading
released = False
@ctypes.CFUNCTYPE(None, c_void_p)
def hold(_):
    while not released:
        time.sleep(0.001)
@ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_int, c_void_p)
def hold_stream(*_):
    hold(None)
first, second, third = stream(), stream(), stream()
short = kernel(b"busy_20@10")
def ahead(symbol, held):
    event = c_void_p()
    arguments = {"Func": [hold, None], "Func_v2": [hold, None, 0], "Callback": [hold_stream, None, 0]}
    if "Event" in symbol:
        assert 0 == lib.cuLaunchHostFunc(third, hold, None)
        assert 0 == lib.cuEventCreate(byref(event), 0) == lib.cuEventRecord(event, third)
        arguments["Event"] = [event, 0]
    kind = next(kind for kind in reversed(sorted(arguments)) if kind in symbol)
    assert 0 == getattr(lib, symbol)(held, *arguments[kind])
def persistent(held):
    launch(kernel(b"busy_20000000@50"), held)
def unknown(held):
    persistent(held)
    launch(short, held)
    time.sleep(0.01)
def release():
    global released
    released = True
    for each in (first, second, third):
        assert 0 == lib.cuStreamSynchronize(each)
"""
"""What may hold back a stream until the thread that launches on it goes on."""
AHEAD = sorted(row.symbol for row in cuda_rows() if re.search("HostFunc|AddCallback|StreamWaitEvent", row.symbol))


@pytest.mark.parametrize("symbol", AHEAD)
def test_launches_behind_what_their_thread_releases_do_not_wait(limited: Container, symbol: str) -> None:
    """600 launches of a known kernel are queued at once, also while another stream goes on."""
    program = f"""
launch(short, first)
lib.cuStreamSynchronize(first)
ahead({symbol!r}, first)
def both():
    launch(short, first)
    launch(short, second)
say(timed_ms(lambda: [both() for _ in range(600)]))
release()
"""

    assert limited.run(LOAD + BEHIND + program) <= 100


@pytest.mark.parametrize("symbol", AHEAD)
def test_kernel_whose_first_launch_is_held_back_is_launched_on_other_streams(limited: Container, symbol: str) -> None:
    """The first launch tells what the kernel costs, but it may wait for the others."""
    program = f"""
ahead({symbol!r}, first)
say([timed_ms(lambda: launch(short, each)) for each in (first, first, second, second)])
release()
"""

    assert max(limited.run(LOAD + BEHIND + program)) <= 50


def test_kernel_whose_first_launch_is_behind_another_kernel_is_launched_on_other_streams(limited: Container) -> None:
    """The kernel ahead may wait for them. Being charged while it runs, it holds them back for a second."""
    program = "unknown(first)\nsay(timed_ms(lambda: launch(short, second)))"

    assert limited.run(LOAD + BEHIND + program) <= 1100


def test_launches_behind_a_persistent_kernel_wait_a_second(limited: Container) -> None:
    """They are more than may be queued otherwise, and another stream goes on."""
    program = """
launch(short, second)
lib.cuStreamSynchronize(second)
persistent(first)
def both():
    launch(short, first)
    launch(short, second)
say(timed_ms(lambda: [both() for _ in range(600)]))
"""

    assert limited.run(LOAD + BEHIND + program) <= 1200
