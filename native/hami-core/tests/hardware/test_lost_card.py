"""
A GPU that falls off the bus, and the GPUs beside it.
"""

import pynvml as n
import pytest
from containers import GPU_A, GPU_B, GPU_C
from hardware.process import Start, error

from testbed.driver.hardware import FakeDriver

IS_LOST = error(n.NVML_ERROR_GPU_IS_LOST)
CUDA_SUCCESS, CUDA_UNKNOWN = 0, 999
CALLS = [
    "gpu(1)",
    f"n.nvmlDeviceGetHandleByUUID('{GPU_B}')",
    "n.nvmlDeviceGetHandleByPciBusId('0000:65:00.0')",
    "n.nvmlDeviceGetUUID(old)",
    "n.nvmlDeviceGetMemoryInfo(old)",
    "n.nvmlDeviceGetComputeRunningProcesses(old)",
    "n.nvmlDeviceGetMigMode(old)",
]


@pytest.mark.parametrize("call", CALLS)
def test_lost_card_answers_nothing(start: Start, driver: FakeDriver, call: str) -> None:
    """
    Lookups find it lost, and so does a handle from before.
    """
    process = start()
    process.keep("old", "gpu(1)")
    driver.lose(GPU_B)

    assert IS_LOST == process.ask(call)


def test_other_cards_work_while_one_is_lost(start: Start, driver: FakeDriver) -> None:
    """
    The count stays, and each has the index it had. A process that starts now sees the same.
    """
    before = start()
    driver.lose(GPU_B)

    for process in (before, start()):
        assert 3 == process.ask("n.nvmlDeviceGetCount()")
        assert [GPU_A, GPU_C] == process.ask("[n.nvmlDeviceGetUUID(gpu(index)) for index in (0, 2)]")


def test_card_is_lost_at_a_call(start: Start, driver: FakeDriver) -> None:
    """
    It answers until one process calls the function for it, and then answers no process.
    """
    one, other = start(), start()
    driver.lose(GPU_B, at="nvmlDeviceGetSerial")

    assert GPU_B == one.ask("n.nvmlDeviceGetUUID(gpu(1))")
    assert "0000000000001" == one.ask("n.nvmlDeviceGetSerial(gpu(0))")
    assert IS_LOST == one.ask("n.nvmlDeviceGetSerial(gpu(1))")
    assert [IS_LOST] * 2 == [one.ask("gpu(1)"), other.ask("gpu(1)")]


def test_card_that_comes_back_answers_until_it_is_lost_again(start: Start, driver: FakeDriver) -> None:
    """
    It can be lost at the same call twice.
    """
    process = start()
    process.keep("old", "gpu(1)")
    for _ in range(2):
        driver.lose(GPU_B, at="nvmlDeviceGetName")
        assert [GPU_B, IS_LOST] == process.ask_all("n.nvmlDeviceGetUUID(old)", "n.nvmlDeviceGetName(old)")
        driver.bring_back(GPU_B)
        assert "Fake B" == process.ask("n.nvmlDeviceGetName(old)")


def test_waiting_for_events_of_a_lost_card_fails(start: Start, driver: FakeDriver) -> None:
    """
    The whole set fails, at once and each time. A set without the card goes on.
    """
    process = start()
    for name, index in (("healthy", 0), ("lost", 1)):
        process.keep(name, "n.nvmlEventSetCreate()")
        process.ask(f"n.nvmlDeviceRegisterEvents(gpu({index}), n.nvmlEventTypeXidCriticalError, {name})")
    driver.lose(GPU_B)
    driver.report_xid(GPU_A, 79)

    assert [IS_LOST] * 2 == [process.ask("n.nvmlEventSetWait_v2(lost, 60000)") for _ in range(2)]
    assert 79 == process.ask("n.nvmlEventSetWait_v2(healthy, 60000).eventData")


def test_cuda_fails_on_a_lost_card_alone(start: Start, driver: FakeDriver) -> None:
    """
    The context on it was made before the loss.
    """
    process = start()
    process.keep("lost", "Cuda(1)")
    driver.lose(GPU_B)

    assert CUDA_UNKNOWN == process.ask("lost.allocate(1)[0]")
    process.keep("healthy", "Cuda(0)")
    assert CUDA_SUCCESS == process.ask("healthy.allocate(1)[0]")
