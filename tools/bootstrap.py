"""
Make `.venv`, with everything a checkout needs, from a bare Python; run again, return at once.

Owns the tools of a checkout: the locked packages from PyPI, our own packages in place, and cmake, ninja and a C
compiler where the system has none. Must never need more than the standard library: it runs before anything is
installed. Annotations are quoted where a Python too old would stumble over them before it can be told that it is.
Neighbours: `build_native` builds with what is found and installed here.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "bootstrap.stamp"
BUILD = ROOT / "build"
LOG = BUILD / "bootstrap.log"
PACKAGES = (
    "libs/hamicommon",
    "services/webhook",
    "services/scheduler",
    "services/device-plugin",
    "services/monitor",
    "e2e",
)
OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")
OLDEST_CMAKE = (3, 20)
SMALLEST_PROGRAM = "#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n"
UNREACHABLE = re.compile(r"NewConnectionError|NameResolutionError|Connect\w*Timeout|ReadTimeout|ProxyError|SSLError")
"""What pip calls the trouble when it cannot talk to the package index."""


def fail(sentence: str) -> NoReturn:
    """End with one sentence a person can act on."""
    sys.exit(f"{Path(sys.argv[0]).stem}: {sentence}")


def to_the_end(main: "Callable[[], None]") -> None:
    """Call *main*; what stops it from outside becomes one sentence."""
    try:
        main()
    except KeyboardInterrupt:
        fail("interrupted; the next run makes good what is half done")
    except PermissionError as error:
        fail(f"{error.filename} is not this user's to write: sudo chown -R {os.geteuid()} {ROOT}")
    except OSError as error:
        fail(str(error))


def apt_get(*packages: str) -> str:
    """Return the command by which this user installs *packages*."""
    return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install {' '.join(packages)}"


@contextmanager
def alone(name: str) -> "Iterator[int]":
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


def system_compiler() -> "str | None":
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


def missing_tools() -> "list[str]":
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


def wanted_state(tools: "list[str]") -> str:
    """Return a digest of all that decides what is in `.venv`, so that a second run can tell nothing changed."""
    digest = hashlib.sha256(f"{sys.version} {ROOT}".encode())
    locks = [ROOT / f"requirements/{name}.lock" for name in ["dev", *tools]]
    for path in [*locks, *(ROOT / package / "pyproject.toml" for package in PACKAGES)]:
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def is_made(wanted: str) -> bool:
    """Return whether `.venv` is whole and in the state *wanted*."""
    return (VENV / "bin/python").exists() and STAMP.exists() and STAMP.read_text() == wanted


def run(step: str, command: "list[str]", lock: int) -> None:
    """Run *command*, saying *step*; what it prints goes to the log, and to the screen if it fails."""
    print(f"bootstrap: {step}", flush=True)
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, pass_fds=[lock]
    )
    LOG.write_text(done.stdout)
    if done.returncode == 0:
        return
    if UNREACHABLE.search(done.stdout):
        fail(
            f"{step} failed, pip cannot reach the package index (its words: {LOG.relative_to(ROOT)}): connect this "
            "machine, or name a mirror: PIP_INDEX_URL=https://mirror.example/simple make setup"
        )
    sys.stderr.write(done.stdout)
    fail(f"{step} failed; the reason is above")


def make(wanted: str, tools: "list[str]", lock: int) -> None:
    """Make `.venv` from nothing; the stamp that says it is whole goes first and comes last."""
    STAMP.unlink(missing_ok=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not (_is_installed("venv") and _is_installed("ensurepip")):
        fail(f"Python {version} here cannot make virtual environments: {apt_get(f'python{version}-venv')}")
    run("making .venv, which takes about a minute once", [sys.executable, "-m", "venv", "--clear", str(VENV)], lock)
    pip = [str(VENV / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    locked = [*pip, "--require-hashes", "-r"]
    run("installing locked packages", [*locked, "requirements/dev.lock"], lock)
    for tool in tools:
        run(f"installing {tool}, this system has none that will do", [*locked, f"requirements/{tool}.lock"], lock)
    editable = [argument for package in PACKAGES for argument in ("-e", package)]
    run("installing our own packages in place", [*pip, "--no-deps", "--no-build-isolation", *editable], lock)
    STAMP.write_text(wanted)


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
    tools = missing_tools()
    wanted = wanted_state(tools)
    if is_made(wanted):
        return
    with alone("bootstrap") as lock:
        if not is_made(wanted):
            make(wanted, tools, lock)


if __name__ == "__main__":
    to_the_end(main)
