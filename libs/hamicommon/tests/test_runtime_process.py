"""
The process of a service, with real processes and signals, and its logs.
"""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import asyncio, sys
from hamicommon.errors import HamiError
from hamicommon.runtime.program import logs, process
logs.configure(0, json=True)
"""


def a_process(folder: Path, body: str) -> subprocess.Popen[str]:
    """Start a service whose `main` is *body*."""
    script = folder / "service.py"
    script.write_text(PRELUDE + textwrap.dedent(body) + "\nsys.exit(process.run(main, 'svc'))\n")
    return subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[dict[str, str]]]:
    """Return the exit code, what was printed, and the log's events."""
    out, err = process.communicate(timeout=20)
    return process.returncode, out, [json.loads(line) for line in err.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_zero(tmp_path: Path, number: signal.Signals) -> None:
    """A signal to stop is not an error."""
    process = a_process(
        tmp_path,
        """
        async def main():
            print("up", flush=True)
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                print("drained", flush=True)
        """,
    )
    assert process.stdout is not None
    assert "up\n" == process.stdout.readline()
    process.send_signal(number)
    code, out, log = ended(process)

    assert (0, "drained\n") == (code, out)
    assert ["Draining", "Stopped"] == [line["event"] for line in log]


def test_a_second_signal_ends_a_drain_that_hangs(tmp_path: Path) -> None:
    """Its sender has stopped waiting."""
    process = a_process(
        tmp_path,
        """
        async def main():
            print("up", flush=True)
            try:
                await asyncio.sleep(60)
            finally:
                print("draining", flush=True)
                await asyncio.sleep(60)
        """,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert "draining\n" == process.stdout.readline()
    process.send_signal(signal.SIGTERM)

    assert 1 == ended(process)[0]


def test_an_expected_error_is_one_line_and_one(tmp_path: Path) -> None:
    """The log has the error without a traceback, also for groups of errors."""
    code, _, log = ended(
        a_process(
            tmp_path,
            """
            async def main():
                raise ExceptionGroup("both", [HamiError("first thing"), ExceptionGroup("in", [HamiError("second")])])
            """,
        )
    )

    assert 1 == code
    assert ["first thing", "second"] == [line["error"] for line in log]
    assert all("exception" not in line for line in log)


def test_a_bug_is_logged_with_its_traceback(tmp_path: Path) -> None:
    """An error nobody expected shows where it came from, even beside one that was expected."""
    code, _, log = ended(
        a_process(
            tmp_path,
            """
            async def main():
                raise ExceptionGroup("both", [HamiError("expected"), ZeroDivisionError("bug")])
            """,
        )
    )

    assert 1 == code
    assert "Stopped by a bug" == log[0]["event"]
    assert "ZeroDivisionError: bug" in log[0]["exception"]


def test_a_main_that_returns_ends_with_zero(tmp_path: Path) -> None:
    """A service whose main returns ends."""
    assert 0 == ended(a_process(tmp_path, "async def main():\n    pass\n"))[0]


def test_library_logs_and_debug_lines_follow_the_verbosity(tmp_path: Path) -> None:
    """Debug lines appear from 4 on; libraries' warnings are lines of the same form."""
    script = tmp_path / "script.py"
    script.write_text(
        "import logging, structlog, sys\n"
        "from hamicommon.runtime.program import logs\n"
        "logs.configure(int(sys.argv[1]), json=True)\n"
        "structlog.get_logger().debug('Detail', count=3)\n"
        "logging.getLogger('library').warning('odd %s', 'thing')\n"
        "logging.getLogger('library').info('chatter')\n"
    )

    def events(verbosity: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(script), str(verbosity)], capture_output=True, text=True, check=True, timeout=20
        )
        return [json.loads(line)["event"] for line in done.stderr.splitlines()]

    assert ["odd thing"] == events(0)
    assert ["Detail", "odd thing"] == events(4)
