"""
`.ci/run` runs both checks, and its last line says what it did not run.
"""

import os
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci/run"
MAKE = """\
#!/bin/sh
echo "made $1"
exit $(cat "$(dirname "$0")/$1")
"""


@pytest.fixture
def make(tmp_path: Path) -> Path:
    """Return a folder with a `make` that ends as the file with its target's name says."""
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)
    (tmp_path / "test").write_text("0")
    (tmp_path / "e2e-real").write_text("0")
    return tmp_path


def _run(make: Path, **minutes: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": f"{make}:{os.environ['PATH']}", **minutes}
    return subprocess.run([RUN], env=environment, capture_output=True, text=True, check=False)


def test_both_checks_run_when_there_is_time(make: Path) -> None:
    """What they write is shown."""
    done = _run(make)

    assert (0, "made test\nmade e2e-real\n") == (done.returncode, done.stdout)


def test_time_that_just_suffices_is_enough(make: Path) -> None:
    """The limit belongs to the check."""
    done = _run(make, CI_MINUTES="30", E2E_REAL_MINUTES="30")

    assert "made e2e-real" == done.stdout.splitlines()[-1]


def test_check_without_time_is_named_in_the_last_line(make: Path) -> None:
    """The run is green, and its end says what is missing."""
    done = _run(make, CI_MINUTES="29", E2E_REAL_MINUTES="30")

    last = "not run: e2e-real: it may take 30 minutes, and of 29 only 29 are left"
    assert (0, ["made test", last]) == (done.returncode, done.stdout.splitlines())


@pytest.mark.parametrize("check", ["test", "e2e-real"])
def test_check_that_fails_fails_the_run(make: Path, check: str) -> None:
    """Its exit status is that of the run, and nothing runs after it."""
    (make / check).write_text("3")

    done = _run(make)

    assert 3 == done.returncode
    assert f"made {check}" == done.stdout.splitlines()[-1]
