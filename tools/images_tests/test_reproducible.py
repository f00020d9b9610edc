"""
The same checkout gives the same bytes.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from bootstrap import ROOT
from image.archive import read_archive
from images import DOCKERFILES


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DOCKERFILES)
def test_second_build_gives_the_same_layers(name: str, tmp_path: Path) -> None:
    """Nobody has to believe where an image comes from: it can be built again and compared."""
    command = [sys.executable, str(ROOT / "tools/images.py"), "--output", str(tmp_path), name]
    subprocess.run(command, check=True)

    first, second = (read_archive(folder / f"{name}.tar") for folder in (ROOT / "build/images", tmp_path))

    assert first.layers == second.layers
