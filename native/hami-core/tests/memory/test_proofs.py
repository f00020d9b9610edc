"""
The account equals what the driver gave: after random programs, and after processes were killed at any instruction.

Each run has other programs. `HAMI_MEMORY_SEED` repeats those of a run that failed, `HAMI_MEMORY_SECONDS` sets how long
each kind of them runs (3600 and more make a soak), `HAMI_MEMORY_ROUNDS` how many rounds of killed processes there are.
"""

import os
import random
import subprocess
import sys

import pytest
from containers import SANITIZER_OPTIONS, Container

SECONDS = os.environ.get("HAMI_MEMORY_SECONDS", "5")
ROUNDS = os.environ.get("HAMI_MEMORY_ROUNDS", "5")
SEED = os.environ.get("HAMI_MEMORY_SEED", str(random.randrange(1 << 30)))
SECONDS_TO_FIND = "60"

# A forked child of a program with threads has none of them to join.
THREADS_OF_PARENTS = {"TSAN_OPTIONS": SANITIZER_OPTIONS["TSAN_OPTIONS"] + ":report_thread_leaks=0"}
SLOW_NVML = {"FAKE_DRIVER_FAULTS": "nvmlDeviceGetComputeRunningProcesses_v3:*:SLEEP_3"}

pytestmark = pytest.mark.timeout(0)
"""How long it takes depends on these numbers. ctest stops a test that hangs."""


def run(container: Container, program: str, count: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of this folder to its end in a container, with the seed of this run, which is printed."""
    sys.stdout.write(f"{program} {SEED} {count}: HAMI_MEMORY_SEED={SEED} repeats it\n")
    sizes = {"FAKE_DRIVER_CONTEXT_MIB": "96", "FAKE_DRIVER_MODULE_KIB": "16"}
    return subprocess.run(
        [str(container.build / program), SEED, count],
        env=container.environ() | THREADS_OF_PARENTS | sizes | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"CUDA_DEVICE_MEMORY_LIMIT": "4000m"}, id="roomy"),
        pytest.param({"CUDA_DEVICE_MEMORY_LIMIT": "700m"}, id="tight"),
        pytest.param({"CUDA_DEVICE_MEMORY_LIMIT": "450m"}, id="hardly-any-room"),
        pytest.param({"CUDA_DEVICE_MEMORY_LIMIT": "1000m", **SLOW_NVML}, id="slow-nvml"),
    ],
)
def test_account_is_what_the_driver_gave(container: Container, environment: dict[str, str]) -> None:
    """
    Whatever the processes and threads of a container do at the same time, the account is the driver's within one
    granule, the device never has more than the limit, and nothing that fits is refused.
    """
    done = run(container, "random_programs", SECONDS, **environment)

    assert ("", 0) == (done.stderr, done.returncode)
    assert done.stdout.endswith(" programs\n")


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("refuse", "is refused on device"),
        ("forget", "accounted for are"),
        ("leak", "accounted for are"),
        ("late", "the limit is"),
    ],
)
def test_judge_finds_planted_bugs(container: Container, bug: str, finding: str) -> None:
    """
    Programs under a library that refuses, forgets, leaks or charges too late do not pass.
    """
    library = container.build / "libvgpu.so"
    preload = container.environ()["LD_PRELOAD"].replace(str(library), f"{container.build / 'libplanted.so'}:{library}")
    limit = "4000m" if finding == "accounted for are" else "450m"

    done = run(
        container, "random_programs", SECONDS_TO_FIND, PLANTED=bug, LD_PRELOAD=preload, CUDA_DEVICE_MEMORY_LIMIT=limit
    )

    assert finding in done.stderr
    assert 1 == done.returncode


def test_nobody_waits_for_the_dead(container: Container) -> None:
    """
    64 processes of 8 threads, killed at random instructions: no wait of a second, no number below zero, nothing left.
    """
    done = run(container, "crash_matrix", ROUNDS, CUDA_DEVICE_MEMORY_LIMIT="1000m", FAKE_DRIVER_CONTEXT_MIB="8")

    assert ("", 0) == (done.stderr, done.returncode)
    assert done.stdout.startswith(f"{ROUNDS} rounds, ")
