"""
The trace shows what each launch paid and waited for.
"""

import json
import subprocess
import sys

import pytest
from containers import Container
from virtual import not_under_tsan

from hamicommon.wire.region.trace import SUFFIX, TracedInterval, TracedLaunch, decode_trace

pytestmark = not_under_tsan

PROGRAM = """
cuda, lib = Cuda(), None
kernel = cuda.kernel(1000)
for _ in range(200):
    assert 0 == cuda.launch(kernel)
cuda.library.cuCtxSynchronize()
say(0)
"""
"""200 ms of work at half of the device."""


@pytest.fixture
def traced(limited: Container) -> Container:
    """A container whose processes are traced."""
    limited.environment["LIBCUDA_LOG_LEVEL"] = "4"
    return limited


def test_each_launch_is_traced_with_what_it_paid_and_waited_for(traced: Container) -> None:
    """The first one is of unknown cost, the second waits for it, and the others pay it and wait for the share."""
    traced.run_and_listen(PROGRAM)
    entries = decode_trace((traced.region.parent / (traced.region.name + SUFFIX)).read_bytes())
    launches = [entry for entry in entries if isinstance(entry, TracedLaunch)]
    intervals = [entry for entry in entries if isinstance(entry, TracedInterval)]

    first, second, *others = launches
    assert 200 == len(launches)
    assert ("advance", 1_000_000, ()) == (first.paid, first.paid_nanoseconds, first.waited_microseconds)
    assert "cost" in dict(second.waited_microseconds)
    assert {"estimate"} == {launch.paid for launch in others}
    assert all(900_000 < launch.paid_nanoseconds < 1_100_000 for launch in others)
    assert 50_000 < sum(dict(launch.waited_microseconds).get("share", 0) for launch in others) < 400_000
    assert {(first.kind, first.stream, first.pid, 0)} == {
        (launch.kind, launch.stream, launch.pid, launch.device) for launch in launches
    }
    assert any(900_000 < interval.cost_nanoseconds < 1_100_000 for interval in intervals if interval.kind == first.kind)


def test_trace_is_printed_as_lines_of_json(traced: Container) -> None:
    """By the command that prints a region."""
    traced.run_and_listen(PROGRAM)
    command = [sys.executable, "-m", "hamicommon", "region", "--trace", str(traced.region)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    lines = [json.loads(line) for line in printed.splitlines()]
    launch = next(line for line in lines if line["entry"] == "launch")
    assert list(range(1, len(lines) + 1)) == [line["number"] for line in lines]
    assert {"paid": "advance", "paid_us": 1000.0, "waited_us": {}}.items() <= launch.items()


def test_processes_that_are_not_traced_make_no_file(limited: Container) -> None:
    """Below level 4."""
    limited.run_and_listen(PROGRAM, LIBCUDA_LOG_LEVEL="3")

    assert not (limited.region.parent / (limited.region.name + SUFFIX)).exists()


def test_program_runs_on_if_the_trace_cannot_be_made(traced: Container) -> None:
    """A folder is in its place. The warning says so, once."""
    (traced.region.parent / (traced.region.name + SUFFIX)).mkdir()
    _, errors = traced.run_and_listen(PROGRAM)

    assert 1 == errors.count("launches are not traced")
