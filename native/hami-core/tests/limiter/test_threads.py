"""
Threads that launch at the same time, in the machine's time: what ThreadSanitizer can see of the limiter.
"""

from pathlib import Path

import pytest
from limiter.cells import SETTLING_SECONDS, Cell, Tenant, run


@pytest.mark.parametrize("kernel", ["busy_20", "busy_1000"])
def test_threads_and_processes_launch_at_once(build: Path, kernel: str) -> None:
    """
    Four threads on two streams in each of two processes all finish without error.

    How exact the limit is depends on the machine. Under ThreadSanitizer a data race ends a program with an error.
    """
    tenant = Tenant(50, kernel, processes=2, streams=2, threads=4)
    (share,) = run(Cell((tenant,), is_virtual=False), build, 0)

    assert share.launches > 0
    assert SETTLING_SECONDS == len(share.seconds)
    assert 0 < sum(share.seconds) / SETTLING_SECONDS <= 100
