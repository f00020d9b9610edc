"""
Completion says what can follow.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_hami.commands.completion import answer, candidates
from kubectl_hami.main import parser

PROGRAM = Path(sys.executable).with_name("kubectl-hami")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["wai"], ["waiting"]),
        (["top", ""], ["nodes", "devices", "pods", "namespaces"]),
        (["top", "--sort-by", "th"], ["throttled"]),
        (["top", "-o", ""], ["table", "wide", "json", "yaml"]),
        (["doctor", "--all"], ["--all-contexts"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["explain", "p"], []),
        (["top", "--node", "n"], ["n1"]),
        (["top", "--node", "n1", "-n", ""], ["default"]),
        (["explain", ""], ["waits"]),
        (["pods", "GPU"], ["GPU-a"]),
        (["top", "--context", "k"], ["kind"]),
    ],
)
def test_what_can_follow_is_what_the_parser_takes(words: list[str], expected: list[str]) -> None:
    """Commands, places, options and their choices; and the names that the cluster has."""
    known = {"node": ["n1"], "namespace": ["default"], "pod": ["waits"], "place": ["n1", "GPU-a"], "context": ["kind"]}

    assert (expected, False) == candidates(parser(), words, lambda dest, _: known[dest])


def test_without_a_cluster_no_names_follow(tmp_path: Path) -> None:
    """And nothing is printed that a shell would take for one."""
    assert ":4\n" == answer(parser(), ["top", "--kubeconfig", str(tmp_path / "none"), "--node", ""])


def test_option_for_a_file_completes_files() -> None:
    """The shell knows them."""
    assert ":0\n" == answer(parser(), ["top", "--from", ""])
    assert "waiting\n:4\n" == answer(parser(), ["wai"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_one_that_the_shell_reads(shell: str) -> None:
    """Where the shell is installed."""
    script = subprocess.run([PROGRAM, "completion", shell], capture_output=True, check=True).stdout
    assert b"kubectl_complete-hami" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=script, check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_a_command() -> None:
    """As it would after a tab."""
    script = f"""
        PATH={PROGRAM.parent}:$PATH
        source <(kubectl-hami completion bash)
        COMP_WORDS=(kubectl-hami top --sort-by us) COMP_CWORD=3
        _kubectl_hami
        echo "${{COMPREPLY[@]}}"
    """

    assert b"used\n" == subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
