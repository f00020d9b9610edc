"""
Write `requirements/*.lock` from the .in files, with the newest versions and their hashes.

`dev.lock` comes first, and the others take its versions: what the tests ran with is what the images hold.
"""

import subprocess
import tomllib
from pathlib import Path

from bootstrap import PACKAGES, REQUIREMENTS, ROOT, VENV, to_the_end

DEV = REQUIREMENTS / "dev.in"


def our_names() -> list[str]:
    """Return the names of the packages of this repository; no lock has them, because no index does."""
    return [tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]["name"] for package in PACKAGES]


def write_lock(uv: str, source: Path, *more: str) -> None:
    """Write the lock beside *source*."""
    options = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--universal", "--python-version=3.11"]
    # The same version on every Python that can have it, so that no check passes on one and fails on another.
    options.append("--fork-strategy=fewest")
    command = [uv, "pip", "compile", *options, *more, str(source), "-o", str(source.with_suffix(".lock"))]
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    uv = str(VENV / "bin/uv")
    write_lock(uv, DEV, "--upgrade")
    ours = [option for name in our_names() for option in ("--no-emit-package", name)]
    for source in sorted(REQUIREMENTS.glob("*.in")):
        if source != DEV:
            write_lock(uv, source, "--upgrade", "--constraint", str(DEV.with_suffix(".lock")), *ours)


if __name__ == "__main__":
    to_the_end(main)
