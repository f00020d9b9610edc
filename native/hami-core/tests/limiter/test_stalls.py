"""
What a launch never waits for, or not for long: the rules of `src/time/README.md`, one process each.
"""

import pytest
from containers import Container
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
