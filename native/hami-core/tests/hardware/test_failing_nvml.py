"""
NVML that hangs or fails, as a whole or for one GPU.
"""

import pynvml as n
import pytest
from containers import GPU_A, GPU_B
from hardware.process import Start, error

from testbed.driver.hardware import FakeDriver

UNKNOWN = error(n.NVML_ERROR_UNKNOWN)
LONGER_THAN_A_CALL_SECONDS = 0.3


def test_calls_block_while_nvml_hangs(start: Start, driver: FakeDriver) -> None:
    """
    In every process, nvmlInit too. They return what they would have when the test lets go.
    """
    one, other = start(), start(init=False)
    driver.hang()
    one.send("n.nvmlDeviceGetCount()")
    other.send("n.nvmlInit()")

    assert not one.has_answered(LONGER_THAN_A_CALL_SECONDS)
    assert not other.has_answered(LONGER_THAN_A_CALL_SECONDS)
    driver.recover()
    assert [3, None] == [one.answer(), other.answer()]


def test_one_function_hangs_and_others_answer(start: Start, driver: FakeDriver) -> None:
    """
    The function hangs for every GPU.
    """
    one, other = start(), start()
    driver.hang(call="nvmlDeviceGetName")
    one.send("n.nvmlDeviceGetName(gpu(2))")

    assert GPU_A == other.ask("n.nvmlDeviceGetUUID(gpu(0))")
    assert not one.has_answered(LONGER_THAN_A_CALL_SECONDS)


def test_one_card_hangs_and_others_answer(start: Start, driver: FakeDriver) -> None:
    """
    Only calls for that GPU block.
    """
    one, other = start(), start()
    driver.hang(GPU_B)
    one.send("gpu(1)")

    assert GPU_A == other.ask("n.nvmlDeviceGetUUID(gpu(0))")
    assert not one.has_answered(LONGER_THAN_A_CALL_SECONDS)
    driver.recover(GPU_B)
    assert GPU_B == other.ask("n.nvmlDeviceGetUUID(gpu(1))")


def test_process_that_hangs_can_be_killed(start: Start, driver: FakeDriver) -> None:
    """
    It leaves nothing that keeps others waiting.
    """
    process = start()
    driver.hang()
    process.send("n.nvmlDeviceGetCount()")
    assert not process.has_answered(LONGER_THAN_A_CALL_SECONDS)
    process.kill()
    driver.recover()

    assert () == driver.clients()
    assert 3 == start().ask("n.nvmlDeviceGetCount()")


@pytest.mark.parametrize(
    ("arguments", "failing", "working"),
    [
        ({}, ["n.nvmlInit()", "n.nvmlDeviceGetCount()", "n.nvmlDeviceGetName(old)"], []),
        ({"call": "nvmlDeviceGetName"}, ["n.nvmlDeviceGetName(old)"], ["n.nvmlDeviceGetUUID(old)"]),
        ({"uuid": GPU_B}, ["gpu(1)", "n.nvmlDeviceGetName(old)"], ["n.nvmlDeviceGetUUID(gpu(0))"]),
        ({"uuid": GPU_B, "call": "nvmlDeviceGetUUID"}, ["n.nvmlDeviceGetUUID(old)"], ["n.nvmlDeviceGetName(old)"]),
    ],
    ids=["all", "one function", "one card", "one function of one card"],
)
def test_calls_fail_until_they_recover(
    start: Start, driver: FakeDriver, arguments: dict[str, str], failing: list[str], working: list[str]
) -> None:
    """
    They return the error that the test gave; the other calls work.
    """
    process = start()
    process.keep("old", "gpu(1)")
    driver.fail(n.NVML_ERROR_UNKNOWN, **arguments)

    assert [UNKNOWN] * len(failing) == process.ask_all(*failing)
    assert UNKNOWN not in process.ask_all(*working)
    driver.recover(arguments.get("uuid"))
    assert UNKNOWN not in process.ask_all(*failing)
