"""
Measure what the library adds to each call, and how long 64 processes that start together wait in cuInit.

Usage: `python tests/bench/bench.py BUILD [--before LIBRARY] [--pairs N] [--write PAGE]`. Every number is the difference
between two processes that run one after the other, one bare and one with the library. Prints JSON.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PROCESSES, ROUNDS = 64, 7
INIT = f"cuInit of {PROCESSES} processes, each"
LIMITED = {"CUDA_DEVICE_SM_LIMIT": "50", "GPU_CORE_UTILIZATION_POLICY": "force"}
"""A limit of half of the device. Kernels that take no time hardly reach it."""
SLOW_EVENTS = {"FAKE_DRIVER_EVENT_NS": "1000"}
"""Recording or asking an event takes its thread a microsecond, about what it takes with NVIDIA's driver."""
TARGETS_NS: Mapping[str, float] = {
    "launch": 10,
    "launch on a stream": 10,
    "launch of a graph": 10,
    "launch, limited": 20,
    "launch on a stream, limited": 20,
    "launch of a graph, limited": 20,
    "cuGetProcAddress": 300,
    "allocate and free, 1 live": 300,
    "allocate and free, 100 live": 300,
    "allocate and free, 10 000 live": 300,
    "cuMemGetInfo": 200,
    INIT: 3e6,
}
"""The most that the median of what is added may be, by call."""

PAGE = """# What a call costs under `libvgpu.so`

This page is written by a command and not by hand:

<!-- not run: it measures for minutes, and writes this page -->
```sh
tox -e bench
```

A program on the fake driver, whose calls take a few nanoseconds, makes each call {calls} times in a loop and reports
the median of seven loops, in its thread's time. It runs bare and with the library, one after the other, {pairs}
times. What is added is the difference of such a pair. Limited launches are those of a container that may use half of
the device and has hardly reached that. The fake driver's events take nanoseconds, so limited launches are also measured
while each call about an event takes its thread a microsecond: slow events.{before}

| call | bare, ns | before p50, ns | added p50, ns | added p95, ns | added max, ns | slow events p50, ns | target, ns |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

`{init}` is wall-clock time, in a container whose region does not exist yet: p50, p95 and max of
single processes with the library, and the bare median, of the fastest of {rounds} rounds.

Measured on {date} on {machine}, at a load average of {load:.0f}.
"""
BEFORE = """

`before` is what the library of commit {name} adds, in the same rounds."""
CALLS = 10_000
"""As in `tests/bench/calls.c`."""


class Sample:
    """The pairs of one call."""

    def __init__(
        self, bare: Iterable[float], added: Iterable[float], before: Iterable[float] = (), slow: Iterable[float] = ()
    ) -> None:
        """Keep what was measured, in nanoseconds; *before* of the older library, *slow* while events take long."""
        self.bare, self.added = statistics.median(bare), sorted(added)
        self.before, self.slow = sorted(before), sorted(slow)

    def quantile(self, part: float) -> float:
        """Return the value that this part of the pairs does not exceed."""
        return self.added[min(len(self.added) - 1, int(part * len(self.added)))]

    def report(self, target: float) -> dict[str, float | None]:
        """Return the page's numbers for the call, in nanoseconds; None if it was not measured."""
        return {
            "bare": round(self.bare, 1),
            "before": round(statistics.median(self.before), 1) if self.before else None,
            "p50": round(statistics.median(self.added), 1),
            "p95": round(self.quantile(0.95), 1),
            "max": round(self.added[-1], 1),
            "slow": round(statistics.median(self.slow), 1) if self.slow else None,
            "target": target,
        }


def environment(build: Path, folder: Path, library: Path | None) -> dict[str, str]:
    """Return the environment of a container, with or without a library."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(build / "fake_driver"),
        "FAKE_DRIVER_DIR": str(folder),
        "CUDA_DEVICE_MEMORY_LIMIT": "4g",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(folder / "share.cache"),
        **({"LD_PRELOAD": str(library)} if library else {}),
    }


def calls(build: Path, folder: Path, library: Path | None, **extra: str) -> dict[str, float]:
    """Return what one process measures in a new container."""
    for file in folder.glob("share.cache*"):
        file.unlink()
    variables = environment(build, folder, library) | extra
    result = subprocess.run([build / "bench_calls"], env=variables, capture_output=True, check=True)
    measured: dict[str, float] = json.loads(result.stdout)
    return measured


def with_library(build: Path, folder: Path, library: Path, *limits: Mapping[str, str]) -> dict[str, float]:
    """Return the nanoseconds of each call: without limit on GPU time, and of launches for each of the *limits*."""
    measured = calls(build, folder, library)
    for suffix, limit in zip((", limited", ", slow"), limits, strict=False):
        limited = calls(build, folder, library, **limit)
        measured |= {name + suffix: value for name, value in limited.items() if name.startswith("launch")}
    return measured


@dataclass(frozen=True)
class Measured:
    """A round: the nanoseconds of each call, and what the library, and an older one, add to it."""

    bare: dict[str, float]
    full: dict[str, float]
    older: dict[str, float]

    def sample(self, name: str) -> tuple[float, float, float | None, float | None]:
        """Return bare, added, added by the older library, and added while events take long."""
        bare = self.bare[name.removesuffix(", limited")]
        older, slow = self.older.get(name), self.full.get(name.replace(", limited", ", slow"))
        is_limited = name.endswith(", limited") and slow is not None
        return (
            bare,
            self.full[name] - bare,
            None if older is None else older - bare,
            slow - bare if slow is not None and is_limited else None,
        )


def one_round(build: Path, folder: Path, before: Path | None) -> Measured:
    """Measure each call bare, with the library and with an older one."""
    bare, limits = calls(build, folder, None), (LIMITED, LIMITED | SLOW_EVENTS)
    full = with_library(build, folder, build / "libvgpu.so", *limits)
    return Measured(bare, full, with_library(build, folder, before, LIMITED) if before else {})


def together(build: Path, folder: Path, library: Path | None) -> list[float]:
    """Return the nanoseconds of each cuInit of processes that start at once in a new container."""
    (folder / "share.cache").unlink(missing_ok=True)
    command, variables = [build / "bench_init"], environment(build, folder, library)
    processes = [
        subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    taken = [1e6 * float(process.stdout.read()) for process in processes if process.stdout]
    for process in processes:
        process.wait()
    return taken


def quietest(build: Path, folder: Path, library: Path | None) -> list[float]:
    """Return the round with the shortest median."""
    return min((together(build, folder, library) for _ in range(ROUNDS)), key=statistics.median)


def measure(build: Path, pairs: int, before: Path | None) -> dict[str, Sample]:
    """Measure all calls; returns the samples by call."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row = "GPU-00000000-0000-4000-8000-000000000000,Fake GPU,16384,0,0000:01:00.0"
        (folder / "devices.csv").write_text(f"uuid,name,memory_mib,numa_node,pci_bus_id\n{row}\n")
        rounds = [one_round(build, folder, before) for _ in range(pairs)]
        samples = {}
        for call in TARGETS_NS:
            if call == INIT:
                continue
            bare, added, older, slow = zip(*(one.sample(call) for one in rounds), strict=True)
            samples[call] = Sample(bare, added, filter(None, older), filter(None, slow))
        samples[INIT] = Sample(
            quietest(build, folder, None),
            quietest(build, folder, build / "libvgpu.so"),
            quietest(build, folder, before) if before else (),
        )
    return {name: samples[name] for name in TARGETS_NS}


def machine() -> str:
    """Return the processors of this machine, for the page."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{os.cpu_count()} processors of type {line.partition(':')[2].strip()}"
    return f"{os.cpu_count()} processors of type {platform.machine()}"


def figure(value: float | None, digits: int = 0) -> str:
    """Return a number in groups of three digits: 10 000. None is a dash."""
    if value is None:
        return "–"
    return f"{value:,.{digits}f}".replace(",", " ")


def page(samples: Mapping[str, Sample], pairs: int, load: float, before: str) -> str:
    """Return the page of documentation."""
    rows = []
    for name, sample in samples.items():
        told = sample.report(TARGETS_NS[name])
        digits = 0 if name == INIT else 1
        figures = [figure(told[key], digits) for key in ("bare", "before", "p50", "p95", "max", "slow")]
        rows.append(f"| {' | '.join([name, *figures, figure(told['target'])])} |")
    return PAGE.format(
        calls=figure(CALLS),
        pairs=pairs,
        rows="\n".join(rows),
        init=INIT,
        rounds=ROUNDS,
        date=datetime.now(UTC).date(),
        machine=machine(),
        load=load,
        before=BEFORE.format(name=before) if before else "",
    )


def main() -> None:
    """Measure, print, and write the page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="folder with libvgpu.so and the benches")
    parser.add_argument("--pairs", type=int, default=21, help="pairs of runs for each call (default %(default)s)")
    parser.add_argument(
        "--before", metavar="COMMIT=LIBRARY", default="=", help="an older libvgpu.so to compare with, and its commit"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to write")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    commit, _, library = arguments.before.partition("=")
    samples = measure(arguments.build.resolve(), arguments.pairs, Path(library).resolve() if library else None)
    report = {name: sample.report(TARGETS_NS[name]) for name, sample in samples.items()}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    if arguments.write:
        arguments.write.write_text(page(samples, arguments.pairs, load, commit))


if __name__ == "__main__":
    main()
