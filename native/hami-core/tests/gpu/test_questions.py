"""
What only a real driver can tell. The fake one answers as it is said to, and another answer is told from that.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from containers import GPU_A, ROOT, Container
from gpu.machine import Machine
from gpu.page import AnswerRow, Row
from gpu.questions import compute, memory
from gpu.questions.host import DMEM, MISC, Host, NotTriedError, fake_host, major_version, real_host
from gpu.questions.question import HANGS, Question, Verdict, question
from hardware.mps.node import needs_root
from hardware.process import Process

from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, FakeDriver

QUESTIONS: Sequence[Question] = (*memory.QUESTIONS, *compute.QUESTIONS)
NOT_FOR_THE_FAKE_DRIVER = {
    ("limit-of-a-removed-cgroup", DMEM): "limits are held by dmem, and not by misc",
    ("limit-of-a-container-of-crun", MISC): "limits are held by misc, and not by dmem",
    ("nccl-in-a-namespace", DMEM): "libnccl.so.2 is not installed",
    ("profiler-in-a-namespace", DMEM): "libcupti.so.12 is not installed",
}
BY_EACH = [pytest.param(each, kind, id=f"{each.name}, {kind}") for each in memory.QUESTIONS for kind in (DMEM, MISC)]
OF_ROOT = (compute.stranger_beside_an_idle_server, compute.stranger_beside_clients, compute.clients_of_two_namespaces)
"""They set the compute mode."""
BY_ONE = [
    pytest.param(each, DMEM, id=each.name, marks=(needs_root,) if each in OF_ROOT else ()) for each in compute.QUESTIONS
]


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.name)
def test_driver_is_asked(gpu: Machine, rows: list[Row], asked: Question) -> None:
    """Whatever it answers, the page says how that compares with the fake driver."""
    host = real_host(major_version(gpu.driver))
    try:
        found = asked.answer(host)
    except NotTriedError as error:
        rows.append(AnswerRow(asked.text, asked.assumed, f"not tried: {error}", ""))
        pytest.skip(str(error))
    rows.append(AnswerRow(asked.text, asked.assumed, found, asked.verdict(found)))


@pytest.fixture
def host(container: Container, tmp_path: Path, kind: str) -> Host:
    """The fake driver's machine, with limits by *kind*."""
    driver = FakeDriver(container.folder / "hardware")
    driver.load(version=FIRST_DRIVER_WITH_LIMITS)
    driver.set(GPU_A, persistence_mode=0)
    return fake_host(container, kind, tmp_path / "cgroup")


@pytest.fixture
def kind() -> str:
    """What limits memory, unless a test has another one."""
    return DMEM


@pytest.mark.parametrize(("asked", "kind"), [*BY_EACH, *BY_ONE])
def test_fake_driver_answers_as_assumed(host: Host, asked: Question, kind: str) -> None:
    """Or the question is not for it, for a reason that is known."""
    why_not = NOT_FOR_THE_FAKE_DRIVER.get((asked.name, kind))
    if why_not:
        with pytest.raises(NotTriedError, match=f"^{re.escape(why_not)}$"):
            asked.answer(host)
        return
    found = asked.answer(host)

    assert (asked.assumed, Verdict.AS_ASSUMED) == (found, asked.verdict(found))


def test_harder_driver_is_told(container: Container, host: Host) -> None:
    """Here contexts are not charged to a limit."""
    found = memory.context_counts_against_a_limit.answer(host.with_variables(FAKE_DRIVER_CONTEXT_MIB="0"))

    assert ("no", Verdict.HARDER) == (found, memory.context_counts_against_a_limit.verdict(found))


@needs_root
def test_kinder_driver_is_told(container: Container, host: Host) -> None:
    """Here nobody is let in to the device."""
    FakeDriver(container.folder / "hardware").set(GPU_A, compute_mode=2)
    found = compute.stranger_beside_an_idle_server.answer(host)

    assert ("kept out", Verdict.KINDER) == (found, compute.stranger_beside_an_idle_server.verdict(found))


def test_program_that_hangs_is_an_answer(host: Host) -> None:
    """A harder one, whatever is assumed."""

    @question("ends", kinder=("ends at once",))
    def sleeper(asked: Host) -> str:
        """Does it end?"""
        asked.ask(asked.process(), "__import__('time').sleep(60)", seconds=0.2)
        return "ends"

    found = sleeper.answer(host)

    assert (HANGS, Verdict.HARDER) == (found, sleeper.verdict(found))


@needs_root
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(container: Container, host: Host, fails: bool) -> None:
    """Compute mode, cgroups, daemon and processes, also if the question fails."""
    made: list[Path] = []
    processes: list[Process] = []

    @question("yes")
    def greedy(asked: Host) -> str:
        """Does it take everything?"""
        control = asked.daemon()
        asked.exclusive()
        made.extend([asked.group("/pod/c"), control.folder])
        processes.extend([asked.process("/pod/c"), asked.client(control, "default")])
        if fails:
            raise NotTriedError("it breaks off")
        return "yes"

    with suppress(NotTriedError):
        greedy.answer(host)

    assert [False, False] == [path.exists() for path in made]
    assert all(process.process.poll() is not None for process in processes)
    with host.restored():
        assert 0 == host.ask(host.root(), "compute_mode()")


def test_page_about_shares_lists_the_questions() -> None:
    """In their order."""
    page = (ROOT / "docs/what-holds-a-share.md").read_text()
    section = page.partition("## What only hardware can tell\n")[2].partition("\n## ")[0]

    assert [each.text for each in QUESTIONS] == re.findall(r"^- (.*\?)$", section, re.M)
