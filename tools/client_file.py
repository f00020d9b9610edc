"""
Build `kubectl hami` as one file for PATH and for Krew: `build/kubectl-hami`.

Holds the client and all that it needs, from requirements/kubectl-hami.lock, for the Python that runs this and for this
platform, because two packages have compiled parts. The file needs a Python of the same minor version where it runs, and
unpacks itself there once, below ~/.shiv. Neighbours: shiv writes the file, `installer` knows where packages are.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bootstrap import BUILD, ROOT, VENV, alone, fail, to_the_end
from installer import pip_settings, uv_environment

OUTPUT = BUILD / "kubectl-hami"
WORK = BUILD / "kubectl-hami.parts"
OURS = ("libs/hamicommon", "clients/kubectl-hami")


def install(target: Path, *arguments: str) -> None:
    """Install packages into the folder *target*, without the environment of this checkout."""
    python = VENV / "bin/python"
    command = [str(VENV / "bin/uv"), "pip", "install", "--python", str(python), "--target", str(target), *arguments]
    environment = uv_environment(pip_settings(python), os.environ)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        fail("uv failed; the reason is above")


def build() -> None:
    """Install everything into folders, and pack the client's."""
    shutil.rmtree(WORK, ignore_errors=True)
    install(WORK / "tool", "--require-hashes", "--requirement", "requirements/shiv.lock")
    install(WORK / "site", "--require-hashes", "--requirement", "requirements/kubectl-hami.lock")
    install(WORK / "site", "--no-deps", *(str(ROOT / package) for package in OURS))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [sys.executable, "-m", "shiv.cli", f"--site-packages={WORK / 'site'}", "--compressed", "--reproducible"]
    command += [f"--output-file={OUTPUT}", "--entry-point", "kubectl_hami.main:main"]
    command += ["--python", f"/usr/bin/env python{version}"]
    environment = {**os.environ, "PYTHONPATH": str(WORK / "tool"), "SOURCE_DATE_EPOCH": "946684800"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        fail("shiv failed; the reason is above")
    shutil.rmtree(WORK)
    print(f"{OUTPUT.relative_to(ROOT)}: {OUTPUT.stat().st_size / 2**20:.0f} MiB, needs python{version}")


def main() -> None:
    with alone("kubectl-hami.build"):
        build()


if __name__ == "__main__":
    to_the_end(main)
