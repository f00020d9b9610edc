"""The README of each service lists the flags of its program."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

SERVICES = sorted(path.parent.name for path in (ROOT / "services").glob("*/README.md"))


@pytest.mark.parametrize("service", SERVICES)
def test_readme_lists_the_flags_of_the_program(service: str) -> None:
    """The table has every flag with an effect, and no other."""
    program = Path(sys.executable).with_name(f"hami-{service}")
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    effective = shown.split("accepted without effect:")[0]
    flags = {found[1] for found in re.finditer(r"^  (?:-\w\b.*?, )?(--[a-z_-]+)", effective, re.MULTILINE)}
    readme = (ROOT / "services" / service / "README.md").read_text()
    section = re.split(r"^## ", readme.split("\n## Flags\n")[1], flags=re.MULTILINE)[0]
    first_cells = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))

    assert flags - {"--help", "--v"} == set(re.findall(r"`(--[a-z_-]+)`", first_cells))
