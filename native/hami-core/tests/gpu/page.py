"""
Write what was measured on a real GPU as a page of documentation.

Owns the words and tables of docs/gpu.md. Neighbours: `machine` runs the programs, `test_gpu` judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

PAGE = """# What the library was measured to do on a real GPU

This page is written by a command and not by hand:

```
tox -e gpu
```

Measured on {date} on {machine}.

## Memory

Each program takes pieces of 64 MiB until it is refused. NVML looks from outside of the container: what the device then
has in use more than before. What a program holds is less than its limit by its context and code.

| program | limit, MiB | told as total, MiB | held, MiB | refusal | NVML, MiB |
| --- | --- | --- | --- | --- | --- |
{memory}

## GPU time

Each program runs kernels without end, for {seconds} s after 5. Its own share is what it gets done, of what it does
bare. NVML's is the device's mean use.

| program | limit, % | own share, % | NVML, % |
| --- | --- | --- | --- |
{time}
"""


@dataclass(frozen=True)
class MemoryRow:
    """One program that took all it could."""

    program: str
    limit_mib: int
    total_mib: int
    held_mib: int
    refusal: str
    nvml_mib: int


@dataclass(frozen=True)
class TimeRow:
    """One program that ran for a while."""

    program: str
    limit_percent: int
    own_percent: float
    nvml_percent: float


def page(machine: str, seconds: int, rows: Sequence[MemoryRow | TimeRow]) -> str:
    """Return the page of documentation."""
    memory = [row for row in rows if isinstance(row, MemoryRow)]
    time = [row for row in rows if isinstance(row, TimeRow)]
    return PAGE.format(
        date=datetime.now(UTC).date(),
        machine=machine,
        seconds=seconds,
        memory="\n".join(
            f"| {row.program} | {row.limit_mib} | {row.total_mib} | {row.held_mib} | {row.refusal} | {row.nvml_mib} |"
            for row in memory
        ),
        time="\n".join(
            f"| {row.program} | {row.limit_percent} | {row.own_percent:.1f} | {row.nvml_percent:.1f} |" for row in time
        ),
    )
