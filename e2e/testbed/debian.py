"""
Debian packages, installed where this machine lacks them.

Owns the call of apt-get. Must never upgrade or remove anything.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

LOCK_SECONDS = 600.0
"""How long to wait for another program that installs packages."""

LOCK_POLL_SECONDS = 1.0
LOCKED = "Could not get lock"
COMPLAINTS = ("E:", "W:", "Err:", "dpkg:")
"""Prefixes of the lines in which apt-get says why it failed."""


class PackageError(Exception):
    """A package is missing and could not be installed. The message has the command to run."""


def ensure(packages: Mapping[str, str], step: Callable[[str], None]) -> None:
    """
    Install the *packages* that are missing. The mapping has a file or command for each package name.

    Several processes may call this at once: they install one after another. Raises: PackageError.
    """
    lacking = missing(packages)
    if not lacking:
        return
    as_root = f"apt-get {' '.join(_install(lacking))}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise PackageError(f"missing: {', '.join(lacking)}; as root on Debian: {as_root}")
    # While one process reads the package lists anew, apt-get of another does not find its package in them.
    with (Path(tempfile.gettempdir()) / "hami-apt-get.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        _ensure(packages, step)


def _ensure(packages: Mapping[str, str], step: Callable[[str], None]) -> None:
    lacking = missing(packages)
    if not lacking:
        return
    step(f"apt-get installs {', '.join(lacking)}")
    update, install = ("update",), _install(lacking)
    said: list[str] = []
    # Package lists may be missing, or so old that the mirror no longer has the files they name.
    for arguments in (install, update, install) if _are_listed(lacking) else (update, install):
        said += _apt_get(arguments, step)
        if not missing(packages):
            return
    reasons = [line for line in said if line.startswith(COMPLAINTS)] or said
    left = missing(packages)
    raise PackageError("\n".join([f"could not install {', '.join(left)}: apt-get {' '.join(install)}", *reasons[-8:]]))


def _install(names: Iterable[str]) -> Sequence[str]:
    return ("install", "--yes", "--no-install-recommends", *names)


def missing(packages: Mapping[str, str]) -> list[str]:
    """Return the names of the *packages* that this machine lacks."""
    return sorted(name for name, evidence in packages.items() if not _is_there(evidence))


def commands(names: Iterable[str]) -> dict[str, str]:
    """Return an argument of `ensure` for packages that have the name of their command."""
    return {name: name for name in names}


def _is_there(evidence: str) -> bool:
    if evidence.startswith("/"):
        return Path(evidence).exists()
    found = shutil.which(evidence, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return found is not None


def _are_listed(names: Iterable[str]) -> bool:
    """Return whether the package lists of this machine have all of *names*."""
    asked = (["apt-cache", "show", name] for name in names)
    return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in asked)


def _apt_get(arguments: Iterable[str], step: Callable[[str], None]) -> list[str]:
    """
    Run apt-get, report each new line to *step*, and return all lines.

    While another program installs packages, apt-get fails at once and is tried again. The option of apt-get to wait
    covers only the lock of dpkg, not those of the lists and the archives.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    shown = set()
    while True:
        said = []
        for line in _output(["apt-get", "--quiet", "--option=Dpkg::Use-Pty=0", *arguments]):
            said.append(line)
            if line not in shown:
                shown.add(line)
                step(f"apt-get: {line}")
        if time.monotonic() > deadline or not any(LOCKED in line for line in said):
            return said
        time.sleep(LOCK_POLL_SECONDS)


def _output(command: Sequence[str]) -> Iterator[str]:
    """Run *command*, and yield each line of its output, stripped."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                yield line.strip()
