"""
A call of the driver that does not return delays no launch on another device or stream.
"""

import pytest
from containers import Container
from virtual import not_under_tsan

from hamicommon.wire.region.layout import LAYOUT_V1_2
from hamicommon.wire.region.records import decode_waits

SLOW_SECONDS = 20
SYMBOLS = [
    "cuCtxPushCurrent_v2",
    "cuEventCreate",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuStreamIsCapturing",
]
"""The calls that the limiter makes itself, with the device's lock."""

PROGRAM = """
import threading, time
cuda = Cuda()
contexts, kernels = [], []
for device in (0, 1):
    cuda.use(device)
    contexts.append(cuda.context)
    kernels.append(cuda.kernel(100))
def launch(device, count):
    cuda.library.cuCtxSetCurrent(contexts[device])
    for _ in range(count):
        assert 0 == cuda.launch(kernels[device])
is_slow = cuda.library.fake_calls
is_slow.restype = c_uint64
slow = threading.Thread(target=launch, args=(0, 1000), daemon=True)
slow.start()
while not is_slow(SYMBOL):
    time.sleep(0.001)
time.sleep(0.01)
began = time.monotonic()
launch(1, 50)
took, is_stuck = time.monotonic() - began, slow.is_alive()
say([took, is_stuck])
os._exit(0)
"""
"""Launches on the first device, until its thread is in the slow call, and then on the second."""


@pytest.fixture
def limited_now(container: Container) -> Container:
    """A container with a share of 50 % of each device, in the machine's time."""
    container.environment |= {"CUDA_DEVICE_SM_LIMIT": "50", "GPU_CORE_UTILIZATION_POLICY": "force"}
    return container


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_slow_driver_call_for_one_device_delays_no_launch_on_another(limited_now: Container, symbol: str) -> None:
    """While one thread is in the call, another one launches."""
    took_seconds, is_stuck = limited_now.run(
        f"SYMBOL = b{symbol!r}\n" + PROGRAM, FAKE_DRIVER_FAULTS=f"{symbol}:1:SLEEP_{SLOW_SECONDS}000"
    )

    assert is_stuck
    assert took_seconds < SLOW_SECONDS / 2


BESIDE = """
import threading, time
cuda = Cuda()
lib, short, known = cuda.library, cuda.kernel(100), cuda.kernel(1000)
is_slow = lib.fake_calls
is_slow.restype = c_uint64
def stream():
    made = c_void_p()
    assert 0 == lib.cuStreamCreate(byref(made), 1)
    return made
def launch(kernel, on, count):
    for _ in range(count):
        assert 0 == lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, None, None)
def timed(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began
first, second, third, event = stream(), stream(), stream(), c_void_p()
assert 0 == lib.cuEventCreate(byref(event), 2)
@ctypes.CFUNCTYPE(None, c_void_p)
def nothing(_): pass
def others():
    launch(cuda.kernel(20), second, 20)
    assert 0 == lib.cuLaunchHostFunc(second, nothing, None)
    assert 0 == lib.cuStreamWaitEvent(second, event, 0)
    launch(short, third, 20)
    assert 0 == lib.cuStreamDestroy_v2(third)
    fresh = stream()
    launch(short, fresh, 20)
def in_the_driver():
    cuda.library.cuCtxSetCurrent(cuda.context)
    launch(short, first, 100000)
launch(known, second, 1)
lib.cuStreamSynchronize(second)
calls = is_slow(SYMBOL)
slow = threading.Thread(target=in_the_driver, daemon=True)
slow.start()
while is_slow(SYMBOL) < CALL:
    time.sleep(0.001)
time.sleep(0.05)
took = [timed(others), timed(lambda: launch(known, second, 1000))]
say([*took, slow.is_alive()])
os._exit(0)
"""
"""Launches on one stream, until its thread or the watcher is in the slow call, and then on other streams."""


@not_under_tsan
@pytest.mark.parametrize("symbol", SYMBOLS)
def test_slow_driver_call_for_a_stream_delays_no_launch_on_others(limited: Container, symbol: str) -> None:
    """
    They pay their estimates meanwhile: a second of work still takes two at half of the device, in virtual time.

    Who meets the lock waits for 10 ms.
    """
    calls = limited.run(f"SYMBOL, CALL = b{symbol!r}, 0\n" + BESIDE.replace("slow.start()", "say(calls); os._exit(0)"))
    took = [
        limited.run(
            f"SYMBOL, CALL = b{symbol!r}, {call}\n" + BESIDE,
            FAKE_DRIVER_FAULTS=f"{symbol}:{call}:SLEEP_{SLOW_SECONDS}000",
        )
        for call in (calls + 1, calls + 5)
    ]

    waits = decode_waits(LAYOUT_V1_2, limited.region.read_bytes())
    assert [True, True] == [is_alive for *_, is_alive in took]
    assert max(others_seconds for others_seconds, *_ in took) < 0.5
    assert [True, True] == [1.7 < work_seconds < 2.5 for _, work_seconds, _ in took], took
    assert all(record.longest_microseconds < 20_000 for record in waits if record.reason == "driver")


@not_under_tsan
def test_end_of_a_context_waits_ten_seconds_for_a_slow_driver_call(limited: Container) -> None:
    """Another context of the device is destroyed meanwhile. When the call has returned, launches are timed again."""
    program = BESIDE.replace(
        "calls = is",
        """
other = c_void_p()
assert 0 == lib.cuCtxCreate_v2(byref(other), 0, 0)
launch(short, None, 20)
lib.cuCtxSynchronize()
lib.cuCtxSetCurrent(cuda.context)
calls = is""",
    ).replace(
        "took = [",
        """
ended, is_stuck = timed(lambda: lib.cuCtxDestroy_v2(other)), slow.is_alive()
time.sleep(15)
say([ended, is_stuck, timed(lambda: launch(known, second, 1000))])
os._exit(0)
took = [""",
    )
    program = program.replace("100000)", "100)")
    calls = limited.run(
        'SYMBOL, CALL = b"cuEventRecord", 0\n' + program.replace("slow.start()", "say(calls); os._exit(0)")
    )
    ended_seconds, is_stuck, work_seconds = limited.run(
        f'SYMBOL, CALL = b"cuEventRecord", {calls + 1}\n{program}',
        FAKE_DRIVER_FAULTS=f"cuEventRecord:{calls + 1}:SLEEP_{SLOW_SECONDS}000",
    )

    assert is_stuck
    assert 9.5 <= ended_seconds <= 11
    assert 1.7 < work_seconds < 2.2


AFTERWARDS = BESIDE.split("launch(known, second, 1)", maxsplit=1)[0] + (
    """
def load(on):
    lib.cuCtxSetCurrent(cuda.context)
    for _ in range(COUNT):
        launch(known, on, 1)
began = time.monotonic()
threads = [threading.Thread(target=load, args=[on]) for on in (first, second)]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    time.sleep(0.01)
launch(known, first, 500)
say([is_slow(SYMBOL), time.monotonic() - began])
os._exit(0)
"""
)
"""Launches from two threads on two streams, in one of which a call is slow, and then from one."""


@not_under_tsan
@pytest.mark.parametrize("symbol", ["cuEventElapsedTime", "cuEventQuery", "cuEventRecord", "cuLaunchKernel"])
def test_slow_driver_call_is_not_charged_as_gpu_time(limited: Container, symbol: str) -> None:
    """3.5 s of work take 7 at half of the device, and the length of the call once at most."""
    program = f"SYMBOL, COUNT = b{symbol!r}, 1500\n" + AFTERWARDS
    calls = limited.run(program)[0]

    for call in range(calls // 4, calls, calls // 8):
        _, seconds = limited.run(program, FAKE_DRIVER_FAULTS=f"{symbol}:{call}:SLEEP_{SLOW_SECONDS}000")
        assert seconds < SLOW_SECONDS + 8, call


@not_under_tsan
def test_time_in_which_a_kernel_is_loaded_is_not_charged_as_gpu_time(limited: Container) -> None:
    """With lazy loading the first launch of a kernel takes long. Then 40 ms of work take 80 at half of the device."""
    program = BESIDE.split("first, second, third,", maxsplit=1)[0] + (
        "launch(short, None, 1)\nlib.cuCtxSynchronize()\nsay(timed(lambda: launch(short, None, 400)))"
    )
    seconds = limited.run('SYMBOL = b""\n' + program, FAKE_DRIVER_FAULTS="cuLaunchKernel:1:SLEEP_3000")

    assert seconds < 0.2
