"""
Code that CUDA loads at a kernel's first launch counts in the share, although no call says what it takes.
"""

import pytest
from containers import Container

LAZY = {"CUDA_MODULE_LOADING": "LAZY", "FAKE_DRIVER_CONTEXT_MIB": "100", "FAKE_DRIVER_MODULE_KIB": str(400 << 10)}


@pytest.fixture
def lazy(container: Container) -> Container:
    """The container, with contexts of 100 MiB and modules of 400 MiB, which CUDA loads at a first launch."""
    container.environment.update(LAZY)
    return container


def test_code_is_charged_within_a_second_of_its_launch(lazy: Container) -> None:
    """
    A program that allocates is refused what its code has taken, although it never asks how much is left.
    """
    results = lazy.run(
        """
import time
cuda = Cuda()
cuda.free(cuda.allocate(MIB)[1])
kernel = cuda.kernel(0)
cuda.launch(kernel)
time.sleep(1.1)
cuda.library.fake_truth_memory_peak.restype = c_uint64
say([cuda.allocate(600 * MIB)[0], cuda.allocate(498 * MIB)[0], cuda.library.fake_truth_memory_peak(0) // MIB])
"""
    )

    assert [2, 0, 998] == results


def test_allocations_ask_nvml_once_a_second(lazy: Container) -> None:
    """
    NVML's answer takes long where many processes use a device.
    """
    calls, seconds = lazy.run(
        """
import time
cuda = Cuda()
calls = ctypes.CDLL("libnvidia-ml.so.1").fake_calls
began = int(time.time())
before = calls(b"nvmlDeviceGetComputeRunningProcesses_v3")
while time.time() < began + 3:
    for _ in range(100):
        cuda.free(cuda.allocate(MIB)[1])
say([calls(b"nvmlDeviceGetComputeRunningProcesses_v3") - before, int(time.time()) - began + 1])
"""
    )

    assert 2 <= calls <= seconds + 1
