"""
Real programs on a real GPU: they see their limits as the device's size, cannot pass them, and get their share of time.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gpu.conftest import MEASURED_SECONDS
from gpu.machine import PROGRAMS, Figures, Machine, NoGpuError
from gpu.page import MemoryRow, Row, TimeRow

LIMIT_MIB = 6000
CONTEXTS_MIB = 1500
"""More than contexts, code and the libraries' workspaces take of a limit. Pieces are 64 MiB."""
LIMITS_PERCENT = (10, 25, 50, 75)
OWN_POINTS, NVML_POINTS = 3, 5
"""How far a share may be off, by the program's count and by NVML's coarse samples."""


@dataclass(frozen=True)
class Program:
    """What is measured: a name, what it imports if it is Python, and the ways in which it can allocate."""

    name: str
    module: str | None
    source: str
    modes: Sequence[str]

    def on(self, gpu: Machine) -> tuple[Machine, list[str | Path]]:
        """Return the machine and the command that run it."""
        if self.module is None:
            return gpu, [gpu.compiled()]
        try:
            environment = {**gpu.environment, **gpu.python(self.module)}
        except NoGpuError as error:
            pytest.skip(str(error))
        return replace(gpu, environment=environment), [sys.executable, PROGRAMS / self.source]


PROGRAMS_MEASURED = [
    Program("CUDA C", None, "cuda.c", ["plain", "pooled"]),
    Program("PyTorch", "torch", "pytorch.py", ["plain", "pooled", "segments"]),
    Program("CuPy", "cupy", "cupy_arrays.py", ["plain", "pooled"]),
]
WAYS = [
    pytest.param(program, mode, id=f"{program.name}, {mode}") for program in PROGRAMS_MEASURED for mode in program.modes
]


@pytest.mark.parametrize(("program", "mode"), WAYS)
def test_memory_ends_at_the_limit(gpu: Machine, rows: list[Row], program: Program, mode: str) -> None:
    """
    The program sees its limit as the total, an allocation beyond it fails, and NVML never sees more.
    """
    machine, command = program.on(gpu)
    figures = machine.measure([*command, mode], {"CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT_MIB}m"})
    told = figures.told
    held = int(told["held_mib"])
    rows.append(
        MemoryRow(
            f"{program.name}, {mode}", LIMIT_MIB, int(told["total_mib"]), held, str(told["refusal"]), figures.nvml_mib
        )
    )

    assert (LIMIT_MIB, "out of memory") == (told["total_mib"], told["refusal"])
    assert LIMIT_MIB - CONTEXTS_MIB <= held <= LIMIT_MIB
    assert held <= figures.nvml_mib <= LIMIT_MIB


@pytest.fixture(scope="session")
def bare() -> dict[str, Figures]:
    """What each program does without the library, measured once."""
    return {}


def rate(figures: Figures) -> float:
    """Return how much was done per second."""
    return float(figures.told["done"]) / float(figures.told["seconds"])


@pytest.mark.parametrize("limit", LIMITS_PERCENT)
@pytest.mark.parametrize("program", PROGRAMS_MEASURED, ids=lambda program: program.name)
def test_share_of_the_time_is_the_limit(
    gpu: Machine, rows: list[Row], bare: dict[str, Figures], program: Program, limit: int
) -> None:
    """
    The program does the limit's part of what it does without the library, and NVML sees the device as busy as that.
    """
    machine, command = program.on(gpu)
    command += ["time", str(MEASURED_SECONDS)]
    if program.name not in bare:
        bare[program.name] = machine.measure(command)
    figures = machine.measure(command, {"CUDA_DEVICE_SM_LIMIT": str(limit)})
    share = 100 * rate(figures) / rate(bare[program.name])
    rows.append(TimeRow(program.name, limit, share, figures.nvml_percent))

    assert limit - OWN_POINTS <= share <= limit + OWN_POINTS
    assert limit - NVML_POINTS <= figures.nvml_percent <= limit + NVML_POINTS
