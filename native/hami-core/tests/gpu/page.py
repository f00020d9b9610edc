"""
Write the results of a real GPU as a page of documentation.

Owns the words and tables of docs/gpu.md. Neighbours: `machine` runs the programs, `test_gpu` judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

PAGE = """# The library on a real GPU

This page is written by a command and not by hand:

```
tox -e gpu
```

Measured on {date} on {machine}.

## Memory

Each program allocates pieces of 64 MiB until an allocation fails. The last column is NVML's view from outside the
container: how much more of the device is in use than before. A program's context and code also count against its
limit, so it holds less than that.

| program | limit, MiB | total reported, MiB | held, MiB | error | NVML, MiB |
| --- | --- | --- | --- | --- | --- |
{memory}

## GPU time

Each program runs kernels without pause, for {seconds} s after 5. Its own share is the rate of its work compared with
a run without the library. NVML's is the device's mean use.

| program | limit, % | own share, % | NVML, % |
| --- | --- | --- | --- |
{time}

## What the driver does

Most tests run on a fake driver. These are questions that only a real one can answer. *Harder* means that a share holds
less well than the tests assume.

| question | fake driver | this one | |
| --- | --- | --- | --- |
{answers}
"""


@dataclass(frozen=True)
class MemoryRow:
    """One program that allocated all it could."""

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


@dataclass(frozen=True)
class AnswerRow:
    """One question to the driver."""

    question: str
    assumed: str
    """The answer of the fake driver."""
    found: str
    verdict: str


Row = MemoryRow | TimeRow | AnswerRow


def page(machine: str, seconds: int, rows: Sequence[Row]) -> str:
    """Return the page of documentation."""
    memory = [row for row in rows if isinstance(row, MemoryRow)]
    time = [row for row in rows if isinstance(row, TimeRow)]
    answers = [row for row in rows if isinstance(row, AnswerRow)]
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
        answers="\n".join(f"| {row.question} | {row.assumed} | {row.found} | {row.verdict} |" for row in answers),
    )
