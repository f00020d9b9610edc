"""
A short soak breaks no rule. `tox -e soak` takes longer, and `--planted` shows that a defect is found.
"""

import subprocess
import sys

import pytest

from harness.cluster import ROOT

MINUTES, SEED = 3, 1


@pytest.mark.embedded_only
@pytest.mark.timeout(1200)
def test_minutes_of_faults_break_no_rule() -> None:
    """As a user calls it. The history, logs and faults of a soak that fails stay in build/soak."""
    command = [sys.executable, "-m", "soak", "--minutes", str(MINUTES), "--seed", str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "e2e", check=False)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert f"seed {SEED}: " in done.stdout
    assert " 0 problems, " in done.stdout
