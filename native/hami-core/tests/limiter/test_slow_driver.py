"""
A call of the driver that does not return delays no launch on another device, in the machine's time.
"""

import pytest
from containers import Container

SLOW_SECONDS = 20

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


@pytest.mark.parametrize(
    "symbol",
    [
        "cuCtxPushCurrent_v2",
        "cuEventCreate",
        "cuEventElapsedTime",
        "cuEventQuery",
        "cuEventRecord",
        "cuStreamIsCapturing",
    ],
)
def test_slow_driver_call_for_one_device_delays_no_launch_on_another(limited_now: Container, symbol: str) -> None:
    """The limiter makes these calls itself, with the device's lock."""
    took_seconds, is_stuck = limited_now.run(
        f"SYMBOL = b{symbol!r}\n" + PROGRAM, FAKE_DRIVER_FAULTS=f"{symbol}:1:SLEEP_{SLOW_SECONDS}000"
    )

    assert is_stuck
    assert took_seconds < SLOW_SECONDS / 2
