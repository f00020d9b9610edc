"""
The simulation finds defects, tells the same story of the same seed, and finds none in the scheduler as it is.
"""

import os
import subprocess
import sys

import pytest

from harness.cluster import ROOT
from simulation.planted import DEFECTS
from simulation.story import simulate
from testbed.campaigns import FOLDER, read

COMMAND = [sys.executable, "-m", "simulation"]


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what the command printed, as a user calls it."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=ROOT / "e2e", check=False)


@pytest.mark.timeout(600)
def test_leader_changes_under_faults_break_no_rule() -> None:
    """Nothing is granted twice, no lock stays, nobody waits in vain."""
    done = ran("--stories", "8", "--seed", "1", "--processes", "2")

    assert 0 == done.returncode, done.stdout + done.stderr
    result = read((FOLDER / "simulation-1.json").read_text())
    assert result.amounts["leader changes"] > 50
    assert result.amounts["Pods bound"] > 500


def test_same_seed_tells_the_same_story() -> None:
    """A seed tells the story of a finding once more, also after other stories."""
    program = (
        "from simulation.story import simulate; simulate({first}, 1); "
        "print([(each.version, each.at, each.change) for each in simulate(3, 1).events])"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program.format(first=first)],
            capture_output=True,
            text=True,
            cwd=ROOT / "e2e",
            env={**os.environ, "PYTHONHASHSEED": "0"},
            check=True,
        ).stdout.splitlines()[-1]
        for first in (1, 2)
    ]

    assert told[0] == told[1]


@pytest.mark.parametrize("defect", ["a new leader fences no Pod", "a grant is a MiB short"])
def test_planted_defect_is_found(defect: str) -> None:
    """Within a few stories, by the rule that it breaks. `python -m simulation --planted` looks for all of them."""
    rules, plant = DEFECTS[defect]
    with plant():
        assert any(simulate(seed, rounds=3).breaks(rules) for seed in range(1, 11))
