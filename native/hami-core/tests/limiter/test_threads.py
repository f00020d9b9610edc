"""
Threads that launch at the same time, in the machine's time: what ThreadSanitizer can see of the limiter.
"""

from pathlib import Path

import pytest
from containers import Container
from limiter.cells import SETTLING_SECONDS, Cell, Tenant, run


@pytest.mark.parametrize("kernel", ["busy_20", "busy_1000"])
def test_threads_and_processes_launch_at_once(build: Path, kernel: str) -> None:
    """
    Four threads on two streams in each of two processes all finish without error.

    How exact the limit is depends on the machine. Under ThreadSanitizer a data race ends a program with an error.
    """
    tenant = Tenant(50, kernel, processes=2, streams=2, threads=4)
    (share,) = run(Cell((tenant,), is_virtual=False), build, 0)

    assert share.launches > 0
    assert SETTLING_SECONDS == len(share.seconds)
    assert 0 < sum(share.seconds) / SETTLING_SECONDS <= 100


def test_threads_of_two_devices_share_the_table_of_streams(container: Container) -> None:
    """
    Two threads on each of two devices use more streams than the table has entries, and end half of them.

    All launches succeed. Under ThreadSanitizer a data race ends the program with an error.
    """
    results = container.run(
        """
import threading
cuda, contexts, kernels, results = Cuda(), [], [], []
lib = cuda.library
for ordinal in (0, 1):
    cuda.use(ordinal)
    contexts.append(cuda.context)
    kernels.append(cuda.kernel(5))
    assert 0 == cuda.launch(kernels[ordinal])
def launches(ordinal):
    streams, kernel = [c_void_p() for _ in range(150)], kernels[ordinal]
    assert 0 == lib.cuCtxSetCurrent(contexts[ordinal])
    for stream in streams:
        assert 0 == lib.cuStreamCreate(byref(stream), 1)
    for stream in streams * 2:
        for _ in range(3):
            yield lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
    for stream in streams[::2]:
        assert 0 == lib.cuStreamDestroy_v2(stream)
def load(ordinal):
    for _ in range(2):
        results.extend(launches(ordinal))
threads = [threading.Thread(target=load, args=[number % 2]) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say([len(results), max(results)])
""",
        CUDA_DEVICE_SM_LIMIT="50",
        GPU_CORE_UTILIZATION_POLICY="force",
    )

    assert [4 * 2 * 150 * 2 * 3, 0] == results


def test_threads_use_three_devices_of_the_fake_driver_at_once(bare: Container) -> None:
    """
    Two threads on each device launch their first kernels at the same time, and use new contexts.

    All calls succeed. Under ThreadSanitizer a data race of the fake driver ends the program with an error.
    """
    count, worst = bare.run("""
import threading
cuda, contexts, results = Cuda(), [], []
lib = cuda.library
for ordinal in (0, 1, 2):
    cuda.use(ordinal)
    contexts.append(cuda.context)
barrier = threading.Barrier(6)
def calls(ordinal):
    kernel, stream, fresh = cuda.kernel(5), c_void_p(), c_void_p()
    yield lib.cuStreamCreate(byref(stream), 1)
    barrier.wait()
    for _ in range(50):
        yield lib.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
    yield lib.cuStreamSynchronize(stream)
    yield lib.cuCtxCreate_v2(byref(fresh), 0, ordinal)
    yield lib.cuLaunchKernel(cuda.kernel(5), 1, 1, 1, 1, 1, 1, 0, None, None, None)
    yield lib.cuCtxSynchronize()
    yield lib.cuCtxDestroy_v2(fresh)
def load(ordinal):
    assert 0 == lib.cuCtxSetCurrent(contexts[ordinal])
    results.extend(calls(ordinal))
threads = [threading.Thread(target=load, args=[number % 3]) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say([len(results), max(results)])
""")

    assert [6 * 56, 0] == [count, worst]
