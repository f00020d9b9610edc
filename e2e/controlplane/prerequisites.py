"""
What a machine needs to build and run a real cluster.

Owns the checks, and one sentence for each missing thing. Must never leave a change behind.
"""

import os
import platform
import re
import shutil
import subprocess

from controlplane.guest import kernel
from controlplane.machines import cgroups
from controlplane.programs import build
from testbed import debian

PACKAGES = {
    "conntrack": "conntrack",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iproute2": "ip",
    "iptables": "iptables",
    "procps": "sysctl",
    "runc": "runc",
    **({"user-mode-linux": kernel.PROGRAM} if kernel.runs_here() else {}),
}
"""Debian packages, each with a file or command that it brings."""
OLDEST_GO = (1, 24)
PROBE_GROUP = f"hami-probe-{os.getpid()}"
"""Of this process, because several may look at once."""


def missing() -> str | None:
    """Return why this machine cannot run a cluster, or None if it can."""
    for find in (_system, _root, _namespaces, _control_groups, _go, _packages):
        reason = find()
        if reason:
            return reason
    return None


def _system() -> str | None:
    return None if platform.system() == "Linux" else f"nodes need Linux, and this is {platform.system()}"


def _root() -> str | None:
    return None if os.geteuid() == 0 else "nodes are namespaces that only root can make"


def _namespaces() -> str | None:
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else f"namespaces cannot be made here: {done.stderr.strip()}"


def _control_groups() -> str | None:
    try:
        cgroups.create(PROBE_GROUP)
        cgroups.remove(PROBE_GROUP)
    except OSError as error:
        return f"control groups cannot be made here: {error}"
    return None if cgroups.hierarchies() else "no control groups are mounted"


def _go() -> str | None:
    try:
        found = build.go_version()
    except build.BuildError as error:
        return str(error)
    numbers = re.match(r"go(\d+)\.(\d+)", found)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST_GO:
        return f"Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer is needed, found {found}"
    return None


def _packages() -> str | None:
    lacking = debian.missing(PACKAGES)
    if lacking and shutil.which("apt-get") is None:
        return f"{', '.join(lacking)} are missing, and there is no apt-get to install them"
    return None
