"""
Times and amounts that pages state are those of the code, on each page that states them: pages cannot contradict it, nor
each other.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hami_device_plugin.decide.health.xids import PROBATION
from hami_device_plugin.serve.health.health_loop import ROUND_SECONDS
from hami_device_plugin.serve.limit_loop import RESYNC_SECONDS
from hami_monitor.decide.watchdog.confirmation import EVICTION_SECONDS, RETRY_SECONDS
from hami_monitor.decide.watchdog.findings import TOLERANCE_BYTES
from hami_scheduler.bind.node_lock import TIMEOUT
from hami_scheduler.state.reservation import RESERVATION_SECONDS
from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS

from .pages import DOCS, ROOT

PAGES = (
    *(ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "charts/hami/README.md", ROOT / "native/hami-core/README.md"),
    *sorted(ROOT.glob("services/*/README.md")),
    *sorted(DOCS.glob("*.md")),
)
NUMBERS = {"two": 2, "three": 3, "five": 5, "ten": 10, "thirty": 30}
AMOUNT = rf"(?P<number>\d+|{'|'.join(NUMBERS)}) (?P<unit>s|seconds?|minutes?|MiB)"
UNITS = {"s": 1, "second": 1, "minute": 60, "MiB": 1}


@dataclass(frozen=True)
class Fact:
    """Something that pages say in words of the form *said*, in which AMOUNT is *amount*."""

    said: str
    amount: float | None
    """In seconds or MiB; None where no constant of the code has it, and pages need only agree."""
    pages: int
    """On how many pages, at least: a form that no page has any more checks nothing."""


FACTS = (
    Fact(rf"probation is {AMOUNT}", PROBATION.total_seconds(), 1),
    Fact(rf"reads every device each {AMOUNT}", ROUND_SECONDS, 1),
    Fact(rf"(?:leads after|decides after at most|no replica leads, which takes at most) {AMOUNT}", None, 3),
    Fact(rf"nodeLockExpire` \({AMOUNT}\)", TIMEOUT.total_seconds(), 1),
    Fact(rf"choice is kept in memory for {AMOUNT}", RESERVATION_SECONDS, 1),
    Fact(rf"(?:and|from) {AMOUNT}(?: more)? (?:for each|a) (?:listed )?process", TOLERANCE_BYTES / 2**20, 3),
    Fact(rf"must have been in every reading of {AMOUNT}", EVICTION_SECONDS, 1),
    Fact(rf"same Pod again after {AMOUNT}", RETRY_SECONDS, 1),
    Fact(rf"compares each limit with the driver's .* every {AMOUNT}", RESYNC_SECONDS, 1),
)


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences and cells of a page, without what stands in fences."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"(?<!\n)\n(?![\n|#-])\s*", " ", text)
    return iter(re.split(r"(?<=[.!?;|])\s", text))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.said.replace(AMOUNT, "…"))
def test_pages_that_state_a_fact_agree_with_the_code(fact: Fact) -> None:
    """Each page on which the words stand has the amount that the code has."""
    said = {
        (page.relative_to(ROOT).as_posix(), amount(found))
        for page in PAGES
        for sentence in sentences(page)
        for found in re.finditer(fact.said, sentence)
    }

    stated = {value for _, value in said}
    assert 1 == len(stated), said
    assert fact.amount is None or {fact.amount} == stated, said
    assert fact.pages <= len({page for page, _ in said}), said


def amount(found: re.Match[str]) -> float:
    """
    Return an amount in seconds or MiB.

    >>> amount(re.fullmatch(AMOUNT, "five minutes"))
    300
    """
    number = found["number"]
    return (NUMBERS.get(number) or int(number)) * UNITS[found["unit"].removesuffix("s") or "s"]


def test_driver_with_limits_on_memory_is_the_same_on_every_page() -> None:
    """Wherever a sentence about limits on memory names a version."""
    first = FIRST_DRIVER_WITH_LIMITS.partition(".")[0]
    named = {
        (page.relative_to(ROOT).as_posix(), found[1])
        for page in PAGES
        for sentence in sentences(page)
        if "limit" in sentence and "memory" in sentence
        for found in re.finditer(r"\b(?:r|[Dd]river )(\d{3})\b", sentence)
    }

    assert {first} == {version for _, version in named}, named
