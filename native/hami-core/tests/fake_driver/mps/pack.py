"""
Pack `nvidia-cuda-mps-control` into one file, which runs with the Python that packs it.

Run by CMake: python pack.py OUTPUT
"""

import sys
import zipapp
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parents[1]
"""The folder from which the modules here are imported."""


def _is_packed(path: Path) -> bool:
    own = HERE.relative_to(PACKAGES)
    return path in (own, *own.parents) or (path.parent == own and path.suffix == ".py")


if __name__ == "__main__":
    # Isolated from the variables and packages of the program that starts it.
    zipapp.create_archive(
        PACKAGES, sys.argv[1], f"{sys.executable} -IS", "fake_driver.mps.__main__:main", filter=_is_packed
    )
    Path(sys.argv[1]).chmod(0o755)
