"""
What is promised of a drill, and the decorator that makes a test one.

Owns the words of the table in SECURITY.md. Neighbour: `container` finds out what a program really gets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

LIBRARY, DMEM, MISC, BOTH = "library", "dmem", "misc", "both"
"""
Who holds the limit on memory: `libvgpu.so` in the container, the driver by the container's cgroup with one of two
controllers, or library and driver.
"""
MPS, MPS_REQUIRED, MIG = "mps", "mps-required", "mig"
"""Who holds the limit on compute beside LIBRARY."""

ABOVE_GRANT, NOT_LOADED, NOT_IN_REGION = "memory-above-grant", "library-not-loaded", "not-in-region"
NOT_IN_NAMESPACE, SEVERAL_IN_NAMESPACE = "not-in-namespace", "several-in-namespace"
"""What the monitor's watchdog finds, as its metric says."""

Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Promise:
    """What a program gets."""

    outcome: str
    """What the table says of it."""
    found: frozenset[str] = frozenset()
    """The kinds of findings of the monitor's watchdog."""

    def __str__(self) -> str:
        """Return the cell of the table."""
        return self.outcome + "".join(f", `{kind}`" for kind in sorted(self.found))


HOLDS = Promise("holds")
"""All of the share can be used, and no more."""
NO_DEVICE = Promise("has no device")
"""The driver refuses the program."""
UNLIMITED = Promise("takes any device of the Node")
"""There is no share."""
REJECTED = Promise("the Pod is rejected")
"""No container starts."""


def holds(*found: str) -> Promise:
    """Return HOLDS, although the watchdog reports the program."""
    return Promise(HOLDS.outcome, frozenset(found))


def leaves(*found: str) -> Promise:
    """Return the promise that more can be allocated, and that the watchdog finds this."""
    return Promise("leaves", frozenset(found))


def together(library: Promise, driver: Promise) -> Promise:
    """
    Return what is promised if both hold the limit.

    One that holds is enough. The watchdog still finds who is not loaded or not counted.
    """
    if HOLDS.outcome in (library.outcome, driver.outcome):
        return Promise(HOLDS.outcome, library.found - {ABOVE_GRANT})
    return Promise(library.outcome, library.found | driver.found)


@dataclass(frozen=True)
class Drill:
    """A row of the table."""

    program: str
    """Who tries to leave the share, and how."""
    promises: dict[str, Promise]
    """By who holds the limit."""
    because: str
    """The first sentence of the test's docstring."""


@dataclass(frozen=True)
class Enforced:
    """Who holds the limit in a test, and what is promised then."""

    by: str
    promise: Promise


def drill(program: str, *, library: Promise, driver: Promise) -> Callable[[Test], Test]:
    """Make a test a drill on memory. It runs once for each holder and for both, as the fixture `enforced` says."""
    return _drill(program, {LIBRARY: library, DMEM: driver, MISC: driver, BOTH: together(library, driver)})


def compute_drill(
    program: str, *, library: Promise, mps: Promise, required: Promise | None = None
) -> Callable[[Test], Test]:
    """Make a test a drill on compute. It runs once for each holder. What is *required* is that of *mps* if None."""
    return _drill(program, {LIBRARY: library, MPS: mps, MPS_REQUIRED: required or mps, MIG: HOLDS})


def _drill(program: str, promises: dict[str, Promise]) -> Callable[[Test], Test]:
    cases = [pytest.param(Enforced(by, promise), id=by) for by, promise in promises.items()]

    def mark(test: Test) -> Test:
        _name(test, program, promises)
        pytest.mark.parametrize("enforced", cases)(test)
        return test

    return mark


def drill_without_share(program: str, promise: Promise) -> Callable[[Test], Test]:
    """
    Make a test a drill that runs once, with the fixture `promise`.

    Its containers get no share, so there is nothing that library or driver could hold.
    """

    def mark(test: Test) -> Test:
        _name(test, program, dict.fromkeys((LIBRARY, DMEM, MISC, BOTH), promise))
        pytest.mark.parametrize("promise", [pytest.param(promise, id="either")])(test)
        return test

    return mark


def _name(test: Test, program: str, promises: dict[str, Promise]) -> None:
    because = " ".join((test.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    test.drill = Drill(program, promises, f"{because}.")  # type: ignore[attr-defined]
