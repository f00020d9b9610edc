"""
NVML's use of the fake devices: coarse, late, sometimes missing, and otherwise true.
"""

from typing import Any

import pytest
from containers import Container
from virtual import virtual

PRELUDE = """
import os, time
import pynvml as n
from device import *
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
kernel = function("busy_1000")
def window_begins(milliseconds=200):
    sleep(milliseconds - now() / 1e6 % milliseconds)
def samples(seen=0):
    try:
        return n.nvmlDeviceGetProcessUtilization(device, seen)
    except n.NVMLError as error:
        return error.value
def percents(seen=0):
    found = samples(seen)
    return found if isinstance(found, int) else [sample.smUtil for sample in found]
def load(percent, milliseconds):
    end = now() + milliseconds * 1000000
    while now() < end:
        launch(kernel, None, percent // 10)
        sleep(10)
"""


def run(container: Container, program: str, **extra: str) -> Any:
    """Run a program in virtual time with windows of 200 ms that can be read after 50."""
    settings = {"FAKE_DRIVER_NVML_WINDOW_MS": "200", "FAKE_DRIVER_NVML_DELAY_MS": "50", **extra}
    return container.run(PRELUDE + program, preload=False, **virtual(container), **settings)


def test_sample_is_seen_after_its_window_and_the_delay(container: Container) -> None:
    """
    40 % of a window can be read 50 ms after its end and not before.
    """
    program = """
window_begins()
load(40, 200)
sleep(49)
early = percents()
sleep(1)
say([early, percents(), n.nvmlDeviceGetUtilizationRates(device).gpu])
"""

    assert [6, [40], 40] == run(container, program)


def test_only_newer_samples_are_read(container: Container) -> None:
    """
    With the last time stamp and nothing new the answer is NVML_ERROR_NOT_FOUND. Stamps are the windows' ends in wall
    time.
    """
    program = """
window_begins()
load(50, 200)
sleep(60)
first = samples()[0]
again = percents(first.timeStamp)
load(100, 200)
second = samples(first.timeStamp)[0]
ago = [time.time_ns() // 1000 - sample.timeStamp for sample in (first, second)]
say([again, second.smUtil, ago])
"""

    assert [6, 70, [260000, 60000]] == run(container, program)


def test_idle_process_has_no_sample(container: Container) -> None:
    """
    A process is listed in its newest window with use. A reader that has seen that window does not get it again.
    """
    program = """
window_begins()
load(30, 200)
sleep(600)
sample = samples()[0]
say([sample.smUtil, percents(sample.timeStamp), n.nvmlDeviceGetUtilizationRates(device).gpu])
"""

    assert [30, 6, 0] == run(container, program)


def test_processes_are_told_apart_by_the_hosts_pids(container: Container) -> None:
    """
    Each busy process has one structure with its share.
    """
    load = "window_begins()\nload({percent}, 400)\nsay(os.getpid())"
    extra = {
        "FAKE_DRIVER_NVML_WINDOW_MS": "200",
        "FAKE_DRIVER_NVML_DELAY_MS": "50",
        "FAKE_DRIVER_PID_OFFSET": "100000",
    }
    looker = "window_begins()\nsleep(450)\nsay(sorted((s.smUtil, s.pid) for s in samples()))"
    programs = [load.format(percent=20), load.format(percent=50), looker]
    started = [
        container.start(PRELUDE + program, preload=False, **virtual(container, 3, rank), **extra)
        for rank, program in enumerate(programs)
    ]
    twenty, fifty, seen = [process.communicate(timeout=60)[0].strip() for process in started]

    assert f"[[20, {int(twenty) + 100000}], [50, {int(fifty) + 100000}]]" == seen


def test_short_buffer_is_told_how_long_it_must_be(container: Container) -> None:
    """
    A count of 0 is answered with NVML_ERROR_INSUFFICIENT_SIZE and the right count.
    """
    program = """
window_begins()
load(30, 200)
sleep(100)
library, count = ctypes.CDLL("libnvidia-ml.so.1"), c_uint(0)
result = library.nvmlDeviceGetProcessUtilization(device, None, byref(count), ctypes.c_ulonglong(0))
say([result, count.value])
"""

    assert [7, 1] == run(container, program)


def test_samples_get_lost(container: Container) -> None:
    """
    With 30 % loss about that many windows are missing, and the others are right.
    """
    program = """
window_begins()
load(60, 200 * 80)
sleep(50)
_, values = n.nvmlDeviceGetSamples(device, n.NVML_GPU_UTILIZATION_SAMPLES, 0)
say([value.sampleValue.uiVal for value in values])
"""
    kept = run(container, program, FAKE_DRIVER_NVML_LOSS="30")[-80:]
    told = [value for value in kept if value]

    assert {60} == set(told)
    assert 80 * 0.5 < len(told) < 80 * 0.9


def test_hardware_that_does_not_measure_is_not_supported(container: Container) -> None:
    """
    With a window of 0 every question about use returns NVML_ERROR_NOT_SUPPORTED.
    """
    program = """
def rates():
    try:
        return n.nvmlDeviceGetUtilizationRates(device).gpu
    except n.NVMLError as error:
        return error.value
say([percents(), rates()])
"""

    assert [3, 3] == run(container, program, FAKE_DRIVER_NVML_WINDOW_MS="0")


@pytest.mark.parametrize("window", [166, 1000])
def test_use_is_the_truth_rounded(container: Container, window: int) -> None:
    """
    Under random work every window's percentage is the oracle's, rounded, for the device and for its only process.
    """
    program = f"""
kernel, window = function("lognormal_3000_90"), {window}
def truth(end): return round(busy(end - window * 1000000, end) / (window * 10000))
seen, pairs = 0, []
while len(pairs) < 12:
    launch(kernel, None, 1 + len(pairs) % 3)
    sleep(11)
    found = samples(seen)
    if isinstance(found, int): continue
    seen = found[0].timeStamp
    end = now() - (time.time_ns() - seen * 1000)
    pairs.append([found[0].smUtil, n.nvmlDeviceGetUtilizationRates(device).gpu, truth(end)])
say(pairs)
"""
    pairs = run(container, program, FAKE_DRIVER_NVML_WINDOW_MS=str(window))

    assert len(pairs) == 12
    assert all(process == device == truth > 0 for process, device, truth in pairs)
