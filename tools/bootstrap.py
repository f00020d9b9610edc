"""
Make `.venv`, with everything a checkout needs, from a bare Python; run again, return at once.

Owns the tools of a checkout: the locked packages from PyPI, our own packages in place, and cmake, ninja and a C
compiler where the system has none. Knows nothing of what is built with them. Standard library only: it runs before
anything is installed.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "bootstrap.stamp"
PACKAGES = (
    "libs/hamicommon",
    "services/webhook",
    "services/scheduler",
    "services/device-plugin",
    "services/monitor",
    "e2e",
)
OLDEST_PYTHON = (3, 11)
OLDEST_CMAKE = (3, 20)


def fail(sentence: str) -> None:
    """End with one sentence a person can act on."""
    sys.exit(f"bootstrap: {sentence}")


def missing_tools() -> list[str]:
    """Return the lock files of native build tools this system lacks."""
    missing = []
    if not _system_cmake_is_recent():
        missing.append("cmake")
    if shutil.which("ninja") is None:
        missing.append("ninja")
    if all(shutil.which(compiler) is None for compiler in ("cc", "gcc", "clang")):
        missing.append("ziglang")
    return missing


def _system_cmake_is_recent() -> bool:
    if shutil.which("cmake") is None:
        return False
    said = subprocess.run(["cmake", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST_CMAKE


def wanted_state(tools: list[str]) -> str:
    """Return a digest of all that decides what is in `.venv`, so that a second run can tell nothing changed."""
    digest = hashlib.sha256(sys.version.encode())
    locks = [ROOT / f"requirements/{name}.lock" for name in ["dev", *tools]]
    for path in [*locks, *(ROOT / package / "pyproject.toml" for package in PACKAGES)]:
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(step: str, command: list[str]) -> None:
    """Run *command*, saying *step*; its output is shown only when it fails."""
    print(f"bootstrap: {step}", flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        fail(f"{step} failed; the reason is above")


def make_venv() -> None:
    """Create `.venv` with pip in it, replacing one that another Python made."""
    with tempfile.TemporaryDirectory() as folder:
        probe = subprocess.run(
            [sys.executable, "-m", "venv", f"{folder}/probe"], capture_output=True, text=True, check=False
        )
    if probe.returncode != 0:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        fail(f"this Python cannot make virtual environments; install it: apt-get install python{version}-venv")
    run("making .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)])


def main() -> None:
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        fail(f"Python {found} is too old, 3.11 is needed: apt-get install python3.11, then make PYTHON=python3.11")
    tools = missing_tools()
    wanted = wanted_state(tools)
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    make_venv()
    pip = [str(VENV / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    run("installing locked packages (about a minute)", [*pip, "--require-hashes", "-r", "requirements/dev.lock"])
    for tool in tools:
        run(f"installing {tool}, this system has none", [*pip, "--require-hashes", "-r", f"requirements/{tool}.lock"])
    editable = [argument for package in PACKAGES for argument in ("-e", package)]
    run("installing our own packages in place", [*pip, "--no-deps", "--no-build-isolation", *editable])
    STAMP.write_text(wanted)


if __name__ == "__main__":
    main()
