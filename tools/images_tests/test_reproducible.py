"""
Builds of the same checkout give the same bytes.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap import ROOT
from image.archive import read_archive
from image.catalogue import DOCKERFILES


@pytest.fixture(scope="session")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every image, built a second time."""
    folder = tmp_path_factory.mktemp("rebuilt")
    command = [sys.executable, str(ROOT / "tools/images.py"), "--rebuild", "--output", str(folder)]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DOCKERFILES)
def test_second_build_gives_the_same_layers(name: str, rebuilt: Path) -> None:
    """So the origin of an image can be verified by building it again."""
    first, second = (read_archive(folder / f"{name}.tar") for folder in (ROOT / "build/images", rebuilt))

    assert first.layers == second.layers
