"""
A process of an earlier run is found in its folder, and can be replaced.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minicluster.pids import start_ticks
from testbed.processes import environment, stop_leftovers, take_over

EARLIER_RUN = """
import sys
from pathlib import Path
from testbed.processes import Supervisor
supervisor = Supervisor(Path(sys.argv[1]), outlives_us=True)
print(supervisor.start("one", ["sleep", "1000"], {"COLOUR": "green"}).pid)
"""
FORK_THEN_EXECUTE = """
import os, time
pid = os.fork()
if pid:
    print(pid, flush=True)
    os.waitpid(pid, 0)
else:
    time.sleep(0.3)
    os.execve("/bin/sleep", ["sleep", "1"], {"OF": "program"})
"""
EXECUTIONS = 200
"""Enough to meet the moment within an execution at which a process has no environment (one in 20)."""


@pytest.fixture
def pid(tmp_path: Path) -> int:
    """The pid of the process `one` of an earlier run."""
    run = [sys.executable, "-c", EARLIER_RUN, str(tmp_path)]
    return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


def test_left_process_is_ended_and_named(pid: int, tmp_path: Path) -> None:
    """A second call finds none."""
    assert ["one"] == stop_leftovers(tmp_path)

    assert start_ticks(pid) is None
    assert [] == stop_leftovers(tmp_path)


def test_replaced_process_ends_and_its_command_is_returned(pid: int, tmp_path: Path) -> None:
    """Later runs end the process that replaced it, unless that has ended."""
    taker = "import sys, pathlib, testbed.processes as p; print(p.take_over(pathlib.Path(sys.argv[1]), 'one'))"
    run = [sys.executable, "-c", taker, str(tmp_path)]
    for _ in range(2):  # the second time it has already ended
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        assert "(['sleep', '1000'], {'COLOUR': 'green'})\n" == done.stdout

    assert start_ticks(pid) is None
    assert [] == stop_leftovers(tmp_path)


def test_unknown_process_is_an_error_that_names_those_there_are(pid: int, tmp_path: Path) -> None:
    """Nothing is ended."""
    with pytest.raises(LookupError, match="has no process two; it has one"):
        take_over(tmp_path, "two")

    os.kill(pid, 0)
    stop_leftovers(tmp_path)


def test_environment_is_that_of_the_program_and_not_of_its_launcher() -> None:
    """A process that was forked for a program, and has not executed it yet, is waited for."""
    argv = [sys.executable, "-c", FORK_THEN_EXECUTE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={"OF": "launcher"}) as launcher:
        assert launcher.stdout is not None

        found = environment(int(launcher.stdout.readline()))

        assert {"OF": "program"} == found
        launcher.wait()


def test_environment_is_never_read_in_the_middle_of_an_execution() -> None:
    """A process that executes a program has no environment for a moment, which is waited for."""
    found = []
    for _ in range(EXECUTIONS):
        with subprocess.Popen(["/bin/sleep", "10"], env={"OF": "program"}) as program:
            found.append(environment(program.pid))
            program.kill()

    assert [{"OF": "program"}] * EXECUTIONS == found


def test_empty_environment_is_one() -> None:
    """A program that was started with no variable has none."""
    with subprocess.Popen(["/bin/sleep", "10"], env={}) as bare:
        assert {} == environment(bare.pid)
        bare.kill()


def test_process_that_ends_while_it_is_looked_at_has_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel then reads nothing from the file that it had opened, which is not an empty environment."""
    with subprocess.Popen(["sleep", "0"], env={"OF": "program"}) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr(Path, "read_bytes", lambda _: b"")

        with pytest.raises(ProcessLookupError, match="has ended"):
            environment(ended.pid)
