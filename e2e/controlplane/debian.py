"""
Debian packages this machine needs for a cluster, installed where they are missing.

Owns the call of apt-get. Must never upgrade or remove anything.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping

CLUSTER = {
    "conntrack": "conntrack",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iproute2": "ip",
    "iptables": "iptables",
    "procps": "sysctl",
    "runc": "runc",
}
"""What a cluster needs: a file or command of each package, by the package's name."""


class PackageError(Exception):
    """A package is missing and could not be installed; the message says what to run."""


def ensure(packages: Mapping[str, str], step: Callable[[str], None]) -> None:
    """Install those of *packages* (a file or command each, by name) that are missing. Raises: PackageError."""
    lacking = missing(packages)
    if not lacking:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *lacking]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise PackageError(f"missing: {', '.join(lacking)}; as root on Debian: {' '.join(command)}")
    step(f"apt-get installs {', '.join(lacking)}")
    if not _install(command) and not (_install(["apt-get", "update"]) and _install(command)):
        raise PackageError(f"apt-get could not install {', '.join(lacking)}; see what it says: {' '.join(command)}")


def missing(packages: Mapping[str, str]) -> list[str]:
    """Return the names of those of *packages* that this machine lacks."""
    return sorted(name for name, evidence in packages.items() if not _is_there(evidence))


def commands(names: Iterable[str]) -> dict[str, str]:
    """Return packages that bear the name of the command they bring, as `ensure` takes them."""
    return {name: name for name in names}


def _is_there(evidence: str) -> bool:
    found = shutil.which(evidence, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return found is not None


def _install(command: list[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0
