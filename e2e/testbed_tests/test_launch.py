"""
A program dies where its order says, once.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.launch.killed_when_told import MET, order

PACKAGE = """
def step(number):
    print(number, flush=True)
"""
PROGRAM = """
from walking import steps
for number in range(3):
    steps.step(number)
"""


@pytest.mark.parametrize(
    ("where", "number", "printed"),
    [
        ("walking.steps:step", 1, ""),
        ("walking.steps:step", 3, "0\n1\n"),
        ("walking", 1, ""),
        ("walking", 5, "0\n1\n"),  # the package and its function are lines, too
    ],
)
def test_program_dies_once_where_its_order_says(tmp_path: Path, where: str, number: int, printed: str) -> None:
    """The file's new name shows it, and the next process goes on."""
    folder, program, file = tmp_path / "walking", tmp_path / "program.py", tmp_path / "order"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "steps.py").write_text(PACKAGE)
    program.write_text(PROGRAM)
    command = (sys.executable, "-m", "testbed.launch.killed_when_told", str(file), "walking.steps:step", str(program))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    order(file, where, number)

    killed, again = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=False) for _ in range(2)
    )

    assert (-signal.SIGKILL, printed) == (killed.returncode, killed.stdout), killed.stderr
    assert (0, "0\n1\n2\n") == (again.returncode, again.stdout)
    assert [f"order{MET}"] == [path.name for path in tmp_path.glob("order*")]
