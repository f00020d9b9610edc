"""
The account equals what the driver gave: after random programs, and after processes were killed at any instruction.

`HAMI_MEMORY_PROGRAMS` and `HAMI_MEMORY_ROUNDS` set how many (10000 and 200 make the full proof), `HAMI_MEMORY_SEED`
which.
"""

import os
import subprocess

import pytest
from containers import Container

PROGRAMS = os.environ.get("HAMI_MEMORY_PROGRAMS", "150")
ROUNDS = os.environ.get("HAMI_MEMORY_ROUNDS", "5")
SEED = os.environ.get("HAMI_MEMORY_SEED", "1")

pytestmark = pytest.mark.timeout(0)
"""How long it takes depends on these numbers. ctest stops a test that hangs."""


def prove(container: Container, program: str, count: str, limit: str, context_mib: int) -> str:
    """Run a proof to its end in a container with this limit, and return what it prints."""
    environment = container.environ(CUDA_DEVICE_MEMORY_LIMIT=limit, FAKE_DRIVER_CONTEXT_MIB=str(context_mib))
    command = [str(container.build / program), SEED, count]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "" == done.stderr
    assert 0 == done.returncode
    return str(done.stdout)


@pytest.mark.parametrize("limit", ["4000m", "700m"])
def test_account_is_what_the_driver_gave(container: Container, limit: str) -> None:
    """
    Whatever a container's processes allocate, free, share, fork and lose, the sum is the driver's within one granule.
    """
    printed = prove(container, "random_programs", PROGRAMS, limit, 96)

    assert f"{PROGRAMS} programs\n" == printed


def test_nobody_waits_for_the_dead(container: Container) -> None:
    """
    64 processes of 8 threads, killed at random instructions: no wait of a second, no number below zero, nothing left.
    """
    printed = prove(container, "crash_matrix", ROUNDS, "1000m", 8)

    assert printed.startswith(f"{ROUNDS} rounds, ")
