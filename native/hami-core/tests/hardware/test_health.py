"""
What sensors and counters of a GPU read, what it reports, and what a reset does.
"""

from typing import Any

import pynvml as n
import pytest
from containers import DEVICES, GPU_A, GPU_B, Container
from hardware.process import Process, Start, error

from testbed.driver.hardware import DriverInUseError, FakeDriver

NOT_SUPPORTED = error(n.NVML_ERROR_NOT_SUPPORTED)
ECC = "[n.nvmlDeviceGetTotalEccErrors(gpu(0), error, counter) for error in (0, 1) for counter in (0, 1)]"
REMAPPED = "n.nvmlDeviceGetRemappedRows(gpu(0))"
RETIRED = "[len(n.nvmlDeviceGetRetiredPages(gpu(0), cause)) for cause in (0, 1)]"


def field(process: Process, number: int) -> Any:
    """Return a field of the first GPU, or the error that it has instead."""
    value, result = process.ask(
        f"(lambda value: [value.value.ullVal, value.nvmlReturn])(n.nvmlDeviceGetFieldValues(gpu(0), [{number}])[0])"
    )
    return value if result == n.NVML_SUCCESS else error(result)


def test_ecc_errors_are_counted_and_reported(start: Start, driver: FakeDriver) -> None:
    """
    Two uncorrected and one corrected error are in the volatile and the aggregate counters of that GPU alone.
    """
    process = start()
    process.keep("events", "n.nvmlEventSetCreate()")
    process.ask("n.nvmlDeviceRegisterEvents(gpu(0), n.nvmlDeviceGetSupportedEventTypes(gpu(0)), events)")
    for is_corrected in (False, True, False):
        driver.report_ecc_error(GPU_A, is_corrected=is_corrected)

    assert [1, 1, 2, 2] == process.ask(ECC)
    assert [0, 0, 0, 0] == process.ask(ECC.replace("gpu(0)", "gpu(1)"))
    assert [1, 2, 1, 2] == [field(process, number) for number in (3, 4, 5, 6)]
    kinds = [n.nvmlEventTypeDoubleBitEccError, n.nvmlEventTypeSingleBitEccError, n.nvmlEventTypeDoubleBitEccError]
    assert kinds == [process.ask("n.nvmlEventSetWait_v2(events, 60000).eventType") for _ in kinds]


def test_device_without_ecc_has_no_ecc_events(start: Start, driver: FakeDriver) -> None:
    """
    Counters are not supported, and registering every kind of event fails as a whole.
    """
    process = start()
    driver.set(GPU_A, ecc_mode=0)
    process.keep("events", "n.nvmlEventSetCreate()")

    assert [[0, 0], NOT_SUPPORTED] == process.ask_all("n.nvmlDeviceGetEccMode(gpu(0))", ECC)
    assert n.nvmlEventTypeXidCriticalError == process.ask("n.nvmlDeviceGetSupportedEventTypes(gpu(0))")
    assert NOT_SUPPORTED == process.ask("n.nvmlDeviceRegisterEvents(gpu(0), 0xb, events)")


def test_newer_devices_remap_rows_and_older_ones_retire_pages(
    container: Container, start: Start, driver: FakeDriver
) -> None:
    """
    Neither supports the call of the other.
    """
    driver.set(GPU_A, remapped_corrected=1, remapped_uncorrected=2, remap_pending=1, remap_failed=0)
    driver.set(GPU_A, retired_single_bit=3, retired_double_bit=4, retirement_pending=1)

    assert [[1, 2, 1, 0], NOT_SUPPORTED] == start().ask_all(REMAPPED, RETIRED)
    (container.folder / "hardware/devices.csv").write_text(DEVICES.replace("Fake A", "Tesla T4"))
    old = start()
    assert [NOT_SUPPORTED, [3, 4]] == old.ask_all(REMAPPED, RETIRED)
    assert 1 == old.ask("n.nvmlDeviceGetRetiredPagesPendingStatus(gpu(0))")


def test_temperature_slows_a_device_down(start: Start, driver: FakeDriver) -> None:
    """
    The device slows down above its thresholds, which a test may move.
    """
    process = start()
    shown = (
        "n.nvmlDeviceGetTemperature(gpu(0), 0)",
        "n.nvmlDeviceGetCurrentClocksEventReasons(gpu(0)) & ~n.nvmlClocksEventReasonGpuIdle",
        "n.nvmlDeviceGetClockInfo(gpu(0), n.NVML_CLOCK_SM)",
    )
    software, hardware = n.nvmlClocksThrottleReasonSwThermalSlowdown, n.nvmlClocksThrottleReasonHwThermalSlowdown

    assert [34, 0, 1410] == process.ask_all(*shown)
    driver.set(GPU_A, temperature_celsius=86)
    assert [86, software, 1410] == process.ask_all(*shown)
    driver.set(GPU_A, slowdown_celsius=80)
    assert 80 == process.ask("n.nvmlDeviceGetTemperatureThreshold(gpu(0), n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)")
    assert [86, software | hardware | n.nvmlClocksThrottleReasonHwSlowdown, 705] == process.ask_all(*shown)
    driver.set(GPU_A, temperature_celsius=None)
    assert [34, 0, 1410] == process.ask_all(*shown)


def test_power_and_clocks_are_what_a_test_sets(start: Start, driver: FakeDriver) -> None:
    """
    The other GPUs keep theirs.
    """
    process = start()
    calls = (
        "n.nvmlDeviceGetPowerUsage(gpu(0))",
        "n.nvmlDeviceGetEnforcedPowerLimit(gpu(0))",
        "n.nvmlDeviceGetClockInfo(gpu(0), n.NVML_CLOCK_SM)",
        "n.nvmlDeviceGetClockInfo(gpu(0), n.NVML_CLOCK_MEM)",
        "n.nvmlDeviceGetTotalEnergyConsumption(gpu(0))",
    )
    driver.set(GPU_A, power_milliwatts=1, power_limit_milliwatts=2, clock_mhz=3, memory_clock_mhz=4)
    driver.set(GPU_A, energy_millijoules=1 << 40)

    assert [1, 2, 3, 4, 1 << 40] == process.ask_all(*calls)
    assert 400000 == process.ask("n.nvmlDeviceGetEnforcedPowerLimit(gpu(1))")


def test_compute_mode_is_what_a_test_sets(start: Start, driver: FakeDriver) -> None:
    """
    By default any number of programs may use a GPU.
    """
    driver.set(GPU_A, compute_mode=3)

    assert [3, 0] == start().ask_all("n.nvmlDeviceGetComputeMode(gpu(0))", "n.nvmlDeviceGetComputeMode(gpu(1))")


def test_reset_needs_the_card_for_itself(start: Start, driver: FakeDriver) -> None:
    """
    nvidia-smi refuses too while a process has the card open.
    """
    driver.fail(n.NVML_ERROR_RESET_REQUIRED, GPU_A)
    process = start()

    with pytest.raises(DriverInUseError):
        driver.reset(GPU_A)
    assert error(n.NVML_ERROR_RESET_REQUIRED) == process.ask("gpu(0)")
    process.ask("n.nvmlShutdown()")
    driver.reset(GPU_A)
    assert GPU_A == start().ask("n.nvmlDeviceGetUUID(gpu(0))")


def test_reset_makes_a_card_work_again(start: Start, driver: FakeDriver) -> None:
    """
    It answers, has remapped its rows and needs no recovery. Only aggregate counters stay, and no other GPU is reset.
    """
    for uuid in (GPU_A, GPU_B):
        driver.report_ecc_error(uuid)
        driver.set(uuid, remapped_uncorrected=1, remap_pending=1, recovery_action=1)
        driver.lose(uuid)
    driver.reset(GPU_A)
    process = start()

    assert [[0, 0, 0, 1], [0, 1, 0, 0]] == process.ask_all(ECC, REMAPPED)
    assert 0 == field(process, n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    assert error(n.NVML_ERROR_GPU_IS_LOST) == process.ask("gpu(1)")


def test_loading_the_driver_clears_volatile_counters(start: Start, driver: FakeDriver) -> None:
    """
    The aggregate counters stay.
    """
    driver.report_ecc_error(GPU_A)
    driver.unload()
    driver.load()

    assert [0, 0, 0, 1] == start().ask(ECC)
