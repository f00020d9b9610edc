"""
What is common to all commands: several clusters, exit codes, sentences.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_hami.commands.command_line import read_each, warn
from kubectl_hami.read.source import ReadError, Source, listing

from .fakes import FakeSource

PROGRAM = Path(sys.executable).with_name("kubectl-hami")
GOOD, BROKEN = FakeSource({"/version": {"minor": "34"}}), FakeSource({})


def minor(source: Source) -> str:
    """Return the version of a cluster."""
    return str(listing(source, "/version")["minor"])


def test_of_several_clusters_one_that_cannot_be_read_is_left_out() -> None:
    """The others are why several were asked."""
    problems: list[str] = []

    assert ["34"] == read_each([BROKEN, GOOD], minor, problems)
    assert ["cluster fake is left out: /version: there is no such thing"] == problems


def test_only_cluster_that_cannot_be_read_is_the_error() -> None:
    """There is nothing else to show."""
    with pytest.raises(ReadError, match="there is no such thing"):
        read_each([BROKEN], minor, [])


def test_many_problems_are_ten_lines_and_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, and none with what a terminal obeys."""
    warn([f"problem {number}\x1b[31m" for number in [*range(15), 0]])

    lines = capsys.readouterr().err.splitlines()
    assert 11 == len(lines)
    assert "kubectl hami: and 5 more" == lines[-1]
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["top", "--kubeconfig", "/nowhere"], "give --kubeconfig, or set KUBECONFIG"),
        (["top", "--interval", "-1"], "argument --interval: invalid"),
        (["top", "-A", "-n", "a"], "argument -n/--namespace: not allowed with argument -A/--all-namespaces"),
        (["top", "--request-timeout", "soon"], "argument --request-timeout: 'soon' is not a duration"),
        (["top", "--from", "/nowhere"], "/nowhere: is no archive of kubectl hami bundle: No such file or directory"),
        (["doctor", "--from", "f", "--context", "c"], "give it without --context and --all-contexts"),
        (["explain", "a/b", "--from", "/nowhere"], "is not the name of a Pod"),
        ([], "simulate  which Node and devices new Pods would get"),
        (["nothing"], "invalid choice: 'nothing'"),
        (["--context", "c", "top"], "--context stands after the command, as in: kubectl hami top --context"),
    ],
)
def test_question_that_cannot_be_answered_ends_with_2_and_a_sentence(arguments: list[str], sentence: str) -> None:
    """Nothing is printed that could be taken for an answer."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)

    assert (2, "") == (done.returncode, done.stdout)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
