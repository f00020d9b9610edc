"""
Make `.venv` with what a checkout needs, from a bare Python. A second run finds it made and returns at once.

    bootstrap.py          every package: to run the checks
    bootstrap.py demo     what `make demo` needs

Owns the tools of a checkout: the locked packages from PyPI, our own packages in place, and cmake, ninja and a C
compiler where the system has none. Must never need more than the standard library: it runs before anything is
installed. An old Python can read it too, to say that it is too old.
Neighbours: `installer` runs pip and uv, `build_native` builds with what is found and installed here.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from installer import Installer, InstallError

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
REQUIREMENTS = ROOT / "requirements"
STAMP = VENV / "bootstrap.stamp"
BUILD = ROOT / "build"
PACKAGES = (
    "libs/hamicommon",
    "services/webhook",
    "services/scheduler",
    "services/device-plugin",
    "services/monitor",
    "clients/kubectl-hami",
    "e2e",
    "tools",
)
OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")
OLDEST_CMAKE = (3, 20)
SMALLEST_PROGRAM = "#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n"


def fail(sentence: str) -> NoReturn:
    """Exit with a sentence that says what to do."""
    sys.exit(f"{Path(sys.argv[0]).stem}: {sentence}")


def to_the_end(main: Callable[[], None]) -> None:
    """Call *main*, and end with one sentence when the machine or a person stops it."""
    try:
        main()
    except KeyboardInterrupt:
        fail("interrupted; the next run completes it")
    except PermissionError as error:
        fail(f"{error.filename} is not writable for this user: sudo chown -R {os.geteuid()} {ROOT}")
    except OSError as error:
        fail(str(error))


def apt_get(*packages: str) -> str:
    """Return the command by which this user installs *packages*."""
    return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install {' '.join(packages)}"


@contextmanager
def alone(name: str) -> Iterator[int]:
    """
    Let one process of this checkout at a time do what *name* says; the others wait.

    Yields the lock's descriptor. A child that inherits it holds the lock too, so that the next run does not begin while
    something of a killed one is still at work.
    """
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name}: waiting for another one in this checkout", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def system_compiler() -> str | None:
    """Return this system's C compiler: $CC, else the first that finds the C library's headers, else None."""
    if os.environ.get("CC"):
        return os.environ["CC"]
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None and _compiles(found):
            return found
    return None


def _compiles(compiler: str) -> bool:
    command = [compiler, "-x", "c", "-fsyntax-only", "-"]
    return subprocess.run(command, input=SMALLEST_PROGRAM.encode(), capture_output=True, check=False).returncode == 0


def missing_tools() -> list[str]:
    """Return the lock files of native build tools this system lacks."""
    missing = []
    if not _system_cmake_is_recent():
        missing.append("cmake")
    if shutil.which("ninja") is None:
        missing.append("ninja")
    if system_compiler() is None:
        missing.append("ziglang")
    return missing


def _system_cmake_is_recent() -> bool:
    if shutil.which("cmake") is None:
        return False
    said = subprocess.run(["cmake", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST_CMAKE


def wanted_state(requirements: str, tools: list[str]) -> dict[str, str]:
    """
    Return what decides the content of `.venv`, each part with its digest.

    requirements   `demo` or `dev`; the lock of `dev` has all that is in the lock of `demo`
    """
    locks = {"uv", "demo", requirements, *tools}
    parts = {f"{name}.lock": _digest(REQUIREMENTS / f"{name}.lock") for name in sorted(locks)}
    parts["environment"] = f"{sys.version} {ROOT}"
    return parts | {package: _digest(ROOT / package / "pyproject.toml") for package in PACKAGES}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def made_state() -> dict[str, str]:
    """Return what is in `.venv`, nothing when it is not whole."""
    try:
        is_whole = (VENV / "bin/python").exists() and STAMP.exists()
    except PermissionError:  # a link to the Python of another user
        is_whole = False
    if not is_whole:
        return {}
    try:
        return dict(json.loads(STAMP.read_text()))
    except ValueError:  # half written
        return {}


def make(requirements: str, tools: list[str], lock: int) -> None:
    """
    Make `.venv`, or add what it lacks. The stamp that says it is whole is removed first and written last.

    What was installed from another version of a file is not changed but made from nothing.
    """
    made, wanted = made_state(), wanted_state(requirements, tools)
    STAMP.unlink(missing_ok=True)
    installer = Installer(ROOT, lock)
    if not made or any(made[part] != wanted[part] for part in made.keys() & wanted.keys()):
        made = {}
        if not (_is_installed("venv") and _is_installed("ensurepip")):
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            fail(f"Python {version} here cannot make virtual environments: {apt_get(f'python{version}-venv')}")
        installer.make_venv()
        installer.install_uv()
    locks = [name for name in [requirements, *tools] if f"{name}.lock" not in made]
    if locks:
        installer.install_locked(locks)
    packages = [package for package in PACKAGES if package not in made]
    if packages:
        installer.install_editable(packages)
    STAMP.write_text(json.dumps(made | wanted, indent=1))


def _is_installed(package: str) -> bool:
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def use_newer_python() -> None:
    """Start over with a Python that is new enough, if there is one under its own name."""
    for name in NEWER_PYTHONS:
        if shutil.which(name) is not None:
            os.execvp(name, [name, *sys.argv])
    found = ".".join(map(str, sys.version_info[:3]))
    fail(f"Python {found} is too old, 3.11 or newer is needed: {apt_get('python3.11', 'python3.11-venv')}")


def main() -> None:
    if sys.version_info < OLDEST_PYTHON:
        use_newer_python()
    requirements = sys.argv[1] if len(sys.argv) > 1 else "dev"
    if requirements not in ("demo", "dev"):
        fail(f"{requirements} is unknown; there are demo and dev")
    tools = missing_tools()
    wanted = wanted_state(requirements, tools)
    if wanted.items() <= made_state().items():
        return
    with alone("bootstrap") as lock:
        if not wanted.items() <= made_state().items():
            try:
                make(requirements, tools, lock)
            except InstallError as error:
                fail(str(error))


if __name__ == "__main__":
    to_the_end(main)
