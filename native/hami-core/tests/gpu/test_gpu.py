"""
Real programs on a real GPU: refused at their limits, told them as the card's size, and held to their share of the time.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gpu.conftest import MEASURED_SECONDS
from gpu.machine import PROGRAMS, Figures, Machine, NoGpuError
from gpu.page import MemoryRow, TimeRow

LIMIT_MIB = 6000
CONTEXTS_MIB = 1500
"""More than contexts, code and the libraries' own workspaces take of a limit; pieces are of 64 MiB."""
LIMITS_PERCENT = (10, 25, 50, 75)
OWN_POINTS, NVML_POINTS = 3, 5
"""How far a share may be off by the program's own count, and by NVML's coarse samples."""


@dataclass(frozen=True)
class Program:
    """What is measured: a name, what it imports if it is Python, and the ways in which it can take memory."""

    name: str
    module: str | None
    source: str
    modes: Sequence[str]

    def on(self, gpu: Machine) -> tuple[Machine, list[str | Path]]:
        """Return where and by what command it runs."""
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
def test_memory_ends_at_the_limit(gpu: Machine, rows: list[MemoryRow | TimeRow], program: Program, mode: str) -> None:
    """
    The program is told its limit, is refused when that is reached, and NVML never sees more.
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
    """Return how much was done in a second."""
    return float(figures.told["done"]) / float(figures.told["seconds"])


@pytest.mark.parametrize("limit", LIMITS_PERCENT)
@pytest.mark.parametrize("program", PROGRAMS_MEASURED, ids=lambda program: program.name)
def test_share_of_the_time_is_the_limit(
    gpu: Machine, rows: list[MemoryRow | TimeRow], bare: dict[str, Figures], program: Program, limit: int
) -> None:
    """
    Of what the program does bare it does the limit's part, and NVML sees the device as busy as that.
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
