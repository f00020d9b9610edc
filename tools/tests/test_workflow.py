"""
The hosted workflow runs `.ci/run` and nothing else, may only read, and names each action by a commit.
"""

import re
from pathlib import Path
from typing import Any

import yaml

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github/workflows").glob("*.yml"))


def steps() -> list[dict[str, Any]]:
    """Return the steps of all jobs."""
    read = [yaml.safe_load(path.read_text()) for path in WORKFLOWS]
    return [step for workflow in read for job in workflow["jobs"].values() for step in job["steps"]]


def test_workflow_runs_what_a_person_runs() -> None:
    """A step that is only there would be checked nowhere else."""
    assert [".ci/run"] == [step["run"] for step in steps() if "run" in step]


def test_workflow_may_only_read() -> None:
    """It runs code of pull requests."""
    assert [{"contents": "read"}] == [yaml.safe_load(path.read_text())["permissions"] for path in WORKFLOWS]


def test_actions_are_named_by_a_commit() -> None:
    """A tag can be moved."""
    actions = [step["uses"] for step in steps() if "uses" in step]

    assert [] == [action for action in actions if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)]


def test_nothing_is_cached() -> None:
    """A cache would hide a step that the set-up lacks."""
    assert [] == [step for step in steps() if "cache" in str(step)]
