"""
The README shows the real output of the command.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
SHOWN = re.findall(r"^\$ (.*(?:\n> .*)*)\n((?:(?!\$ |```).*\n)*)", README, re.MULTILINE)


@pytest.mark.parametrize(("command", "output"), [pytest.param(*pair, id=pair[0].partition("\n")[0]) for pair in SHOWN])
def test_command_prints_what_the_readme_shows(command: str, output: str) -> None:
    """Standard output and standard error together, as a terminal shows them."""
    shell = command.replace("\n> ", "\n").replace("python -m", f"{sys.executable} -m")
    done = subprocess.run(
        ["/bin/sh", "-c", shell], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60
    )
    assert output.rstrip() == done.stdout.decode().rstrip()


def test_readme_shows_commands() -> None:
    """The test above is not empty."""
    assert len(SHOWN) >= 5
