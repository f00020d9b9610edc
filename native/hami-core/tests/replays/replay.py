"""
Run a recorded sequence of calls bare and under a limit, and compare what it saw.

Owns the decorator that makes a test the answer to a complaint. Neighbours: `programs` are the sequences, `page` writes
docs/replays.md from the tests.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from containers import HERE, Container

PROGRAMS = HERE / "replays/programs"
LIMIT_MIB, LIMIT_PERCENT = 1000, 50
RUN_SECONDS = 120

Test = TypeVar("Test", bound=Callable[..., Any])
Outcome = dict[str, Any]
"""The steps in which a limit shows, and what each saw."""


@dataclass(frozen=True)
class Complaint:
    """What users of other libraries report of a program."""

    program: str
    threads: tuple[str, ...]
    """Issues, as `<owner>/<repository>#<number>`."""


def answers(program: str, *threads: str) -> Callable[[Test], Test]:
    """Make a test the answer to a complaint. Its docstring says what was reported."""

    def mark(test: Test) -> Test:
        test.complaint = Complaint(program, threads)  # type: ignore[attr-defined]
        return test

    return mark


def replay(container: Container, program: str, **extra: str) -> tuple[Outcome, Outcome]:
    """
    Run a program twice, and return what it saw of the limit: bare, and with the library.

    All other steps are equal.
    """
    bare, limited = (_steps(container, program, preload=preload, extra=extra) for preload in (False, True))
    assert [_alike(step) for step in bare] == [_alike(step) for step in limited]
    return _limited(bare), _limited(limited)


def _steps(container: Container, program: str, *, preload: bool, extra: dict[str, str]) -> list[Outcome]:
    paths = [str(HERE / "clients/programs"), str(HERE / "preload"), *sys.path]
    environment = container.environ(
        preload=preload,
        CUDA_DEVICE_MEMORY_LIMIT=f"{LIMIT_MIB}m",
        PYTHONPATH=os.pathsep.join(path for path in paths if path),
        **extra,
    )
    command = [sys.executable, str(PROGRAMS / program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _alike(step: Outcome) -> tuple[str, Any]:
    return step["step"], "differs" if step["is_limited"] else step["value"]


def _limited(steps: list[Outcome]) -> Outcome:
    return {step["step"]: step["value"] for step in steps if step["is_limited"]}
