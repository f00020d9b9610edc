"""
Write `requirements/*.lock` anew from the .in files, every package pinned with its hashes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"


def main() -> None:
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("lock: uv is missing; install it: pip install uv")
    options = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--universal", "--python-version=3.11"]
    # The same version on every Python that can have it, so that no check passes on one and fails on another.
    options.append("--fork-strategy=fewest")
    for source in sorted(REQUIREMENTS.glob("*.in")):
        lock = source.with_suffix(".lock")
        subprocess.run([uv, "pip", "compile", *options, "--upgrade", str(source), "-o", str(lock)], check=True)


if __name__ == "__main__":
    main()
