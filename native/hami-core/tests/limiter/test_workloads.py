"""
Programs of kinds that users report: a small load of requests, ranks that wait for each other, and cards with many SMs.

Others are in `test_stalls` (persistent kernels, host functions) and `test_slow_driver`.
"""

import json
import math

import pytest
from containers import Container
from virtual import not_under_tsan

pytestmark = not_under_tsan

REQUESTS = 300
INFERENCE = """
import time
cuda = Cuda()
lib = cuda.library
def kernel(name):
    module, function = c_void_p(), c_void_p()
    lib.cuModuleLoadData(byref(module), b"kernels")
    assert 0 == lib.cuModuleGetFunction(byref(function), module, name)
    return function
kernels = [kernel(name) for name in NAMES for _ in range(COUNT)]
def request():
    began = time.monotonic()
    for each in kernels:
        assert 0 == lib.cuLaunchKernel(each, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    lib.cuCtxSynchronize()
    return round((time.monotonic() - began) * 1e6)
for _ in range(20):
    request()
    time.sleep(0.3)
latencies = []
for _ in range(REQUESTS):
    latencies.append(request())
    time.sleep(PERIOD - latencies[-1] / 1e6)
say(latencies)
"""
"""Requests of some kernels each, which keep a device busy for a twentieth of the time."""


def p99(latencies: list[int]) -> int:
    """Return the 99th percentile."""
    return sorted(latencies)[math.ceil(0.99 * len(latencies)) - 1]


@pytest.mark.parametrize("limit", [10, 50])
@pytest.mark.parametrize(
    ("names", "count", "longest_us"),
    [((b"busy_1000",), 5, 1000), ((b"busy_20", b"busy_100", b"busy_380"), 10, 380), ((b"busy_20000",), 1, 20000)],
    ids=["equal", "mixed", "long"],
)
def test_load_of_a_twentieth_is_answered_as_fast_as_without_a_limit(
    limited: Container, names: tuple[bytes, ...], count: int, longest_us: int, limit: int
) -> None:
    """Of 300 requests at most three take longer than that by more than one kernel."""
    work_us = sum(int(name.split(b"_")[1]) for name in names) * count
    variables = f"NAMES, COUNT, REQUESTS, PERIOD = {names!r}, {count}, {REQUESTS}, {work_us / 1e6 / 0.05}\n"
    free = limited.run(variables + INFERENCE, CUDA_DEVICE_SM_LIMIT="100")
    held = limited.run(variables + INFERENCE, CUDA_DEVICE_SM_LIMIT=str(limit))

    assert p99(held) <= p99(free) + longest_us


RANKS = """
import threading, time
RANK, STEPS = {rank}, 200
cuda = Cuda(RANK)
lib = cuda.library
mine, other = (os.path.join({folder!r}, f"rank-{{rank}}") for rank in (RANK, 1 - RANK))
arrived = 0
def steps_of(path):
    return os.path.getsize(path) if os.path.exists(path) else 0
@ctypes.CFUNCTYPE(None, c_void_p)
def meet(_):
    global arrived
    arrived += 1
    with open(mine, "a") as file:
        file.write(".")
    while steps_of(other) < arrived:
        time.sleep(0.0005)
began = time.monotonic()
kernel, stream = cuda.kernel(1000), c_void_p()
assert 0 == lib.cuStreamCreate(byref(stream), 1)
for _ in range(STEPS):
    assert 0 == lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
    assert 0 == lib.cuLaunchHostFunc(stream, meet, None)
assert 0 == lib.cuStreamSynchronize(stream)
say(time.monotonic() - began)
"""
"""A rank on a device: after each kernel its stream waits until the other one is there, too."""


@pytest.mark.parametrize("limits", [("50", "50"), ("20", "80")], ids=["alike", "unlike"])
def test_ranks_that_wait_for_each_other_get_the_smaller_share(limited: Container, limits: tuple[str, str]) -> None:
    """
    Two processes with a device each, as with tensor parallelism: 200 ms of work in step takes its time at the limit.

    Neither launches less than it may because the other one is waited for.
    """
    limited.environment |= {f"CUDA_DEVICE_SM_LIMIT_{rank}": limit for rank, limit in enumerate(limits)}
    ranks = [
        limited.start(
            RANKS.format(rank=rank, folder=str(limited.folder)),
            FAKE_TIME="virtual:2",
            FAKE_TIME_RANK=str(rank),
        )
        for rank in (0, 1)
    ]
    outcomes = [rank.communicate(timeout=120) for rank in ranks]
    longest = max(json.loads(output.splitlines()[-1]) for output, _ in outcomes)

    assert ["", ""] == [errors for _, errors in outcomes]
    least = 0.2 * 100 / int(min(limits, key=int))
    assert least - 0.6 <= longest <= 1.25 * least + 0.3


SMS = """
attribute = c_int()
cuda = Cuda()
lib, kernel = cuda.library, cuda.kernel(1000)
calls = lib.fake_calls
calls.restype = c_uint64
assert 0 == lib.cuDeviceGetAttribute(byref(attribute), 16, 0)
import time
began = time.monotonic()
for blocks in (1, 188, 188 * 8, 2**31 - 1) * 250:
    assert 0 == lib.cuLaunchKernel(kernel, blocks, 1, 1, 1024, 1, 1, 0, None, None, None)
lib.cuCtxSynchronize()
say([time.monotonic() - began, calls(b"cuDeviceGetAttribute")])
"""


def test_share_does_not_depend_on_how_many_sms_a_card_has(limited: Container) -> None:
    """
    A second of grids of any size takes two at half of the device, and the library does not ask how many SMs it has.

    Limiters that count blocks against the SMs of a card break where it has more than they expect, such as 188.
    """
    seconds, calls = limited.run(SMS)

    assert 1.7 <= seconds <= 2.1
    assert calls <= 1
