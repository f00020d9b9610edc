"""
The skips of all parts, at the end of `make test`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = ROOT / "tools/skipped.py"
SUITE = """
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_that_needs_a_moon(number):
    pytest.skip("needs a moon")

@pytest.mark.skipif(True, reason="needs a sun")
def test_that_needs_a_sun():
    pass

def test_that_needs_nothing():
    pass
"""


def test_skips_of_every_suite_are_printed_in_one_place_with_their_reasons(tmp_path: Path) -> None:
    """
    Two suites, one of them on a process of xdist: each reason once, with the number of tests, and those of each file.
    """
    collected = tmp_path / "skipped"
    for name in ("conftest.py", "pytest.ini"):
        shutil.copy(ROOT / name, tmp_path)
    for name, processes in (("test_first.py", "0"), ("test_second.py", "1")):
        (tmp_path / name).write_text(SUITE)
        command = [sys.executable, "-m", "pytest", "-n", processes, name]
        subprocess.run(command, env={**os.environ, "HAMI_SKIPPED": str(collected)}, cwd=tmp_path, check=True)
    done = subprocess.run([sys.executable, str(SKIPPED), str(collected)], capture_output=True, check=True, text=True)

    assert [
        "skipped: 6 tests",
        "    4 needs a moon",
        "      test_first.py: 2",
        "      test_second.py: 2",
        "    2 needs a sun",
        "      test_first.py: 1",
        "      test_second.py: 1",
    ] == done.stdout.splitlines()


def test_run_that_skips_nothing_says_so(tmp_path: Path) -> None:
    """
    The file is missing if no suite ran, and empty if none skipped a test.
    """
    command = [sys.executable, str(SKIPPED), str(tmp_path / "missing")]

    assert "skipped: 0 tests\n" == subprocess.run(command, capture_output=True, check=True, text=True).stdout
