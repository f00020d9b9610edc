"""
The harness over the fake driver: what it would report about a GPU is true.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from gpu.machine import PROGRAMS, Machine
from gpu.page import AnswerRow, MemoryRow, Row, TimeRow, page
from virtual import not_under_tsan

CARD_MIB, CONTEXT_MIB = 16384, 100


@pytest.mark.parametrize("mode", ["plain", "pooled"])
def test_limited_program_is_refused_at_its_limit(fake: Machine, mode: str) -> None:
    """
    The program sees its limit, holds the limit minus its context, and NVML agrees.
    """
    figures = fake.measure([fake.compiled(), mode], {"CUDA_DEVICE_MEMORY_LIMIT": "2000m"})

    held = (2000 - CONTEXT_MIB) // 64 * 64
    told = {"total_mib": 2000, "free_mib": 2000 - CONTEXT_MIB, "held_mib": held, "refusal": "out of memory"}
    assert told == figures.told
    assert CONTEXT_MIB + held == figures.nvml_mib


def test_program_without_the_library_has_the_device(fake: Machine) -> None:
    """
    Without the library the driver refuses when the device is full.
    """
    figures = fake.measure([fake.compiled(), "plain"])

    assert (CARD_MIB, "out of memory") == (figures.told["total_mib"], figures.told["refusal"])
    assert CARD_MIB - 64 < figures.nvml_mib <= CARD_MIB


@not_under_tsan
@pytest.mark.parametrize("limit", [25, 50])
def test_limited_program_gets_its_share_of_the_time(fake: Machine, limit: int) -> None:
    """
    As many kernels of 2 ms finish as the limit allows, by the program's clock, which is virtual here.
    """
    variables = in_time("virtual", fake).environ({"CUDA_DEVICE_SM_LIMIT": str(limit)})
    done = subprocess.run([fake.compiled(), "time", "20"], env=variables, capture_output=True, text=True, check=True)

    begun, told = done.stdout.splitlines()
    assert '{"is_begun": true}' == begun
    share = 100 * figure(told, "done") * 0.002 / figure(told, "seconds")
    assert limit - 2 <= share <= limit + 2


def in_time(kind: str, fake: Machine) -> Machine:
    """Return the machine with a kind of clock (fake_time.h)."""
    environment = dict(fake.environment) | {"FAKE_TIME": kind}
    return replace(fake, environment=environment, preload=[fake.build / "libfake_time.so"])


def figure(line: str, name: str) -> float:
    """Return a number from a line of JSON."""
    return float(line.partition(f'"{name}": ')[2].partition(",")[0].rstrip("}"))


def test_watcher_tells_how_busy_the_device_is(fake: Machine) -> None:
    """
    NVML's mean over a run is above 0 and at most 100.
    """
    figures = in_time("scaled:5", fake).measure([fake.compiled(), "time", "2"])

    assert 0 < figures.nvml_percent <= 100
    assert float(figures.told["done"]) > 0


@pytest.mark.parametrize("module", ["pytorch", "cupy_arrays"])
def test_programs_in_python_are_python(module: str, tmp_path: Path) -> None:
    """
    They compile. What they import is only installed on a machine with a GPU.
    """
    source = PROGRAMS / f"{module}.py"
    command: list[str | Path] = [sys.executable, "-X", f"pycache_prefix={tmp_path}", "-m", "py_compile", source]
    assert 0 == subprocess.run(command, check=False).returncode


def test_page_has_a_row_for_each_measurement() -> None:
    """
    Memory, time and answers have separate tables.
    """
    rows: list[Row] = [
        MemoryRow("CUDA C", 4096, 4096, 3712, "out of memory", 4000),
        TimeRow("CUDA C", 25, 25.04, 24.9),
        AnswerRow("Does it hold?", "yes", "no", "harder than assumed"),
    ]
    text = page("GPU X, driver 1", 20, rows)

    assert "| CUDA C | 4096 | 4096 | 3712 | out of memory | 4000 |" in text
    assert "| CUDA C | 25 | 25.0 | 24.9 |" in text
    assert "| Does it hold? | yes | no | harder than assumed |" in text
    assert "on GPU X, driver 1." in text
