"""
What a campaign has shown, in the one form that the page of reliability is made of.

A campaign is a command that looks for defects for as long as one likes, with inputs drawn from a seed, such as `soak`.
Must never judge: a campaign says what is a problem.
"""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/reliability"


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a campaign."""

    campaign: str
    """The name of its command in tox."""
    date: str
    """Of its end, in UTC: `2026-01-31`."""
    commit: str
    """The tree that it ran on, with `+` behind it if files differed from the commit."""
    seed: int
    minutes: float
    amounts: Mapping[str, int]
    """What it did: `{"leader changes": 310, "faults": 2056}`."""
    problems: tuple[str, ...]
    """What it found, each in a line."""


def record(campaign: str, seed: int, minutes: float, amounts: Mapping[str, int], problems: Sequence[str]) -> Path:
    """Write the result of a run that has just ended into a file of FOLDER, print its path and return it."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    result = Result(campaign, date, _commit(), seed, round(minutes, 1), amounts, tuple(problems))
    path = FOLDER / f"{campaign}-{seed}.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result)) + "\n")
    print(f"result: {path}")
    return path


def read(line: str) -> Result:
    """Return the result that `record` wrote as *line*. Raises: TypeError, KeyError, json.JSONDecodeError."""
    found = json.loads(line)
    return Result(**{**found, "problems": tuple(found["problems"])})


def _commit() -> str:
    """Return the name of the tree; empty outside a checkout."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
